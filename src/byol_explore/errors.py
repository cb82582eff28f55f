"""Exceptions with exit codes, and builders of two common errors."""


class UserError(Exception):
    """A wrong value; the message names it and the accepted ones."""

    exit_code = 2


class DivergenceError(Exception):
    """Training produced a NaN or an infinity."""

    exit_code = 3


class EnvironmentFailure(UserError):
    """An environment outside jit failed or did not answer; the message names it and the operation."""

    exit_code = 4


class PeerLost(UserError):
    """Another process of distributed training has ended; the others cannot continue without it."""

    exit_code = 5

    def __init__(self, message: str, exit_code: int = exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def unknown_name(what: str, value: object, accepted: list[str]) -> UserError:
    """Make the error for a name that is not in a list."""
    return UserError(f"unknown {what} {str(value)!r}; choose from: {', '.join(accepted)}")


def missing_method(kind: str, part: type, function: str) -> UserError:
    """Make the error for a user's class without a method that it must define."""
    return UserError(f"{kind} {part.__module__}.{part.__qualname__} does not define {function}: every {kind} must")

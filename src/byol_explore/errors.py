"""Exceptions with exit codes, and builders of two common errors."""

from collections.abc import Iterable
from difflib import get_close_matches


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
    hint = did_you_mean(value, accepted)
    return UserError(f"unknown {what} {str(value)!r}{hint}; choose from: {', '.join(accepted)}")


def did_you_mean(value: object, names: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" with the name that is most similar to a value; empty if none is similar."""
    by_lower_case = {name.lower(): name for name in names}
    similar = get_close_matches(str(value).lower(), by_lower_case, n=1)
    return f" (did you mean {by_lower_case[similar[0]]}?)" if similar else ""


def missing_method(kind: str, part: type, function: str) -> UserError:
    """Make the error for a user's class without a method that it must define."""
    return UserError(f"{kind} {part.__module__}.{part.__qualname__} does not define {function}: every {kind} must")

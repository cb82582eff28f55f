"""Errors that are the user's to mend: the command line shows one line and exits with `exit_code`."""


class UserError(Exception):
    """A wrong value; the message names it and the accepted ones."""

    exit_code = 2


class DivergenceError(Exception):
    """Training produced a NaN or an infinity."""

    exit_code = 3


class EnvironmentFailure(UserError):
    """An environment outside jit failed or did not answer; the message names it and what it was asked for."""

    exit_code = 4


class ProcessLost(UserError):
    """Another process of those that learn together has ended, and without it none can go on."""

    exit_code = 5

    def __init__(self, message: str, exit_code: int = exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def one_line(text: object, length: int = 240) -> str:
    """Something printed without line breaks, and cut where it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def unknown(what: str, value: object, accepted: list[str]) -> UserError:
    """The error for a name that is not in a list."""
    return UserError(f"unknown {what} {str(value)!r}; choose from: {', '.join(accepted)}")


def lacking(kind: str, part: type, function: str) -> UserError:
    """The error for a part of one's own that leaves out a function which its kind cannot do without."""
    return UserError(f"{kind} {part.__module__}.{part.__qualname__} does not define {function}: every {kind} must")

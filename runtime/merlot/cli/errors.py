"""Errors that end a command, each with one line that names the next step."""

from collections.abc import Sequence

from merlot.errors import MerlotError


class CommandError(MerlotError):
    """Raised if a command fails; `details` are printed below the message, a line each."""

    def __init__(self, message: str, details: Sequence[str] = (), *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.details = tuple(details)
        self.exit_code = exit_code


class UsageError(CommandError):
    """Raised if the command was called wrongly."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


class ApiError(CommandError):
    """Raised if the node refuses a request; `status` is HTTP's."""

    def __init__(self, status: int, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message, details)
        self.status = status

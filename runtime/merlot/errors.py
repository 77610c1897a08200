"""Errors: one root and six families, named by who must act.

Every edge (HTTP, wire, CLI, operator) maps a family, never a single class, to its response. An exception that is no
`MerlotError` is a bug and propagates. Messages are lowercase, without a full stop, and carry identifying values:
`segment crc mismatch segment=flights_0 expected=1 got=2`. `code` is the number that Pinot's clients read in a query
answer (`QueryErrorCode`); a family has a default, and a subclass beside its raiser may be more exact.
"""

from typing import ClassVar

from merlot.codes import QueryErrorCode


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text; the name of its class if it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class MerlotError(Exception):
    """Root of every error that Merlot raises on purpose."""

    code: ClassVar[int] = QueryErrorCode.INTERNAL


class InvalidInputError(MerlotError):
    """The user must change the input (manifest, SQL, argument); never retried."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class NotFoundError(MerlotError):
    """The user named something that is not there, or lost a race with its deletion."""

    code: ClassVar[int] = QueryErrorCode.TABLE_DOES_NOT_EXIST


class ConflictError(MerlotError):
    """A stale version or a lost lease: read again, decide again, try again."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION


class UnavailableError(MerlotError):
    """A peer, a store or a deadline failed: back off and try again."""

    code: ClassVar[int] = QueryErrorCode.SERVER_NOT_RESPONDING


class CorruptionError(MerlotError):
    """Bytes are not what their checksum or format says: quarantine, never read again."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION


class AccessDeniedError(MerlotError):
    """The caller lacks a right, or has not proved who they are: never retried as it is."""

    code: ClassVar[int] = QueryErrorCode.ACCESS_DENIED


class NotAuthenticatedError(AccessDeniedError):
    """The caller's credentials are missing or wrong: HTTP 401 instead of 403."""

"""Classify errors of file systems and formats by who must act: the file's owner, or nobody, if a later attempt may
succeed."""

from __future__ import annotations

import pyarrow as pa

from merlot.errors import InvalidInputError, MerlotError, UnavailableError, first_line
from merlot.schemes import ERROR_MARKS, REFUSALS
from merlot.spec.formats import BatchFormat
from merlot.uris import redact

FOREIGN = (OSError, pa.ArrowException, UnicodeDecodeError)
"""Errors that reading a file raises."""


def storage_error(error: Exception, message: str) -> MerlotError:
    """Return UnavailableError with the message, or InvalidInputError if the storage refuses access, as it will
    again."""
    is_refused = isinstance(error, PermissionError) or REFUSALS.search(str(error)) is not None
    hint = "; the job's credentials may not read it"
    return InvalidInputError(message + hint) if is_refused else UnavailableError(message)


def reading_error(error: Exception, file: str, file_format: BatchFormat) -> MerlotError:
    """Return UnavailableError if the storage is to blame, InvalidInputError if the bytes are."""
    reason = redact(first_line(error))
    if isinstance(error, OSError) and (error.errno is not None or any(mark in reason for mark in ERROR_MARKS)):
        return storage_error(error, f"cannot read source file={file} reason={reason}")
    # Arrow reports damaged pages, footers and compressed streams as OSError without a number.
    return InvalidInputError(f"cannot read source file={file} format={file_format} reason={reason}")

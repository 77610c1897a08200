"""Read until when an X.509 certificate is valid, which the standard library tells only of a peer's certificate.

Pure functions, safe on every thread.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import Final

from merlot.errors import InvalidInputError

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_FIELDS_BEFORE_VALIDITY: Final = 3
"""Serial number, signature algorithm and issuer (RFC 5280, section 4.1)."""


def ends_at_s(pem: str) -> float:
    """Return the end of the first certificate in a PEM text, in seconds since 1970. Raise InvalidInputError if there is
    no certificate."""
    match = _PEM.search(pem)
    if match is None:
        raise InvalidInputError("there is no CERTIFICATE block in PEM form")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(match[0]))
    except (ValueError, IndexError) as error:
        raise InvalidInputError(f"the first certificate cannot be read: {error}") from error


def _not_after(der: bytes) -> float:
    """Walk Certificate > TBSCertificate > validity > notAfter."""
    start, _ = _opened(der, 0, _SEQUENCE)
    position, _ = _opened(der, start, _SEQUENCE)
    if der[position] == _VERSION:
        position = _after(der, position)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        position = _after(der, position)
    not_before, _ = _opened(der, position, _SEQUENCE)
    not_after = _after(der, not_before)
    start, stop = _content(der, not_after)
    form = "%y%m%d%H%M%SZ" if der[not_after] == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(der[start:stop].decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _opened(der: bytes, position: int, tag: int) -> tuple[int, int]:
    if der[position] != tag:
        raise ValueError(f"unexpected tag {der[position]:#x} at {position}")
    return _content(der, position)


def _after(der: bytes, position: int) -> int:
    return _content(der, position)[1]


def _content(der: bytes, position: int) -> tuple[int, int]:
    """Return start and end of a value's content; its length is one byte, or a count of bytes and the bytes."""
    length, start = der[position + 1], position + 2
    if length & 0x80:
        num_bytes = length & 0x7F
        length, start = int.from_bytes(der[start : start + num_bytes]), start + num_bytes
    if start + length > len(der):
        raise ValueError("it is cut off")
    return start, start + length

"""Strings and bytes in other codes: characters, UTF-8, hex, Base64, UUIDs, URLs, and hashes. By distinct value."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus

import pyarrow as pa

from merlot.functions.by_value import by_value
from merlot.functions.function import BINARY, Apply, Family, Parameter, text, whole
from merlot.tree.types import BYTES, INT, LONG, STRING, SqlType
from merlot.values.partition_hashes import murmur2, utf8
from merlot.vectors.vector import Vector

CODES: Final = Family("Codes")
HASHES: Final = Family("Hashes")
_BYTES: Final = Parameter(name="bytes", kind=BINARY)


def _each(compute: Callable[..., Any], failure: str = "") -> Apply:
    def apply(type_: SqlType, args: Sequence[Vector]) -> Any:
        return by_value(type_, args, compute, failure)

    return apply


def _code_point(value: str) -> int | None:
    return ord(value[0]) if value else None


def _character(code: int) -> str | None:
    return chr(code) if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else None


def _from_base64(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _from_hex(value: str) -> bytes | None:
    try:
        return bytes.fromhex(value) if not value or value.isalnum() else None
    except ValueError:
        return None


def _to_uuid(value: str) -> bytes | None:
    try:
        return uuid.UUID(value).bytes
    except ValueError:
        return None


def _from_uuid(value: bytes) -> str | None:
    return str(uuid.UUID(bytes=value)) if len(value) == 16 else None


def _encoded_url(value: str) -> str:
    """As Java's URLEncoder: letters, digits and .-*_ stay, a blank is a plus."""
    return quote_plus(value, safe="*").replace("~", "%7E")


CODES.strict("codepoint", parameters=(text(),), result=INT, examples={"CODEPOINT('€')": 8364})(
    _each(_code_point, "text is empty function=codepoint")
)
CODES.strict("chr", parameters=(whole("code point"),), result=STRING, examples={"CHR(8364)": "€"})(
    _each(_character, "no character has this code function=chr")
)


@CODES.strict("toutf8", parameters=(text(),), result=BYTES, examples={"TOUTF8('é')": "c3a9"})
def _to_utf8(_type: SqlType, args: Sequence[Vector]) -> Any:
    return args[0].data.cast(pa.binary())


CODES.strict("fromutf8", parameters=(_BYTES,), result=STRING, examples={"FROMUTF8(TOUTF8('é'))": "é"})(
    _each(lambda value: value.decode("utf-8", "replace"))
)
CODES.strict("toascii", parameters=(text(),), result=BYTES, examples={"TOASCII('aé')": "613f"})(
    _each(lambda value: value.encode("ascii", "replace"))
)
CODES.strict("fromascii", parameters=(_BYTES,), result=STRING, examples={"FROMASCII(TOASCII('a'))": "a"})(
    _each(lambda value: value.decode("ascii", "replace"))
)
CODES.strict("tobase64", parameters=(_BYTES,), result=STRING, examples={"TOBASE64(TOUTF8('hi'))": "aGk="})(
    _each(lambda value: base64.b64encode(value).decode())
)
CODES.strict("frombase64", parameters=(text(),), result=BYTES, examples={"FROMBASE64('aGk=')": "6869"})(
    _each(_from_base64, "text is not base64 function=frombase64")
)
CODES.strict("bytestohex", parameters=(_BYTES,), result=STRING, examples={"BYTESTOHEX(TOUTF8('hi'))": "6869"})(
    _each(lambda value: value.hex())
)
CODES.strict("hextobytes", parameters=(text(),), result=BYTES, examples={"HEXTOBYTES('6869')": "6869"})(
    _each(_from_hex, "text is not hexadecimal function=hextobytes")
)
CODES.strict(
    "touuidbytes",
    parameters=(text(),),
    result=BYTES,
    examples={"TOUUIDBYTES('00000000-0000-0001-0000-000000000002')": "00000000000000010000000000000002"},
)(_each(_to_uuid, "text is no uuid function=touuidbytes"))
CODES.strict(
    "fromuuidbytes",
    parameters=(_BYTES,),
    result=STRING,
    examples={"FROMUUIDBYTES(HEXTOBYTES('00000000000000010000000000000002'))": "00000000-0000-0001-0000-000000000002"},
)(_each(_from_uuid, "bytes are no uuid function=fromuuidbytes"))
CODES.strict(
    "encodeurl",
    aliases=("urlencode",),
    parameters=(text(),),
    result=STRING,
    examples={"ENCODEURL('a b/é')": "a+b%2F%C3%A9"},
)(_each(_encoded_url))
CODES.strict(
    "decodeurl",
    aliases=("urldecode",),
    parameters=(text(),),
    result=STRING,
    examples={"DECODEURL('a+b%2F%C3%A9')": "a b/é"},
)(_each(unquote_plus))

HASHES.strict(
    "md5",
    parameters=(_BYTES,),
    result=STRING,
    examples={"MD5(TOUTF8('abc'))": "900150983cd24fb0d6963f7d28e17f72"},
)(_each(lambda value: hashlib.md5(value, usedforsecurity=False).hexdigest()))
HASHES.strict(
    "sha",
    parameters=(_BYTES,),
    result=STRING,
    examples={"SHA(TOUTF8('abc'))": "a9993e364706816aba3e25717850c26c9cd0d89d"},
)(_each(lambda value: hashlib.sha1(value, usedforsecurity=False).hexdigest()))
HASHES.strict(
    "sha224",
    parameters=(_BYTES,),
    result=STRING,
    examples={"SHA224(TOUTF8('abc'))": "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"},
)(_each(lambda value: hashlib.sha224(value).hexdigest()))
HASHES.strict(
    "sha256",
    parameters=(_BYTES,),
    result=STRING,
    examples={"SHA256(TOUTF8('abc'))": hashlib.sha256(b"abc").hexdigest()},
)(_each(lambda value: hashlib.sha256(value).hexdigest()))
HASHES.strict(
    "sha512",
    parameters=(_BYTES,),
    result=STRING,
    examples={"SHA512(TOUTF8('abc'))": hashlib.sha512(b"abc").hexdigest()},
)(_each(lambda value: hashlib.sha512(value).hexdigest()))
HASHES.strict("murmurhash2", parameters=(_BYTES,), result=INT, examples={"MURMURHASH2(TOUTF8('abc'))": 479470107})(
    _each(murmur2)
)
HASHES.strict("murmurhash2utf8", parameters=(text(),), result=INT, examples={"MURMURHASH2UTF8('abc')": 479470107})(
    _each(lambda value: murmur2(utf8(value)))
)
HASHES.strict("crc32", parameters=(_BYTES,), result=LONG, examples={"CRC32(TOUTF8('abc'))": 891568578})(
    _each(zlib.crc32)
)
HASHES.strict("adler32", parameters=(_BYTES,), result=LONG, examples={"ADLER32(TOUTF8('abc'))": 38600999})(
    _each(zlib.adler32)
)

"""Strings, bytes and numbers in other codes: characters, UTF-8, hex, Base64, UUIDs, URLs.

Where Python converts, it converts each distinct value once.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus

import pyarrow as pa

from merlot.functions.by_value import by_value
from merlot.functions.function import BINARY, Family, Parameter, VectorFunction, text, whole, word
from merlot.functions.time_words import constant_text
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BYTES, INT, LONG, STRING, SqlType
from merlot.vectors.vector import Vector

CODES: Final = Family("Codes")
_HEX_NUMBER: Final = re.compile("[+-]?[0-9a-fA-F]+")
_CHARSETS: Final = ("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE")
"""Charsets that every Java has."""
OF_BYTES: Final = Parameter(name="bytes", kind=BINARY)


def each(compute: Callable[..., Any], failure: str = "") -> VectorFunction:
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


def _base64_bytes(value: bytes) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _to_charset(value: str, charset: str) -> bytes:
    """Encode as Java: UTF-16 is big-endian after a byte-order mark, and an empty text is no bytes."""
    if charset == "UTF-16":
        return codecs.BOM_UTF16_BE + value.encode("UTF-16BE", "replace") if value else b""
    return value.encode(charset, "replace")


def _from_charset(value: bytes, charset: str) -> str:
    """Decode as Java: UTF-16 without a byte-order mark is big-endian."""
    has_mark = value.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE))
    return value.decode("UTF-16BE" if charset == "UTF-16" and not has_mark else charset, "replace")


def _charset(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    name = constant_text(args[1])
    charset = name.upper().replace("_", "-")
    if charset not in _CHARSETS:
        raise SqlValidationError(f"unknown character set '{name:.100}' expected={'|'.join(_CHARSETS)}")
    return args[0], Literal(charset, STRING)


def _from_hex_number(value: str) -> int | None:
    """Read a hex number as Long.parseLong does: a negative number has a sign. The text may begin with 0x, also before a
    sign."""
    digits = value.removeprefix("0x")
    if not _HEX_NUMBER.fullmatch(digits):
        return None
    number = int(digits, 16)
    return number if -(2**63) <= number < 2**63 else None


def _encoded_url(value: str) -> str:
    """Encode as Java's URLEncoder: letters, digits and .-*_ stay, a blank becomes a plus."""
    return quote_plus(value, safe="*").replace("~", "%7E")


CODES.strict("codepoint", parameters=(text(),), result=INT, examples={"CODEPOINT('€')": 8364})(
    each(_code_point, "text is empty function=codepoint")
)
CODES.strict("chr", parameters=(whole("code point"),), result=STRING, examples={"CHR(8364)": "€"})(
    each(_character, "no character has this code function=chr")
)


@CODES.strict("toutf8", parameters=(text(),), result=BYTES, examples={"TOUTF8('é')": "c3a9"})
def _to_utf8(_type: SqlType, args: Sequence[Vector]) -> Any:
    return args[0].data.cast(pa.binary())


CODES.strict("fromutf8", parameters=(OF_BYTES,), result=STRING, examples={"FROMUTF8(TOUTF8('é'))": "é"})(
    each(lambda value: value.decode("utf-8", "replace"))
)
CODES.strict("toascii", parameters=(text(),), result=BYTES, examples={"TOASCII('aé')": "613f"})(
    each(lambda value: value.encode("ascii", "replace"))
)
CODES.strict("fromascii", parameters=(OF_BYTES,), result=STRING, examples={"FROMASCII(TOASCII('a'))": "a"})(
    each(lambda value: value.decode("ascii", "replace"))
)
CODES.strict("tobase64", parameters=(OF_BYTES,), result=STRING, examples={"TOBASE64(TOUTF8('hi'))": "aGk="})(
    each(lambda value: base64.b64encode(value).decode())
)
CODES.strict("frombase64", parameters=(text(),), result=BYTES, examples={"FROMBASE64('aGk=')": "6869"})(
    each(_from_base64, "text is not base64 function=frombase64")
)
CODES.strict(
    "base64encode", parameters=(OF_BYTES,), result=BYTES, examples={"FROMUTF8(BASE64ENCODE(TOUTF8('hi')))": "aGk="}
)(each(base64.b64encode))
CODES.strict(
    "base64decode", parameters=(OF_BYTES,), result=BYTES, examples={"FROMUTF8(BASE64DECODE(TOUTF8('aGk=')))": "hi"}
)(each(_base64_bytes, "bytes are not base64 function=base64decode"))
CODES.strict(
    "frombytes",
    parameters=(OF_BYTES, word("character set")),
    result=STRING,
    complete=_charset,
    examples={"FROMBYTES(HEXTOBYTES('e9'), 'ISO-8859-1')": "é"},
)(each(_from_charset))
CODES.strict(
    "tobytes",
    parameters=(text(), word("character set")),
    result=BYTES,
    complete=_charset,
    examples={"TOBYTES('é', 'UTF-16')": "feff00e9"},
)(each(_to_charset))
CODES.strict(
    "hexdecimaltolong",
    parameters=(text(),),
    result=LONG,
    examples={"HEXDECIMALTOLONG('0xff')": 255, "HEXDECIMALTOLONG('-10')": -16},
)(each(_from_hex_number, "text is no hexadecimal number of 64 bits function=hexdecimaltolong"))
CODES.strict(
    "longtohexdecimal",
    parameters=(whole("number"),),
    result=STRING,
    examples={"LONGTOHEXDECIMAL(255)": "ff", "LONGTOHEXDECIMAL(-1)": "ffffffffffffffff"},
)(each(lambda value: format(int(value) & 0xFFFFFFFFFFFFFFFF, "x")))
CODES.strict("bytestohex", parameters=(OF_BYTES,), result=STRING, examples={"BYTESTOHEX(TOUTF8('hi'))": "6869"})(
    each(lambda value: value.hex())
)
CODES.strict("hextobytes", parameters=(text(),), result=BYTES, examples={"HEXTOBYTES('6869')": "6869"})(
    each(_from_hex, "text is not hexadecimal function=hextobytes")
)
CODES.strict(
    "touuidbytes",
    parameters=(text(),),
    result=BYTES,
    examples={"TOUUIDBYTES('00000000-0000-0001-0000-000000000002')": "00000000000000010000000000000002"},
)(each(_to_uuid, "text is no uuid function=touuidbytes"))
CODES.strict(
    "fromuuidbytes",
    parameters=(OF_BYTES,),
    result=STRING,
    examples={"FROMUUIDBYTES(HEXTOBYTES('00000000000000010000000000000002'))": "00000000-0000-0001-0000-000000000002"},
)(each(_from_uuid, "bytes are no uuid function=fromuuidbytes"))
CODES.strict(
    "encodeurl",
    aliases=("urlencode",),
    parameters=(text(),),
    result=STRING,
    examples={"ENCODEURL('a b/é')": "a+b%2F%C3%A9"},
)(each(_encoded_url))
CODES.strict(
    "decodeurl",
    aliases=("urldecode",),
    parameters=(text(),),
    result=STRING,
    examples={"DECODEURL('a+b%2F%C3%A9')": "a b/é"},
)(each(unquote_plus))

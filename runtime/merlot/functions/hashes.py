"""Hashes of bytes and texts, equal to Pinot's number for number. Each distinct value is hashed once."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from typing import Any, Final

from merlot.functions import sizes
from merlot.functions.codes import OF_BYTES, each
from merlot.functions.function import Family, text, whole
from merlot.tree.types import BYTES, INT, LONG, STRING
from merlot.values import byte_hashes, partition_hashes
from merlot.values.partition_hashes import utf8
from merlot.vectors.account import OBJECT_BYTES

HASHES: Final = Family("Hashes")
_SEED: Final = whole("seed")


def _signed(value: int) -> int:
    """Return 32 bits as a signed INT, as in Java."""
    return value - (1 << 32) if value >> 31 else value


def _digest(name: str) -> Callable[[bytes], str]:
    return lambda value: hashlib.new(name, value, usedforsecurity=False).hexdigest()


for _name, _digested in (
    ("md5", "md5"),
    ("sha", "sha1"),
    ("sha224", "sha3_224"),  # Pinot's DigestUtils.sha3_224Hex, not SHA-2
    ("sha256", "sha256"),
    ("sha512", "sha512"),
):
    HASHES.strict(
        _name,
        parameters=(OF_BYTES,),
        result=STRING,
        most_bytes=sizes.per_row(OBJECT_BYTES + 128),
        examples={f"{_name.upper()}(TOUTF8('abc'))": _digest(_digested)(b"abc")},
    )(each(_digest(_digested)))
HASHES.strict(
    "md5raw",
    parameters=(OF_BYTES,),
    result=BYTES,
    examples={"MD5_RAW(TOUTF8('abc'))": "900150983cd24fb0d6963f7d28e17f72"},
)(each(lambda value: hashlib.md5(value, usedforsecurity=False).digest()))

for _name, _aliases, _result, _compute, _known in (
    ("murmurhash2", ("murmur2",), INT, partition_hashes.murmur2, 479470107),
    ("murmur332", (), INT, lambda value: partition_hashes.murmur3_x86_32(value, 0), -1277324294),
    ("fnv1hash32", ("fnv132",), INT, partition_hashes.fnv1_32, 1134309195),
    ("fnv1ahash32", ("fnv1a32",), INT, partition_hashes.fnv1a_32, 440920331),
    ("fnv1hash64", ("fnv164",), LONG, partition_hashes.fnv1_64, -2820157060406071861),
    ("fnv1ahash64", ("fnv1a64",), LONG, partition_hashes.fnv1a_64, -1792535898324117685),
    ("crc32", (), INT, lambda value: _signed(zlib.crc32(value)), 891568578),
    ("crc32c", (), INT, lambda value: _signed(byte_hashes.crc32c(value)), 910901175),
    ("adler32", (), INT, lambda value: _signed(zlib.adler32(value)), 38600999),
):
    HASHES.strict(
        _name,
        aliases=_aliases,
        parameters=(OF_BYTES,),
        result=_result,
        examples={f"{_name.upper()}(TOUTF8('abc'))": _known},
    )(each(_compute))


def _of_text(compute: Callable[[bytes], int]) -> Callable[[str], int]:
    return lambda value: compute(utf8(value))


for _name, _result, _compute, _known in (
    ("murmurhash2utf8", INT, partition_hashes.murmur2, 479470107),
    ("fnv1hash32utf8", INT, partition_hashes.fnv1_32, 1134309195),
    ("fnv1ahash32utf8", INT, partition_hashes.fnv1a_32, 440920331),
    ("fnv1hash64utf8", LONG, partition_hashes.fnv1_64, -2820157060406071861),
    ("fnv1ahash64utf8", LONG, partition_hashes.fnv1a_64, -1792535898324117685),
):
    HASHES.strict(_name, parameters=(text(),), result=_result, examples={f"{_name.upper()}('abc')": _known})(
        each(_of_text(_compute))
    )

HASHES.strict(
    "murmurhash2bit64",
    parameters=(OF_BYTES, whole("seed", is_optional=True)),
    result=LONG,
    examples={
        "MURMURHASH2BIT64(TOUTF8('testString'))": 3907736674355139845,
        "MURMURHASH2BIT64(TOUTF8('testString'), 12345)": -2138976126980760436,
    },
)(each(byte_hashes.murmur2_64))

_SEEDED: Final[tuple[tuple[str, Any, Callable[[bytes, int], Any], Any], ...]] = (
    ("murmurhash3bit32", INT, partition_hashes.murmur3_x86_32, -1435605585),
    ("murmurhash3bit64", LONG, byte_hashes.murmur3_64, -3652179990542706350),
    ("murmurhash3bit128", BYTES, byte_hashes.murmur3_128, "5299e90fa6d950cd0f49afe46febb26c"),
    ("murmurhash3x64bit32", INT, partition_hashes.murmur3_x64_32, -1096986291),
    # Here Pinot answers the 32 bits of the function above as a LONG.
    ("murmurhash3x64bit64", LONG, partition_hashes.murmur3_x64_32, -1096986291),
    ("murmurhash3x64bit128", BYTES, partition_hashes.murmur3_x64_128, "be9d514df91d7c4c2a26ded6a4ad530d"),
)
for _name, _result, _seeded, _known in _SEEDED:
    HASHES.strict(
        _name,
        parameters=(OF_BYTES, _SEED),
        result=_result,
        examples={f"{_name.upper()}(TOUTF8('testString'), 0)": _known},
    )(each(_seeded))

"""Hashes of bytes for SQL functions; no partition function uses them. Results are signed integers as in Java, an
unsigned CRC, or bytes.

Sources: Pinot's class MurmurHashFunctions (64 bits), Guava's murmur3_128, and CRC-32C of RFC 3720.
"""

from __future__ import annotations

from typing import Final

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_CASTAGNOLI: Final = 0x82F63B78


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CASTAGNOLI if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CRC_TABLE: Final = _crc_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli), unsigned."""
    crc = _MASK32
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ _MASK32


def murmur2_64(data: bytes, seed: int = 0xE17A1465) -> int:
    """Return MurmurHash64A, of which only 32 bits of the seed are used."""
    multiplier = 0xC6A4A7935BD1E995
    hashed = (int(seed) & _MASK32) ^ len(data) * multiplier & _MASK64
    body = len(data) & ~7
    for start in range(0, body, 8):
        block = int.from_bytes(data[start : start + 8], "little") * multiplier & _MASK64
        hashed = (hashed ^ (block ^ block >> 47) * multiplier & _MASK64) * multiplier & _MASK64
    if body < len(data):
        hashed = (hashed ^ int.from_bytes(data[body:], "little")) * multiplier & _MASK64
    hashed = (hashed ^ hashed >> 47) * multiplier & _MASK64
    return _signed(hashed ^ hashed >> 47)


def murmur3_64(data: bytes, seed: int) -> int:
    """Return the first word of murmur3_128."""
    return _signed(_murmur3(data, int(seed))[0])


def murmur3_128(data: bytes, seed: int) -> bytes:
    """Return the 128 bits of Austin Appleby's murmur3 for x64: two little-endian words."""
    return b"".join(word.to_bytes(8, "little") for word in _murmur3(data, int(seed)))


def _murmur3(data: bytes, seed: int) -> tuple[int, int]:
    first = second = seed & _MASK64
    body = len(data) & ~15
    for start in range(0, body, 16):
        first ^= _scrambled(int.from_bytes(data[start : start + 8], "little"), 31, *_FACTORS)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK64
        second ^= _scrambled(int.from_bytes(data[start + 8 : start + 16], "little"), 33, *_FACTORS[::-1])
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK64
    tail = data[body:]
    first ^= _scrambled(int.from_bytes(tail[:8], "little"), 31, *_FACTORS) ^ len(data)
    second ^= _scrambled(int.from_bytes(tail[8:], "little"), 33, *_FACTORS[::-1]) ^ len(data)
    first = first + second & _MASK64
    second = second + first & _MASK64
    first, second = _finalized(first), _finalized(second)
    first = first + second & _MASK64
    return first, second + first & _MASK64


_FACTORS: Final = (0x87C37B91114253D5, 0x4CF5AD432745937F)


def _scrambled(word: int, turn: int, before: int, after: int) -> int:
    return _rotated(word * before & _MASK64, turn) * after & _MASK64


def _rotated(word: int, count: int) -> int:
    return (word << count | word >> (64 - count)) & _MASK64


def _finalized(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK64
    return word ^ word >> 33


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

"""Hashes behind partition functions, bit for bit as in Java. Most turn bytes or a text into a signed integer.

They follow Pinot's classes MurmurHashFunctions and FnvHashFunctions, Kafka's murmur2, Guava's murmur3_32_fixed, and
Infinispan's variant of murmur3 x64.
"""

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


def utf8(text: str) -> bytes:
    """Return the text in UTF-8, encoded as Java does it: an unpaired surrogate becomes '?'."""
    return text.encode("utf-8", "replace")


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2, 32 bits."""
    multiplier = 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    body = len(data) & ~3
    for start in range(0, body, 4):
        block = int.from_bytes(data[start : start + 4], "little") * multiplier & _MASK32
        block = (block ^ block >> 24) * multiplier & _MASK32
        hashed = (hashed * multiplier & _MASK32) ^ block
    if body < len(data):
        hashed = (hashed ^ int.from_bytes(data[body:], "little")) * multiplier & _MASK32
    hashed = (hashed ^ hashed >> 13) * multiplier & _MASK32
    return _signed(hashed ^ hashed >> 15, 32)


def murmur3_x86_32(data: bytes, seed: int) -> int:
    """Return Austin Appleby's murmur3 x86, 32 bits."""
    hashed = int(seed) & _MASK32
    body = len(data) & ~3
    for start in range(0, body, 4):
        hashed ^= _scramble32(int.from_bytes(data[start : start + 4], "little"))
        hashed = (_rotated_left(hashed, 13, 32) * 5 + 0xE6546B64) & _MASK32
    if body < len(data):
        hashed ^= _scramble32(int.from_bytes(data[body:], "little"))
    hashed ^= len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK32
    return _signed(hashed ^ hashed >> 16, 32)


def _scramble32(block: int) -> int:
    return _rotated_left(block * 0xCC9E2D51 & _MASK32, 15, 32) * 0x1B873593 & _MASK32


def murmur3_x64_32(data: bytes, seed: int) -> int:
    """Return the high 32 bits of the first word of Infinispan's murmur3 x64."""
    return _signed(_murmur3_x64(data, seed)[0] >> 32, 32)


def murmur3_x64_128(data: bytes, seed: int) -> bytes:
    """Return both words of Infinispan's murmur3 x64, big-endian."""
    return b"".join(word.to_bytes(8, "big") for word in _murmur3_x64(data, seed))


def _murmur3_x64(data: bytes, seed: int) -> tuple[int, int]:
    """Return both words of Infinispan's murmur3 x64, whose multipliers change with every block."""
    seed = int(seed)
    first, second = 0x9368E53C2F6AF274 ^ (seed & _MASK64), 0x586DCD208F7CD3FD ^ (seed & _MASK64)
    state = (first, second, 0x87C37B91114253D5, 0x4CF5AD432745937F)  # both words, and both multipliers
    body = len(data) & ~15
    for start in range(0, body, 16):
        low = int.from_bytes(data[start : start + 8], "little")
        state = _mix64(state, low, int.from_bytes(data[start + 8 : start + 16], "little"))
    if body < len(data):
        tail = data[body:]
        state = _mix64(state, _sign_extended(tail[:8]), _sign_extended(tail[8:]))
    first, second = state[0], state[1] ^ len(data)
    first = first + second & _MASK64
    second = second + first & _MASK64
    first, second = _fmix64(first), _fmix64(second)
    first = first + second & _MASK64
    return first, second + first & _MASK64


def _mix64(state: tuple[int, int, int, int], low: int, high: int) -> tuple[int, int, int, int]:
    first, second, first_factor, second_factor = state
    first ^= _rotated_left(low * first_factor & _MASK64, 23, 64) * second_factor & _MASK64
    first = first + second & _MASK64
    second = _rotated_left(second, 41, 64)
    second ^= _rotated_left(high * second_factor & _MASK64, 23, 64) * first_factor & _MASK64
    second = second + first & _MASK64
    first = first * 3 + 0x52DCE729 & _MASK64
    second = second * 3 + 0x38495AB5 & _MASK64
    return first, second, first_factor * 5 + 0x7B7D159C & _MASK64, second_factor * 5 + 0x6BCE6396 & _MASK64


def _sign_extended(tail: bytes) -> int:
    """Return the tail's bytes as a little-endian word. Java's bytes are signed, so a byte above 127 also flips all bits
    above it."""
    word = 0
    for position, byte in enumerate(tail):
        word ^= (byte - 256 if byte > 127 else byte) << 8 * position & _MASK64
    return word & _MASK64


def _fmix64(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK64
    return word ^ word >> 33


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode, over UTF-16 code units."""
    units = text.encode("utf-16-le", "surrogatepass")
    hashed = 0
    for start in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[start : start + 2], "little")) & _MASK32
    return _signed(hashed, 32)


def java_bytes_hash(data: bytes) -> int:
    """Return Java's Arrays.hashCode(byte[])."""
    hashed = 1
    for byte in data:
        hashed = (31 * hashed + (byte - 256 if byte > 127 else byte)) & _MASK32
    return _signed(hashed, 32)


# Offset basis, prime and mask.
_FNV32 = (0x811C9DC5, 0x01000193, _MASK32)
_FNV64 = (0xCBF29CE484222325, 0x00000100000001B3, _MASK64)


def fnv1_32(data: bytes) -> int:
    """Return FNV-1, 32 bits: multiply, then mix in the byte."""
    return _signed(_fnv1(data, *_FNV32), 32)


def fnv1a_32(data: bytes) -> int:
    """Return FNV-1a, 32 bits: mix in the byte, then multiply."""
    return _signed(_fnv1a(data, *_FNV32), 32)


def fnv1_64(data: bytes) -> int:
    """Return FNV-1, 64 bits."""
    return _signed(_fnv1(data, *_FNV64), 64)


def fnv1a_64(data: bytes) -> int:
    """Return FNV-1a, 64 bits."""
    return _signed(_fnv1a(data, *_FNV64), 64)


def _fnv1(data: bytes, hashed: int, prime: int, mask: int) -> int:
    for byte in data:
        hashed = (hashed * prime & mask) ^ byte
    return hashed


def _fnv1a(data: bytes, hashed: int, prime: int, mask: int) -> int:
    for byte in data:
        hashed = (hashed ^ byte) * prime & mask
    return hashed


def _rotated_left(word: int, count: int, bits: int) -> int:
    return (word << count | word >> (bits - count)) & ((1 << bits) - 1)


def _signed(word: int, bits: int) -> int:
    return word - (1 << bits) if word >> (bits - 1) else word

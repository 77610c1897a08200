"""Predicates over whole columns, into words: bit b of words[w] says that doc w * 64 + b matches.

A scan fills a byte per doc for one block, which LLVM turns into wide compares, and packs eight bytes at a time with one
multiplication: 36 us for 750,000 one-byte dict ids against 108 us for shifting bits one by one. `words` has
ceil(n / 64) elements for a column of n docs; bits past the last doc come out as 0.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import count_bits, lowest_bit
from merlot.kernels.jit import kernel

SET = 0
"""Mode: words = matches."""
AND = 1
"""Mode: words &= matches."""
OR = 2
"""Mode: words |= matches."""

BLOCK_DOCS = 16_384
"""Docs per block of a scan, and bytes of `mask`, the scratch that every scan borrows: it stays in the L1/L2 cache."""

Words = NDArray[np.uint64]
Mask = NDArray[np.uint8]

_GATHER = np.uint64(0x0102040810204080)
_TOP = np.uint64(56)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def _pack_block(mask: Words, mode: int, flip: np.uint64, words: Words) -> None:
    for word in range(words.shape[0]):
        bits = _ZERO
        for byte in range(8):
            bits |= ((mask[word * 8 + byte] * _GATHER) >> _TOP) << np.uint64(8 * byte)
        bits ^= flip
        if mode == 0:
            words[word] = bits
        elif mode == 1:
            words[word] &= bits
        else:
            words[word] |= bits


@kernel
def clear_tail(num_docs: int, words: Words) -> None:
    """Clear the bits at and past num_docs in the last word."""
    used = num_docs & 63
    if used:
        words[words.shape[0] - 1] &= (_ONE << np.uint64(used)) - _ONE


@kernel
def _clear_after(num_docs: int, mask: Mask) -> None:
    """Clear what an earlier block left in the last word: packing needs bytes of 0 and 1."""
    for doc in range(num_docs, (num_docs + 63) & ~63):
        mask[doc] = 0


@kernel
def _range_block(column: NDArray[np.generic], low: np.generic, high: np.generic, mask: Mask) -> None:
    for doc in range(column.shape[0]):
        value = column[doc]
        mask[doc] = (value >= low) & (value <= high)


@kernel
def scan_range(
    column: NDArray[np.generic], low: np.generic, high: np.generic, mode: int, negate: bool, mask: Mask, words: Words
) -> None:
    """Combine into words the docs with low <= column[doc] <= high, or the other docs if `negate`.

    column (n,) u8, u16, u32, i32, i64, f32 or f64, borrowed; low and high of its dtype; mask (BLOCK_DOCS,) scratch."""
    mask_words = mask.view(np.uint64)
    flip = _ALL if negate else _ZERO
    for first in range(0, column.shape[0], mask.shape[0]):
        last = min(first + mask.shape[0], column.shape[0])
        _range_block(column[first:last], low, high, mask)
        _clear_after(last - first, mask)
        _pack_block(mask_words, mode, flip, words[first >> 6 : (last + 63) >> 6])
    clear_tail(column.shape[0], words)


@kernel
def _table_block(dict_ids: NDArray[np.generic], table: Mask, mask: Mask) -> None:
    for doc in range(dict_ids.shape[0]):
        mask[doc] = table[dict_ids[doc]]


@kernel
def scan_table(dict_ids: NDArray[np.generic], table: Mask, mode: int, negate: bool, mask: Mask, words: Words) -> None:
    """Combine into words the docs whose dict id has table[dict_id] == 1, or the other docs if `negate`.

    dict_ids (n,) u8, u16 or u32; table (cardinality,) of 0 and 1; mask (BLOCK_DOCS,) scratch."""
    mask_words = mask.view(np.uint64)
    flip = _ALL if negate else _ZERO
    for first in range(0, dict_ids.shape[0], mask.shape[0]):
        last = min(first + mask.shape[0], dict_ids.shape[0])
        _table_block(dict_ids[first:last], table, mask)
        _clear_after(last - first, mask)
        _pack_block(mask_words, mode, flip, words[first >> 6 : (last + 63) >> 6])
    clear_tail(dict_ids.shape[0], words)


@kernel
def refine_range(column: NDArray[np.generic], low: np.generic, high: np.generic, negate: bool, words: Words) -> None:
    """Scan as scan_range does in mode AND, visiting only docs that are still set: for words that are nearly empty."""
    for word in range(words.shape[0]):
        left = words[word]
        matches = _ZERO
        while left:
            bit = lowest_bit(left)
            left &= left - _ONE
            value = column[word * 64 + bit]
            if ((value >= low) & (value <= high)) != negate:
                matches |= _ONE << np.uint64(bit)
        words[word] = matches


@kernel
def refine_table(dict_ids: NDArray[np.generic], table: Mask, negate: bool, words: Words) -> None:
    """Scan as scan_table does in mode AND, visiting only docs that are still set."""
    for word in range(words.shape[0]):
        left = words[word]
        matches = _ZERO
        while left:
            bit = lowest_bit(left)
            left &= left - _ONE
            if (table[dict_ids[word * 64 + bit]] != 0) != negate:
                matches |= _ONE << np.uint64(bit)
        words[word] = matches


@kernel
def pack_mask(matches: Mask, mode: int, words: Words) -> None:
    """Combine one byte per doc (0 or 1), of n docs, into words."""
    num_full = matches.shape[0] >> 6
    _pack_block(matches[: num_full * 64].view(np.uint64), mode, _ZERO, words[:num_full])
    if num_full < words.shape[0]:
        bits = _ZERO
        for doc in range(num_full * 64, matches.shape[0]):
            bits |= np.uint64(matches[doc]) << np.uint64(doc & 63)
        if mode == 0:
            words[num_full] = bits
        elif mode == 1:
            words[num_full] &= bits
        else:
            words[num_full] |= bits


@kernel
def set_docs(docs: NDArray[np.uint32], first_doc: int, num_docs: int, words: Words) -> None:
    """Set the bits of docs that lie in [first_doc, first_doc + num_docs); bit 0 is first_doc."""
    for position in range(docs.shape[0]):
        doc = np.int64(docs[position]) - first_doc
        if 0 <= doc < num_docs:
            words[doc >> 6] |= _ONE << np.uint64(doc & 63)


@kernel
def set_span(first_doc: int, last_doc: int, words: Words) -> None:
    """Set bits [first_doc, last_doc)."""
    for doc in range(first_doc, min(last_doc, (first_doc + 63) & ~63)):
        words[doc >> 6] |= _ONE << np.uint64(doc & 63)
    for word in range((first_doc + 63) >> 6, last_doc >> 6):
        words[word] = _ALL
    for doc in range(max(first_doc, (last_doc >> 6) << 6), last_doc):
        words[doc >> 6] |= _ONE << np.uint64(doc & 63)


@kernel
def count_words(words: Words) -> int:
    """Return the number of set bits."""
    total = 0
    for word in range(words.shape[0]):
        total += count_bits(words[word])
    return total


@kernel
def list_docs(words: Words, first_doc: int, out: NDArray[np.uint32]) -> int:
    """Write first_doc plus the index of every set bit, ascending, to out; returns how many. out is long enough."""
    written = 0
    for word in range(words.shape[0]):
        left = words[word]
        base = first_doc + word * 64
        while left:
            out[written] = base + lowest_bit(left)
            left &= left - _ONE
            written += 1
    return written


@kernel
def any_value(matches: Mask, offsets: NDArray[np.uint32], mask: Mask) -> None:
    """Set mask[d] to 1 if any of matches[offsets[d] - offsets[0] : offsets[d + 1] - offsets[0]] is set, else to 0."""
    first = np.int64(offsets[0])
    for doc in range(mask.shape[0]):
        any_set = np.uint8(0)
        for value in range(np.int64(offsets[doc]) - first, np.int64(offsets[doc + 1]) - first):
            any_set |= matches[value]
        mask[doc] = any_set

"""Compile the query kernels for the types that queries use, and keep the code on disk: `python -m merlot.kernels.warm`.

It runs at installation and when an image is built: a first query then loads code in milliseconds, where LLVM would take
seconds. Arrays that a kernel only reads are read-only here, because `jit.kernel` lets writable arrays use that code.

Servers, brokers and benchmarks call `load_for_queries` when they start: numba takes a quarter of a second for its first
kernel, and a millisecond or two for each further one.
"""

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import (
    aggregate,
    arithmetic,
    avro_scan,
    avro_walk,
    bits,
    block_signatures,
    compiling,
    decimals,
    find,
    funnel,
    group,
    hashing,
    hll,
    json_paths,
    json_scan,
    merge,
    moments,
    murmur,
    murmur3,
    murmur64,
    ordering,
    partial,
    partition,
    radix,
    roaring,
    scan,
    sketch,
    star_tree,
    take,
    texts,
    topk,
    ultraloglog,
    upsert,
    wyhash,
)
from merlot.kernels.compiling import Case

_LOG = logging.getLogger(__name__)

IDS = (np.uint8, np.uint16, np.uint32)
NUMBERS = (np.int32, np.int64, np.float32, np.float64)

QUICKSTART = frozenset(
    (
        aggregate.count_groups,
        aggregate.max_groups,
        aggregate.min_groups,
        aggregate.sum_int_groups,
        bits.count_bits,
        bits.expand_runs,
        bits.gather,
        bits.group_docs,
        bits.is_sorted,
        bits.lookup_ranks,
        bits.mark_present,
        bits.min_max,
        bits.pack,
        bits.rank_present,
        bits.run_starts_of,
        bits.unpack,
        group.append_key,
        group.assign_dense,
        group.assign_groups,
        group.distinct_pairs,
        group.first_rows,
        group.mark,
        group.take_append_key,
        ordering.integers_ascend,
        ordering.strings_ascend,
        radix.count_digits,
        radix.rank_sorted,
        radix.scatter_digits,
        roaring.count_bitmap,
        scan.clear_tail,
        scan.count_words,
        scan.list_docs,
        scan.refine_range,
        scan.scan_range,
        scan.set_docs,
        sketch.rows_by_group,
        take.take,
        take.take_look_up,
        topk.smallest,
    )
)
"""Kernels that `make quickstart` calls: compiled first, after pip has finished and while Spark starts."""


def cases() -> list[Case]:
    """Return every kernel with arguments of the types it is called with, the quickstart's kernels first."""
    return sorted(_cases(), key=lambda case: case[0] not in QUICKSTART)


def _cases() -> Iterator[Case]:
    yield from query_cases()
    yield from _builds()
    yield from _merges()
    yield from _messages()
    yield from _texts()
    yield from _upserts()
    yield from _partial_upserts()


def query_cases() -> Iterator[Case]:
    """Yield the kernels that queries run."""
    yield from _decodes()
    yield from _codes()
    yield from _scans()
    yield from _takes()
    yield from _groups()
    yield from _parts()
    yield from _best_texts()
    yield from _aggregates()
    yield from _arithmetic()
    yield from _decimals()
    yield from _finds()
    yield from _filters()
    yield from _sketches()
    yield from _checks()
    yield from _trees()


def column(dtype: Any, *, size: int = 64) -> NDArray[Any]:
    """Return a read-only column, as segments hand it out."""
    values = np.zeros(size, dtype)
    values.flags.writeable = False
    return values


def _decodes() -> Iterator[Case]:
    """Yield the kernels that decode columns of segments."""
    words, docs = column(np.uint64), column(np.uint32, size=1)
    for dtype in (*IDS, np.int32, np.int64):
        yield bits.unpack, (words, 1, 0, 0, np.zeros(64, dtype))
        yield bits.unpack_at, (words, 1, docs, 0, np.zeros(1, dtype))
    for ids in IDS:
        yield bits.expand_runs, (column(np.uint32, size=2), np.zeros(1, ids))


def _codes() -> Iterator[Case]:
    """Yield the kernels that make dictionaries and dict ids, for new segments and when those of several segments are
    coalesced."""
    ranks = np.ones(64, np.uint32)
    for dtype in (np.int32, np.int64):
        yield bits.min_max, (column(dtype), np.zeros(2, dtype))
        yield bits.is_sorted, (column(dtype),)
    for values in (np.int32, np.int64, *IDS):
        yield bits.mark_present, (column(values), 0, ranks)
        for ids in IDS:
            yield bits.lookup_ranks, (column(values), 0, column(np.uint32), np.zeros(64, ids))
    yield bits.rank_present, (ranks,)
    keys, rows = column(np.uint64), column(np.uint32)
    yield radix.count_digits, (keys, 0, np.zeros(radix.RADIX, np.int64))
    yield (
        radix.scatter_digits,
        (keys, rows, 0, np.zeros(radix.RADIX, np.int64), np.zeros_like(keys), np.zeros_like(rows)),
    )
    for ids in IDS:
        yield radix.rank_sorted, (keys, rows, np.zeros(64, ids))
        for indices in (np.int32, *IDS):
            yield bits.gather, (column(ids), column(indices), np.zeros(64, ids))


def _builds() -> Iterator[Case]:
    """Yield the kernels that build segments and their indexes."""
    counts = np.zeros(2, np.uint32)
    for dtype in (*IDS, np.int32, np.int64):
        yield bits.pack, (column(dtype), 0, 1, np.zeros(2, np.uint64))
        yield bits.block_min_max, (column(dtype), np.array([0, 64]), np.zeros(1, dtype), np.zeros(1, dtype))
    for values in (np.uint64, *IDS, np.float32, np.float64):
        yield bits.is_sorted, (column(values),)
    for ids in IDS:
        yield bits.run_starts_of, (column(ids), counts.copy())
        yield bits.group_docs, (column(ids), counts.copy(), np.zeros(64, np.uint32))
    yield hashing.set_bits, (column(np.uint64), hashing.SALTS, np.zeros(hashing.WORDS_PER_BLOCK, np.uint32))


def _scans() -> Iterator[Case]:
    words, mask, table = np.zeros(1, np.uint64), np.zeros(scan.BLOCK_DOCS, np.uint8), column(np.uint8, size=1)
    read, docs = column(np.uint8), column(np.uint32, size=1)
    for dtype in (*IDS, *NUMBERS):
        yield scan.scan_range, (column(dtype), dtype(0), dtype(1), scan.SET, False, mask, words)
        yield scan.refine_range, (column(dtype), dtype(0), dtype(1), False, words)
    for dtype in IDS:
        yield scan.scan_table, (column(dtype), table, scan.SET, False, mask, words)
        yield scan.refine_table, (column(dtype), table, False, words)
    yield scan.pack_mask, (read, scan.SET, words)
    yield scan.any_value, (read, column(np.uint32, size=2), mask[:1])
    yield scan.set_docs, (docs, 0, 64, words)
    yield scan.set_span, (0, 3, words)
    yield scan.clear_tail, (64, words)
    yield scan.count_words, (column(np.uint64),)
    yield scan.list_docs, (column(np.uint64, size=1), 0, np.empty(64, np.uint32))


def _checks() -> Iterator[Case]:
    """Yield the kernels that check a column when it is first read."""
    text = column(np.uint8)
    for dtype in NUMBERS:
        ascend = ordering.floats_ascend if np.dtype(dtype).kind == "f" else ordering.integers_ascend
        yield ascend, (column(dtype),)
    for offsets in (column(np.int32, size=2), column(np.int64, size=2)):
        yield ordering.strings_ascend, (offsets, text)
        yield ordering.decimals_ascend, (offsets, text)
    yield roaring.count_bitmap, (text, 64)
    yield roaring.ascend, (column(np.uint32),)
    yield bits.count_bits, (column(np.uint64), 64, np.zeros(1, np.uint32))


def _messages() -> Iterator[Case]:
    data, starts = column(np.uint8), column(np.int64, size=1)
    begins, lengths, kinds = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int32), np.zeros((1, 0), np.uint8)
    names, name_starts = column(np.uint8), np.zeros(2, np.int64)
    yield json_scan.find_values, (data, starts, names, name_starts, begins, lengths, kinds, kinds[0])
    yield json_scan.copy_texts, (data, begins[0], lengths[0], kinds[0], np.zeros(1, np.int32), np.zeros(0, np.uint8))
    yield json_scan.read_integers, (data, begins[0], lengths[0], kinds[0], np.zeros(0, np.int64))
    yield json_scan.read_doubles, (data, begins[0], lengths[0], kinds[0], np.zeros(0))
    for offsets in (column(np.int32, size=1), column(np.int64, size=1)):
        path = (names, name_starts, starts[:0])
        yield json_paths.find_at, (data, offsets, *path, begins[0], lengths[0], kinds[0], kinds[0])
    program, places = np.zeros((1, 4), np.int64), np.zeros(0, np.int64)
    yield avro_scan.find_values, (data, starts[:0], starts[:0], program, begins, lengths, kinds, kinds[0])
    yield avro_scan.copy_bytes, (data, places, lengths[0], kinds[0], np.zeros(1, np.int32), np.zeros(0, np.uint8))
    yield avro_scan.read_decimals, (data, places, lengths[0], kinds[0], np.zeros((0, 2), np.uint64), kinds[0])
    shape = np.zeros((1, 3), np.int64), np.zeros(1, np.int64), np.zeros((avro_walk.MAX_DEPTH, 2), np.int64)
    yield avro_walk.find_unbounded, (data, starts[:0], starts[:0], *shape, kinds[0])


def _texts() -> Iterator[Case]:
    """Yield the kernels that append to a consuming segment."""
    ids, slots = np.zeros(1, np.uint32), np.full(64, texts.EMPTY, np.uint32)
    hashes, data = np.zeros(1, np.uint64), np.zeros(8, np.uint8)
    entries = hashes.copy(), np.zeros(2, np.int32), data
    for offsets in (column(np.int32, size=2), column(np.int64, size=2)):
        yield hashing.hash_spans, (column(np.uint8), offsets, hashes)
        yield texts.assign_texts, (offsets, column(np.uint8), hashes, 0, np.zeros(1, np.int64), slots, *entries, ids)
    yield texts.fill_text_slots, (column(np.uint64, size=1), slots.copy())
    for dtype in (np.int32, np.int64):
        yield bits.min_max, (column(dtype), np.zeros(2, dtype))


def _upserts() -> Iterator[Case]:
    """Yield the kernels of upsert tables: keys, their index, bits of valid docs."""
    hashes = np.zeros(1, np.uint64)
    for offsets in (column(np.int32, size=2), column(np.int64, size=2)):
        yield hashing.hash_spans_twice, (column(np.uint8), offsets, hashes, hashes.copy(), hashes.copy())
    yield hashing.mix_pairs, (hashes, hashes.copy())
    longs, table, used = np.zeros(1, np.int64), np.zeros((4, 4), np.int64), np.zeros(2, np.int64)
    keys = longs, longs
    batch = longs.reshape(1, 1), longs, longs, longs
    yield upsert.upsert, (longs, 0, *keys, *batch, table, 1, used, np.zeros(1, np.uint8), longs.copy())
    yield upsert.promote, (longs, 0, *keys, table, 1, used, table.copy(), 1, used.copy())
    flags = np.zeros(1, np.bool_)
    yield upsert.find, (longs, *keys, table, 1, flags, longs.copy())
    first = longs, longs, longs, flags, longs.copy(), 0, 0, 0, False, flags.copy(), flags.copy()
    yield upsert.keep_first, first
    yield upsert.renumber, (longs[:0], *keys, longs, table, 1)
    yield upsert.relocate, (longs, used, longs, 0, table)
    yield upsert.move_tail, (0, 0, 0, table)
    yield upsert.rebuild, (table, 0, 0, 1, table.copy())
    yield upsert.count_alive, (0, 0, table)
    yield upsert.largest_before, (longs, longs, 0, longs.copy())
    yield upsert.set_bits, (longs, hashes)
    yield upsert.clear_bits, (longs, hashes)


def _partial_upserts() -> Iterator[Case]:
    """Yield the kernels that merge rows into those of their keys."""
    prior, valid, rows = np.full(1, -1), np.ones(1, np.uint8), np.zeros(1, np.int64)
    yield partial.last_values, (prior, valid, rows)
    yield partial.first_values, (prior, valid, rows)
    yield partial.extremes, (prior, valid, rows, True, rows.copy())
    for dtype in NUMBERS:
        yield partial.sums, (prior, valid, np.zeros(1, dtype))
    bounds = np.zeros(2, np.int64)
    yield partial.append_lengths, (prior, rows)
    yield partial.append_lists, (prior, bounds, bounds.copy(), rows)
    yield partial.unite, (prior, bounds, rows, 0, bounds.copy(), rows)
    yield partial.depths, (prior, rows)


def _trees() -> Iterator[Case]:
    children, uses = np.array([1, 1], np.uint32), np.zeros(1, np.uint8)
    children.flags.writeable = False
    facts = (uses, uses, np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(3, np.int64))
    yield star_tree.walk, (column(np.uint32, size=1), children, *facts)
    for dtype in IDS:
        place = np.zeros(1, np.int64)
        yield star_tree.take_matching, (place, place + 1, column(dtype), uses, np.zeros(1, np.uint32))


def _filters() -> Iterator[Case]:
    single, words = np.zeros(1, np.uint64), np.zeros(8, np.uint32)
    yield hashing.find_holders, (np.uint64(1), words, words, single, single + np.uint64(1), np.zeros(1, np.int8))


def _takes() -> Iterator[Case]:
    docs = column(np.uint32, size=4)
    marks, blocks = np.zeros((1, block_signatures.WORDS), np.uint64), np.zeros(1, np.int64)
    for numbers in (*IDS, np.int32, np.int64):
        yield block_signatures.fill, (column(numbers), 64, marks)
    yield block_signatures.blocks_with, (marks, np.int64(0), blocks)
    for dtype in (*IDS, *NUMBERS):
        yield take.take, (column(dtype), docs, np.empty(4, dtype))
    for ids in IDS:
        for dtype in NUMBERS:
            yield take.look_up, (column(ids), column(dtype), np.empty(64, dtype))
            yield take.take_look_up, (column(ids), column(dtype), docs, np.empty(4, dtype))
    yield take.take_bits, (column(np.uint64), docs, np.empty(4, np.bool_))


def _groups() -> Iterator[Case]:
    docs, present = column(np.uint32, size=4), np.zeros(64, np.uint8)
    for dtype in IDS:
        for wide in (np.uint32, np.uint64):
            yield group.append_key, (column(dtype), 0, np.zeros(64, wide))
            yield group.take_append_key, (column(dtype), 0, docs, np.zeros(4, wide))
        yield group.mark, (column(dtype), present)
    for wide in (np.uint32, np.uint64):
        for values in (np.uint8, np.int32, np.int64):
            yield group.append_whole, (column(values), np.int64(0), np.uint64(1), 0, np.zeros(64, wide))
    for codes in (np.int64, np.uint64):
        yield group.append_key, (column(codes), 0, np.zeros(64, np.uint64))
    yield group.mark, (column(np.int64), present)
    outputs = np.zeros(64, np.int64), np.zeros(64, np.uint32)
    yield group.keys_within, (np.zeros(64, np.uint32), np.uint32(0), np.uint32(9), *outputs)
    slots, keys = np.full(64, group.EMPTY, np.uint32), column(np.uint64, size=4)
    groups, ends = np.zeros(4, np.uint32), np.zeros(1, np.int64)
    yield group.assign_dense, (keys, slots.copy(), groups)
    yield group.assign_wide, (keys.reshape(1, 4), 0, 4, 0, slots.copy(), np.zeros((4, 1), np.uint64), groups)
    yield group.fill_slots_wide, (keys.reshape(4, 1), slots.copy())
    yield group.first_rows, (docs, groups[:1].copy())
    yield group.assign_groups, (keys, 0, slots, np.zeros(64, np.uint64), np.zeros(4, np.uint32))
    yield group.order_by_group, (docs, docs, ends, groups.copy())
    yield group.distinct_in_groups, (groups.copy(), ends, groups.copy(), ends.copy())
    yield group.distinct_pairs, (docs, keys, np.full(64, group.EMPTY, np.uint32), groups.copy())
    yield group.fill_slots, (keys[:1], np.full(64, group.EMPTY, np.uint32))


def _best_texts() -> Iterator[Case]:
    for offsets in (column(np.int32, size=2), column(np.int64, size=2)):
        yield texts.best_texts, (offsets, column(np.uint8), np.zeros(1, np.int64), True, np.zeros(1, np.int64))


def _parts() -> Iterator[Case]:
    """Yield the kernels that group many keys by parts."""
    words, hashes, rows = column(np.uint64, size=4).reshape(1, 4), column(np.uint64, size=4), column(np.uint32, size=4)
    counts, bounds = np.zeros(2, np.int64), column(np.int64, size=2)
    yield partition.hash_words, (words, hashes.copy())
    yield partition.count_parts, (hashes, 63, counts)
    yield partition.scatter, (hashes, 0, 63, np.zeros(2, np.int64), hashes.copy(), rows.copy())
    outputs = rows.copy(), hashes.copy(), rows.copy(), np.zeros(1, np.int64)
    yield partition.equal_words, (words, rows, rows, 0, 4)
    yield partition.assign_parts, (hashes, rows, bounds, np.zeros(8, np.uint32), *outputs)
    yield partition.number_groups, (rows, bounds, rows, rows, bounds, rows.copy(), rows.copy())
    for offsets in (column(np.int32, size=5), column(np.int64, size=5)):
        yield hashing.hash_spans, (column(np.uint8), offsets, hashes.copy())
        yield partition.equal_texts, (offsets, column(np.uint8), rows, rows, 0, 4)


def _aggregates() -> Iterator[Case]:
    groups, sums, errors = column(np.uint32), np.zeros(64, np.int64), np.zeros(64)
    longs, doubles = column(np.int64), column(np.float64)
    for values in (column(np.int32), longs):
        yield aggregate.sum_int, (values,)
        yield aggregate.sum_int_groups, (groups, values, sums)
        yield aggregate.extremes_where, (values, column(np.uint64, size=1), sums[:2])
    yield aggregate.sum_halves, (longs, sums)
    for ids in IDS:
        for numbers in (column(np.int32), longs):
            yield aggregate.sum_looked_up, (column(ids), numbers, sums[:2].copy())
    yield aggregate.sum_halves_groups, (groups, longs, sums, sums.copy())
    yield aggregate.sum_float, (doubles, errors)
    yield aggregate.sum_float_groups, (groups, doubles, errors, errors.copy())
    for values, out in ((longs, sums), (doubles, errors)):
        yield aggregate.min_groups, (groups, values, out)
        yield aggregate.max_groups, (groups, values, out)
    yield aggregate.count_groups, (groups, sums)
    variances, covariances, fourth_moments = np.zeros((64, 3)), np.zeros((64, 6)), np.zeros((64, 5))
    yield moments.add_one, (groups, doubles, variances)
    yield moments.add_two, (groups, doubles, doubles, covariances)
    yield moments.merge_one, (groups, variances.copy(), variances)
    yield moments.merge_two, (groups, covariances.copy(), covariances)
    yield moments.add_four, (groups, doubles, fourth_moments)
    yield moments.merge_four, (groups, fourth_moments.copy(), fourth_moments)
    yield from _funnels()
    yield topk.smallest, (longs, sums[:2].copy(), sums[:2].copy())


def _funnels() -> Iterator[Case]:
    events = (column(np.int64, size=2), column(np.int32, size=2), column(np.int64, size=2), 2, 10, 0, 0)
    out = np.zeros(1, np.int32)
    yield funnel.furthest, (*events, out)
    yield funnel.completed, (*events, out)
    yield funnel.durations, (*events, out, np.zeros(2, np.int64), np.zeros((2, 1), np.int64))


def _arithmetic() -> Iterator[Case]:
    longs = column(np.int64)
    for kernel in (arithmetic.add_checked, arithmetic.subtract_checked, arithmetic.multiply_checked):
        yield kernel, (longs, longs, longs.copy())


def _decimals() -> Iterator[Case]:
    longs, long_offsets = column(np.int64), np.zeros(65, np.int64)
    for offsets in (column(np.int32, size=1), column(np.int64, size=1)):
        yield decimals.common_scale, (offsets, column(np.uint8))
        yield decimals.parse, (offsets, column(np.uint8), 0, longs[:0].copy())
    yield decimals.text_offsets, (longs, 2, long_offsets)
    yield decimals.write, (longs[:0], 2, long_offsets, np.zeros(64, np.uint8))


def _finds() -> Iterator[Case]:
    for offsets in (column(np.int32, size=1), column(np.int64, size=1)):
        yield (
            find.find_parts,
            (offsets, column(np.uint8), column(np.uint8), column(np.int64, size=2), np.zeros(1, np.uint8)),
        )


def _merges() -> Iterator[Case]:
    words, rows, offsets = column(np.uint64), column(np.uint32), column(np.int64, size=65)
    data, zero, ends = column(np.uint8, size=64), column(np.int64, size=1), np.array([0, 1], np.int64)
    for ids in IDS:
        for dtype in IDS:
            yield bits.gather, (column(dtype), column(ids), np.zeros(64, dtype))
        yield merge.take_lists, (column(ids), offsets, rows, offsets, np.zeros(64, ids))
        yield merge.map_parts, (data, zero, zero, ends, ends, column(ids, size=1), np.zeros(1, ids))
    for out in (np.zeros(1, np.uint8), np.zeros(1, np.int32), np.zeros(1, np.int64)):
        yield merge.unpack_parts, (data, zero, zero, zero, ends, out)
    yield ordering.strings_ascend_in_parts, (column(np.int32, size=2), data, ends)
    yield merge.hash_numbers, (words, words.copy())
    yield merge.hash_bytes, (offsets, column(np.uint8), words.copy())
    yield merge.hash_lists, (words, offsets, words.copy())
    yield merge.add_hashes, (words, words.copy())
    yield murmur.murmur2, (offsets, column(np.uint8), rows.copy())


def _sketches() -> Iterator[Case]:
    bounds, places, none = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(0, np.int64)
    yield sketch.rows_by_group, (np.zeros(2, np.uint32), bounds.copy(), places.copy())
    facts = (column(np.uint8), places, places, none, bounds)
    yield sketch.union_registers, (*facts, np.zeros(64, np.uint8), places)
    hashes, groups = np.zeros(2, np.uint32), np.zeros(2, np.uint32)
    yield hll.hash_longs, (column(np.int64, size=2), hashes)
    yield hll.hash_bytes, (column(np.int64, size=3), column(np.uint8), hashes)
    yield hll.offer, (hashes, groups, 8, np.zeros(256, np.uint8))
    yield hll.ranks, (hashes, 8, np.zeros(2, np.uint8))
    yield murmur64.hash_bytes, (column(np.int64, size=3), column(np.uint8), np.zeros(2, np.uint64))
    yield murmur64.ranks, (column(np.uint64, size=2), 14, np.zeros(2, np.uint8))
    yield wyhash.hash_words, (column(np.uint64, size=2), True, np.zeros(2, np.uint64))
    yield wyhash.hash_texts, (column(np.int64, size=3), column(np.uint8), np.zeros(2, np.uint64))
    of_groups = (column(np.uint64, size=2), column(np.uint32, size=2))
    yield ultraloglog.offer, (*of_groups, 12, np.zeros(1 << 12, np.uint8))
    yield ultraloglog.registers_of, (column(np.uint64, size=2), 12, np.zeros(2, np.uint8))
    yield ultraloglog.join_notes, (np.zeros(2, np.int64),)
    yield ultraloglog.unite, (*facts[:2], none, bounds, np.zeros(64, np.uint8), places)
    yield murmur3.hash_words, (column(np.uint64, size=2), np.zeros(2, np.uint64))
    yield murmur3.hash_bytes, (column(np.int64, size=3), column(np.uint8), np.zeros(2, np.uint64))
    yield sketch.merge_centroids, (*facts, 100.0, np.zeros(64, np.uint8), places.copy())
    yield sketch.quantiles, (column(np.uint8), np.zeros(2, np.int64), 0.5, np.zeros(2, np.uint64), np.zeros(1))


def warm(chosen: Callable[[], Iterable[Case]] = cases) -> int:
    """Call every kernel of some cases once; returns the number of cases."""
    number = 0
    for kernel, arguments in chosen():
        kernel(*arguments)
        number += 1
    return number


def start_loading(*, compiles: bool) -> threading.Thread:
    """Run `load_for_queries` in a daemon thread: nothing waits for a compiler when a process stops."""
    thread = threading.Thread(target=load_for_queries, kwargs={"compiles": compiles}, name="warm-up", daemon=True)
    thread.start()
    return thread


def load_for_queries(*, compiles: bool = True) -> None:
    """Load the query kernels at a process's start, so that no query waits for them.

    Other kernels are loaded by the code that consumes a stream, or that merges or builds segments. Without `compiles`,
    a kernel that is not compiled yet is left to the query that needs it."""
    started = time.perf_counter()
    ready = [case for case in query_cases() if compiles or compiling.is_compiled(case)]
    number = warm(lambda: iter(ready))
    _LOG.info("query kernels are loaded num_kernels=%d seconds=%.1f", number, time.perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile what is missing; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m merlot.kernels.warm", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--background", type=Path, metavar="LOG", help="do so at the lowest priority, in a process that stays behind"
    )
    chosen = parser.parse_args(arguments)
    if chosen.background is not None:
        _leave_behind(chosen.background)
        return 0
    every = cases()
    try:
        if chosen.worker:
            compiling.take_turns(every, _tell)
            return 0
        started = time.perf_counter()
        number = compiling.compile_all(every, [sys.executable, "-m", "merlot.kernels.warm", "--worker"])
    except KeyboardInterrupt:
        return 130
    sys.stderr.write(f"{number} kernels compiled in {time.perf_counter() - started:.1f} s, of {len(every)}\n")
    return 0


def _leave_behind(log: Path) -> None:
    command = ["nice", "-n", "19", sys.executable, "-m", "merlot.kernels.warm"]
    with log.open("ab") as file:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)


def _tell() -> None:
    """Write a byte to the process that waits for this worker; exit if the checkout is gone."""
    if not Path(__file__).exists():
        raise SystemExit
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b".")


if __name__ == "__main__":
    raise SystemExit(main())

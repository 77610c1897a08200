"""Docs of a segment that was rewritten are found again by their keys, and both files show the same rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merlot.cluster.records import ConsumingStatus, StreamSegmentRecord
from merlot.server.realtime.rewritten import DocsAtStart, ReplacedFile
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.keys import Keys
from merlot.upsert.rewriting import kept_docs, new_numbers, renumbered
from merlot.upsert.valid_docs import Bits, SegmentDocs, ValidDocsView


def keys_of(values: list[int]) -> Keys:
    found = np.array(values, np.int64)
    return Keys(found % 3, found)


def docs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@given(st.data())
def test_each_valid_doc_has_its_row_in_the_new_file_and_both_have_the_same_bits(data: st.DataObject) -> None:
    """Of the docs that were valid when the file was made, the last one of some keys has been replaced since. A key has
    several where a time to live has left it more than one row."""
    keys = data.draw(st.lists(st.integers(-9, 9), max_size=60))
    every = range(len(keys))
    old_valid = sorted(data.draw(st.sets(st.sampled_from(every)))) if keys else []
    kept = kept_docs(keys_of(keys), docs(*old_valid)).tolist()
    assert set(kept) >= set(old_valid)
    several = {key for key in keys if [keys[doc] for doc in old_valid].count(key) > 1}
    assert {doc for doc in kept if doc not in old_valid} <= {doc for doc in every if keys[doc] in several}
    last = {keys[doc]: doc for doc in old_valid}
    gone = data.draw(st.sets(st.sampled_from(sorted(last.values())))) if last else set()
    valid = [doc for doc in old_valid if doc not in gone]
    found = new_numbers(keys_of(keys), docs(*valid), keys_of([keys[doc] for doc in kept]))
    assert found is not None
    assert [found[doc] for doc in valid] == [kept.index(doc) for doc in valid]
    back = np.full(len(kept), -1, np.int64)
    back[found[found >= 0]] = np.flatnonzero(found >= 0)
    words = ReplacedFile(0, len(keys), back).words(Bits().changed(found[valid], to=True).words)
    assert len(words) == (len(keys) + 63) // 64
    assert [doc for doc in every if words[doc >> 6] >> np.uint64(doc & 63) & np.uint64(1)] == valid


def test_a_snapshot_tells_of_the_same_rows_in_the_new_file() -> None:
    bits = SegmentDocs(Bits().changed(docs(1, 4), to=True), Bits().changed(docs(6), to=True))
    moved = renumbered(SegmentSnapshot.of(bits, 9), docs(1, 2, 4, 6))
    assert moved is not None
    assert moved.num_docs == 4
    assert moved.docs().live.docs().tolist() == [0, 2]
    assert moved.docs().tombstones.docs().tolist() == [3]
    assert renumbered(SegmentSnapshot.of(bits, 9), docs(1, 4)) is None
    assert renumbered(SegmentSnapshot.of(bits, 9), docs()) is None


def test_a_file_that_lacks_a_valid_row_has_it_twice_or_in_another_order_is_none() -> None:
    old = keys_of([5, 7, 6, 8])
    assert new_numbers(old, docs(1, 3), keys_of([7])) is None
    assert new_numbers(old, docs(1, 3), keys_of([7, 8, 7])) is None
    assert new_numbers(old, docs(1, 3), keys_of([8, 7])) is None
    found = new_numbers(old, docs(1, 3), keys_of([5, 7, 8]))
    assert found is not None
    assert found.tolist() == [0, 1, -1, 2]


def record(sequence: int, num_docs: int | None, crc: int = 5) -> StreamSegmentRecord:
    return StreamSegmentRecord(
        name=f"t__0__{sequence}__20260101T0000Z",
        crc=0 if num_docs is None else crc,
        size_bytes=0,
        url="",
        total_docs=num_docs or 0,
        partition=0,
        sequence=sequence,
        start_offset=0,
        status=(ConsumingStatus.CONSUMING if num_docs is None else ConsumingStatus.DONE).value,
    )


def test_what_rows_replace_that_are_not_sealed_yet_is_not_told() -> None:
    cut = ValidDocsView({1: SegmentDocs(Bits().changed(docs(0, 2), to=True), Bits().changed(docs(3), to=True))})
    taken = DocsAtStart(cut, {0: 1, 1: 2}, {0: 4, 1: 6})
    sealed, key = record(0, 4), record(0, 4).key_text
    assert taken.settled({0: sealed, 1: record(1, None)}, {0: key}) is None
    settled = taken.settled({0: sealed, 1: record(1, 9)}, {0: key})
    assert settled is not None
    assert settled.replaced == {key: 1}
    assert settled.num_docs == {key: 4}
    told = settled.bitmap([key, key])
    assert told is not None
    assert Bits.deserialized(told[0], 8).docs().tolist() == [0, 2, 3, 4, 6, 7]
    assert told[1] == 8
    assert settled.bitmap([key, "other@1"]) is None
    later, opened = record(1, 9), record(2, None)
    assert settled.unsettled([sealed, later, opened]) == (later.key_text,)


def test_a_cut_without_rows_of_the_segment_that_began_is_told_at_once() -> None:
    taken = DocsAtStart(ValidDocsView({1: SegmentDocs()}), {0: 1, 1: 2}, {0: 4, 1: 0})
    settled = taken.settled({0: record(0, 4), 1: record(1, None)}, {0: record(0, 4).key_text})
    assert settled is not None
    assert settled.replaced == {record(0, 4).key_text: 4}


def test_bits_of_a_file_that_was_replaced_since_are_not_told_of_the_new_one() -> None:
    taken = DocsAtStart(ValidDocsView({1: SegmentDocs()}), {0: 1}, {0: 4})
    rewritten = record(0, 2, crc=6)
    settled = taken.settled({0: rewritten}, {0: rewritten.key_text})
    assert settled is not None
    assert settled.replaced == {}

"""A segment's new file and the snapshot of its docs are named together, and by the newest checkpoint only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.unit.cluster.stream_table import NOW_MS, TABLE, begin, end_of, file_of, make_store, opened, sealed

from merlot.cluster.consuming import checkpoints, transactions
from merlot.cluster.consuming.checkpoints import StoredCheckpoint, needed, write_checkpoint
from merlot.cluster.consuming.commits import commit_segment, propose_end
from merlot.cluster.consuming.partitions import chains, lost_ranges
from merlot.cluster.consuming.transactions import STAYING, MovedSnapshot, Rewritten
from merlot.cluster.records import CheckpointRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import PreconditionError, PutSegments
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.metastore.sqlite import SqliteMetastore

EXPIRING = '{"mode":"FULL","primaryKeyTtl":"5","snapshot":"ENABLE"}'
STATE = CheckpointRecord(largest=9, alive_from=-1, deleted_from=-1, column="at", at_ms=NOW_MS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    made = make_store(tmp_path)
    begin(made, 0)
    for number in range(3):
        record = opened(made)
        propose_end(made, TABLE, end_of(record, 10 * number + 10))
        commit_segment(made, TABLE, sealed(record, 10 * number + 10, crc=number + 5))
    put(made, upsert=EXPIRING)
    yield made
    made.close()


def line(store: SqliteMetastore) -> Mapping[int, StreamSegmentRecord]:
    return chains(load(store, TABLE).stream_segments)[0]


def put(store: SqliteMetastore, **update: object) -> None:
    """Change every record of the partition."""
    changed = tuple(record.model_copy(update=update) for record in line(store).values())
    mutate(store, TABLE, lambda _: [PutSegments(changed, {one.name: one.crc for one in changed})])


def take_checkpoint(store: SqliteMetastore, sequence: int, tag: str) -> bool:
    until = checkpoints.sealed_until(line(store), sequence)
    urls = {record.key_text: f"{record.key_text}.{tag}" for record in until}
    taken = StoredCheckpoint(partition=0, sequence=sequence, key=until[-1].key_text, state=STATE, urls=urls)
    return write_checkpoint(store, TABLE, taken)[0]


def rewritten(store: SqliteMetastore, sequence: int = 0, docs: int = 4, old: str | None = None) -> Rewritten:
    record = line(store)[sequence]
    return Rewritten(
        key=record.key,
        file=file_of(record, docs, crc=77, upload="v") if docs else None,
        now_ms=NOW_MS,
        num_staying=1,
        snapshot=MovedSnapshot(record.snapshot_url if old is None else old, "moved"),
    )


def swap(store: SqliteMetastore, what: Rewritten) -> None:
    mutate(store, TABLE, lambda view: transactions.rewrite(view, what))


def test_nothing_leaves_a_partition_whose_keys_expire_without_a_checkpoint_that_has_the_segment(
    store: SqliteMetastore,
) -> None:
    with pytest.raises(PreconditionError, match="no checkpoint"):
        swap(store, rewritten(store))
    take_checkpoint(store, 1, "a")
    with pytest.raises(PreconditionError, match="no checkpoint"):
        swap(store, rewritten(store, 1))
    put(store, upsert=EXPIRING.replace("ENABLE", "DISABLE"))
    with pytest.raises(PreconditionError, match="no checkpoint"):
        swap(store, rewritten(store))
    assert needed(line(store)) is None


def test_the_checkpoint_stays_whole_and_is_needed_from_then_on(store: SqliteMetastore) -> None:
    take_checkpoint(store, 1, "a")
    swap(store, rewritten(store))
    records = line(store)
    assert (records[0].crc, records[0].total_docs, records[0].snapshot_url) == (77, 4, "moved")
    assert records[0].custom_map[STAYING] == "1"
    end = checkpoints.newest(records)
    assert end is not None
    assert (end.sequence, needed(records)) == (1, 1)
    assert take_checkpoint(store, 2, "b")
    assert needed(line(store)) == 2
    swap(store, rewritten(store, 1, docs=0))
    records = line(store)
    assert (sorted(records), needed(records)) == ([0, 2, 3], 2)
    put(store, upsert=EXPIRING.replace("{", '{"recovery":1,'))
    assert needed(line(store)) == 2, "the first of the number decides nothing before it"


def test_a_swap_with_the_snapshot_of_an_earlier_checkpoint_comes_to_nothing(store: SqliteMetastore) -> None:
    take_checkpoint(store, 1, "a")
    late = rewritten(store)
    take_checkpoint(store, 2, "b")
    swap(store, late)
    assert line(store)[0].crc == 5
    assert needed(line(store)) is None
    swap(store, rewritten(store))
    swap(store, rewritten(store, old="whatever"))
    assert line(store)[0].crc == 77


def test_a_checkpoint_of_the_file_before_is_not_named(store: SqliteMetastore) -> None:
    take_checkpoint(store, 1, "a")
    until = checkpoints.sealed_until(line(store), 2)
    urls = {record.key_text: "old" for record in until}
    swap(store, rewritten(store))
    taken = StoredCheckpoint(partition=0, sequence=2, key=until[-1].key_text, state=STATE, urls=urls)
    assert not write_checkpoint(store, TABLE, taken)[0]
    assert line(store)[0].snapshot_url == "moved"


def test_what_a_backfill_decides_anew_needs_no_checkpoint_of_before(store: SqliteMetastore) -> None:
    take_checkpoint(store, 1, "a")
    swap(store, rewritten(store))
    records = dict(line(store))
    records[2] = records[2].model_copy(update={"upsert": EXPIRING.replace("{", '{"recovery":1,')})
    assert needed(records) is None
    assert transactions.checkpoint_for(records, records[0]) is None


def test_without_a_time_to_live_no_checkpoint_is_asked_for(store: SqliteMetastore) -> None:
    put(store, upsert='{"mode":"FULL"}')
    plain = rewritten(store)
    swap(store, Rewritten(key=plain.key, file=plain.file, now_ms=NOW_MS))
    assert line(store)[0].crc == 77
    assert needed(line(store)) is None


@pytest.mark.parametrize("upsert", ['{"mode":"FULL"}', EXPIRING])
def test_what_the_stream_had_lost_before_a_segment_stays_known_when_the_segment_is_removed(
    store: SqliteMetastore, upsert: str
) -> None:
    put(store, upsert=upsert)
    lossy = line(store)[0].model_copy(update={"lost_from": -4})
    mutate(store, TABLE, lambda _: [PutSegments((lossy,), {lossy.name: lossy.crc})])
    take_checkpoint(store, 1, "a")
    swap(store, rewritten(store, docs=0))
    records = line(store)
    assert lost_ranges(load(store, TABLE)) == {0: ((-4, 0),)}
    assert sorted(records) == [1, 2, 3]
    assert needed(records) == (1 if upsert == EXPIRING else None)


@pytest.mark.parametrize("update", [{"lost_from": 8}, {"start_offset": -9}])
def test_a_segment_that_has_lost_offsets_or_was_read_again_keeps_its_start(
    store: SqliteMetastore, update: dict[str, object]
) -> None:
    put(store, upsert='{"mode":"FULL"}')
    lossy = line(store)[0].model_copy(update={"lost_from": -4})
    after = line(store)[1].model_copy(update=update)
    mutate(store, TABLE, lambda _: [PutSegments((lossy, after), {lossy.name: lossy.crc, after.name: after.crc})])
    swap(store, rewritten(store, docs=0))
    assert line(store)[1] == after

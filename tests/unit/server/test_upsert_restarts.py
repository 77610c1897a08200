"""A partition that begins with a checkpoint shows what it showed before, bit for bit, and so it does without one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count
from tests.unit.server.test_upsert_listener import Chain, Replica
from tests.unit.upsert.oracle import Oracle

from merlot.clock import SystemClock
from merlot.cluster.consuming.checkpoints import DECIDED_UNTIL
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.errors import CorruptionError, MerlotError, UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.server.realtime import snapshots as module
from merlot.server.realtime.indexed import IndexDeps
from merlot.server.realtime.snapshot_files import SnapshotFolder
from merlot.server.realtime.snapshots import SnapshotDeps, Snapshots
from merlot.server.tuning import StreamTuning
from merlot.spec.upserting import SnapshotStore
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.snapshots import decode, encode
from merlot.upsert.valid_docs import Bits

TTL = 25
KEPT = f'{{"mode":"FULL","primaryKeyTtl":"{TTL}","snapshot":"ENABLE","snapshotStore":"LOCAL"}}'
NOT_KEPT = f'{{"mode":"FULL","primaryKeyTtl":"{TTL}"}}'


class AtOnce(Executor):
    """Runs what it is given before it returns."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*args, **kwargs))
        return done


class KeepingReplica(Replica):
    """A replica with a disk."""

    def __init__(self, chain: Chain, folder: Path) -> None:
        self.folder = folder
        self.replayed: list[int] = []
        super().__init__(chain)

    def deps(self) -> IndexDeps:
        place = SnapshotDeps(
            metastore=cast(Metastore, None),
            table=cast(Any, "t_REALTIME"),
            partition=0,
            instance=cast(Any, "me"),
            folder=SnapshotFolder(self.folder / "local"),
            store=lambda: DeepStore(str(self.folder / "deep")),
            clock=SystemClock(),
            executor=AtOnce(),
            tuning=StreamTuning(checkpoint_rest_ms=0),
        )
        return replace(super().deps(), snapshots=Snapshots(place))

    @property
    def snapshots(self) -> Snapshots:
        found = self.listener.snapshots
        assert found is not None
        return found


def begun(draw: random.Random, folder: Path, settings: str = KEPT) -> tuple[Chain, KeepingReplica]:
    chain = Chain(draw)
    chain.records[0] = chain.records[0].model_copy(update={"upsert": settings})
    return chain, KeepingReplica(chain, folder)


def expected(chain: Chain, stop: int) -> set[int]:
    oracle = Oracle(TTL)
    for offset, (key, at) in enumerate(chain.rows[:stop]):
        oracle.add(key, at, False, (0, offset))
    return {offset for _, offset in oracle.valid}


def check(chain: Chain, replica: Replica) -> None:
    stop, seen = replica.seen()
    assert len(seen) == len(set(seen))
    assert set(seen) == expected(chain, stop)


def lose(folder: Path, _draw: random.Random) -> None:
    SnapshotFolder(folder).clear()


def damage(folder: Path, draw: random.Random) -> None:
    files = sorted(file for file in folder.glob("*") if file.suffix in (".valid", ".json"))
    if files:
        file = draw.choice(files)
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)


def cut_off(folder: Path, draw: random.Random) -> None:
    files = sorted(folder.glob("*.valid"))
    if files:
        file = draw.choice(files)
        file.write_bytes(file.read_bytes()[: draw.randrange(file.stat().st_size)])


def lack_one(folder: Path, draw: random.Random) -> None:
    files = sorted(folder.glob("*.valid"))
    if files:
        draw.choice(files).unlink()


MISHAPS: list[Callable[[Path, random.Random], None]] = [lambda *_: None] * 4 + [lose, damage, cut_off, lack_one]


@pytest.mark.parametrize("seed", range(count("MERLOT_RESTARTS", quick=3, every=6)))
def test_a_restart_shows_what_was_shown_before_whatever_became_of_the_snapshots(seed: int, tmp_path: Path) -> None:
    """Batches, ends behind and before what was read, tails, files that come first, retention, settings that turn
    snapshots off and on, stops and crashes, and snapshots that are lost, damaged or cut off."""
    draw = random.Random(seed)
    chain, replica = begun(draw, tmp_path)
    begun_with = 0
    for _ in range(60):
        match draw.choice(("read", "read", "read", "commit", "jump", "release", "restart")):
            case "read":
                chain.produce(draw.randrange(1, 30))
                replica.read(draw.randrange(replica.offset, len(chain.rows)) + 1)
            case "commit" if replica.offset > chain.open.start_offset:
                old = chain.open
                end = draw.randrange(old.start_offset, replica.offset) + 1
                chain.commit(end, draw.choice((KEPT, KEPT, KEPT, NOT_KEPT)))
                replica.follow(chain.records[old.sequence], carries=draw.random() < 0.7)
            case "jump":
                chain.produce(draw.randrange(1, 30))
                old = chain.open
                chain.commit(len(chain.rows))
                replica.follow(chain.records[old.sequence], carries=True)
            case "release":
                replica.segments.release()
            case "restart":
                before = replica.seen()
                if draw.random() < 0.5:
                    replica.listener.close()
                draw.choice(MISHAPS)(tmp_path / "local", draw)
                replica.restart()
                begun_with += replica.snapshots.sequence >= 0
                chain.produce(max(0, before[0] - len(chain.rows)))
                if before[0] > replica.offset:
                    replica.read(before[0])
                assert sorted(replica.seen()[1]) == sorted(before[1])
        replica.listener.settle()
        check(chain, replica)
    assert begun_with or seed, "some restart began with a checkpoint"


def test_a_restart_with_a_checkpoint_reads_no_row_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, replica = begun(random.Random(5), tmp_path)
    for stop in (40, 80, 120):
        chain.produce(40)
        replica.read(stop)
        old = chain.open
        chain.commit(stop)
        replica.follow(chain.records[old.sequence], carries=True)
        replica.listener.settle()
    assert replica.snapshots.sequence == 2
    loaded: list[int] = []
    load = PartitionUpserts.load

    def noted(self: PartitionUpserts, rows: pa.Table, segment: int, docs: Any) -> None:
        loaded.extend(rows.column("at").to_pylist())
        load(self, rows, segment, docs)

    monkeypatch.setattr(PartitionUpserts, "load", noted)
    monkeypatch.setattr(PartitionUpserts, "replay", lambda *_: pytest.fail("rows are read that a checkpoint has"))
    replica.restart()
    assert loaded
    assert min(loaded) >= max(at for _, at in chain.rows) - TTL, "only keys that are alive are entered"
    assert set(replica.seen()[1]) == expected(chain, 120)


def test_a_partition_is_let_go_while_the_deep_store_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sealed since is on the disk all the same, and what was on its way comes to an end by itself."""
    chain, replica = begun(random.Random(5), tmp_path, KEPT.replace("LOCAL", "DEEP_STORE"))
    is_put, answers = threading.Event(), threading.Event()
    answered: list[bool] = []

    def hangs(*_: object) -> None:
        is_put.set()
        answered.append(answers.wait(PATIENCE_S))

    monkeypatch.setattr(DeepStore, "put", hangs)
    monkeypatch.setattr(module.checkpoints, "write_checkpoint", lambda *_: (False, None))
    with ThreadPoolExecutor(1) as threads:
        replica.snapshots._deps = replace(replica.snapshots._deps, executor=threads)
        for stop in (40, 80):
            chain.produce(40)
            replica.read(stop)
            old = chain.open
            chain.commit(stop)
            replica.follow(chain.records[old.sequence], carries=True)
            replica.listener.settle()
            assert is_put.wait(PATIENCE_S)
        replica.listener.close()
        found = SnapshotFolder(tmp_path / "local").find()
        answers.set()
    assert all(answered), "it was waited for"
    assert found is not None
    assert found.sequence == 1


def need(chain: Chain, until: int) -> None:
    """As if rows had been taken out of the first segment, by the checkpoint at the end of that one."""
    marked = chain.records[0].model_copy(update={"custom_map": {DECIDED_UNTIL: str(until)}})
    chain.records = {**chain.records, 0: marked}


@pytest.mark.parametrize("seed", range(count("MERLOT_RESTARTS", quick=3, every=6)))
def test_an_index_that_needs_its_checkpoint_is_built_of_nothing_else(seed: int, tmp_path: Path) -> None:
    """Also where parts of the line, which brokers ask for still, are in the checkpoint; never without it."""
    draw = random.Random(seed)
    chain, replica = begun(draw, tmp_path)
    num_built = 0
    with pytest.MonkeyPatch.context() as patched:
        replay = PartitionUpserts.replay

        def noted(self: PartitionUpserts, rows: pa.Table, segment: int, first_doc: int) -> Any:
            replayed.append(rows.num_rows)
            return replay(self, rows, segment, first_doc)

        patched.setattr(PartitionUpserts, "replay", noted)
        for _ in range(40):
            replayed: list[int] = []
            match draw.choice(("read", "commit", "release", "rebuild", "restart")):
                case "read":
                    chain.produce(draw.randrange(1, 30))
                    replica.read(len(chain.rows))
                case "commit" if replica.offset > chain.open.start_offset:
                    old = chain.open
                    chain.commit(draw.randrange(old.start_offset, replica.offset) + 1, KEPT)
                    replica.follow(chain.records[old.sequence], carries=True)
                case "release":
                    replica.segments.release()
                case "rebuild" | "restart" as action:
                    replica.listener.settle()
                    until = replica.snapshots.sequence
                    if until < 0:
                        continue
                    need(chain, until)
                    first_needed = chain.records[until].end_offset or 0
                    before = replica.seen()
                    if action == "restart":
                        replica.restart()
                        replica.read(before[0])
                    else:
                        replica.listener._rebuild()
                    num_built += 1
                    assert sum(replayed) <= before[0] - first_needed
                    assert sorted(replica.seen()[1]) == sorted(before[1])
            replica.listener.settle()
            check(chain, replica)
        assert num_built or seed
        chain.commit(replica.offset, KEPT)
        if replica.snapshots.sequence >= 0:
            need(chain, replica.snapshots.sequence + 5)
            with pytest.raises(UnavailableError, match="a backfill decides"):
                replica.restart()


def test_a_late_row_stays_hidden_by_one_that_retention_has_removed(tmp_path: Path) -> None:
    """Of the stored rows alone, the late one would be the newest of its key."""
    chain, replica = begun(random.Random(1), tmp_path)
    chain.rows = [(1, 100), (2, 100), (1, 90), (3, 101), (4, 102)]
    for stop in (2, 4):
        replica.read(stop)
        old = chain.open
        chain.commit(stop)
        replica.follow(chain.records[old.sequence], carries=True)
        replica.segments.release()
    replica.listener.settle()
    del chain.records[0]
    replica.read(5)
    replica.segments.release()
    assert sorted(replica.seen()[1]) == [3, 4]
    replica.restart()
    replica.read(5)
    assert sorted(replica.seen()[1]) == [3, 4]


def test_snapshots_are_deleted_when_the_settings_say_so(tmp_path: Path) -> None:
    chain, replica = begun(random.Random(2), tmp_path)
    chain.produce(60)
    replica.read(30)
    old = chain.open
    chain.commit(30)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.listener.settle()
    assert list((tmp_path / "local").glob("*.valid"))
    replica.read(60)
    old = chain.open
    chain.commit(60, NOT_KEPT)
    replica.follow(chain.records[old.sequence], carries=True)
    replica.listener.settle()
    assert not (tmp_path / "local").exists()
    assert replica.snapshots.kept_in is None
    assert replica.snapshots.at_ms is None
    check(chain, replica)
    assert unpin_upsert(KEPT).snapshots_in is SnapshotStore.LOCAL


def test_what_cannot_be_written_is_told_and_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, replica = begun(random.Random(3), tmp_path)
    chain.produce(60)
    replica.read(60)
    old = chain.open
    chain.commit(60)
    with monkeypatch.context() as patched:

        def full(*_: Any) -> None:
            raise MerlotError("no space left on the disk")

        patched.setattr(SnapshotFolder, "_write", full)
        replica.follow(chain.records[old.sequence], carries=True)
        replica.listener.settle()
        assert replica.snapshots.error == "no space left on the disk"
        assert replica.snapshots.num_missing(chain.records) == 1
        check(chain, replica)
    replica.listener.settle()
    assert replica.snapshots.error == ""
    assert replica.snapshots.num_missing(chain.records) == 0


def test_a_snapshot_is_of_one_version_of_a_segment_only() -> None:
    bits = Bits().changed(np.array([1, 5, 70_000]), to=True)
    snapshot = SegmentSnapshot(num_docs=80_000, live=bits.serialized(), tombstones=Bits().serialized())
    data = encode("t__0__1@17", snapshot)
    assert decode("t__0__1@17", data) == snapshot
    with pytest.raises(CorruptionError, match="another segment's"):
        decode("t__0__1@18", data)
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 0x10
        with pytest.raises(CorruptionError):
            decode("t__0__1@17", bytes(wrong))
        with pytest.raises(CorruptionError):
            decode("t__0__1@17", data[:place])

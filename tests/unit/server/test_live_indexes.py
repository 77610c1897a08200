"""Indexes and star-trees of a live table: made beside the segments, used when whole, made again when not right."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.forgery import put_together, taken_apart
from tests.support.fork_server import Child
from tests.support.sample import ORDERS, build_orders, orders_manifest, publish_orders
from tests.support.servers import FULL_DISK, TableDataBench

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.query.context import ExecutionContext
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan as make_plan
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar import build
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.server import indexing
from merlot.server.table_data_manager import TableDataManager
from merlot.server.tuning import FileTuning
from merlot.spec.indexing import IndexingSpec
from merlot.sql.parse import parse
from merlot.testing.patience import PATIENCE_S, until

TREE = {"dimensionsSplitOrder": ["city"], "functionColumnPairs": ["SUM__amount"]}
MORE = {
    "sortedColumns": ["at"],
    "inverted": ["city", "amount"],
    "range": ["id"],
    "starTreeIndexConfigs": [TREE],
    "starTree": "auto",
    "timestampGranularities": {"at": ["HOUR"]},
}
"""Segments are built with the index of cities alone."""
BY_CITY = "SELECT city, SUM(amount) FROM orders GROUP BY city"
DAYS = (0, 1, 2)


def declare(bench: TableDataBench, fields: dict[str, Any]) -> None:
    table = orders_manifest()
    spec = table.spec.model_copy(update={"indexing": IndexingSpec.model_validate(fields)})
    put_table(bench.metastore, table.model_copy(update={"spec": spec}))


async def start_with(bench: TableDataBench, num_rows: int = 3000) -> tuple[TableDataManager, list[SegmentRecord]]:
    records = publish_orders(bench.metastore, bench.deep_store, DAYS, num_rows=num_rows)
    bench.assign(bench.me)
    started = await bench.start_manager()
    await until(lambda: len(bench.report().loaded) == len(DAYS))
    return started, records


def names(bench: TableDataBench, suffix: str) -> list[str]:
    folder = bench.path_of("x").parent
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))


def how(started: TableDataManager, sql: str) -> str:
    """The access paths that a query takes in all segments, as EXPLAIN tells."""
    state = started.state
    assert state is not None
    context = ExecutionContext(schema=state.spec.table_schema, indexing=state.spec.indexing)
    leaf = make_plan(bind(parse(sql), state.spec.table_schema)).leaf
    return str(explain(leaf, list(started.segments.segments.values()), context))


async def all_built(bench: TableDataBench, num: int = len(DAYS)) -> None:
    await until(lambda: (bench.report().indexing.wanted, bench.report().indexing.built) == (num, num))


async def test_what_a_live_table_is_given_is_made_beside_its_segments_and_used(bench: TableDataBench) -> None:
    started, records = await start_with(bench)
    assert "STARTREE" not in how(started, BY_CITY)
    held = started.segments.acquire([str(record.key) for record in records])
    declare(bench, MORE)
    await all_built(bench)
    assert "STARTREE" in how(started, BY_CITY)
    assert "inverted" in how(started, "SELECT COUNT(*) FROM orders WHERE amount = 7").lower()
    assert "$at$HOUR" in how(started, "SELECT id, DATETRUNC('HOUR', at) FROM orders")
    assert all(any(tree.is_automatic for tree in one.star_trees) for one in started.segments.segments.values())
    assert len(names(bench, ".midx")) == len(DAYS)
    assert names(bench, ".tmp") == []
    # Whoever reads the segments as they were goes on.
    assert all(one.column("amount").dict_ids() is not None for one in held.segments)  # type: ignore[union-attr]
    started.segments.release(held)


async def test_what_is_dropped_is_not_used_and_its_file_goes(bench: TableDataBench) -> None:
    started, _ = await start_with(bench)
    declare(bench, MORE)
    await all_built(bench)
    declare(bench, {"sortedColumns": ["at"], "inverted": ["city"]})
    await until(lambda: names(bench, ".midx") == [])
    assert "STARTREE" not in how(started, BY_CITY)
    assert all(one.sidecar_path is None for one in started.segments.segments.values())
    await until(lambda: bench.report().indexing.wanted == 0)


async def test_another_configuration_takes_the_place_of_the_one_before(bench: TableDataBench) -> None:
    started, _ = await start_with(bench)
    declare(bench, {**MORE, "starTreeIndexConfigs": []})
    await all_built(bench)
    before = names(bench, ".midx")
    declare(bench, MORE)
    await until(lambda: len(names(bench, ".midx")) == len(DAYS) and not set(before) & set(names(bench, ".midx")))
    assert "STARTREE" in how(started, BY_CITY)


async def test_a_restarted_server_has_its_indexes_at_once(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start_with(bench)
    declare(bench, MORE)
    await all_built(bench)
    await bench.stop_managers()
    monkeypatch.setattr(indexing, "build_sidecar", None)
    started = await bench.start_manager()
    assert "STARTREE" in how(started, BY_CITY)
    await all_built(bench)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def of_another_crc(path: Path) -> None:
    parts = taken_apart(path.read_bytes())
    parts.identity["segment_crc"] ^= 1
    path.write_bytes(put_together(parts))


def of_an_older_configuration(path: Path) -> None:
    path.rename(path.with_name(f"{path.name.split('.')[0]}.0123456789abcdef.midx"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("spoil", [flipped, of_another_crc, of_an_older_configuration, cut_short])
async def test_a_sidecar_that_is_not_right_is_ignored_and_made_again(bench: TableDataBench, spoil: Any) -> None:
    await start_with(bench)
    declare(bench, MORE)
    await all_built(bench)
    before = names(bench, ".midx")
    await bench.stop_managers()
    spoil(bench.path_of("x").with_name(before[0]))
    started = await bench.start_manager()
    assert started.is_settled
    await all_built(bench)
    await until(lambda: names(bench, ".midx") == before)
    assert "FILTER_FULL_SCAN" not in how(started, BY_CITY)
    assert await started.check(str(next(iter(started.segments.keys))))


async def test_a_sidecar_that_rots_while_it_is_served_is_made_again(bench: TableDataBench) -> None:
    started, _ = await start_with(bench)
    declare(bench, MORE)
    await all_built(bench)
    key, segment = next(iter(started.segments.segments.items()))
    path = segment.sidecar_path
    assert path is not None
    inode = path.stat().st_ino
    flipped(path)
    assert await started.check(key)
    assert started.segments.get(key) is not segment
    await until(lambda: path.exists() and path.stat().st_ino != inode)
    await all_built(bench)


async def test_a_full_disk_is_said_and_indexes_come_when_there_is_room(bench: TableDataBench) -> None:
    started, _ = await start_with(bench)
    bench.files.tuning = FULL_DISK
    declare(bench, MORE)
    await until(lambda: "no space left" in bench.report().indexing.problem)
    assert bench.report().indexing.built == 0
    assert bench.report().errors == {}
    assert "STARTREE" not in how(started, BY_CITY)
    bench.files.tuning = FileTuning()
    await all_built(bench)
    assert bench.report().indexing.problem == ""


async def test_a_segment_that_cannot_be_indexed_by_a_bug_keeps_no_other_from_its_indexes(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, records = await start_with(bench)

    def stumble(segment: ImmutableSegment, *rest: Any) -> Path:
        if segment.key == records[0].key:
            raise ValueError("not foreseen")
        return build.build_sidecar(segment, *rest)

    def stumbled() -> bool:
        return "ValueError" in bench.report().indexing.problem

    with monkeypatch.context() as buggy:
        buggy.setattr(indexing, "build_sidecar", stumble)
        declare(bench, MORE)
        await until(lambda: bench.report().indexing.built == len(DAYS) - 1 and stumbled())
    await all_built(bench)
    assert bench.report().indexing.problem == ""


async def test_a_failure_is_of_the_past_once_a_segment_has_its_sidecar(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it was fetched anew meanwhile: who waited for the moment to try again would never wait."""
    started, _ = await start_with(bench)
    bench.files.tuning = FULL_DISK
    declare(bench, MORE)
    await until(lambda: "no space left" in bench.report().indexing.problem)
    asked = IndexingSpec.model_validate(MORE)
    for key, segment in started.segments.segments.items():
        plan = plan_of(segment.look(), asked)
        path = build.build_sidecar(segment, plan, asked, bench.path_of("x").parent)
        started.segments.replace(key, segment.beside(Sidecar.open(path, segment.look())))
    await all_built(bench)
    await until(lambda: bench.report().indexing.problem == "")


async def test_a_tree_that_cannot_be_made_is_left_out_and_said(bench: TableDataBench) -> None:
    started, _ = await start_with(bench)
    small = {**TREE, "dimensionsSplitOrder": ["id", "city"], "maxDocuments": 10, "maxLeafRecords": 1}
    declare(bench, {**MORE, "starTreeIndexConfigs": [small, TREE]})
    await all_built(bench)
    assert bench.report().indexing.left_out == len(DAYS)
    assert "STARTREE" in how(started, BY_CITY)


async def test_a_segment_that_goes_takes_its_sidecar_along(bench: TableDataBench) -> None:
    await start_with(bench)
    declare(bench, MORE)
    await all_built(bench)
    await bench.stop_managers()
    await bench.start_manager(grace_s=0.0)
    bench.assign()
    bench.assign(bench.other)
    publish_report_of_other(bench)
    await until(lambda: names(bench, "") == [])


def publish_report_of_other(bench: TableDataBench) -> None:
    from merlot.clock import SystemClock
    from merlot.cluster.instances.liveness import register
    from merlot.cluster.instances.reports import write_report
    from merlot.cluster.records import InstanceRecord, Role

    record = InstanceRecord(id=bench.other, role=Role.SERVER, host="other", started_ms=SystemClock().now_ms())
    register(bench.metastore, record)
    write_report(bench.metastore, ORDERS, bench.other, bench.report().loaded, {})


async def test_killed_at_any_step_nothing_half_made_is_seen(bench: TableDataBench, tmp_path: Path) -> None:
    """Each buffer is a step, and each moment between parts."""
    _, records = await start_with(bench, num_rows=50)
    declare(bench, MORE)
    await bench.stop_managers()
    path = bench.path_of(str(records[0].key))
    for old in path.parent.glob("*.midx"):
        old.unlink()
    asked = IndexingSpec.model_validate(MORE).model_dump_json(by_alias=True)
    died, step = True, 0
    while died:
        builder = Child("tests.unit.server.dying_index_build", [str(path), asked, str(step)], tmp_path / "log")
        died = await asyncio.to_thread(builder.wait, PATIENCE_S) == -signal.SIGKILL
        assert bool(names(bench, ".midx")) is not died
        step += 8
    assert step > 16
    for old in path.parent.glob("*.midx"):
        old.unlink()
    assert names(bench, ".tmp")
    started = await bench.start_manager()
    assert started.is_settled
    assert names(bench, ".tmp") == []
    await all_built(bench)


def test_a_plan_is_empty_when_the_segment_has_all_that_is_asked_for(tmp_path: Path) -> None:
    built = build_orders(tmp_path, 0)
    with ImmutableSegment.open(built.path) as segment:
        assert plan_of(segment.metadata, orders_manifest().spec.indexing).is_empty
        asked = IndexingSpec.model_validate(MORE)
        plan = plan_of(segment.metadata, asked)
        assert [(one.column, one.kind) for one in plan.indexes] == [("amount", "inverted"), ("id", "range")]
        assert plan.digest == plan_of(segment.look(), asked).digest
        path = build.build_sidecar(segment, plan, asked, tmp_path)
        assert path.name == f"{segment.key}.{plan.digest}.midx"

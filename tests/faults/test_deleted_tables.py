"""Tables that are deleted in the middle of something, with their files or without: what shall go goes, what shall stay
is served again by the next table of the name."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.support.merges import MergeBench
from tests.support.sample import ORDERS, orders_manifest, upload_orders

from merlot.cluster import paths
from merlot.cluster.manifests import tables
from merlot.cluster.segments.mutations import ForgetReplacement
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load, load_retained
from merlot.cluster.tasks import queue
from merlot.controller.cleaning.cleaner import CleaningConfig
from merlot.controller.cleaning.trash import empty_trash
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.merges.passes import clean_up
from merlot.errors import MerlotError, NotFoundError
from merlot.spec.manifest import from_stored
from merlot.spec.table import Table
from merlot.testing.clock import FakeClock

SHARDS = {"num_shards": 2, "max_records_per_segment": 50}
DAY_S = 86_400.0


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[MergeBench]:
    bench = MergeBench(tmp_path, range(3), num_rows=40)
    yield bench
    bench.close()


def files_of(bench: MergeBench) -> list[Path]:
    return [path for path in (bench.folder / "deep").rglob("*") if path.is_file()]


def with_column(**field: str) -> Table:
    """The table of the sample with one of its columns as given."""
    document = tables.dump(orders_manifest())
    fields = document["spec"]["schema"]["fields"]
    document["spec"]["schema"]["fields"] = [one | field if one["name"] == field["name"] else one for one in fields]
    return from_stored(document)


class Controller:
    """The leader of a namespace, whose time passes as told."""

    def __init__(self, bench: MergeBench) -> None:
        self.clock = FakeClock(bench.clock.now_ms() + 1000)
        config = LoopConfig(owner="c", cleaning=CleaningConfig(orphan_scan_s=60), file_grace_s=3600)
        store = bench.deep_store
        self.loop = ControllerLoop(bench.inner, config, open_files=lambda _: store, clock=self.clock)

    def pass_days(self, days: int) -> None:
        """Some looks at everything."""
        for _ in range(4 * days):
            self.clock.advance(DAY_S / 4)
            self.loop.round()


@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("config", [{}, SHARDS], ids=["whole", "shards"])
def test_a_table_deleted_with_its_files_at_any_step_of_a_merge_leaves_none(
    config: dict[str, Any], is_killed: bool, tmp_path: Path
) -> None:
    steps: list[str] = []
    for number in itertools.count():
        bench = MergeBench(tmp_path / str(number), range(3), num_rows=40)
        bench.queue(**config)
        has_deleted = _run_until_deleted(bench, number, is_killed, steps)
        for task_id in bench.queued():
            bench.free_lease(task_id)
            bench.run(task_id, owner="Minion_2")
        clean_up(bench.inner, {}, None)
        assert bench.queued() == []
        clock = FakeClock(bench.clock.now_ms() + 1000)
        if has_deleted:
            empty_trash(bench.inner, lambda _, store=bench.deep_store: store, clock, grace_ms=3_600_000)
            assert files_of(bench) == [], steps[-1]
            assert tables.files_left(bench.inner, "orders") is None
        bench.close()
        if not has_deleted:
            break
    assert {"inputs fetched", "output uploaded", "outputs put"} <= set(steps)


def _run_until_deleted(bench: MergeBench, number: int, is_killed: bool, steps: list[str]) -> bool:
    count = itertools.count()
    has_deleted = False

    def reached(step: str) -> None:
        nonlocal has_deleted
        if next(count) == number:
            steps.append(step)
            tables.delete_table(bench.inner, "orders", files=tables.Files.NOW)
            has_deleted = True
            if is_killed:
                raise ProcessDied

    with contextlib.suppress(ProcessDied, NotFoundError):
        while not has_deleted and (queued := bench.queued()):
            bench.run(queued[0], reached=reached)
    return has_deleted


def test_retained_segments_are_the_next_table_s_of_the_name_whatever_the_trash_holds(bench: MergeBench) -> None:
    """Inputs of a merge wait in the trash while the table goes; nobody deletes what it has kept with them."""
    bench.queue()
    bench.run()
    mutate(bench.inner, ORDERS, lambda _: [ForgetReplacement("merge-0001")])
    controller = Controller(bench)
    tables.delete_table(bench.inner, "orders", files=tables.Files.KEEP)
    with pytest.raises(NotFoundError):
        load(bench.inner, ORDERS)
    controller.pass_days(3)
    assert len(files_of(bench)) == 1, "the inputs are deleted, they are in the output"
    record = tables.put_table(bench.inner, orders_manifest())
    assert (record.num_adopted, record.revision) == (1, 1)
    controller.pass_days(3)
    assert bench.visible_rows() == bench.expected_rows()
    again = publish(bench.inner, ORDERS, upload_orders(bench.deep_store, bench.days, 40))
    assert (again.published, len(again.unchanged)) == ((), 3), "what was merged is known still"
    controller.loop.close()


def test_a_retained_table_that_is_deleted_with_its_files_leaves_none(bench: MergeBench) -> None:
    tables.delete_table(bench.inner, "orders", files=tables.Files.KEEP)
    tables.delete_table(bench.inner, "orders", files=tables.Files.KEEP)
    assert len(files_of(bench)) == 3
    tables.delete_table(bench.inner, "orders", files=tables.Files.NOW)
    clock = FakeClock(bench.clock.now_ms() + 1000)
    assert empty_trash(bench.inner, lambda _: bench.deep_store, clock, grace_ms=0) == 3
    assert files_of(bench) == []
    assert tables.put_table(bench.inner, with_column(name="amount", type="STRING", role="dimension")).num_adopted == 0


def test_retained_segments_set_the_rules_for_the_next_table(bench: MergeBench) -> None:
    tables.delete_table(bench.inner, "orders", files=tables.Files.KEEP)
    text = with_column(name="city", type="INT")
    for apply in (tables.check_table, tables.put_table):
        with pytest.raises(tables.RetainedFilesError, match=r"STRING and cannot become INT.*deletionPolicy: Delete"):
            apply(bench.inner, text)
    document = tables.dump(orders_manifest())
    document["spec"]["deepStore"] = {"uri": "s3://elsewhere/merlot"}
    with pytest.raises(tables.RetainedFilesError, match=r"cannot change from the cluster's own to s3://elsewhere"):
        tables.put_table(bench.inner, from_stored(document))
    assert tables.find_table(bench.inner, "orders") is None
    wider = orders_manifest(more_fields="      - {name: note, type: STRING}")
    assert tables.put_table(bench.inner, wider).num_adopted == 3
    assert bench.visible_rows() == bench.expected_rows()


def test_a_table_without_segments_retains_nothing(bench: MergeBench) -> None:
    publish(bench.inner, ORDERS, (), replace=[record.name for record in bench.records])
    tables.delete_table(bench.inner, "orders", files=tables.Files.KEEP)
    assert bench.inner.children(paths.SEGMENTS) == []
    assert tables.put_table(bench.inner, with_column(name="city", type="INT")).num_adopted == 0


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
@pytest.mark.parametrize("is_merged", [False, True], ids=["pushed", "in a merge"])
def test_whoever_dies_while_a_table_is_retained_or_adopted_loses_no_row(
    is_merged: bool, fault: Fault, tmp_path: Path
) -> None:
    for at in itertools.count():
        bench = MergeBench(tmp_path / str(at), range(3), num_rows=40)
        if is_merged:
            _begin_merge(bench)
        faulty = FaultyMetastore(bench.inner, fault, at)
        for act in (_retain, _adopt):
            with contextlib.suppress(ProcessDied, MerlotError):
                act(faulty)
            is_there = tables.find_table(bench.inner, "orders") is not None
            view = load(bench.inner, ORDERS) if is_there else load_retained(bench.inner, ORDERS)
            assert view is not None
            assert {record.name for record in view.visible.values()} == {record.name for record in bench.records}
            act(bench.inner)
        assert bench.visible_rows() == bench.expected_rows()
        controller = Controller(bench)
        controller.pass_days(3)
        assert bench.visible_rows() == bench.expected_rows()
        assert len(files_of(bench)) == 3, "an output that nobody finishes is cleaned up"
        controller.loop.close()
        bench.close()
        if faulty.num_writes <= at:
            break
    assert at >= 2


def _begin_merge(bench: MergeBench) -> None:
    """A minion dies after its first output is there; nobody takes the task up again."""
    bench.queue()

    def reached(step: str) -> None:
        if step == "outputs put":
            raise ProcessDied

    with contextlib.suppress(ProcessDied):
        bench.run(reached=reached)
    bench.free_lease()
    bench.inner.delete(paths.task(queue.MERGE_ROLLUP, "t1"))


def _retain(store: Any) -> None:
    with contextlib.suppress(NotFoundError):
        if tables.find_table(store, "orders") is not None:
            tables.delete_table(store, "orders", files=tables.Files.KEEP)


def _adopt(store: Any) -> None:
    tables.put_table(store, orders_manifest())

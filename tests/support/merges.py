"""Merge tasks of `orders` without processes: a metastore, a deep store, and a server that loads segments at once.

Nothing runs by itself. `run` runs the task, and the server loads when the bench says so, at the steps that its crash
point sees. So a fault can be injected at every step of a task, one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.sample import ORDERS, START_MS, order_rows, publish_orders

from merlot.catalog.transfer import verify
from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.instances.reports import ReportWriter
from merlot.cluster.records import InstanceRecord, Role
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue as tasks
from merlot.cluster.tasks.queue import MergeTaskConfig, TaskRecord
from merlot.controller.cleaning.trash import empty_trash
from merlot.errors import NotFoundError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion.control import TaskControl
from merlot.minion.execution import Ending, Execution
from merlot.minion.merge_rollup import MergeRollup
from merlot.minion.settings import MergeSettings
from merlot.minion.spark_merge import SparkLauncher
from merlot.minion.tuning import MinionTuning
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.tasks import MERGE_LEVEL, MergeType
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy
from merlot.values.periods import DAY_MS

LEVEL = "weekly"
ENTRY = "merge-0001"
SERVER = InstanceId("Server_bench_1")


def merge_task_of(records: Sequence[Any], num_days: int, **config: Any) -> TaskRecord:
    """Return a task that merges these segments into one bucket of the first `num_days` days."""
    merge = MergeTaskConfig(
        rollup="orders",
        level=LEVEL,
        level_index=0,
        bucket_period=f"{num_days}d",
        windows=((START_MS, START_MS + num_days * DAY_MS),),
        inputs=tuple(record.key_text for record in records),
        num_records=sum(record.total_docs for record in records),
        num_bytes=sum(record.size_bytes for record in records),
        entry=ENTRY,
        output_prefix="merged_weekly_0001",
        custom_map={MERGE_LEVEL: LEVEL},
    ).model_copy(update=config)
    return TaskRecord(id="t1", kind=tasks.MERGE_ROLLUP, table=ORDERS, created_ms=1, config=tasks.config_json(merge))


class MergeBench:
    """Environment of a merge task. `inner` is the metastore without faults."""

    def __init__(
        self, folder: Path, days: Sequence[int] = range(4), *, deep_store: str | None = None, num_rows: int = 100
    ) -> None:
        self.folder = folder
        self.clock: Clock = SystemClock()
        self.inner = SqliteMetastore(folder / "metastore.sqlite")
        self.store_uri = deep_store or str(folder / "deep")
        self.deep_store = DeepStore(self.store_uri, retry=RetryPolicy(attempts=2, first_wait=0.001))
        """Deep store that gives up soon."""
        self.days = days
        self.num_rows = num_rows
        self.tuning = MinionTuning(backoff=tasks.Backoff(first_ms=0))
        """Tuning of the minions; they try a task again without a pause."""
        record = InstanceRecord(id=SERVER, role=Role.SERVER, host="bench")
        self.inner.create(paths.live(SERVER), record.to_bytes(), ephemeral=True)
        self.publish_anew()

    def publish_anew(self) -> None:
        """Create the table again with the same segments, after it was deleted."""
        self.records = publish_orders(self.inner, self.deep_store, self.days, num_rows=self.num_rows)
        self._report = ReportWriter(self.inner, ORDERS, SERVER)
        self.serve()

    def close(self) -> None:
        self.inner.close()

    def queue(self, **config: Any) -> TaskRecord:
        """Queue the task that merges all days."""
        task = merge_task_of(self.records, len(self.days), **config)
        self.inner.create(paths.task(task.kind, task.id), task.to_bytes())
        return task

    def serve(self) -> None:
        """Act as the controller and the server: assign, load and report all segments. A missing file is reported as an
        error."""
        view = mutate(self.inner, ORDERS, lambda view: [Assign(dict.fromkeys(view.segments, (SERVER,)))])
        errors = {}
        for record in view.segments.values():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.deep_store.fetch(record.url, Path(folder) / "s", verify=partial(verify, record=record))
                except NotFoundError as error:
                    errors[record.key_text] = str(error)
        loaded = {record.key_text for record in view.segments.values()} - errors.keys()
        self._report.write(loaded, errors)

    def view(self) -> TableView:
        """Return the published segments."""
        return load(self.inner, ORDERS)

    def visible_rows(self) -> list[dict[str, Any]]:
        """Return the rows that a query of everything answers, sorted. They are read from the deep store's files of the
        visible segments."""
        rows: list[dict[str, Any]] = []
        for record in self.view().visible.values():
            rows += self.rows_of(record.url)
        return sorted(rows, key=lambda row: (row["at"], row["id"], row["city"]))

    def rows_of(self, url: str) -> list[dict[str, Any]]:
        """Return the rows of one file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "s"
            self.deep_store.fetch(url, path)
            with ImmutableSegment.open(path, verify=True) as segment:
                columns = {}
                for name in segment.column_names:
                    column = segment.column(name)
                    assert column is not None
                    if column.dictionary is None:
                        columns[name] = column.values().tolist()
                    else:
                        ids = pa.array(column.dict_ids())
                        columns[name] = column.dictionary.arrow().take(ids).to_pylist()
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def expected_rows(self) -> list[dict[str, Any]]:
        """Return all rows of the table, in the form of `visible_rows`."""
        rows = [row for day in self.days for row in order_rows(day, self.num_rows).to_pylist()]
        return sorted(rows, key=lambda row: (row["at"], row["id"], row["city"]))

    def run(
        self,
        task_id: str = "t1",
        *,
        metastore: Metastore | None = None,
        reached: Callable[[str], None] = lambda _: None,
        owner: str = "Minion_1",
        store: Any = None,
        spark: SparkLauncher | None = None,
    ) -> Ending | None:
        """Run the task as a minion does, in this thread; return None if another minion has it. store: the task's deep
        store."""
        metastore = metastore or self.inner
        kind = tasks.MERGE_ROLLUP
        lease = Lease.acquire(metastore, tasks.lease_name(kind, task_id), owner, self.clock)
        if lease is None:
            return None

        def at(step: str) -> None:
            reached(step)
            if step == "outputs put":
                self.serve()

        settings = MergeSettings(
            folder=self.folder / owner,
            open_store=lambda _: store or self.deep_store,
            load_timeout_s=0.0,
            load_look_s=0.0,
            spark=spark,
        )
        execution = Execution(metastore, self.clock, MergeRollup(metastore, self.clock, settings), self.tuning)
        control = TaskControl(lease, reached=at)
        ending = execution.execute(task_id, kind, control)
        lease.release(metastore)
        return ending

    def queued(self) -> list[str]:
        """Return the tasks that have not ended."""
        return self.inner.children(paths.tasks(tasks.MERGE_ROLLUP))

    def register(self, minion: str) -> None:
        """Register a live minion."""
        record = InstanceRecord(id=InstanceId(minion), role=Role.MINION, host="bench", started_ms=self.clock.now_ms())
        self.inner.create(paths.live(minion), record.to_bytes(), ephemeral=True)

    def clean(self) -> int:
        """Act as the cleaner, without a grace period: delete the files in the trash; return their number."""
        return empty_trash(self.inner, lambda _: self.deep_store, self.clock, grace_ms=0)

    def free_lease(self, task_id: str = "t1") -> None:
        """End the session of the minion that ran the task."""
        path = paths.lease(tasks.lease_name(tasks.MERGE_ROLLUP, task_id))
        for pulse in self.inner.children(path):
            self.inner.delete(paths.child(path, pulse))


def rollup_config() -> dict[str, Any]:
    """Return the config of a task that rolls `orders` up by day and city."""
    return {"merge_type": MergeType.ROLLUP, "round_period": "1d", "erase_dimensions": ("id",)}

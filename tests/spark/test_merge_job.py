"""A large bucket merged by Spark has the rows that a minion's merge of it has, and a minion starts it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.merges import MergeBench, rollup_config
from tests.support.sample import ORDERS, START_MS, orders_manifest

from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks import queue
from merlot.errors import InvalidInputError
from merlot.minion.execution import Ending
from merlot.minion.spark_merge import SparkLauncher, SparkOrder
from merlot.spec import manifest
from merlot.spec.tasks import Executor
from merlot.values.periods import DAY_MS
from merlot_spark import merge_job
from merlot_spark.merge_executor import MergeOrder

CONCAT: dict[str, Any] = {"num_shards": 3, "executor": Executor.SPARK}
ROLLUP = {**CONCAT, **rollup_config()}
SPILLING = {
    **CONCAT,
    "windows": ((START_MS, START_MS + 2 * DAY_MS),),
    "rest": ((START_MS + 2 * DAY_MS, START_MS + 4 * DAY_MS),),
    "rest_prefix": "spilled_0001",
}


class InThisSession(SparkLauncher):
    """Runs the job in the tests' own session: another JVM would take ten seconds."""

    def run(self, order: SparkOrder, folder: Path, control: Any) -> list[SegmentRecord]:
        document = json.loads(json.dumps(order.to_json()))
        merge_order = MergeOrder(
            manifest_text=json.dumps(document["table"]),
            config_text=queue.merge_config(queue.TaskRecord.model_validate(document["task"])).model_dump_json(
                by_alias=True
            ),
            deep_store=order.deep_store,
            inputs=tuple(map(json.dumps, document["inputs"])),
        )
        session = SparkSession.getActiveSession()
        assert session is not None
        return [SegmentRecord.model_validate(one) for one in merge_job.merge(session, merge_order)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[MergeBench]:
    bench = MergeBench(tmp_path / "bench")
    yield bench
    bench.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("config", [CONCAT, ROLLUP, SPILLING], ids=["concat", "rollup", "spilling"])
def test_spark_and_a_minion_make_the_same_rows(config: dict[str, Any], bench: MergeBench, tmp_path: Path) -> None:
    by_minion = MergeBench(tmp_path / "minion")
    by_minion.queue(**{**config, "executor": Executor.MINION, "num_shards": 1})
    assert by_minion.run() is Ending.DONE
    bench.queue(**config)
    assert bench.run(spark=InThisSession()) is Ending.DONE
    assert bench.visible_rows() == by_minion.visible_rows()
    names = [record.name for record in bench.view().visible.values()]
    assert sum("_s" in name for name in names) >= 2, "in several parts"
    assert bench.queued() == []
    by_minion.close()


@pytest.mark.usefixtures("spark")
def test_spark_loses_no_rows_that_are_in_no_window(bench: MergeBench) -> None:
    bench.queue(**CONCAT, windows=SPILLING["windows"])
    assert bench.run(spark=InThisSession()) is Ending.POISONED
    found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, "t1")
    assert found is not None
    assert found.record.last_error.startswith("rows of the inputs would be lost: their time is in no window")
    assert bench.visible_rows() == bench.expected_rows()


def test_a_minion_without_spark_says_what_is_missing(bench: MergeBench) -> None:
    bench.queue(**CONCAT)
    assert bench.run() is Ending.POISONED
    found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, "t1")
    assert found is not None
    assert found.record.last_error.startswith(
        "executor spark needs pyspark beside the minion: run `pip install -e '.[spark]'`"
    )


def test_the_job_as_a_process_of_its_own_reports_a_wrong_task_in_one_line(bench: MergeBench, tmp_path: Path) -> None:
    task = bench.queue(**CONCAT).model_copy(update={"config": {}})
    order = SparkOrder(task=task, table=orders_manifest(), inputs=bench.records, deep_store=bench.store_uri)

    class Control:
        def check(self) -> None:
            return

    with pytest.raises(InvalidInputError, match=r"^Spark job failed task=t1 cause=task cannot be read"):
        SparkLauncher().run(order, tmp_path / "spark", Control())  # type: ignore[arg-type]


@pytest.mark.slow("a minion runs the same process in test_spark_minions")
@pytest.mark.timeout(600)
def test_the_job_as_a_process_of_its_own_merges(bench: MergeBench) -> None:
    bench.queue(**CONCAT)
    assert bench.run(spark=SparkLauncher()) is Ending.DONE
    assert bench.visible_rows() == bench.expected_rows()
    assert manifest.dump(orders_manifest())["metadata"]["name"] == "orders"
    assert len(bench.deep_store.list(ORDERS)) == len(bench.view().segments)

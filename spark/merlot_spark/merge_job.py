"""`python -m merlot_spark.merge_job`: merge one large bucket of a MergeRollupTask as a Spark job.

A minion starts the job and publishes the outputs. Executors read the inputs' rows, and Spark groups rows that may
become a single row. Each group is merged by the very code that a minion runs, so the result has the same rows. Exit
codes: 0 success, 1 something outside failed, 2 the task is wrong or an input is damaged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from merlot.cluster.tasks.queue import MergeTaskConfig, TaskRecord, merge_config
from merlot.errors import CorruptionError, InvalidInputError, MerlotError
from merlot.spec import manifest
from merlot_spark import failures, merge_executor
from merlot_spark.build_job import EXIT_FAILED, EXIT_WRONG_INPUT
from merlot_spark.merge_executor import MergeOrder
from merlot_spark.session import create_session

PIECE_BY_PIECE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
"""Setting for one row at a time: a row here is a file of some megabytes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job that the arguments describe; return the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        records = _run(chosen)
    except MerlotError as error:
        chosen.report.write_text(json.dumps({"error": str(error)}))
        return EXIT_WRONG_INPUT if isinstance(error, InvalidInputError | CorruptionError) else EXIT_FAILED
    chosen.report.write_text(json.dumps({"records": records}))
    return 0


def merge(spark: SparkSession, order: MergeOrder) -> list[dict[str, Any]]:
    """Build and upload the outputs of the order's inputs; return the outputs' records, sorted by name."""
    # A task per input. Their records travel with the order: an RDD of Python's would start workers of its own.
    numbers = spark.range(0, len(order.inputs), 1, max(1, len(order.inputs)))
    pieces = numbers.mapInArrow(merge_executor.divide(order), from_arrow_schema(merge_executor.PIECE_SCHEMA))
    shard = merge_executor.SHARD
    grouped = pieces.repartition(order.config.num_shards + 1, shard).sortWithinPartitions(shard)
    built = grouped.mapInArrow(merge_executor.build(order), from_arrow_schema(merge_executor.RECORD_SCHEMA))
    with failures.translated():
        rows = list(built.collect())
    return sorted((json.loads(row.record) for row in rows), key=lambda record: str(record["name"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m merlot_spark.merge_job", description="Merge one bucket.")
    parser.add_argument("--task", required=True, type=Path, help="the task and its table, as JSON")
    parser.add_argument("--report", required=True, type=Path, help="file for the outputs' records")
    parser.add_argument("--deep-store", required=True, help="URI of the deep store")
    parser.add_argument("--master", default="local[2]", help="Spark master (%(default)s)")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="setting of the session")
    return parser


def _run(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    try:
        document = json.loads(chosen.task.read_text())
        task = TaskRecord.model_validate(document["task"])
        config: MergeTaskConfig = merge_config(task)
        table = manifest.from_stored(document["table"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(f"cannot read the task path={chosen.task} reason={error}") from error
    order = MergeOrder(
        manifest_text=json.dumps(manifest.dump(table)),
        config_text=config.model_dump_json(by_alias=True),
        deep_store=chosen.deep_store,
        inputs=tuple(json.dumps(record) for record in document["inputs"]),
    )
    settings = PIECE_BY_PIECE | dict(text.partition("=")[::2] for text in chosen.conf)
    with failures.translated():
        spark = create_session(chosen.master, is_short=True, settings=settings)
        try:
            return merge(spark, order)
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())

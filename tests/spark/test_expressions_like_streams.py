"""A filter says the same of messages, whether a stream brings them or a file that Spark reads."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from tests import budget
from tests.contracts.ingestion.random_filters import message, predicate
from tests.spark.conftest import Place
from tests.spark.opened_parcels import rows_and_counts

from merlot.ingest.stream import Pipeline
from merlot.spec import manifest
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import Table
from merlot.streams.protocol import Messages
from merlot_spark import frames, sources
from merlot_spark.preparing import PrepareTask

NUM_FILTERS = budget.count("MERLOT_SPARK_FILTERS", quick=25, every=300)
NUM_MESSAGES = 60


def test_spark_and_a_stream_say_the_same_of_every_message(spark: SparkSession, folder: Place) -> None:
    draw = random.Random(budget.seed())
    sent = [json.dumps(message(draw, number)).encode() for number in range(NUM_MESSAGES)]
    verdicts = {f"v{number}": predicate(draw).sql for number in range(NUM_FILTERS)}
    table = table_of([{"name": "id", "type": "LONG"}], verdicts, "BOOLEAN")
    by_spark, by_stream = read_by_spark(spark, folder, table, sent), streamed(table, sent)
    assert by_spark.num_rows == by_stream.num_rows == NUM_MESSAGES
    for name, sql in verdicts.items():
        assert by_spark.column(name).to_pylist() == by_stream.column(name).to_pylist(), sql


def test_expressions_of_spark_and_of_a_stream_see_the_same_instants(spark: SparkSession, folder: Place) -> None:
    instants = ["2013-07-15 22:19:55.123", "1969-12-31T23:59:59.999Z", 1_373_926_795_123, -1, 2**63 - 1, 1 - 2**63]
    sent = [json.dumps({"id": number, "at": instant}).encode() for number, instant in enumerate(instants)]
    fields = [{"name": "id", "type": "LONG"}, {"name": "at", "type": "TIMESTAMP", "role": "dateTime"}]
    derived = {"year": "CASE WHEN id < 4 THEN year(at) END", "is_past": "CAST(at < '2013-07-16 00:00:00' AS INT)"}
    table = table_of(fields, derived, "INT")
    for rows in (read_by_spark(spark, folder, table, sent), streamed(table, sent)):
        assert rows.column("year").to_pylist() == [2013, 1969, 2013, 1969, None, None]
        assert rows.column("is_past").to_pylist() == [1, 1, 1, 1, 0, 1]


def read_by_spark(spark: SparkSession, folder: Place, table: Table, sent: list[bytes]) -> pa.Table:
    folder.put("filtered/messages.json", b"\n".join([*sent, b""]))
    declared = table.spec.ingestion.stream
    assert declared is not None
    source = BatchIngestion.model_validate(
        {"format": "JSON", "sourceUri": folder.uri("filtered"), "derivedColumns": declared.derived_columns}
    )
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=1)
    packed = sources.read(spark, source, table).prepare(table, task).rows.toArrow().to_batches()
    return rows_and_counts(packed, table)[0].sort_by("id")


def table_of(fields: list[dict[str, str]], derived: dict[str, str], derived_type: str) -> Table:
    fields = [*fields, *({"name": name, "type": derived_type} for name in derived)]
    stream = {"type": "files", "topic": "t", "derivedColumns": derived}
    document = {
        "apiVersion": "merlot.dev/v1alpha1",
        "kind": "Table",
        "metadata": {"name": "filtered"},
        "spec": {"schema": {"fields": fields}, "ingestion": {"stream": stream}},
    }
    (table,) = manifest.load(json.dumps(document))
    assert isinstance(table, Table)
    return table


def streamed(table: Table, sent: list[bytes]) -> pa.Table:
    declared = table.spec.ingestion.stream
    assert declared is not None
    messages = Messages(
        values=pa.array(sent, pa.large_binary()),
        offsets=np.arange(len(sent), dtype=np.int64),
        timestamps_ms=np.full(len(sent), -1, dtype=np.int64),
        next_offset=len(sent),
    )
    return Pipeline(table.spec, declared, 0).rows(messages).rows

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
    table = table_of(verdicts)
    folder.put("filtered/messages.json", b"\n".join([*sent, b""]))
    source = BatchIngestion.model_validate(
        {"format": "JSON", "sourceUri": folder.uri("filtered"), "derivedColumns": verdicts}
    )
    task = PrepareTask(manifest_text=frames.manifest_text(table), num_tasks=1)
    packed = sources.read(spark, source, table).prepare(table, task).rows.toArrow().to_batches()
    by_spark = rows_and_counts(packed, table)[0].sort_by("id")
    by_stream = streamed(table, sent)
    assert by_spark.num_rows == by_stream.num_rows == NUM_MESSAGES
    for name, sql in verdicts.items():
        assert by_spark.column(name).to_pylist() == by_stream.column(name).to_pylist(), sql


def table_of(verdicts: dict[str, str]) -> Table:
    """With a BOOLEAN column for each predicate."""
    fields = [{"name": "id", "type": "LONG"}, *({"name": name, "type": "BOOLEAN"} for name in verdicts)]
    stream = {"type": "files", "topic": "t", "derivedColumns": verdicts}
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

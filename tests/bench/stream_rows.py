"""Rows a second that become of messages on one core, by form: `python -m tests.bench.stream_rows`.

Decoding and conforming alone, in CPU time of the thread, and with MERLOT_KAFKA also what a partition's thread consumes.
"""

import io
import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from merlot.ingest.stream import Pipeline
from merlot.spec.table import TableSpec
from merlot.streams.kafka import KafkaStream
from merlot.streams.protocol import Messages, StreamSettings

BATCHES = (10_000, 1_000, 100)
KAFKA_MESSAGES = 500_000
FIELDS = [
    {"name": "key", "type": "LONG"},
    {"name": "city", "type": "STRING"},
    {"name": "fare", "type": "DOUBLE", "role": "metric"},
    {"name": "rides", "type": "INT", "role": "metric"},
    {"name": "ts", "type": "TIMESTAMP", "role": "dateTime"},
]
AVRO = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "key", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "fare", "type": "double"},
        {"name": "rides", "type": ["null", "int"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def rows(count: int) -> list[dict[str, Any]]:
    """As JSON with spaces, 97 bytes each."""
    random = np.random.default_rng(1)
    return [
        {
            "key": int(random.integers(10**9, 10**10)),
            "city": f"city-number-{random.integers(10_000):05d}",
            "fare": round(float(random.random()) * 90 + 10, 2),
            "rides": int(random.integers(10)),
            "ts": 1_600_000_000_000 + number,
        }
        for number in range(count)
    ]


def json_messages(made: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in made]


def avro_messages(made: list[dict[str, Any]]) -> list[bytes]:
    schema = fastavro.parse_schema(AVRO)
    found = []
    for row in made:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, row)
        found.append(sink.getvalue())
    return found


def csv_messages(made: list[dict[str, Any]]) -> list[bytes]:
    return [",".join(str(value) for value in row.values()).encode() for row in made]


def arrow_messages(made: list[dict[str, Any]]) -> list[bytes]:
    """A thousand rows in each."""
    found = []
    for start in range(0, len(made), 1_000):
        table = pa.Table.from_pylist(made[start : start + 1_000])
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        found.append(sink.getvalue())
    return found


FORMS: dict[str, tuple[Callable[[list[dict[str, Any]]], list[bytes]], dict[str, Any]]] = {
    "JSON": (json_messages, {"type": "JSON"}),
    "CSV": (csv_messages, {"type": "CSV"}),
    "AVRO": (avro_messages, {"type": "AVRO", "avroSchema": json.dumps(AVRO)}),
    "ARROW": (arrow_messages, {"type": "ARROW"}),
}


def pipeline(decoder: dict[str, Any]) -> Pipeline:
    spec = TableSpec.model_validate(
        {
            "schema": {"fields": FIELDS},
            "timeColumn": "ts",
            "ingestion": {"stream": {"type": "files", "topic": "trips", "decoder": decoder}},
        }
    )
    declared = spec.ingestion.stream
    assert declared is not None
    return Pipeline(spec, declared, 0)


def polled(values: list[bytes]) -> Messages:
    return Messages(
        values=pa.array(values, pa.large_binary()),
        offsets=np.arange(len(values), dtype=np.int64),
        timestamps_ms=np.zeros(len(values), np.int64),
        next_offset=len(values),
    )


def measure(form: str, num_rows: int) -> float:
    """Microseconds of CPU a row: the best of seven."""
    make, decoder = FORMS[form]
    messages, made = polled(make(rows(num_rows))), pipeline(decoder)
    assert made.rows(messages).rows.num_rows == num_rows
    best = float("inf")
    repeats = max(1, 100_000 // num_rows)
    for _ in range(7):
        start = time.thread_time()
        for _ in range(repeats):
            made.rows(messages)
        best = min(best, (time.thread_time() - start) / repeats / num_rows)
    return best * 1e6


def consume(servers: str) -> None:
    """A topic of one partition, read to its end by one thread."""
    from confluent_kafka import Producer

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": KAFKA_MESSAGES})
    for message in json_messages(rows(10_000)) * (KAFKA_MESSAGES // 10_000):
        producer.produce(topic, message)
    producer.flush()
    stream = KafkaStream(StreamSettings(topic=topic, properties={"bootstrap.servers": servers}))
    reader, made = stream.reader(0, 0), pipeline({"type": "JSON"})
    num_rows, num_polls, reading_s = 0, 0, 0.0
    started, started_cpu = time.perf_counter(), time.process_time()
    thread_start = time.thread_time()
    while num_rows < KAFKA_MESSAGES:
        before = time.thread_time()
        messages = reader.poll(10_000, 1.0)
        reading_s += time.thread_time() - before
        num_rows += made.rows(messages).rows.num_rows
        num_polls += 1
    wall, cpu, thread = (
        time.perf_counter() - started,
        time.process_time() - started_cpu,
        time.thread_time() - thread_start,
    )
    reader.close()
    stream.close()
    print(f"Kafka, JSON: {num_rows / wall:,.0f} rows/s, {num_rows / num_polls:,.0f} a poll; CPU a row: all threads "
          f"{cpu / num_rows * 1e6:.2f} us, ours {thread / num_rows * 1e6:.2f} us, of it polling "
          f"{reading_s / num_rows * 1e6:.2f} us")  # fmt: skip


def main() -> None:
    """Print a line per form and size of batch."""
    print(f"JSON has {np.mean(list(map(len, json_messages(rows(1_000))))):.0f} bytes a message")
    for form in FORMS:
        for num_rows in BATCHES:
            spent = measure(form, num_rows)
            print(f"{form:5} {num_rows:6,} rows a batch: {spent:5.2f} us a row, {1e6 / spent:9,.0f} rows/s of one core")
    if servers := os.environ.get("MERLOT_KAFKA"):
        consume(servers)


if __name__ == "__main__":
    main()

"""Whatever a topic holds, it is consumed to its end: what is no row is counted, with its offset, and spoils nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.contracts.streams.folder_topic import Folder
from tests.contracts.streams.kafka_topics import NO_KAFKA, REAL, KafkaTopic, mock_cluster, mock_topic, real_topic

from merlot.ingest.bad_rows import BadRows
from merlot.ingest.stream import Pipeline
from merlot.spec.table import TableSpec
from merlot.streams.protocol import StreamClient
from merlot.testing.patience import PATIENCE_S, wait_until
from merlot.testing.stream_contract import Topic

SPEC = TableSpec.model_validate(
    {
        "schema": {
            "fields": [
                {"name": "city", "type": "STRING", "maxLength": 100_000_000},
                {"name": "rides", "type": "INT", "role": "metric"},
                {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
                {"name": "place", "type": "LONG"},
            ]
        },
        "timeColumn": "at",
        "ingestion": {"stream": {"type": "files", "topic": "trips", "metadata": {"place": "offset"}}},
    }
)


def good(city: str) -> bytes:
    return b'{"city": "%s", "rides": 1, "at": 1000}' % city.encode()


KAFKAS = ["mock", pytest.param("kafka", marks=pytest.mark.cluster)]


@pytest.fixture(params=["files", *KAFKAS])
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Topic]:
    if request.param == "files":
        yield Folder(tmp_path / "topic")
    elif request.param == "mock":
        with mock_cluster() as cluster, mock_topic(*cluster) as made:
            yield made
    elif not REAL:
        pytest.skip(NO_KAFKA)
    else:
        with real_topic() as made:
            yield made


def consumed(stream: StreamClient, start: int, latest: int) -> tuple[list[str], list[int], BadRows, int]:
    """Cities, their offsets, bad rows and tombstones up to the end."""
    declared = SPEC.ingestion.stream
    assert declared is not None
    pipeline, reader = Pipeline(SPEC, declared, 0), stream.reader(0, start)
    cities: list[str] = []
    offsets: list[int] = []
    bad, num_tombstones, reached = BadRows(), 0, start

    def is_at_end() -> bool:
        nonlocal bad, num_tombstones, reached
        found = pipeline.rows(reader.poll(3, 0.2))
        cities.extend(found.rows.column("city").to_pylist())
        offsets.extend(found.offsets.tolist())
        assert found.rows.column("place").to_pylist() == found.offsets.tolist()
        bad, num_tombstones, reached = bad + found.bad, num_tombstones + found.num_tombstones, found.next_offset
        return reached >= latest

    try:
        wait_until(is_at_end, PATIENCE_S)
    finally:
        reader.close()
    return cities, offsets, bad, num_tombstones


def test_poison_is_counted_and_passed(topic: Topic) -> None:
    large = "x" * (topic.largest - 1000)
    sent: Sequence[bytes] = [
        *(good("a"), b'{"city": "cut', b'{"city": "b", "rides": "many", "at": 1}', b'{"city": "c", "rides": 1}'),
        *(b"\xff\xfe", good("d"), b"[]", b"null", b'{"city": "e", "rides": 3000000000, "at": 1}', good(large)),
        *(b'{"a": 1} {"a": 2}', good("f")),
    ]
    start = topic.stream.offsets(0).earliest
    topic.write(0, sent)
    cities, offsets, bad, _ = consumed(topic.stream, start, topic.stream.offsets(0).latest)
    assert [city[:1] for city in cities] == ["a", "d", "x", "f"]
    assert cities[2] == large
    assert offsets == sorted(set(offsets))
    assert bad.by_reason == {
        "at: no time": 1,
        "rides: not a value of INT": 2,
        "the message is no record": 5,
    }
    assert all(sample.row_number not in offsets and sample.file == "trips#0" for sample in bad.samples)


@pytest.mark.parametrize("topic", KAFKAS, indirect=True)
def test_message_without_key_or_value_is_no_poison(topic: KafkaTopic) -> None:
    topic.write(0, [good("a"), None, good("b")])
    topic.write(0, [None], b"key")
    cities, _, bad, num_tombstones = consumed(topic.stream, 0, 4)
    assert (cities, bad.count, num_tombstones) == (["a", "b"], 0, 2)

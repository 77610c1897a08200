"""The producer of tests that kill brokers writes each row once, also if librdkafka gives up a partition for good."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from tests.contracts.streams.kafka_topics import mock_cluster, mock_topic
from tests.e2e.pods import lasting_producer
from tests.e2e.pods.lasting_producer import LastingProducer

from merlot.testing.stream_contract import read, values_of


class StuckPartition:
    """Producer that sends nothing to one partition."""

    def __init__(self, producer: Producer, partition: int) -> None:
        self._producer, self._partition = producer, partition

    def produce(self, topic: str, row: str, *, partition: int, **options: Any) -> None:
        if partition != self._partition:
            self._producer.produce(topic, row, partition=partition, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


def test_a_producer_that_waits_in_vain_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_producer, "STUCK_S", 1.0)
    monkeypatch.setattr(lasting_producer, "LOOK_S", 0.1)
    with mock_cluster() as (servers, writer), mock_topic(servers, writer) as topic:
        heard: list[int] = []
        producer = LastingProducer({"bootstrap.servers": servers}, topic.name, 1, acknowledged=heard.append)
        for number in range(100):
            assert producer.send(0, str(number))
        assert producer.flush(30)
        # The log has a row that was not acknowledged, and its client reaches no broker any more.
        topic.write(0, [b"100"])
        producer._producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        producer.send_all(0, map(str, range(100, 200)))
        assert producer.flush(30)
        assert heard == [0] * 200
        assert producer.failed == []
        reader = topic.stream.reader(0, 0)
        assert values_of(read(reader, 200)) == [b"%d" % number for number in range(200)]
        reader.close()


def test_one_stuck_partition_is_noticed_beside_one_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_producer, "STUCK_S", 1.0)
    monkeypatch.setattr(lasting_producer, "LOOK_S", 0.1)
    with mock_cluster() as (servers, writer), mock_topic(servers, writer) as topic:
        producer = LastingProducer({"bootstrap.servers": servers}, topic.name, 2)
        producer._producer = StuckPartition(producer._producer, 1)  # type: ignore[assignment]
        sent = 0
        while isinstance(producer._producer, StuckPartition):
            producer.send_all(0, [str(sent)])
            producer.send_all(1, [str(sent)])
            sent += 1
            producer.poll(0.01)
        assert producer.flush(30)
        for partition in (0, 1):
            reader = topic.stream.reader(partition, 0)
            assert values_of(read(reader, sent)) == [b"%d" % number for number in range(sent)]
            reader.close()

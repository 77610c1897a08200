"""The producer of tests that kill brokers writes each row once, also if librdkafka gives up a partition for good."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.contracts.streams.kafka_topics import mock_cluster, mock_topic
from tests.e2e.pods import lasting_producer
from tests.e2e.pods.lasting_producer import LastingProducer

from merlot.testing.stream_contract import read, values_of


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
        for number in range(100, 200):
            assert producer.send(0, str(number))
        assert producer.flush(30)
        assert heard == [0] * 200
        assert producer.failed == []
        reader = topic.stream.reader(0, 0)
        assert values_of(read(reader, 200)) == [b"%d" % number for number in range(200)]
        reader.close()

"""Topics of a real Kafka (MERLOT_KAFKA) and of librdkafka's mock cluster, for tests that write to them."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from merlot.errors import UnavailableError
from merlot.streams.kafka import KafkaStream
from merlot.streams.protocol import StreamSettings, TopicGoneError
from merlot.testing.patience import wait_until

REAL = os.environ.get("MERLOT_KAFKA", "")
NO_KAFKA = "needs a real Kafka: set MERLOT_KAFKA to its bootstrap servers"
LARGE = 100 << 20
FOREVER = {"retention.ms": "-1"}
"""Settings of a topic that deletes nothing: brokers count a message's age from its timestamp, which a test chooses."""


def stream_of(servers: str, topic: str, **settings: Any) -> KafkaStream:
    properties = {"bootstrap.servers": servers, "fetch.error.backoff.ms": "50"}
    return KafkaStream(StreamSettings(topic=topic, properties=properties, **settings))


class KafkaTopic:
    """A topic that nobody else has."""

    admin: AdminClient

    def __init__(self, servers: str, producer: Producer, name: str, num_partitions: int, largest: int) -> None:
        self.servers = servers
        self.name = name
        self.producer = producer
        self.num_partitions = num_partitions
        self.largest = largest
        self.stream = stream_of(servers, name)

    def write(self, partition: int, values: Sequence[bytes | None], key: bytes | None = None) -> None:
        failed: list[object] = []
        for value in values:
            self.producer.produce(
                self.name,
                value,
                key,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self.producer.flush(60) == 0
        assert failed == []

    def make_anew(self) -> None:
        """Delete the topic and make another one of its name."""
        for deleted in self.admin.delete_topics([self.name]).values():
            deleted.result(30)
        wait_until(lambda: self.name not in self.admin.list_topics(timeout=10).topics)
        for made in self.admin.create_topics([NewTopic(self.name, self.num_partitions, 1, config=FOREVER)]).values():
            made.result(30)
        # A producer that knows the old one would write to it.
        self.producer = Producer({"bootstrap.servers": self.servers})

    def missing(self) -> KafkaStream:
        return stream_of(self.servers, f"missing-{uuid.uuid4().hex}")


def name() -> str:
    return f"trips-{uuid.uuid4().hex[:12]}"


@contextmanager
def mock_cluster() -> Iterator[tuple[str, Producer]]:
    """Bootstrap servers of a mock that lives in this process, and a producer of it."""
    producer = Producer({"test.mock.num.brokers": 1, "message.max.bytes": LARGE, "log_level": 2})
    brokers = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers), producer
    producer.flush(1)


@contextmanager
def mock_topic(servers: str, producer: Producer) -> Iterator[KafkaTopic]:
    """The mock makes a topic of four partitions when it is asked for; it takes 5 MB at a time."""
    topic = name()
    num_partitions = len(producer.list_topics(topic, timeout=10).topics[topic].partitions)
    made = KafkaTopic(servers, producer, topic, num_partitions, 4 << 20)
    yield made
    made.stream.close()


def _is_there(topic: KafkaTopic) -> bool:
    """Brokers learn of a topic one after the other."""
    try:
        return all(topic.stream.offsets(partition) == (0, 0) for partition in range(topic.num_partitions))
    except (TopicGoneError, UnavailableError):
        return False


@contextmanager
def real_topic(num_partitions: int = 2, **config: str) -> Iterator[KafkaTopic]:
    admin = AdminClient({"bootstrap.servers": REAL})
    topic = name()
    [made] = admin.create_topics([NewTopic(topic, num_partitions, 1, config={**FOREVER, **config})]).values()
    made.result(30)
    found = KafkaTopic(
        REAL, Producer({"bootstrap.servers": REAL, "message.max.bytes": LARGE}), topic, num_partitions, 20_000_000
    )
    found.admin = admin
    wait_until(lambda: _is_there(found))
    yield found
    found.stream.close()
    for deleted in admin.delete_topics([topic]).values():
        deleted.exception(30)

"""A producer of Kafka for tests that kill brokers: each row comes to be in the topic once, in order.

librdkafka gives up a partition for good if a broker that has just started names no leader for it for a moment
(confluentinc/librdkafka issue 5430): nothing is sent any more, and nothing is reported. A producer that waits in vain
while the brokers answer is replaced here, and the next one goes on behind the end of the log. Nobody else may write to
the topic, and nothing may be deleted from it, so that a row's offset is its number in its partition.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

STUCK_S: Final = 20.0
"""Seconds for which a partition's rows wait for an acknowledgement before a producer is replaced, if brokers answer."""
LOOK_S: Final = 5.0
"""Seconds between two questions whether the brokers answer."""
ASK_S: Final = 2.0
"""Seconds that they have for an answer."""
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class LastingProducer:
    """Producer of one topic. For one thread."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        num_partitions: int,
        *,
        linger_ms: int = 5,
        acknowledged: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`acknowledged` is called with the partition of each row that is in the log, in the order of its rows."""
        self.failed: list[str] = []
        """Why rows were given up; always empty, unless Kafka refuses them."""
        self._properties = dict(properties)
        self._config = {**properties, "enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": linger_ms}
        self._topic = topic
        self._acknowledged = acknowledged
        self._ends = [0] * num_partitions
        """Number of rows that are known to be in the log, by partition."""
        self._waiting: list[deque[str]] = [deque() for _ in range(num_partitions)]
        """Rows behind them."""
        self._looked_s = time.monotonic()
        self._heard_s = [self._looked_s] * num_partitions
        """When each partition last had an acknowledgement or nothing to wait for: one may be stuck, others not."""
        self._producer = Producer(self._config)

    def send(self, partition: int, row: str) -> bool:
        """Return False if the row is not taken now: too many wait, or a broker that has just started does not know the
        topic yet."""
        if not self._waiting[partition]:
            self._heard_s[partition] = time.monotonic()
        try:
            self._produce(partition, row)
        except (BufferError, KafkaException):
            return False
        self._waiting[partition].append(row)
        return True

    def send_all(self, partition: int, rows: Iterable[str]) -> None:
        """Send rows, and wait until each is taken."""
        for row in rows:
            while not self.send(partition, row):
                self.poll(0.1)
        self.poll()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take acknowledgements. Has to be called again and again."""
        self._producer.poll(timeout_s)
        if self._is_stuck():
            self._replace()

    def flush(self, timeout_s: float) -> bool:
        """Wait until each row is in the log. Return False if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while any(self._waiting) and time.monotonic() < deadline:
            self.poll(0.1)
        return not any(self._waiting)

    def _produce(self, partition: int, row: str) -> None:
        self._producer.produce(self._topic, row, partition=partition, on_delivery=self._hear)

    def _hear(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._take(int(message.partition() or 0))
        elif error.code() not in _PURGED:
            self.failed.append(str(error))

    def _take(self, partition: int) -> None:
        self._heard_s[partition] = time.monotonic()
        self._waiting[partition].popleft()
        self._ends[partition] += 1
        self._acknowledged(partition)

    def _is_stuck(self) -> bool:
        now = time.monotonic()
        heard_s = min((heard for heard, rows in zip(self._heard_s, self._waiting, strict=True) if rows), default=now)
        if now < max(heard_s + STUCK_S, self._looked_s + LOOK_S):
            return False
        self._looked_s = now
        return self._log_ends() is not None

    def _replace(self) -> None:
        # Partitions that are not stuck get the time to bring what is under way: the end of their log is asked for next.
        self._producer.flush(LOOK_S)
        self._producer.purge()
        self._producer.flush(ASK_S)
        while (ends := self._log_ends()) is None:
            time.sleep(ASK_S)
        self._producer = Producer(self._config)
        for partition, end in enumerate(ends):
            while self._ends[partition] < end:
                self._take(partition)
            self._heard_s[partition] = time.monotonic()
            for row in self._waiting[partition]:
                self._produce(partition, row)

    def _log_ends(self) -> list[int] | None:
        """Return the end of each partition's log; None if the brokers do not answer."""
        consumer = Consumer({**self._properties, "group.id": "ends", "log_level": 0})
        try:
            places = [TopicPartition(self._topic, partition) for partition in range(len(self._ends))]
            return [consumer.get_watermark_offsets(place, timeout=ASK_S)[1] for place in places]
        except KafkaException:
            return None
        finally:
            consumer.close()

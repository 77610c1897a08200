"""A producer at a constant rate, and queries all the time that tell what of it can be seen.

`python stream_client.py HOST PORT TABLE`, with TOPIC, PARTITIONS, RATE and KAFKA (properties of the client, JSON) in
the environment. Row n of a partition says n, so what is seen of a partition is exactly its first rows if their count,
largest and sum say so; every answer is checked for that. A line of JSON per second tells the sums so far. /tmp/stop
ends the producer, and the queries go on.

The gap of a partition is the age, since Kafka acknowledged it, of the oldest row that a query does not see. While Kafka
itself is away nothing can be seen: an age counts from its return.
"""

import json
import os
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from client import RETRIED, Client, Sums
from confluent_kafka.admin import AdminClient, NewTopic
from lasting_producer import LastingProducer

STOP = Path("/tmp/stop")
AWAY_S = 2.0
"""Kafka is away when it has acknowledged nothing for so long."""
PERIOD_S = 0.2
TICK_S = 0.02


class Produced:
    """What was sent, and when it was acknowledged. The producer's callbacks write, queries read."""

    def __init__(self, num_partitions: int) -> None:
        self.sent = [0] * num_partitions
        self.acked_at = [array("d") for _ in range(num_partitions)]
        self.failed: list[str] = []
        self.back_at = 0.0
        """When Kafka last came back."""
        self._last = time.monotonic()
        self._longest_s = 0.0

    def acknowledged(self, partition: int) -> None:
        """In the order of a partition's rows."""
        now = time.monotonic()
        if now - self._last > AWAY_S:
            self.back_at = now
            self._longest_s = max(self._longest_s, now - self._last)
        self._last = now
        self.acked_at[partition].append(now)

    def is_away(self) -> bool:
        """Whether Kafka acknowledges nothing."""
        return time.monotonic() - self._last > AWAY_S and not STOP.exists()

    @property
    def longest_away_s(self) -> float:
        """The longest time that Kafka was away."""
        return round(self._longest_s, 1)

    def counts(self) -> list[int]:
        """Acknowledged rows by partition."""
        return [len(times) for times in self.acked_at]


def produce(properties: dict[str, str], topic: str, rate: int, produced: Produced) -> None:
    """Until /tmp/stop is there; then until everything is acknowledged."""
    # Four batches a second and partition: with one per row, the broker and each consumer take a quarter of a core.
    producer = LastingProducer(properties, topic, len(produced.sent), linger_ms=250, acknowledged=produced.acknowledged)
    produced.failed = producer.failed
    number, started = 0, time.monotonic()
    while not STOP.exists():
        while number < rate * (time.monotonic() - started):
            partition = number % len(produced.sent)
            row = {"part": partition, "seq": produced.sent[partition], "word": f"w{number % 1000}"}
            if not producer.send(partition, json.dumps(row)):
                break
            produced.sent[partition] += 1
            number += 1
        producer.poll(TICK_S)
    while not producer.flush(60):
        pass


class Watcher:
    """Asks for all partitions, and holds the answers against what was produced."""

    def __init__(self, client: Client, table: str, produced: Produced) -> None:
        self._client = client
        self._sql = f"SELECT part, COUNT(*), MAX(seq), SUM(seq) FROM {table} GROUP BY part ORDER BY part LIMIT 1000"
        self._produced = produced
        self._lock = threading.Lock()
        self.sums = Sums()
        self.seen = [0] * len(produced.sent)
        self.most = [0] * len(produced.sent)
        self.rows_back = 0
        """Most rows that an answer had less than one before it: of another replica, which is not so far yet."""
        self.gap_s = 0.0
        self.raw_gap_s = 0.0
        """With what Kafka was away for."""

    def look(self) -> None:
        """One query."""
        asked_at, acked, most = time.monotonic(), self._produced.counts(), list(self.most)
        retried, problem, is_wrong = 0, "", False
        try:
            try:
                rows = self._client.ask(self._sql)
            except RETRIED:
                retried = 1
                self._client.forget()
                rows = self._client.ask(self._sql)
            problem = self._check(rows, asked_at, acked, most)
            is_wrong = bool(problem)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is a failed query
            self._client.forget()
            problem = f"failed: {type(error).__name__}: {error}"
        sums = self.sums
        with self._lock:
            sums.queries += 1
            sums.retried += retried
            sums.wrong += is_wrong
            sums.failed += bool(problem) and not is_wrong
            sums.slowest_ms = round(max(sums.slowest_ms, 1000 * (time.monotonic() - asked_at)), 1)
            if problem and len(sums.samples) < 20:
                sums.samples.append(f"{time.strftime('%H:%M:%S')} {problem[:400]}")

    def _check(self, rows: list[list[Any]], asked_at: float, acked: list[int], most: list[int]) -> str:
        found = {int(part): (int(count), int(largest), int(total)) for part, count, largest, total in rows}
        for partition in range(len(self.seen)):
            count, largest, total = found.get(partition, (0, -1, 0))
            if largest != count - 1 or total != count * (count - 1) // 2 or count > self._produced.sent[partition]:
                return f"partition {partition}: {count} rows, largest {largest}, sum {total}"
            self.seen[partition] = count
            self.most[partition] = max(self.most[partition], count)
            self.rows_back = max(self.rows_back, most[partition] - count)
            self._measure(partition, count, asked_at, acked[partition])
        return ""

    def _measure(self, partition: int, count: int, asked_at: float, acked: int) -> None:
        if count >= acked:
            return
        since = self._produced.acked_at[partition][count]
        self.raw_gap_s = max(self.raw_gap_s, asked_at - since)
        if not self._produced.is_away():
            self.gap_s = max(self.gap_s, asked_at - max(since, self._produced.back_at))

    def told(self) -> dict[str, Any]:
        """The sums; gaps are those since the last time."""
        produced = self._produced
        told = {
            **vars(self.sums),
            "t": round(time.time(), 1),
            "sent": sum(produced.sent),
            "acked": sum(produced.counts()),
            "visible": sum(self.seen),
            "lost": produced.failed[:3],
            "gap_s": round(self.gap_s, 2),
            "raw_gap_s": round(self.raw_gap_s, 2),
            "rows_back": self.rows_back,
            "away_s": produced.longest_away_s,
            "is_stopped": STOP.exists(),
        }
        self.gap_s = self.raw_gap_s = 0.0
        self.rows_back = 0
        return told


def make_topic(properties: dict[str, str], topic: str, num_partitions: int) -> None:
    """Unless it is there."""
    admin = AdminClient(properties)  # its answers end with it
    (made,) = admin.create_topics([NewTopic(topic, num_partitions, 1)]).values()
    try:
        made.result(60)
    except Exception as error:
        if "TOPIC_ALREADY_EXISTS" not in str(error):
            raise


def main() -> None:
    host, port, table = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    properties, topic = json.loads(os.environ["KAFKA"]), os.environ["TOPIC"]
    produced = Produced(int(os.environ["PARTITIONS"]))
    make_topic(properties, topic, len(produced.sent))
    threading.Thread(target=produce, args=(properties, topic, int(os.environ["RATE"]), produced), daemon=True).start()
    watcher = Watcher(Client(host, port, Sums(), threading.Lock()), table, produced)
    tell_at = time.monotonic()
    while True:
        started = time.monotonic()
        watcher.look()
        if time.monotonic() >= tell_at:
            print(json.dumps(watcher.told()), flush=True)
            tell_at = time.monotonic() + 1
        time.sleep(max(0.0, PERIOD_S - (time.monotonic() - started)))


if __name__ == "__main__":
    main()

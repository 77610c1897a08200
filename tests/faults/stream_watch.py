"""Rows that come at a constant rate while something is broken, and what must be true of answers meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.contracts.streams.kafka_brokers import KafkaBrokers
from tests.e2e.pods.lasting_producer import LastingProducer
from tests.support.events import COUNTS, event, events_manifest
from tests.support.processes import ClusterProcesses, RoleProcess

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView, load
from merlot.errors import MerlotError
from merlot.ids import offline
from merlot.metastore.protocol import Metastore
from merlot.query.plan.binding import bind
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.testing.patience import PATIENCE_S
from merlot.tree.tree_json import to_json
from merlot.wire.client import TcpChannel
from merlot.wire.messages import ServerRequest

NUM_PARTITIONS = 4
ROWS_PER_S = 2000
TABLE = offline(events_manifest(Path()).raw_name)
FLUSH_ROWS = 1500
BY_SEGMENT = "SELECT $segmentName, count(*) FROM events GROUP BY $segmentName LIMIT 100000"


class Events(Protocol):
    """Where events are written to."""

    num_events: int

    def append(self, count: int, partition: int = 0) -> None:
        """So many more, ids counted over all partitions."""
        ...

    def settle(self) -> None:
        """Until all of it is there."""
        ...


class KafkaEvents:
    """A topic of Kafka. The producer is idempotent and never gives up: each event comes to be there once."""

    def __init__(self, brokers: KafkaBrokers, topic: str) -> None:
        brokers.create_topic(topic, NUM_PARTITIONS)
        self.num_events = 0
        self._producer = LastingProducer({"bootstrap.servers": brokers.servers, "log_level": 0}, topic, NUM_PARTITIONS)

    def append(self, count: int, partition: int = 0) -> None:
        self._producer.send_all(partition, map(event, range(self.num_events, self.num_events + count)))
        self.num_events += count

    def settle(self) -> None:
        """Until all of it is there."""
        assert self._producer.flush(PATIENCE_S)


def kafka_manifest(brokers: KafkaBrokers, topic: str) -> Table:
    """The table of events, from Kafka, with two replicas."""
    manifest = events_manifest(Path(topic), flush_rows=FLUSH_ROWS, replication=2)
    stored = manifest.model_dump(mode="json", by_alias=True, exclude_unset=True)
    own = {"type": "kafka", "topic": topic, "properties": kafka_properties(brokers)}
    stored["spec"]["ingestion"]["stream"] |= own
    return Table.model_validate(stored)


def kafka_properties(brokers: KafkaBrokers) -> dict[str, str]:
    """How a table reaches them, and comes back to them soon."""
    return {
        "bootstrap.servers": brokers.servers,
        "fetch.error.backoff.ms": "50",
        "reconnect.backoff.max.ms": "500",
    }


@dataclass
class Watcher:
    """Counts while things happen. An answer with an exception says of itself that it is not whole."""

    cluster: ClusterProcesses
    events: Events
    appended: Counter[int | str] = field(default_factory=Counter)
    """Rows by partition."""
    num_answers: int = 0
    num_flagged: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    num_looks: int = 0
    wrong: list[str] = field(default_factory=list)
    is_stopping: bool = False

    async def append(self) -> None:
        """Rows at a constant rate, over all partitions in turn."""
        partition = 0
        while not self.is_stopping:
            self.events.append(ROWS_PER_S // 20, partition)
            self.appended[partition] += ROWS_PER_S // 20
            partition = (partition + 1) % NUM_PARTITIONS
            await asyncio.sleep(0.05)

    async def ask(self) -> None:
        """Each row that is answered is there once."""
        while not self.is_stopping:
            counts = await self.counts()
            if counts is not None and not counts[0] == counts[1] == counts[2]:
                self.wrong.append(f"answer {self.num_answers} of {self.events.num_events}: {counts}")
            await asyncio.sleep(0.01)

    async def counts(self) -> list[float] | None:
        try:
            answer = await asyncio.to_thread(self.cluster.query, COUNTS)
        except OSError:
            return None
        self.num_answers += 1
        if answer["exceptions"] or not answer.get("resultTable"):
            self.num_flagged += 1
            self.reasons.update(reasons_of(answer))
            return None
        row: list[float] = answer["resultTable"]["rows"][0]
        return row

    async def look(self, metastore: Metastore) -> None:
        """What a replica has answered of a partition, it does not take back while it lives."""
        replicas = [_Replica(server, self.wrong) for server in self.cluster.servers]
        try:
            while not self.is_stopping:
                try:
                    view = await asyncio.to_thread(load, metastore, TABLE)
                except MerlotError:
                    await asyncio.sleep(0.1)
                    continue
                for replica in replicas:
                    self.num_looks += await replica.look(view)
                await asyncio.sleep(0.05)
        finally:
            for replica in replicas:
                await replica.close()

    async def shows_all(self) -> None:
        """Every row that was appended, once."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                counts = None
                while counts is None or counts[0] < self.events.num_events:
                    counts = await self.counts()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(await self._shown(counts)) from None
        assert counts == [self.events.num_events] * 3, await self._shown(counts)

    async def _shown(self, counts: list[float] | None) -> str:
        """Rows wanted and shown, as a whole and by partition."""
        try:
            answer = await asyncio.to_thread(self.cluster.query, BY_SEGMENT)
        except OSError as error:
            return f"rows={self.events.num_events} counts={counts}; no broker answers: {error}"
        shown = Counter[int | str]()
        for segment, count in answer["resultTable"]["rows"] if answer.get("resultTable") else ():
            name = StreamSegmentName.parse(segment)
            shown["open segments" if name is None else name.partition] += count
        parts = [*self.appended, *sorted(map(str, shown.keys() - self.appended.keys()))]
        by_partition = "; ".join(f"{part}: wanted {self.appended[part]}, shown {shown[part]}" for part in parts)
        return f"rows={self.events.num_events} counts={counts}; {by_partition}; exceptions={answer['exceptions']}"


def reasons_of(answer: Mapping[str, Any]) -> set[str]:
    """Why an answer says that it is not whole, without the numbers that differ from one to the next."""
    return {f"{one['errorCode']} {re.sub(r'[0-9]+', '#', one['message'])[:120]}" for one in answer["exceptions"]}


class _Replica:
    """Asks one server, past the broker."""

    def __init__(self, server: RoleProcess, wrong: list[str]) -> None:
        self._server = server
        self._wrong = wrong
        self._life: int | None = None
        self._most: dict[int, int] = {}
        self._channel = TcpChannel("127.0.0.1", server.port("--query-port"))
        schema = events_manifest(Path()).spec.table_schema
        self._query = to_json(bind(parse("SELECT count(*) FROM events"), schema, {}))

    async def look(self, view: TableView) -> int:
        """How many partitions it answered."""
        life = self._server.pid
        if life != self._life:
            self._life, self._most = life, {}
        num_answered = 0
        for partition, records in by_partition(view).items():
            oldest_open = next((one for one in records if one.is_open), None)
            if oldest_open is None:
                continue
            before = sum(one.total_docs for one in records if one.sequence < oldest_open.sequence)
            count = await self._count(oldest_open.key_text)
            if count is None or self._server.pid != life:
                continue
            num_answered += 1
            most = self._most.get(partition, 0)
            if before + count < most:
                self._wrong.append(f"{self._server.name} partition {partition}: {before + count} rows after {most}")
            self._most[partition] = max(most, before + count)
        return num_answered

    async def close(self) -> None:
        await self._channel.close()

    async def _count(self, key: str) -> int | None:
        request = ServerRequest(request_id="look", table=TABLE, query=self._query, segments=(key,), timeout_ms=500)
        try:
            answer = await self._channel.execute(request, 0.5)
        except MerlotError:
            return None
        if answer.missing or answer.error or answer.partial is None:
            return None
        return sum(int(count) for row in answer.partial.data.to_pylist() for count in row.values())


def by_partition(view: TableView) -> Mapping[int, list[StreamSegmentRecord]]:
    """Records of each partition, in order."""
    found: dict[int, list[StreamSegmentRecord]] = {}
    for record in view.stream_segments:
        found.setdefault(record.partition, []).append(record)
    for records in found.values():
        records.sort(key=lambda one: one.sequence)
    return found


@asynccontextmanager
async def watched(cluster: ClusterProcesses, events: Events) -> AsyncIterator[Watcher]:
    """Rows come, and answers are looked at, until the block ends."""
    watcher = Watcher(cluster, events)
    with cluster.metastore() as metastore:
        tasks = [asyncio.create_task(one) for one in (watcher.append(), watcher.ask(), watcher.look(metastore))]
        try:
            yield watcher
        finally:
            watcher.is_stopping = True
            await asyncio.gather(*tasks)


async def replicas_agree(cluster: ClusterProcesses) -> None:
    """Both servers have loaded every sealed segment of the record's checksum; segments leave no gap between them."""
    with cluster.metastore() as metastore:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await asyncio.to_thread(load, metastore, TABLE)
                sealed = {one.key_text for one in view.segments.values() if not one.is_open}
                held = [one.get("/tables").get(TABLE, {}).get("loaded", ()) for one in cluster.servers]
                if all(sealed <= set(keys) for keys in held):
                    break
                await asyncio.sleep(0.1)
    lines = by_partition(view)
    assert len(lines) == NUM_PARTITIONS
    for records in lines.values():
        assert [one.start_offset for one in records] == [0, *(one.end_offset for one in records[:-1])]

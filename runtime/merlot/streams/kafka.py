"""Kafka topics as streams: the one module that uses confluent-kafka (librdkafka).

A partition has a consumer of its own, so that the threads that read share nothing. It belongs to no group: offsets are
kept in the records of segments. Messages of aborted transactions are not read, unless `isolation.level` says so.
Offsets that the partition does not have are an error with its bounds, never a jump.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from merlot.errors import InvalidInputError, MerlotError, UnavailableError
from merlot.spec.stream import HOST_PROPERTIES, REGISTRY_PROPERTIES
from merlot.streams.protocol import (
    Headers,
    Messages,
    OffsetOutOfRangeError,
    OffsetRange,
    StreamAccessError,
    StreamSettings,
    TopicGoneError,
)

ASK_S: Final = 10.0
"""Seconds that brokers have to answer about topics and offsets."""
QUIET_S: Final = 5.0
"""Seconds without a message after which a reader asks whether its partition still exists, since librdkafka does not
report a deleted topic, and where its log ends, since librdkafka may stop reading it."""
QUIET_ASK_S: Final = 2.0
"""Seconds for which each of these questions may delay a poll beyond its timeout."""
IDENTITY_S: Final = 1.0
"""Seconds between two checks whether a topic is still the same."""
CHUNK_MESSAGES: Final = 500
"""Messages that are Python objects at a time. Beyond 700 the garbage collector runs for them again and again: of 2.2 us
of CPU a message that a poll of 10,000 took, 0.9 are left."""
POLL_BYTES: Final = 64 << 20
"""Bytes of values at which a poll ends: messages may have megabytes, and a backlog of them has no end."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 16_384,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "topic.metadata.refresh.interval.ms": 30_000,
    "log_level": 0,
}
"""Defaults that a table may override. librdkafka would read 64 MB ahead for each partition. Once it has read enough, it
would not check for a second whether that is still so, while a faster reader has nothing."""
OWN: Final[Mapping[str, Any]] = {
    "group.id": "merlot",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
"""Properties that a table cannot set. A consumer needs a group's name, and never joins the group."""

_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,
}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class KafkaStream:
    """Stream of a topic. Its one client for metadata is made at the first question."""

    def __init__(self, settings: StreamSettings) -> None:
        if not settings.topic:
            raise InvalidInputError("a stream of kafka needs a topic")
        if named := sorted(HOST_PROPERTIES & settings.properties.keys()):
            raise InvalidInputError(f"a stream may not name what is on the machine that consumes properties={named}")
        self._topic = settings.topic
        self._settings = settings
        self._config = {**DEFAULTS, **_client_properties(settings.properties), **OWN}
        self._lock = threading.Lock()
        self._client: Consumer | None = None
        self._same = _SameTopic(self._topic, self._config, settings.identity)
        self._refusals = _Refusals()

    def identity(self) -> str:
        """Return the topic's id, once the brokers have sent it; brokers before 2.8 have none."""
        self._same.look()
        return self._same.identity

    def partitions(self) -> Sequence[int]:
        """Return the partitions of the topic's metadata."""
        self._same.look()
        with self._asking() as client:
            return _partitions(client, self._topic, ASK_S)

    def offsets(self, partition: int) -> OffsetRange:
        """Return the log's bounds; those of committed messages, unless `isolation.level` says otherwise."""
        with self._asking(partition) as client:
            return _bounds(client, TopicPartition(self._topic, partition), ASK_S)

    def offset_at(self, partition: int, time_ms: int) -> int:
        """Return the offset of the first message that is not older, by the timestamps of messages, which need not be in
        order."""
        with self._asking(partition) as client:
            [position] = client.offsets_for_times([TopicPartition(self._topic, partition, time_ms)], timeout=ASK_S)
            if position.error is not None:
                raise KafkaException(position.error)
            if position.offset >= 0:
                return int(position.offset)
            return self.offsets(partition).latest

    def reader(self, partition: int, start: int) -> KafkaReader:
        """Return a consumer of one partition."""
        self._same.make_sure()
        with _translated(self._topic, partition):
            place = TopicPartition(self._topic, partition, start)
            refusals = _Refusals()
            return KafkaReader(_consumer(self._config, refusals), place, self._settings, (self._same, refusals))

    def close(self) -> None:
        """Close the clients for metadata."""
        self._same.close()
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    @contextmanager
    def _asking(self, partition: int | None = None) -> Iterator[Consumer]:
        with self._lock:
            if self._client is None:
                self._client = _consumer(self._config, self._refusals)
            client = self._client
        with _translated(self._topic, partition, self._refusals):
            try:
                yield client
            except KafkaException:
                client.poll(0)  # errors of its connections are reported now
                raise


class _SameTopic:
    """Check that a topic is still the same. If it was deleted and made again under its name, it has other messages
    at the same offsets, and only its id differs. Any thread."""

    def __init__(self, topic: str, config: Mapping[str, Any], identity: str) -> None:
        self._topic = topic
        self._config = {name: value for name, value in config.items() if name not in {**DEFAULTS, **OWN}}
        self._config["log_level"] = config["log_level"]
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._asked: Future[Any] | None = None
        self._next_s = -math.inf
        self._is_other = False
        self.identity = identity
        """Id of the topic that was given or first seen; empty if the brokers do not tell, or have not yet."""

    def look(self) -> None:
        """Ask the brokers now and then, without waiting for the answer. Raises TopicGoneError once the topic is another
        topic."""
        if time.monotonic() >= self._next_s:
            self._ask()
        if self._is_other:
            raise TopicGoneError(
                f"topic was deleted and made anew, its offsets are other messages' topic={self._topic}: delete the "
                "table and apply it again, or apply a table under another name"
            )

    def make_sure(self) -> None:
        """Ask and wait for the answer, if there is an id to compare with.

        Raises TopicGoneError as `look` does, and UnavailableError if no answer comes: without one, messages may be
        those of another topic."""
        if self.identity:
            try:
                with _translated(self._topic):
                    self._ask(is_anew=True).result(QUIET_ASK_S)
            except TimeoutError as error:
                text = "brokers do not say whether the topic is still the same"
                raise UnavailableError(f"{text} topic={self._topic}") from error
        self.look()

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            self._admin, self._next_s = None, math.inf

    def _ask(self, *, is_anew: bool = False) -> Future[Any]:
        """Ask the brokers, or return the request that is pending. is_anew: send another request even then, since the
        pending one may be answered with the id of a topic that was deleted since."""
        with self._lock:
            if is_anew or self._asked is None or self._asked.done():
                self._next_s = time.monotonic() + IDENTITY_S
                if self._admin is None:
                    with _refused_properties():
                        self._admin = AdminClient(self._config)
                topics = TopicCollection([self._topic])
                self._asked = self._admin.describe_topics(topics, request_timeout=ASK_S)[self._topic]
                self._asked.add_done_callback(self._hear)
            return self._asked

    def _hear(self, asked: Future[Any]) -> None:
        """Take the answer. If there is none, nothing follows: callers that ask for messages get the cause."""
        if asked.cancelled() or asked.exception() is not None:
            return
        identity = asked.result().topic_id
        if identity is not None and identity.get_most_significant_bits():
            self.identity = self.identity or str(identity)
            self._is_other = self._is_other or str(identity) != self.identity


class _Refusals:
    """Errors of a client's connections about passwords and certificates. librdkafka retries, and tells its callers only
    that there was no answer. Called on the threads that use the client."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def hear(self, error: KafkaError) -> None:
        """Note an error that librdkafka reports."""
        if error.code() in _REFUSED:
            self._last = error

    def raise_last(self) -> None:
        """Raise KafkaException if there is an error that was not raised yet."""
        last, self._last = self._last, None
        if last is not None:
            raise KafkaException(last)


class _PolledColumns:
    """Messages that a poll has taken so far, as columns."""

    def __init__(self, wants_keys: bool, wants_headers: bool) -> None:
        self.offsets: list[int] = []
        self.num_bytes = 0
        self._values: list[Any] = []
        self._stamps: list[int] = []
        self._keys: list[Any] | None = [] if wants_keys else None
        self._headers: list[Headers] | None = [] if wants_headers else None

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, chunk: Sequence[Message]) -> None:
        """Add the contents of messages, which can be freed afterwards."""
        self.offsets += [int(message.offset() or 0) for message in chunk]
        values = [message.value() for message in chunk]
        self.num_bytes += sum(map(len, filter(None, values)))
        self._values += values
        self._stamps += [message.timestamp()[1] for message in chunk]
        if self._keys is not None:
            self._keys += [message.key() for message in chunk]
        if self._headers is not None:
            self._headers += [_headers(message) for message in chunk]

    def messages(self, next_offset: int) -> Messages:
        """Return everything as messages."""
        return Messages(
            values=pa.array(self._values, pa.large_binary()),
            offsets=np.array(self.offsets, np.int64),
            timestamps_ms=np.array(self._stamps, np.int64),
            keys=None if self._keys is None else pa.array(self._keys, pa.large_binary()),
            headers=self._headers,
            next_offset=next_offset,
        )


class KafkaReader:
    """Reader of one partition."""

    def __init__(
        self,
        consumer: Consumer,
        start: TopicPartition,
        settings: StreamSettings,
        watches: tuple[_SameTopic, _Refusals],
    ) -> None:
        self._consumer = consumer
        self._same, self._refusals = watches
        self._topic, self._partition = start.topic, start.partition
        self._wants_keys, self._wants_headers = settings.wants_keys, settings.wants_headers
        self._next = start.offset
        self._held: KafkaError | None = None
        self._heard_s = time.monotonic()
        self._log_end = 0
        """End of the log when brokers were last asked. All messages before it have to be here when they are asked
        again."""
        self._consumer.assign([start])

    def poll(self, max_messages: int, timeout_s: float) -> Messages:
        """Return the first message as soon as it comes, with the messages that came together with it."""
        self._same.look()
        with _translated(self._topic, self._partition, self._refusals):
            if self._held is not None:
                self._raise_held()
            first = self._consumer.poll(timeout_s)
            taken = _PolledColumns(self._wants_keys, self._wants_headers)
            if first is None:
                self._refusals.raise_last()
                self._ask_if_quiet()
                return taken.messages(self._next)
            self._heard_s = time.monotonic()
            chunk = [first]
            while chunk:
                self._take(chunk, taken)
                if self._held is not None or len(taken) == max_messages or taken.num_bytes >= POLL_BYTES:
                    break
                chunk = self._consumer.consume(min(CHUNK_MESSAGES, max_messages - len(taken)), 0)
            if self._held is not None and not len(taken):
                self._raise_held()
            return taken.messages(self._next)

    def seek(self, offset: int) -> None:
        """Go on from another offset; also after an error."""
        with _translated(self._topic, self._partition):
            self._held, self._next, self._log_end = None, offset, 0
            self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _ask_if_quiet(self) -> None:
        """Raise an error if the partition is gone, or if the log has messages that do not come. librdkafka gives up a
        partition for good that had no leader for a moment (confluentinc/librdkafka issue 5430); another client reads
        it."""
        if time.monotonic() - self._heard_s < QUIET_S:
            return
        if self._partition not in _partitions(self._consumer, self._topic, QUIET_ASK_S):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if self._next < self._log_end:
            where = f"topic={self._topic} partition={self._partition} offset={self._next} end={self._log_end}"
            raise UnavailableError(f"no messages come though the stream has some {where}")
        place = TopicPartition(self._topic, self._partition)
        self._log_end = _bounds(self._consumer, place, QUIET_ASK_S).latest
        self._heard_s = time.monotonic()

    def _take(self, chunk: list[Message], taken: _PolledColumns) -> None:
        errors = [message.error() for message in chunk]
        if any(errors):
            chunk = self._sorted_out(chunk, errors)
        taken.add(chunk)
        if taken.offsets:
            self._next = max(self._next, taken.offsets[-1] + 1)

    def _sorted_out(self, got: list[Message], errors: Sequence[KafkaError | None]) -> list[Message]:
        """Return the messages before the first error, which is held until they are taken. The end of a partition is no
        error, but tells how far gaps reach."""
        messages: list[Message] = []
        for message, error in zip(got, errors, strict=True):
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next = max(self._next, int(message.offset() or 0))
            elif not _passes_by_itself(error):
                self._held = error
                break
        return messages

    def _raise_held(self) -> None:
        error, self._held = self._held, None
        assert error is not None, "asked for only while there is one"
        place = TopicPartition(self._topic, self._partition, self._next)
        if error.code() in _OUT_OF_RANGE:
            self._held = error
            self._same.make_sure()
            bounds = _bounds(self._consumer, place, ASK_S)
            raise OffsetOutOfRangeError(f"topic={self._topic} partition={self._partition}", self._next, bounds)
        # Fetching has ended with the error: assign again, so that the next poll tries.
        self._consumer.assign([place])
        raise KafkaException(error)


def _client_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties without those of the schema registry, which librdkafka does not know."""
    return {name: value for name, value in properties.items() if name not in REGISTRY_PROPERTIES}


def _consumer(config: Mapping[str, Any], refusals: _Refusals) -> Consumer:
    with _refused_properties():
        return Consumer({**config, "error_cb": refusals.hear}, logger=None)


@contextmanager
def _refused_properties() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise InvalidInputError(f"wrong properties of a stream reason={_reason(error.args[0])}") from error
    except (TypeError, ValueError) as error:
        # The value of a callback's property, such as stats_cb, is no function.
        raise InvalidInputError(f"wrong properties of a stream reason={error}") from error


def _headers(message: Message) -> Headers:
    headers: Any = message.headers()
    return headers or ()


def _partitions(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return sorted(metadata.partitions)


def _bounds(consumer: Consumer, place: TopicPartition, timeout_s: float) -> OffsetRange:
    low, high = consumer.get_watermark_offsets(place, timeout=timeout_s, cached=False)
    return OffsetRange(low, high)


def _passes_by_itself(error: KafkaError) -> bool:
    """Return True if librdkafka goes on trying by itself, and reports the error meanwhile."""
    return bool(error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE))


@contextmanager
def _translated(topic: str, partition: int | None = None, refusals: _Refusals | None = None) -> Iterator[None]:
    try:
        try:
            yield
        except KafkaException:
            if refusals is not None:
                refusals.raise_last()
            raise
    except KafkaException as error:
        raise _error(error.args[0], topic, partition) from error


def _error(error: KafkaError, topic: str, partition: int | None) -> MerlotError:
    where = f"topic={topic}" if partition is None else f"topic={topic} partition={partition}"
    if error.code() in _GONE:
        return TopicGoneError(f"no such topic or partition {where}")
    if error.code() in _REFUSED:
        return StreamAccessError(f"the stream refuses access {where} reason={_reason(error)}")
    return UnavailableError(f"the stream does not answer {where} reason={_reason(error)}")


def _reason(error: KafkaError) -> str:
    return str(error.str()).splitlines()[0]

"""Kafka keeps the contract of streams: librdkafka's mock cluster, and a real one where MERLOT_KAFKA names it."""

import math
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from tests.contracts.streams.kafka_topics import (
    NO_KAFKA,
    REAL,
    KafkaTopic,
    mock_cluster,
    mock_topic,
    real_topic,
    stream_of,
)

from merlot.errors import InvalidInputError, UnavailableError
from merlot.streams.kafka import KafkaStream
from merlot.streams.protocol import OffsetOutOfRangeError, OffsetRange, StreamSettings, TopicGoneError
from merlot.testing.patience import wait_until
from merlot.testing.stream_contract import StreamContract, read, values_of

needs_kafka = pytest.mark.skipif(not REAL, reason=NO_KAFKA)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, Producer]]:
    with mock_cluster() as made:
        yield made


class TestMockCluster(StreamContract):
    @pytest.fixture
    def topic(self, cluster: tuple[str, Producer]) -> Iterator[KafkaTopic]:
        with mock_topic(*cluster) as made:
            yield made


@needs_kafka
@pytest.mark.cluster
class TestRealKafka(StreamContract):
    @pytest.fixture
    def topic(self) -> Iterator[KafkaTopic]:
        with real_topic() as made:
            yield made


@pytest.fixture
def mock(cluster: tuple[str, Producer]) -> Iterator[KafkaTopic]:
    with mock_topic(*cluster) as made:
        yield made


@pytest.fixture
def real() -> Iterator[KafkaTopic]:
    with real_topic() as made:
        yield made


def test_keys_headers_and_times_come_where_they_are_asked_for(mock: KafkaTopic) -> None:
    mock.producer.produce(
        mock.name, b"v", b"k", partition=0, timestamp=1_600_000_000_000, headers=[("a", b"1"), ("b", None)]
    )
    mock.write(0, [None])
    stream = stream_of(mock.servers, mock.name, wants_keys=True, wants_headers=True)
    reader = stream.reader(0, 0)
    [*polls] = read(reader, 2)
    reader.close()
    stream.close()
    assert values_of(polls) == [b"v", None]
    assert [key for poll in polls for key in (poll.keys or [None]).to_pylist()] == [b"k", None]
    assert [list(one) for poll in polls for one in poll.headers or ()] == [[("a", b"1"), ("b", None)], []]
    assert polls[0].timestamps_ms[0] == 1_600_000_000_000


def test_nobody_pays_for_keys_that_nobody_wants(mock: KafkaTopic) -> None:
    mock.write(0, [b"v"], b"k")
    reader = mock.stream.reader(0, 0)
    [poll] = read(reader, 1)
    reader.close()
    assert (poll.keys, poll.headers) == (None, None)


def test_brokers_that_do_not_answer_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merlot.streams.kafka.ASK_S", 0.3)
    stream = stream_of("127.0.0.1:1", "trips")
    with pytest.raises(UnavailableError, match="does not answer topic=trips"):
        stream.partitions()
    monkeypatch.setattr("merlot.streams.kafka.QUIET_S", 0.0)
    reader = stream.reader(0, 0)
    with pytest.raises(UnavailableError):
        reader.poll(10, 0.2)
    reader.close()
    stream.close()
    recorded = stream_of("127.0.0.1:1", "trips", identity="the id of a topic")
    with pytest.raises(UnavailableError, match="topic=trips"):
        recorded.reader(0, 0)
    recorded.close()


def test_a_client_that_gets_nothing_of_a_log_with_messages_is_reported(mock: KafkaTopic) -> None:
    mock.write(0, [b"a"])
    reader = mock.stream.reader(0, 0)
    assert values_of(read(reader, 1)) == [b"a"]

    def polls_once_quiet() -> int:
        reader._heard_s = -math.inf
        return reader.poll(10, 0.1).next_offset

    assert [polls_once_quiet() for _ in range(5)] == [1] * 5
    reader._consumer.pause([TopicPartition(mock.name, 0)])
    mock.write(0, [b"b"])
    with pytest.raises(UnavailableError, match=r"no messages come though the stream has some .* offset=1 end=2"):
        wait_until(lambda: polls_once_quiet() < 0)
    reader.close()
    another = mock.stream.reader(0, 1)
    assert values_of(read(another, 1)) == [b"b"]
    another.close()


@pytest.mark.parametrize(
    "properties",
    [
        {"no.such.property": "1"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "NONE-SUCH"},
        {"stats_cb": "x"},
        {"oauth_cb": "x"},
        {"on_commit": "x"},
    ],
)
def test_wrong_properties_are_refused_without_their_values(properties: dict[str, str]) -> None:
    secret = {"sasl.username": "me", "sasl.password": "do-not-show"}
    stream = KafkaStream(StreamSettings(topic="t", properties={"bootstrap.servers": "x", **properties, **secret}))
    with pytest.raises(InvalidInputError, match="wrong properties of a stream") as raised:
        stream.partitions()
    assert "do-not-show" not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.kerberos.kinit.cmd", "plugin.library.paths", "ssl.key.location"),
        "sasl.oauthbearer.metadata.authentication.type",
    ],
)
def test_nothing_of_the_machine_is_named_by_a_table_or_its_secret(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"may not name what is on the machine.*{name}"):
        KafkaStream(StreamSettings(topic="t", properties={"bootstrap.servers": "x", name: "y"}))


@needs_kafka
@pytest.mark.cluster
def test_aborted_transactions_are_gaps(real: KafkaTopic) -> None:
    transactional = Producer({"bootstrap.servers": REAL, "transactional.id": real.name})
    transactional.init_transactions(30)
    for values, is_committed in (([b"a", b"b"], True), ([b"lost"], False), ([b"c"], True), ([b"gone"], False)):
        transactional.begin_transaction()
        for value in values:
            transactional.produce(real.name, value, partition=0)
        # Else an abort would take back what was not sent yet.
        transactional.flush(30)
        transactional.commit_transaction(30) if is_committed else transactional.abort_transaction(30)
    reader = real.stream.reader(0, 0)
    polls = read(reader, 3)
    assert values_of(polls) == [b"a", b"b", b"c"]
    assert [offset for poll in polls for offset in poll.offsets.tolist()] == [0, 1, 5]
    # Messages and markers: two and one, one and one, one and one, one and one.
    latest = real.stream.offsets(0).latest
    assert latest == 9
    assert wait_until(lambda: reader.poll(10, 0.2).next_offset == latest)
    reader.close()


@needs_kafka
@pytest.mark.cluster
def test_open_transaction_holds_back_what_is_behind_it(real: KafkaTopic) -> None:
    transactional = Producer({"bootstrap.servers": REAL, "transactional.id": real.name})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    transactional.produce(real.name, b"open", partition=0)
    transactional.flush(30)
    real.write(0, [b"behind"])
    assert real.stream.offsets(0) == OffsetRange(0, 0)
    reader = real.stream.reader(0, 0)
    assert reader.poll(10, 1).next_offset == 0
    transactional.abort_transaction(30)
    assert values_of(read(reader, 1)) == [b"behind"]
    reader.close()


@needs_kafka
@pytest.mark.cluster
def test_deleted_records_are_out_of_range_with_both_bounds(real: KafkaTopic) -> None:
    real.write(0, [b"%d" % number for number in range(100)])
    [deleted] = real.admin.delete_records([TopicPartition(real.name, 0, 40)]).values()
    deleted.result(30)
    reader = real.stream.reader(0, 7)
    with pytest.raises(OffsetOutOfRangeError, match="wanted=7 earliest=40 latest=100"):
        wait_until(lambda: len(reader.poll(1000, 0.2)))
    reader.seek(40)
    assert len(values_of(read(reader, 60))) == 60
    reader.close()


@needs_kafka
@pytest.mark.cluster
def test_deleted_topic_is_gone(real: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merlot.streams.kafka.QUIET_S", 0.5)
    real.write(0, [b"a"])
    reader = real.stream.reader(0, 0)
    assert values_of(read(reader, 1)) == [b"a"]
    [deleted] = real.admin.delete_topics([real.name]).values()
    deleted.result(30)
    with pytest.raises(TopicGoneError):
        wait_until(lambda: len(reader.poll(10, 0.2)), 60)
    with pytest.raises(TopicGoneError):
        wait_until(lambda: real.stream.partitions() == [])
    reader.close()


@needs_kafka
@pytest.mark.cluster
def test_topic_made_anew_under_its_name_is_another_one(real: KafkaTopic) -> None:
    real.write(0, [b"old"] * 100)
    reader, identity = real.stream.reader(0, 0), wait_until(real.stream.identity)
    assert len(values_of(read(reader, 100))) == 100
    real.make_anew()
    real.write(0, [b"new"] * 300)
    with pytest.raises(TopicGoneError, match="made anew"):
        wait_until(lambda: reader.poll(1000, 0.2).next_offset < 0)
    for ask in (real.stream.partitions, real.stream.identity, lambda: real.stream.reader(0, 100)):
        with pytest.raises(TopicGoneError, match="made anew"):
            ask()
    reader.close()
    later = stream_of(real.servers, real.name, identity=identity)
    with pytest.raises(TopicGoneError, match="made anew"):
        later.reader(0, 100)
    later.close()


def test_poll_takes_no_more_than_so_many_bytes(mock: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merlot.streams.kafka.POLL_BYTES", 1_000_000)
    monkeypatch.setattr("merlot.streams.kafka.CHUNK_MESSAGES", 1)
    sent = [b"%d" % number * 700_000 for number in range(5)]
    mock.write(0, sent)
    reader = mock.stream.reader(0, 0)
    polls = read(reader, len(sent))
    reader.close()
    assert values_of(polls) == sent
    assert max(map(len, polls)) <= 2


@needs_kafka
@pytest.mark.cluster
def test_new_partitions_are_found(real: KafkaTopic) -> None:
    assert list(real.stream.partitions()) == [0, 1]
    [made] = real.admin.create_partitions([NewPartitions(real.name, 3)]).values()
    made.result(30)
    assert wait_until(lambda: list(real.stream.partitions()) == [0, 1, 2])
    real.write(2, [b"new"])
    reader = real.stream.reader(2, real.stream.offsets(2).earliest)
    assert values_of(read(reader, 1)) == [b"new"]
    reader.close()


@needs_kafka
@pytest.mark.cluster
def test_time_is_found_as_an_offset(real: KafkaTopic) -> None:
    for number in range(10):
        real.producer.produce(real.name, b"%d" % number, partition=0, timestamp=1_000 * (number + 1))
    real.producer.flush(30)
    assert [real.stream.offset_at(0, time_ms) for time_ms in (0, 1_000, 1_001, 10_000, 10_001)] == [0, 0, 1, 9, 10]

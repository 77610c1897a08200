"""Contract of every stream: subclass `StreamContract`, give it a topic to write to, and run pytest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from merlot.streams.protocol import Messages, OffsetOutOfRangeError, PartitionReader, StreamClient, TopicGoneError
from merlot.testing.patience import wait_until


class Topic(Protocol):
    """Topic of two or more partitions to which a test writes. Values hold no line break."""

    stream: StreamClient
    num_partitions: int
    largest: int
    """Bytes of the largest message that the stream takes."""

    def write(self, partition: int, values: Sequence[bytes]) -> None:
        """Add messages; they are readable when the call returns."""
        ...

    def missing(self) -> StreamClient:
        """Return a stream of a topic that does not exist."""
        ...


OpenReader = Callable[[int, int], PartitionReader]


def read(reader: PartitionReader, count: int, *, at_most: int = 1000) -> list[Messages]:
    """Poll until this many messages have come; fail if they do not."""
    polls: list[Messages] = []

    def enough() -> bool:
        polls.append(reader.poll(at_most, 0.2))
        return sum(map(len, polls)) >= count

    wait_until(enough)
    return [poll for poll in polls if len(poll)]


def values_of(polls: Sequence[Messages]) -> list[bytes]:
    """Return the payloads of polls."""
    return [value for poll in polls for value in poll.values.to_pylist()]


class StreamContract:
    """Suite of the contract. The subclass provides the fixture `topic`."""

    @pytest.fixture
    def open_reader(self, topic: Topic, request: pytest.FixtureRequest) -> OpenReader:
        def open_one(partition: int, start: int) -> PartitionReader:
            reader = topic.stream.reader(partition, start)
            request.addfinalizer(reader.close)
            return reader

        return open_one

    def test_partitions_are_told_in_order(self, topic: Topic) -> None:
        assert list(topic.stream.partitions()) == list(range(topic.num_partitions))

    def test_an_empty_partition_begins_where_it_ends(self, topic: Topic) -> None:
        earliest, latest = topic.stream.offsets(0)
        assert earliest == latest

    def test_messages_come_in_order_with_growing_offsets(self, topic: Topic, open_reader: OpenReader) -> None:
        sent = [b"%d" % number for number in range(500)]
        topic.write(0, sent)
        polls = read(open_reader(0, topic.stream.offsets(0).earliest), 500)
        assert values_of(polls) == sent
        offsets = [offset for poll in polls for offset in poll.offsets.tolist()]
        assert offsets == sorted(set(offsets))
        assert offsets[0] >= topic.stream.offsets(0).earliest
        assert offsets[-1] < topic.stream.offsets(0).latest

    def test_partitions_are_apart(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"a"])
        topic.write(1, [b"b", b"c"])
        assert values_of(read(open_reader(1, topic.stream.offsets(1).earliest), 2)) == [b"b", b"c"]
        assert values_of(read(open_reader(0, topic.stream.offsets(0).earliest), 1)) == [b"a"]

    def test_a_poll_gives_no_more_than_it_is_asked_for(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"%d" % number for number in range(20)])
        polls = read(open_reader(0, topic.stream.offsets(0).earliest), 20, at_most=7)
        assert all(len(poll) <= 7 for poll in polls)
        assert values_of(polls) == [b"%d" % number for number in range(20)]

    def test_another_reader_goes_on_at_next_offset(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"%d" % number for number in range(10)])
        first = read(open_reader(0, topic.stream.offsets(0).earliest), 4, at_most=4)
        second = read(open_reader(0, first[-1].next_offset), 6)
        assert values_of(first) + values_of(second) == [b"%d" % number for number in range(10)]

    def test_any_offset_of_a_message_is_a_place_to_begin(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"%d" % number for number in range(10)])
        [*polls] = read(open_reader(0, topic.stream.offsets(0).earliest), 10)
        offsets = [offset for poll in polls for offset in poll.offsets.tolist()]
        for place in (3, 9):
            assert values_of(read(open_reader(0, offsets[place]), 10 - place))[0] == b"%d" % place

    def test_a_reader_at_the_end_sees_what_comes(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"old"])
        reader = open_reader(0, topic.stream.offsets(0).latest)
        assert len(reader.poll(10, 0.3)) == 0
        topic.write(0, [b"new"])
        assert values_of(read(reader, 1)) == [b"new"]

    def test_a_poll_without_messages_ends_and_stays_where_it_was(self, topic: Topic, open_reader: OpenReader) -> None:
        start = topic.stream.offsets(0).latest
        poll = open_reader(0, start).poll(10, 0.05)
        assert (len(poll), poll.next_offset) == (0, start)

    def test_seek_goes_back(self, topic: Topic, open_reader: OpenReader) -> None:
        topic.write(0, [b"a", b"b"])
        start = topic.stream.offsets(0).earliest
        reader = open_reader(0, start)
        assert values_of(read(reader, 2)) == [b"a", b"b"]
        reader.seek(start)
        assert values_of(read(reader, 2)) == [b"a", b"b"]

    def test_an_offset_past_the_end_is_out_of_range_with_its_bounds(
        self, topic: Topic, open_reader: OpenReader
    ) -> None:
        topic.write(0, [b"a", b"b"])
        wanted = topic.stream.offsets(0).latest + 1000
        reader = open_reader(0, wanted)
        error = _out_of_range(reader)
        assert (error.wanted, error.available) == (wanted, topic.stream.offsets(0))
        # It is said again, and a reader is of use after it.
        assert _out_of_range(reader).wanted == wanted
        reader.seek(error.available.earliest)
        assert values_of(read(reader, 2)) == [b"a", b"b"]

    def test_a_missing_topic_is_gone(self, topic: Topic) -> None:
        missing = topic.missing()
        try:
            with pytest.raises(TopicGoneError):
                missing.partitions()
        finally:
            missing.close()

    def test_a_large_message_comes_whole(self, topic: Topic, open_reader: OpenReader) -> None:
        large = b"x" * topic.largest
        topic.write(0, [b"a", large, b"b"])
        assert values_of(read(open_reader(0, topic.stream.offsets(0).earliest), 3)) == [b"a", large, b"b"]


def _out_of_range(reader: PartitionReader) -> OffsetOutOfRangeError:
    errors: list[OffsetOutOfRangeError] = []

    def raised() -> bool:
        try:
            assert len(reader.poll(10, 0.2)) == 0
        except OffsetOutOfRangeError as error:
            errors.append(error)
        return bool(errors)

    wait_until(raised)
    return errors[0]

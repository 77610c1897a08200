"""What a partition of an upsert table of batches consists of, as one name and version."""

from __future__ import annotations

import random
from typing import Any

import pytest

from merlot.cluster.records import PartitionRecord, SegmentRecord
from merlot.cluster.segments.editions import check_partitions, editions_of, is_edition, partition_of
from merlot.cluster.segments.publish import _is_file_name
from merlot.errors import InvalidInputError
from merlot.spec.indexing import PartitioningSpec

PARTITIONING = PartitioningSpec.model_validate({"columns": {"id": {"functionName": "Murmur", "numPartitions": 4}}})


def record(name: str, partition: int = 0, *, crc: int = 1, push_time_ms: int = 5, **held: Any) -> SegmentRecord:
    fields = {"function_name": "Murmur", "num_partitions": 4, "partitions": (partition,), **held}
    partitions = {"id": PartitionRecord(**fields)}
    return SegmentRecord(
        name=name, crc=crc, size_bytes=1, url="x", total_docs=9, push_time_ms=push_time_ms, partitions=partitions
    )


def keys(*records: SegmentRecord) -> dict[str, str]:
    return {name: edition.key for name, edition in editions_of(records, PARTITIONING).items()}


def test_the_same_segments_are_the_same_edition_in_whatever_order_they_are_met() -> None:
    records = [record(f"s{number}", number % 3, push_time_ms=number // 4) for number in range(20)]
    found = keys(*records)
    assert found.keys() == {"upsert/0", "upsert/1", "upsert/2"}
    draw = random.Random(3)
    for _ in range(20):
        draw.shuffle(records)
        assert keys(*records) == found


@pytest.mark.parametrize(
    "changed",
    [
        [record("a"), record("b")],
        [record("a")],
        [record("a"), record("b", crc=2), record("c")],
        [record("a"), record("b", push_time_ms=9), record("c")],
        [record("a"), record("b", 1), record("c")],
    ],
)
def test_a_segment_more_or_less_or_another_version_or_place_is_another_edition(changed: list[SegmentRecord]) -> None:
    before = keys(record("a"), record("b"), record("c"))["upsert/0"]
    assert keys(*changed)["upsert/0"] != before


def test_rows_of_later_pushes_come_later_and_those_of_one_push_by_name() -> None:
    records = [record("b", push_time_ms=7), record("a", push_time_ms=7), record("c", push_time_ms=6)]
    [edition] = editions_of(records, PARTITIONING).values()
    assert [one.name for one in edition.members] == ["c", "a", "b"]


@pytest.mark.parametrize(
    "held",
    [
        {"partitions": (0, 1)},
        {"partitions": ()},
        {"function_name": "Modulo"},
        {"num_partitions": 8},
        {"function_config": {"seed": "3"}},
    ],
)
def test_a_segment_of_no_partition_that_is_declared_is_in_no_edition_and_refused(held: dict[str, Any]) -> None:
    odd = record("odd", **held)
    assert partition_of(odd, PARTITIONING) is None
    assert keys(odd) == {}
    with pytest.raises(InvalidInputError, match="must hold one partition segment=odd column=id function=Murmur"):
        check_partitions([record("right"), odd], PARTITIONING)


def test_no_segment_can_have_the_name_of_an_edition() -> None:
    [edition] = editions_of([record("a")], PARTITIONING).values()
    assert is_edition(edition.key)
    assert is_edition(edition.name)
    assert not _is_file_name(edition.name)
    assert edition.record.total_docs == 0
    assert edition.record.key_text == edition.key

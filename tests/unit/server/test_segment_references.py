"""Open segments and their readers."""

from pathlib import Path

import pytest
from tests.support.sample import ORDERS, build_orders

from merlot.segment.immutable import ImmutableSegment
from merlot.server.tables import TableSegments

Closed = list[str]


@pytest.fixture
def closed() -> Closed:
    return []


@pytest.fixture
def segments(closed: Closed) -> TableSegments:
    return TableSegments(ORDERS, lambda segment: closed.append(str(segment.key)))


def open_order(folder: Path, day: int, revision: int = 0) -> ImmutableSegment:
    return ImmutableSegment.open(build_orders(folder, day, revision=revision).path)


def test_a_query_gets_the_version_it_asks_for_or_is_told(segments: TableSegments, tmp_path: Path) -> None:
    old, new = open_order(tmp_path / "old", 0), open_order(tmp_path / "new", 0, revision=1)
    segments.add(old)
    segments.add(new)
    acquired = segments.acquire([str(new.key), "orders_0@1", str(old.key)])
    assert acquired.segments == (new, old)
    assert acquired.missing == ("orders_0@1",)


def test_a_dropped_segment_is_closed_when_its_last_reader_leaves(
    segments: TableSegments, closed: Closed, tmp_path: Path
) -> None:
    segment = open_order(tmp_path, 0)
    key = str(segment.key)
    segments.add(segment)
    first, second = segments.acquire([key]), segments.acquire([key])
    segments.drop(key)
    assert segments.acquire([key]).missing == (key,)
    segments.release(first)
    assert closed == []
    segments.release(second)
    assert closed == [key]


def test_an_unread_segment_is_closed_at_once(segments: TableSegments, closed: Closed, tmp_path: Path) -> None:
    segment = open_order(tmp_path, 0)
    segments.add(segment)
    segments.release(segments.acquire([str(segment.key)]))
    segments.close()
    assert closed == [str(segment.key)]

"""Segments whose bytes were checked, and whose files are opened when they are first read."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.sample import build_orders, order_rows

from merlot.errors import CorruptionError, NotFoundError
from merlot.segment import immutable
from merlot.segment.immutable import ImmutableSegment, keep_opened

NUM_KEPT = 2


@pytest.fixture(autouse=True)
def _few_stay_open() -> Iterator[None]:
    keep_opened(0)
    keep_opened(NUM_KEPT)
    yield
    keep_opened(immutable.MAX_OPENED)


def checked(folder: Path, day: int) -> ImmutableSegment:
    built = build_orders(folder, day)
    key, content = built.metadata.key, built.path.read_bytes()
    built.path.rename(folder / f"{key}.mseg")
    return ImmutableSegment.checked(str(folder), key, content)


def ids_of(segment: ImmutableSegment) -> list[int]:
    column = segment.column("id")
    assert column is not None
    ids: list[int] = column.values().tolist()
    return ids


def test_a_checked_segment_is_the_one_that_its_file_is_opened_as(tmp_path: Path) -> None:
    segment = checked(tmp_path, 3)
    facts = (segment.key, segment.num_docs, segment.size_bytes, segment.path)
    assert not segment.is_open
    with ImmutableSegment.open(segment.path, verify=True) as opened:
        assert facts == (opened.key, opened.num_docs, opened.size_bytes, opened.path)
        assert dict(segment.metadata.columns) == dict(opened.metadata.columns)
        assert segment.metadata.model_copy(update={"columns": {}}) == opened.metadata.model_copy(update={"columns": {}})
        assert segment.column_names == opened.column_names
    assert segment.is_open
    assert ids_of(segment) == order_rows(3)["id"].to_pylist()
    assert segment.column("of another time") is None


def test_those_not_read_for_longest_are_forgotten_and_opened_again(tmp_path: Path) -> None:
    segments = [checked(tmp_path, day) for day in range(5)]
    first = segments[0].column("id")
    for day, segment in enumerate(segments):
        assert ids_of(segment) == order_rows(day)["id"].to_pylist()
        assert sum(one.is_open for one in segments) <= NUM_KEPT
    assert not segments[0].is_open
    assert first is not None
    assert np.array_equal(first.values(), order_rows(0)["id"].to_numpy())
    assert ids_of(segments[0]) == order_rows(0)["id"].to_pylist()


def test_a_prepared_segment_outlives_its_file_and_many_others(tmp_path: Path) -> None:
    segment = checked(tmp_path, 0)
    segment.prepare()
    segment.path.unlink()
    for day in range(1, 5):
        ids_of(checked(tmp_path, day))
    assert ids_of(segment) == order_rows(0)["id"].to_pylist()


def test_a_file_that_is_gone_or_another_one_by_then_is_never_read(tmp_path: Path) -> None:
    gone, changed, damaged = (checked(tmp_path, day) for day in range(3))
    gone.path.unlink()
    with pytest.raises(NotFoundError, match="no segment file"):
        gone.column("id")
    changed.path.write_bytes(build_orders(tmp_path / "other", 1, revision=1).path.read_bytes())
    with pytest.raises(CorruptionError, match="now"):
        changed.column("id")
    damaged.path.write_bytes(damaged.path.read_bytes()[:-1])
    with pytest.raises(CorruptionError):
        damaged.column("id")

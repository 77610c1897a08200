"""Columns of many small inputs, read at once: what one by one gives, and never what one by one refuses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import IS_QUICK
from tests.support.forgery import put_together, taken_apart
from tests.unit.segment.segment_tables import build, field_of, table_of
from tests.unit.segment.test_forged_segments import FIELDS, INDEXING, LIES, SCHEMA, honest_rows

from merlot.errors import CorruptionError
from merlot.merge import source, together
from merlot.merge.columns import MergeColumn
from merlot.merge.source import InputPart
from merlot.segment.immutable import ImmutableSegment
from merlot.spec.indexing import Compression, IndexingSpec
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.values.types import TypeName

TOGETHER = {"sorted", "few", "double", "packed", "some", "aligned", "maybe"}
"""Columns of honest files that are read at once: others are texts without a dictionary, decimals, bytes or lists."""


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[list[ImmutableSegment]]:
    segments = [ImmutableSegment.open(path) for path in paths]
    try:
        yield segments
    finally:
        for segment in segments:
            segment.close()


def told(column: MergeColumn) -> tuple[list[Any], list[bool]]:
    """Values, by their bits where they are numbers, and which rows are null."""
    values, is_null = column.rows.plain(), column.nulls
    flat = values.to_pylist() if isinstance(values, pa.Array) else values.tobytes()
    return list(flat), [False] * column.num_rows if is_null is None else is_null.tolist()


def agree(field: FieldSpec, parts: Sequence[InputPart]) -> bool:
    """Whether a column was read at once; then it is what one by one gives."""
    try:
        found = source._read_small(field, parts)
    except CorruptionError:
        found = None
    try:
        expected = source._read_each(field, parts)
    except CorruptionError:
        assert found is None
        return False
    if found is not None:
        assert told(found) == told(expected)
        assert len(found.values) >= len(expected.values)
    return found is not None


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plain = dict.fromkeys(SCHEMA.names, Compression.NONE)
    indexing = INDEXING.model_copy(update={"compression": {**plain, "text": Compression.ZSTD}})
    return build(tmp_path_factory.mktemp("honest"), SCHEMA, table_of(SCHEMA, honest_rows()), indexing).path


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "SMALL_DOCS", 1 << 20)


@pytest.mark.usefixtures("any_size")
def test_columns_of_most_kinds_are_read_at_once(honest: Path) -> None:
    with opened([honest, honest, honest]) as segments:
        parts = [InputPart(segment, slice(0, segment.num_docs)) for segment in segments]
        assert {one.name for one in FIELDS if agree(one, parts)} == TOGETHER


@pytest.mark.usefixtures("any_size")
def test_some_rows_of_each_are_read_at_once(honest: Path) -> None:
    with opened([honest, honest, honest]) as segments:
        docs = (slice(7, 900), np.array([0, 5, 39_999], np.uint32), slice(0, 40_000))
        parts = [InputPart(segment, some) for segment, some in zip(segments, docs, strict=True)]
        assert {one.name for one in FIELDS if agree(one, parts)} == TOGETHER


def test_large_inputs_are_read_one_by_one(honest: Path) -> None:
    with opened([honest, honest]) as segments:
        parts = [InputPart(segment, slice(0, segment.num_docs)) for segment in segments]
        assert not any(agree(one, parts) for one in FIELDS)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("lie", list(LIES))
def test_what_is_refused_one_by_one_is_not_read_at_once(tmp_path: Path, honest: Path, lie: str) -> None:
    parts = taken_apart(honest.read_bytes())
    if "chunk" not in lie:
        assert all(parts.codecs[one[0]] == "" for one in parts.column("few")["buffers"].values())
    LIES[lie](parts)
    path = tmp_path / "forged.mseg"
    path.write_bytes(put_together(parts))
    try:
        forged = ImmutableSegment.open(path)
    except CorruptionError:
        return
    with forged, opened([honest]) as (good,):
        orders = ((forged, good), (good, forged))
        for segments in (orders[list(LIES).index(lie) % 2],) if IS_QUICK else orders:
            selection = [InputPart(segment, slice(0, segment.num_docs)) for segment in segments]
            for one in FIELDS:
                agree(one, selection)


CELLS: dict[TypeName, list[list[Any]]] = {
    TypeName.INT: [[5] * 9, list(range(-4, 5)), [-(1 << 31), (1 << 31) - 1, 0], [None, 3, None], [None]],
    TypeName.LONG: [[-(1 << 63), (1 << 63) - 1], [1 << 40, 3], list(range(1000)), [None, 1]],
    TypeName.FLOAT: [[-0.0, 0.0, float("nan")], [float("-inf"), 0.1, float("inf")], [None, 0.1], [0.5] * 70],
    TypeName.DOUBLE: [[float("nan")], [-0.0], [0.0, 1e300], [None, -1e-300, float("inf")]],
    TypeName.BOOLEAN: [[True], [False, True, None], [None]],
    TypeName.TIMESTAMP: [[0, 86_400_000], [1 << 50], [None, 7]],
    TypeName.STRING: [["", "b"], ["é", "a" * 600], [None, "b"], [str(number) for number in range(400)]],
    TypeName.JSON: [['{"a":1}'], ["[]", None]],
}


@pytest.mark.parametrize("type_name", list(CELLS))
@pytest.mark.parametrize("how", ["dictionary", "sorted", "raw"])
def test_inputs_that_differ_are_read_at_once_if_all_or_none_have_a_dictionary(
    tmp_path: Path, type_name: TypeName, how: str
) -> None:
    field = field_of(type_name, name="one")
    schema = TableSchema(fields=(field,))
    indexing = {
        "dictionary": IndexingSpec(),
        "sorted": IndexingSpec(sorted_columns=("one",)),
        "raw": IndexingSpec(no_dictionary=("one",)),
    }[how]
    paths = []
    for place, cells in enumerate(CELLS[type_name]):
        folder = tmp_path / str(place)
        folder.mkdir()
        paths.append(build(folder, schema, table_of(schema, {"one": cells}), indexing).path)
    with opened(paths) as segments:
        parts = [InputPart(segment, slice(0, segment.num_docs)) for segment in segments]
        coded = {segment.metadata.columns["one"].encoding.has_dictionary for segment in segments}
        is_raw_text = False in coded and type_name in (TypeName.STRING, TypeName.JSON)
        assert agree(field, parts) == (len(coded) == 1 and not is_raw_text)
        if how == "sorted":
            assert coded == {True}

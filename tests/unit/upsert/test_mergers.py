"""Mergers against one row at a time, and partial upserts of whole rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plugins import installed
from tests.unit.upsert.upsert_rows import valid_places

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import arrow_schema, arrow_type
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.upsert import UpsertSpec
from merlot.upsert.mergers import Chains, merger_of
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules
from merlot.vectors.decimals import EXACT, plain_text

Meet = Callable[[Any, Any], Any]


def either(meet: Meet) -> Meet:
    """A null is no value."""
    return lambda before, new: new if before is None else before if new is None else meet(before, new)


def wrapped(bits: int) -> Meet:
    return lambda before, new: (before + new + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


INT = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.integers(-2, 2))
LONG = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2))
FLOAT = st.one_of(
    st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False, max_value=2.0**90, min_value=-(2.0**90))
)
TEXT = st.one_of(st.none(), st.text("ab", max_size=2))
DECIMAL = st.one_of(
    st.none(),
    st.one_of(
        st.integers(-1000, 1000).map(lambda number: Decimal(number).scaleb(-2)),
        st.integers(-(10**60), 10**60).map(lambda number: Decimal(number).scaleb(-20, EXACT)),
    ).map(plain_text),
)
TEXTS = st.one_of(st.none(), st.lists(st.text("ab", max_size=2), max_size=3))
INTS = st.one_of(st.none(), st.lists(st.integers(-2, 2), max_size=3))
BOOLEAN = st.one_of(st.none(), st.booleans())

CASES: list[tuple[str, dict[str, Any], st.SearchStrategy[Any], Meet]] = [
    ("OVERWRITE", {"type": "STRING"}, TEXT, either(lambda before, new: new)),
    ("OVERWRITE", {"type": "INT", "multiValue": True}, INTS, either(lambda before, new: new)),
    ("FORCE_OVERWRITE", {"type": "LONG"}, LONG, lambda before, new: new),
    ("IGNORE", {"type": "STRING"}, TEXT, either(lambda before, new: before)),
    ("INCREMENT", {"type": "INT", "role": "metric"}, INT, either(wrapped(32))),
    ("INCREMENT", {"type": "LONG", "role": "metric"}, LONG, either(wrapped(64))),
    (
        "INCREMENT",
        {"type": "FLOAT", "role": "metric"},
        FLOAT,
        either(lambda x, y: float(np.float32(x) + np.float32(y))),
    ),
    ("INCREMENT", {"type": "DOUBLE", "role": "metric"}, FLOAT, either(lambda before, new: before + new)),
    (
        "INCREMENT",
        {"type": "BIG_DECIMAL", "role": "metric"},
        DECIMAL,
        either(lambda before, new: plain_text(EXACT.add(Decimal(before), Decimal(new)))),
    ),
    ("APPEND", {"type": "STRING", "multiValue": True}, TEXTS, either(lambda before, new: before + new)),
    ("UNION", {"type": "STRING", "multiValue": True}, TEXTS, either(lambda x, y: sorted({*x, *y}))),
    ("UNION", {"type": "INT", "multiValue": True}, INTS, either(lambda x, y: sorted({*x, *y}))),
    ("MAX", {"type": "LONG", "role": "metric"}, LONG, either(max)),
    ("MIN", {"type": "FLOAT", "role": "metric"}, FLOAT, either(min)),
    ("MAX", {"type": "STRING"}, TEXT, either(max)),
    ("MIN", {"type": "BIG_DECIMAL"}, DECIMAL, either(lambda x, y: y if Decimal(y) < Decimal(x) else x)),
    ("MAX", {"type": "BOOLEAN"}, BOOLEAN, either(max)),
]


@pytest.mark.parametrize(
    ("name", "field", "values", "meet"), CASES, ids=[f"{name} {field['type']}" for name, field, _, _ in CASES]
)
@given(data=st.data())
@settings(max_examples=25)
def test_a_merger_does_to_whole_columns_what_it_does_to_one_row_after_the_other(
    name: str, field: Mapping[str, Any], values: st.SearchStrategy[Any], meet: Meet, data: st.DataObject
) -> None:
    spec = FieldSpec.model_validate({"name": "value", **field})
    previous = data.draw(st.lists(values, max_size=4))
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    # Each row is merged into one that nobody else was merged into.
    free = list(range(len(previous)))
    prior = []
    for number in range(len(rows)):
        before = data.draw(st.sampled_from([-1, *free]))
        if before >= 0:
            free.remove(before)
        prior.append(before)
        free.append(len(previous) + number)
    merged = merger_of(name)(
        spec, Chains(len(previous), np.array(prior)), pa.array([*previous, *rows], arrow_type(spec))
    )
    expected = list(previous)
    for before, new in zip(prior, rows, strict=True):
        expected.append(new if before < 0 else meet(expected[before], new))
    assert merged.to_pylist() == pa.array(expected[len(previous) :], arrow_type(spec)).to_pylist()
    assert merged.type == arrow_type(spec)


@pytest.mark.parametrize(
    ("before", "new", "total"),
    [
        ("1" + 29 * "0", "1", "1" + 28 * "0" + "1"),
        (20 * "9" + "." + 19 * "0" + "1", "1", "1" + 20 * "0" + "." + 19 * "0" + "1"),
        ("1.25", "0.75", "2"),
        ("-0.5", "0.5", "0"),
    ],
)
def test_a_sum_of_decimals_is_exact_and_written_as_ingestion_writes_it(before: str, new: str, total: str) -> None:
    spec = FieldSpec.model_validate({"name": "value", "type": "BIG_DECIMAL", "role": "metric"})
    merged = merger_of("INCREMENT")(spec, Chains(1, np.array([0])), pa.array([before, new]))
    assert merged.to_pylist() == [total]


SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "STRING"},
            {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
            {"name": "name", "type": "STRING"},
            {"name": "times", "type": "LONG", "role": "metric"},
            {"name": "tags", "type": "STRING", "multiValue": True},
            {"name": "gone", "type": "INT"},
        ],
        "primaryKey": ["key"],
    }
)
STRATEGIES = {"times": "INCREMENT", "tags": "UNION", "gone": "FORCE_OVERWRITE"}


class Segments:
    """Rows by segment and doc, as servers have them."""

    def __init__(self, **spec: Any) -> None:
        self.rows: dict[tuple[int, int], dict[str, Any]] = {}
        document = {"mode": "PARTIAL", "partialUpsertStrategies": STRATEGIES, "deleteRecordColumn": "gone", **spec}
        self.upserts = PartitionUpserts(Rules.of(UpsertSpec.model_validate(document), SCHEMA, "at"), self.previous)

    def previous(self, segments: np.ndarray, docs: np.ndarray, fields: Sequence[FieldSpec]) -> pa.Table:
        rows = [self.rows[place] for place in zip(segments.tolist(), docs.tolist(), strict=True)]
        return pa.Table.from_pylist(rows, arrow_schema(SCHEMA)).select([field.name for field in fields])

    def add(self, segment: int, *rows: tuple[Any, ...]) -> None:
        first = sum(number == segment for number, _ in self.rows)
        given = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], arrow_schema(SCHEMA))
        outcome = self.upserts.add(given, segment, first)
        assert outcome.rows.schema == given.schema
        for doc, row in enumerate(outcome.rows.to_pylist(), first):
            self.rows[segment, doc] = row
        self.upserts.publish()

    def seen(self) -> dict[str, tuple[Any, ...]]:
        valid = [self.rows[place] for place, is_gone in valid_places(self.upserts.cut).items() if not is_gone]
        return {row["key"]: tuple(row.values())[2:] for row in valid}


def test_partial_upserts_merge_several_rows_of_a_key_across_segments_and_within_a_batch() -> None:
    segments = Segments()
    segments.add(0, ("a", 1, "Ann", 1, ["x"], 0), ("b", 1, None, 5, None, 0))
    segments.add(1, ("a", 2, None, 2, ["z"], 0), ("a", 3, "Ada", None, ["y", "x"], 0), ("b", 2, "Bo", None, None, 0))
    assert segments.seen() == {"a": ("Ada", 3, ["x", "y", "z"], 0), "b": ("Bo", 5, None, 0)}
    assert valid_places(segments.upserts.cut) == {(1, 1): False, (1, 2): False}


def test_rows_out_of_order_deletions_and_rows_after_them_are_not_merged() -> None:
    segments = Segments()
    segments.add(0, ("a", 5, "Ann", 1, None, 0), ("a", 4, "old", 10, None, 0), ("a", 6, None, 1, None, 0))
    assert segments.seen() == {"a": ("Ann", 2, None, 0)}
    assert segments.rows[0, 1]["name"] == "old"
    segments.add(0, ("a", 7, None, 1, None, 1), ("a", 8, None, 1, None, 0))
    assert segments.seen() == {"a": (None, 1, None, 0)}
    assert segments.rows[0, 3]["name"] is None


def test_a_row_without_comparison_value_takes_that_of_the_row_it_replaces() -> None:
    segments = Segments()
    segments.add(0, ("a", 5, "Ann", 1, None, 0), ("a", None, None, 1, None, 0))
    segments.add(0, ("a", 4, "late", 1, None, 0))
    assert segments.seen() == {"a": ("Ann", 2, None, 0)}
    assert segments.rows[0, 1]["at"] == segments.rows[0, 0]["at"]


def test_of_several_comparison_columns_those_that_a_row_has_count_and_the_others_are_carried_over() -> None:
    segments = Segments(comparisonColumns=["at", "times"], partialUpsertStrategies={})
    segments.add(0, ("a", 5, "first", None, None, 0), ("a", None, "second", 3, None, 0))
    segments.add(
        1, ("a", None, "older", 2, None, 0), ("a", 4, "older", None, None, 0), ("a", 6, "third", None, None, 0)
    )
    assert segments.seen() == {"a": ("third", 3, None, 0)}
    again = Segments(comparisonColumns=["at", "times"], partialUpsertStrategies={})
    schema = arrow_schema(SCHEMA)
    for place in sorted(segments.rows):
        again.upserts.replay(pa.Table.from_pylist([segments.rows[place]], schema), *place)
    again.upserts.publish()
    assert valid_places(again.upserts.cut) == valid_places(segments.upserts.cut)


OWN = """
import pyarrow.compute as pc


def longest(before, new):
    is_longer = pc.fill_null(pc.greater(pc.utf8_length(new), pc.utf8_length(before)), True)
    return pc.if_else(is_longer, pc.coalesce(new, before), before)


def broken(before, new):
    return new[:0]


def lost(before, new):
    return new.to_pylist()


def raising(before, new):
    raise KeyError("no")
"""


def test_a_merger_of_ones_own_is_found_by_its_name(tmp_path: Path) -> None:
    points = {"merlot.mergers": {"acme.longest": "acme_mergers:longest", "acme.broken": "acme_mergers:broken"}}
    points["merlot.mergers"] |= {f"acme.{name}": f"acme_mergers:{name}" for name in ("lost", "raising", "absent")}
    field = FieldSpec.model_validate({"name": "value", "type": "STRING"})
    chains = Chains(1, np.array([0, 1, -1, 2]))
    values = pa.array(["aa", "b", "cccc", "d", None])
    with installed(tmp_path, {"acme_mergers": OWN}, points):
        assert merger_of("acme.longest")(field, chains, values).to_pylist() == ["aa", "cccc", "d", "cccc"]
        with pytest.raises(InvalidInputError, match=r"name=acme\.broken"):
            merger_of("acme.broken")(field, chains, values)
        with pytest.raises(InvalidInputError, match=r"same type name=acme\.lost got=list"):
            merger_of("acme.lost")(field, chains, values)
        with pytest.raises(InvalidInputError, match=r"merger failed name=acme\.raising cause=KeyError"):
            merger_of("acme.raising")(field, chains, values)
        with pytest.raises(InvalidInputError, match=r"merger cannot be had name=acme\.absent"):
            merger_of("acme.absent")
    with pytest.raises(InvalidInputError, match="found=0"):
        merger_of("acme.nobody")
    with pytest.raises(InvalidInputError, match="known=OVERWRITE"):
        merger_of("nobody")

"""Source rows to rows of the schema: every column cast, every row either kept or counted as bad with its reason.

A row is bad if a value does not fit its column's type, if its time is missing or outside years 1 to 9999, or if a
dateTime value does not follow the column's format. Missing columns become null. Texts longer than a column's
`maxLength` are cut, as in Pinot, and counted; JSON and times as text, which a cut would break or change, make a bad row
instead. Filter and derived columns come before (`expressions`, or Spark SQL).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.errors import InvalidInputError
from merlot.ingest import arrays, casts, instants
from merlot.ingest.arrays import Cast, then
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, UNKNOWN_ROW, BadRow, BadRows, pick_samples
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

MAX_TEXT = 80
CORRUPT_RECORD = "_corrupt_record"
"""Spark's column for input lines that are no record at all."""
SOURCE_FILE = "$file"
"""Column of the file that a row is from (string, may be a dictionary). Optional, as is SOURCE_ROW: a reader that adds
them lets samples of bad rows tell their place. No column of a table can have such a name."""
SOURCE_ROW = "$row"
"""Column of a row's number in its file: int64, counted from 1 as the format counts (records, not lines of text)."""
PROVENANCE = (SOURCE_FILE, SOURCE_ROW)


@dataclass(frozen=True, slots=True)
class Conformed:
    """`rows` is what `build_segment` takes; `millis` is their time (epoch milliseconds), None without time column."""

    rows: pa.Table
    bad: BadRows
    millis: pa.Array | None = None
    cut: Mapping[str, int] = field(default_factory=dict)
    """How many texts were cut to the column's maximum, by column; columns without any are left out."""
    origin: pa.Table | None = None
    """Where each row is from: the columns of PROVENANCE that the source has; None if it has none."""


Window = tuple[int, int]
"""Epoch milliseconds, [start, end)."""


def inside(conformed: Conformed, window: Window | None) -> tuple[Conformed, int]:
    """The rows whose time is in the window, and how many are not; InvalidInputError without time column."""
    if window is None:
        return conformed, 0
    if conformed.millis is None:
        raise InvalidInputError("a window of time needs a table with a time column")
    millis = arrays.plain(conformed.millis)
    kept = pc.and_(pc.greater_equal(millis, window[0]), pc.less(millis, window[1]))
    num_outside = len(millis) - (pc.sum(kept).as_py() or 0)
    if not num_outside:
        return conformed, 0
    origin = None if conformed.origin is None else conformed.origin.filter(kept)
    return replace(conformed, rows=conformed.rows.filter(kept), millis=millis.filter(kept), origin=origin), num_outside


@dataclass(slots=True)
class _Verdict:
    """Which rows are bad, and under which fault each one counts: the first that was found."""

    bad: np.ndarray  # bool, one per row
    firsts: dict[_Fault, np.ndarray]  # → row numbers

    def add(self, fault: _Fault, rows: pa.Array) -> None:
        found = rows.to_numpy(zero_copy_only=False) & ~self.bad
        if found.any():
            self.firsts[fault] = np.flatnonzero(found)
            self.bad |= found


@dataclass(frozen=True, slots=True)
class _Fault:
    """What is wrong, and with which column; the column is empty if the whole line is no record."""

    problem: str
    column: str = ""

    @property
    def reason(self) -> str:
        return f"{self.column}: {self.problem}" if self.column else self.problem


def cast_type(column: FieldSpec) -> pa.DataType:
    """Arrow type of a cast column: instants as epoch milliseconds (int64), the rest as segments take it."""
    value = casts.CAST_TYPES[column.type]
    return pa.list_(value) if column.multi_value else value


def conform(table: pa.Table, spec: TableSpec) -> Conformed:
    """Bring source rows to the schema's columns; the order of the rows that are kept is the source's."""
    verdict = _Verdict(np.zeros(table.num_rows, dtype=bool), {})
    _mark_corrupt(table, verdict)
    columns = [_conform_column(table, column, verdict) for column in spec.table_schema.fields]
    millis = _time_of(spec, dict(zip(spec.table_schema.names, columns, strict=True)), verdict)
    rows = pa.Table.from_arrays(columns, spec.table_schema.names).cast(arrow_schema(spec.table_schema))
    places = [name for name in PROVENANCE if name in table.column_names]
    origin = table.select(places) if places else None
    if verdict.bad.any():
        kept = pa.array(~verdict.bad)
        rows = rows.filter(kept)
        millis = None if millis is None else millis.filter(kept)
        origin = None if origin is None else origin.filter(kept)
    rows, cut = _cut_texts(rows, spec.table_schema)
    return Conformed(rows, _bad_rows(table, verdict), millis, cut, origin)


def source_values(table: pa.Table, column: FieldSpec) -> pa.Array:
    """What a source has for a column, in the column's type; null where a value does not fit."""
    if column.name not in table.column_names:
        return pa.nulls(table.num_rows, cast_type(column))
    cast = _cast(arrays.plain(table.column(column.name)), column)
    # Of a list that is bad, the cast has the values that are not.
    return arrays.with_nulls(cast.values, cast.bad) if column.multi_value else cast.values


def _conform_column(table: pa.Table, column: FieldSpec, verdict: _Verdict) -> pa.Array:
    if column.name not in table.column_names:
        return pa.nulls(table.num_rows, cast_type(column))
    source = arrays.plain(table.column(column.name))
    result = _cast(source, column)
    subject = f"{_short(source.type)} is no" if result.by_type else "not a"
    verdict.add(_Fault(f"{subject} value of {_type_name(column)}", column.name), result.bad)
    if column.time_format is not None:
        wrong = instants.misfits(result.values, column.time_format)
        verdict.add(_Fault(f"not in the format {column.format}", column.name), wrong)
    if _breaks_if_cut(column) and column.longest is not None:
        too_long = pc.greater(pc.utf8_length(result.values), column.longest)
        verdict.add(_Fault(f"longer than {column.longest} characters", column.name), too_long.fill_null(False))
    return result.values


def _type_name(column: FieldSpec) -> str:
    return f"{column.type}[]" if column.multi_value else str(column.type)


def is_impossible(kind: pa.DataType, column: FieldSpec) -> bool:
    """Whether no value of a source's type can become one of the column: every row that has one would be bad."""
    return _cast(arrays.plain(pa.nulls(0, kind)), column).by_type


def _cast(source: pa.Array, column: FieldSpec) -> Cast:
    return _cast_lists(source, column) if column.multi_value else _cast_single(source, column)


def _breaks_if_cut(column: FieldSpec) -> bool:
    """JSON, and a time as text, which would be another time or none."""
    return column.type is TypeName.JSON or (column.type is TypeName.STRING and column.time_format is not None)


def _short(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _cast_single(source: pa.Array, column: FieldSpec) -> Cast:
    if arrays.is_temporal(source.type) and column.time_format is not None:
        stored = instants.to_format(source, column.time_format)
        return then(stored, casts.cast(stored.values, column.type))
    return casts.cast(source, column.type)


def _cast_lists(source: pa.Array, column: FieldSpec) -> Cast:
    """A list is bad if one of its values is. Null values in a list are left out; a single value is a list of one."""
    if pa.types.is_null(source.type):
        return arrays.all_good(pa.nulls(len(source), cast_type(column)))
    if not pa.types.is_list(source.type):
        return _lists_of_one(casts.cast(source, column.type))
    parents = arrays.parents_of(source)
    elements = casts.cast(arrays.elements_of(source), column.type)
    bad = np.zeros(len(source), dtype=bool)
    bad[parents[elements.bad.to_numpy(zero_copy_only=False)]] = True
    present = elements.values.is_valid()
    lengths = np.bincount(parents[present.to_numpy(zero_copy_only=False)], minlength=len(source))
    lists = arrays.lists_of(lengths, elements.values.filter(present), source.is_null())
    return Cast(lists.cast(cast_type(column)), pa.array(bad), elements.by_type)


def _lists_of_one(values: Cast) -> Cast:
    present = values.values.is_valid()
    lengths = present.to_numpy(zero_copy_only=False).astype(np.int64)
    lists = arrays.lists_of(lengths, values.values.drop_null(), pc.invert(present))
    return Cast(lists, values.bad, values.by_type)


def _time_of(spec: TableSpec, columns: Mapping[str, pa.Array], verdict: _Verdict) -> pa.Array | None:
    """Epoch milliseconds of the time column, all of them there and within years 1 to 9999 where the row is good."""
    if spec.time_column is None:
        return None
    values = columns[spec.time_column]
    verdict.add(_Fault("no time", spec.time_column), values.is_null())
    column = spec.table_schema.field(spec.time_column)
    time_format = None if column is None else column.time_format
    assert time_format is not None, "a time column is a dateTime column"
    millis = instants.to_millis(values, time_format)
    verdict.add(_Fault("time outside years 1 to 9999", spec.time_column), millis.is_null())
    return millis


def _mark_corrupt(table: pa.Table, verdict: _Verdict) -> None:
    if CORRUPT_RECORD in table.column_names:
        verdict.add(_Fault("the line is no record"), table.column(CORRUPT_RECORD).combine_chunks().is_valid())


def _cut_texts(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, dict[str, int]]:
    cut: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        if column.type not in (TypeName.STRING, TypeName.BYTES) or column.longest is None or _breaks_if_cut(column):
            continue
        values = arrays.plain(rows.column(position))
        texts = values.flatten() if column.multi_value else values
        # Bytes bound characters from above: most columns are done with one look at the longest value.
        if (pc.max(pc.binary_length(texts)).as_py() or 0) <= column.longest:
            continue
        is_text = column.type is TypeName.STRING
        lengths = pc.utf8_length(texts) if is_text else pc.binary_length(texts)
        num_cut = pc.sum(pc.greater(lengths, column.longest)).as_py()
        if not num_cut:
            continue
        texts = (pc.utf8_slice_codeunits if is_text else pc.binary_slice)(texts, 0, column.longest)
        if column.multi_value:
            texts = arrays.lists_of(arrays.lengths_of(values), texts, values.is_null()).cast(values.type)
        rows = rows.set_column(position, rows.schema.field(position), texts)
        cut[column.name] = num_cut
    return rows, cut


def _bad_rows(table: pa.Table, verdict: _Verdict) -> BadRows:
    counts = {fault.reason: len(rows) for fault, rows in verdict.firsts.items()}
    samples = [
        bad_row(fault.reason, table, int(row), column=fault.column)
        for fault, rows in verdict.firsts.items()
        for row in rows[:SAMPLES_PER_REASON]
    ]
    return BadRows(dict(sorted(counts.items())), pick_samples(samples))


def bad_row(reason: str, table: pa.Table, row: int, *, column: str = "", origin: pa.Table | None = None) -> BadRow:
    """Sample a row: its values as short texts, nulls left out. `origin` has its place, `table` if it is left out."""
    texts = {name: _text(table.column(name), row) for name in table.column_names if name not in PROVENANCE}
    values = {name: text for name, text in texts.items() if text is not None}
    place = table if origin is None else origin
    found = {name: place.column(name)[row].as_py() for name in PROVENANCE if name in place.column_names}
    number = found.get(SOURCE_ROW)
    return BadRow(
        reason,
        tuple(values.items()),
        file=found.get(SOURCE_FILE) or "",
        row_number=UNKNOWN_ROW if number is None else number,
        column=column,
        value=values.get(column, ""),
    )


def _text(values: pa.ChunkedArray, row: int) -> str | None:
    """A value for people. Arrow prints what Python has no object for, such as a day of the year 10000."""
    scalar = values[row]
    if not scalar.is_valid:
        return None
    try:
        text = str(scalar.as_py())
    except (ValueError, OverflowError, KeyError, TypeError, NotImplementedError, pa.ArrowException):
        printed = values.slice(row, 1).combine_chunks().to_string()
        text = " ".join(printed.split()).removeprefix("[ ").removesuffix(" ]")
    return text[:MAX_TEXT]

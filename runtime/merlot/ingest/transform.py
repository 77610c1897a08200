"""Conform source rows to the schema: cast every column, and either keep a row or count it as bad with its reason.

A row is bad if a value does not fit its column's type, if its time is missing or outside years 1 to 9999, or if a
dateTime value does not follow the column's format. Missing columns become null. Texts and bytes longer than a column's
`maxLength` are cut, as in Pinot, and counted. JSON and times as text make a bad row instead, because a cut would break
or change them. Filter and derived columns come before (`row_expressions`, or Spark SQL).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.errors import InvalidInputError
from merlot.ingest import arrays, casts, instants
from merlot.ingest.arrays import CastResult, then
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, UNKNOWN_ROW, BadRow, BadRows, pick_samples
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

MAX_TEXT = 80
CORRUPT_RECORD = "_corrupt_record"
"""Spark's column for input lines that are no record."""
SOURCE_FILE = "$file"
"""Column of the file that a row is from (string, may be a dictionary). It is optional, as is SOURCE_ROW: with them,
samples of bad rows tell their place. No column of a table can have such a name."""
SOURCE_ROW = "$row"
"""Column of a row's number in its file: int64, counted from 1 as the format counts (records, not lines of text)."""
PROVENANCE = (SOURCE_FILE, SOURCE_ROW)


@dataclass(frozen=True, slots=True)
class Conformed:
    """Rows that `build_segment` takes. `millis` is their time (epoch milliseconds), None without a time column."""

    rows: pa.Table
    bad: BadRows
    millis: pa.Array | None = None
    cut: Mapping[str, int] = field(default_factory=dict)
    """Number of texts or bytes cut to the column's maximum, by column; columns without any are left out."""
    origin: pa.Table | None = None
    """Place of each row: the columns of PROVENANCE that the source has; None if it has none."""


Window = tuple[int, int]
"""Range of epoch milliseconds, [start, end)."""


def inside(conformed: Conformed, window: Window | None) -> tuple[Conformed, int]:
    """Return the rows whose time is in the window, and the number of the others. Raises InvalidInputError without a
    time column."""
    if window is None:
        return conformed, 0
    if conformed.millis is None:
        raise InvalidInputError("a window of time needs a table with a time column")
    millis = arrays.plain(conformed.millis)
    is_inside = pc.and_(pc.greater_equal(millis, window[0]), pc.less(millis, window[1]))
    num_outside = len(millis) - (pc.sum(is_inside).as_py() or 0)
    if not num_outside:
        return conformed, 0
    origin = None if conformed.origin is None else conformed.origin.filter(is_inside)
    rows, millis = conformed.rows.filter(is_inside), millis.filter(is_inside)
    return replace(conformed, rows=rows, millis=millis, origin=origin), num_outside


@dataclass(slots=True)
class _RowFaults:
    """Bad rows, each counted under the first fault that was found."""

    bad: np.ndarray  # bool, one per row
    firsts: dict[_Fault, np.ndarray]  # → row numbers

    def add(self, fault: _Fault, rows: pa.Array) -> None:
        newly_bad = rows.to_numpy(zero_copy_only=False) & ~self.bad
        if newly_bad.any():
            self.firsts[fault] = np.flatnonzero(newly_bad)
            self.bad |= newly_bad


@dataclass(frozen=True, slots=True)
class _Fault:
    """A problem, and the column that has it; the column is empty if the whole line is no record."""

    problem: str
    column: str = ""

    @property
    def reason(self) -> str:
        return f"{self.column}: {self.problem}" if self.column else self.problem


def cast_type(column: FieldSpec) -> pa.DataType:
    """Return the Arrow type of a cast column: instants as epoch milliseconds (int64), the rest as segments take it."""
    value = casts.CAST_TYPES[column.type]
    return pa.list_(value) if column.multi_value else value


def conform(table: pa.Table, spec: TableSpec) -> Conformed:
    """Bring source rows to the schema's columns. Rows that are kept stay in the source's order."""
    faults = _RowFaults(np.zeros(table.num_rows, dtype=bool), {})
    _mark_corrupt(table, faults)
    columns = [_conform_column(table, column, faults) for column in spec.table_schema.fields]
    millis = _time_of(spec, dict(zip(spec.table_schema.names, columns, strict=True)), faults)
    rows = pa.Table.from_arrays(columns, spec.table_schema.names).cast(arrow_schema(spec.table_schema))
    provenance = [name for name in PROVENANCE if name in table.column_names]
    origin = table.select(provenance) if provenance else None
    if faults.bad.any():
        is_good = pa.array(~faults.bad)
        rows = rows.filter(is_good)
        millis = None if millis is None else millis.filter(is_good)
        origin = None if origin is None else origin.filter(is_good)
    rows, cut = _cut_texts(rows, spec.table_schema)
    return Conformed(rows, _bad_rows(table, faults), millis, cut, origin)


def source_values(table: pa.Table, column: FieldSpec) -> pa.Array:
    """Return a source's values for a column, in the column's type; null where a value does not fit."""
    if column.name not in table.column_names:
        return pa.nulls(table.num_rows, cast_type(column))
    cast = _cast(arrays.plain(table.column(column.name)), column)
    # The cast of a bad list still has the values that fit.
    return arrays.with_nulls(cast.values, cast.bad) if column.multi_value else cast.values


def _conform_column(table: pa.Table, column: FieldSpec, faults: _RowFaults) -> pa.Array:
    if column.name not in table.column_names:
        return pa.nulls(table.num_rows, cast_type(column))
    source = arrays.plain(table.column(column.name))
    result = _cast(source, column)
    subject = f"{_short(source.type)} is no" if result.by_type else "not a"
    faults.add(_Fault(f"{subject} value of {_type_name(column)}", column.name), result.bad)
    if column.time_format is not None:
        wrong = instants.misfits(result.values, column.time_format)
        faults.add(_Fault(f"not in the format {column.format}", column.name), wrong)
    if _breaks_if_cut(column) and column.longest is not None:
        too_long = pc.greater(pc.utf8_length(result.values), column.longest)
        faults.add(_Fault(f"longer than {column.longest} characters", column.name), too_long.fill_null(False))
    return result.values


def _type_name(column: FieldSpec) -> str:
    return f"{column.type}[]" if column.multi_value else str(column.type)


def is_impossible(kind: pa.DataType, column: FieldSpec) -> bool:
    """Return True if no value of a source's type can become one of the column, so that every row with a value is
    bad."""
    return _cast(arrays.plain(pa.nulls(0, kind)), column).by_type


def _cast(source: pa.Array, column: FieldSpec) -> CastResult:
    return _cast_lists(source, column) if column.multi_value else _cast_single(source, column)


def _breaks_if_cut(column: FieldSpec) -> bool:
    """Return True for JSON, and for a time as text, which a cut would turn into another time or none."""
    return column.type is TypeName.JSON or (column.type is TypeName.STRING and column.time_format is not None)


def _short(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _cast_single(source: pa.Array, column: FieldSpec) -> CastResult:
    if arrays.is_temporal(source.type) and column.time_format is not None:
        stored = instants.to_format(source, column.time_format)
        return then(stored, casts.cast(stored.values, column.type))
    return casts.cast(source, column.type)


def _cast_lists(source: pa.Array, column: FieldSpec) -> CastResult:
    """Cast lists. A list is bad if one of its values is. Nulls in a list are left out; a single value becomes a list of
    one."""
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
    return CastResult(lists.cast(cast_type(column)), pa.array(bad), elements.by_type)


def _lists_of_one(values: CastResult) -> CastResult:
    present = values.values.is_valid()
    lengths = present.to_numpy(zero_copy_only=False).astype(np.int64)
    lists = arrays.lists_of(lengths, values.values.drop_null(), pc.invert(present))
    return CastResult(lists, values.bad, values.by_type)


def _time_of(spec: TableSpec, columns: Mapping[str, pa.Array], faults: _RowFaults) -> pa.Array | None:
    """Return the epoch milliseconds of the time column. In good rows they are present and within years 1 to 9999."""
    if spec.time_column is None:
        return None
    values = columns[spec.time_column]
    faults.add(_Fault("no time", spec.time_column), values.is_null())
    column = spec.table_schema.field(spec.time_column)
    time_format = None if column is None else column.time_format
    assert time_format is not None, "a time column is a dateTime column"
    millis = instants.to_millis(values, time_format)
    faults.add(_Fault("time outside years 1 to 9999", spec.time_column), millis.is_null())
    return millis


def _mark_corrupt(table: pa.Table, faults: _RowFaults) -> None:
    if CORRUPT_RECORD in table.column_names:
        faults.add(_Fault("the line is no record"), table.column(CORRUPT_RECORD).combine_chunks().is_valid())


def _cut_texts(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, dict[str, int]]:
    cut: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        if column.type not in (TypeName.STRING, TypeName.BYTES) or column.longest is None or _breaks_if_cut(column):
            continue
        values = arrays.plain(rows.column(position))
        texts = values.flatten() if column.multi_value else values
        # Bytes bound characters from above, so a look at the longest value settles most columns.
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


def _bad_rows(table: pa.Table, faults: _RowFaults) -> BadRows:
    counts = {fault.reason: len(rows) for fault, rows in faults.firsts.items()}
    samples = [
        bad_row(fault.reason, table, int(row), column=fault.column)
        for fault, rows in faults.firsts.items()
        for row in rows[:SAMPLES_PER_REASON]
    ]
    return BadRows(dict(sorted(counts.items())), pick_samples(samples))


def bad_row(reason: str, table: pa.Table, row: int, *, column: str = "", origin: pa.Table | None = None) -> BadRow:
    """Sample a row: its values as short texts, without nulls. Its place is in `origin`, or in `table` without an
    origin."""
    texts = {name: _text(table.column(name), row) for name in table.column_names if name not in PROVENANCE}
    values = {name: text for name, text in texts.items() if text is not None}
    source = table if origin is None else origin
    provenance = {name: source.column(name)[row].as_py() for name in PROVENANCE if name in source.column_names}
    number = provenance.get(SOURCE_ROW)
    return BadRow(
        reason,
        tuple(values.items()),
        file=provenance.get(SOURCE_FILE) or "",
        row_number=UNKNOWN_ROW if number is None else number,
        column=column,
        value=values.get(column, ""),
    )


def _text(values: pa.ChunkedArray, row: int) -> str | None:
    """Return a value as text for people. Arrow prints what Python has no object for, such as a day of the year
    10000."""
    scalar = values[row]
    if not scalar.is_valid:
        return None
    try:
        text = str(scalar.as_py())
    except (ValueError, OverflowError, KeyError, TypeError, NotImplementedError, pa.ArrowException):
        printed = values.slice(row, 1).combine_chunks().to_string()
        text = " ".join(printed.split()).removeprefix("[ ").removesuffix(" ]")
    return text[:MAX_TEXT]

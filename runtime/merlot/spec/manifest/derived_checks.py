"""Check that derived columns can be computed from the columns that a Table declares."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.spec.column_names import in_sql, is_name
from merlot.spec.derived import derived_of, read, unit_of
from merlot.spec.manifest.problems import ManifestProblem
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
Columns = Mapping[str, JsonObject]
Missing = Callable[[str, object], Iterator[ManifestProblem]]
PATH: Final = "spec.indexing.timestampGranularities"
_TYPES: Final = frozenset(TypeName)


def check(indexing: JsonObject, columns: Columns, missing: Missing) -> Iterator[ManifestProblem]:
    """Yield the problems of `timestampGranularities`."""
    declared = indexing.get("timestampGranularities")
    for name, granularities in declared.items() if isinstance(declared, dict) else ():
        path = f"{PATH}.{name}"
        yield from missing(path, name)
        yield from _check_column(path, name, None, columns)
        units = granularities if isinstance(granularities, list) else []
        for position, granularity in enumerate(units):
            if granularity in units[:position]:
                yield ManifestProblem(f"{path}[{position}]", f"{granularity} is named twice; keep one")


def check_one(path: str, text: str, columns: Columns, missing: Missing) -> Iterator[ManifestProblem]:
    """Yield the problems of one derived column, in any of its spellings."""
    try:
        written = read(text)
    except InvalidInputError:
        return
    if written is None:
        return
    yield from missing(path, written.derived.column)
    yield from _check_column(path, written.derived.column, written.unit, columns)


def name_of(text: object) -> object:
    """Return the name of the derived column that a text denotes; any other value as it is."""
    try:
        written = read(text) if isinstance(text, str) else None
    except InvalidInputError:
        return text
    return text if written is None else written.derived.name


def is_derived(name: object) -> bool:
    """Return True if this is the name of a derived column, or text that is no valid name of a column."""
    return isinstance(name, str) and (derived_of(name) is not None or not is_name(name))


def _check_column(path: str, name: str, unit: str | None, columns: Columns) -> Iterator[ManifestProblem]:
    declared = columns.get(name)
    if declared is None:
        return
    type_name, format_ = declared.get("type"), declared.get("format")
    if declared.get("multiValue") is True:
        yield ManifestProblem(path, f'column "{name}" is multi-valued; what is computed ahead has one value per row')
        return
    if type_name not in _TYPES or not isinstance(format_, str | None):
        return
    try:
        column_unit = unit_of(TypeName(str(type_name)), format_)
    except InvalidInputError:
        return
    if column_unit is None:
        what = f"{type_name} {format_ or 'without a format'}"
        yield ManifestProblem(
            path, f'column "{name}" is {what}; computed ahead is DATETRUNC of TIMESTAMP, LONG and whole units'
        )
    elif unit not in (None, column_unit):
        yield ManifestProblem(
            path, f'column "{name}" is in {column_unit}, not in {unit}; write DATETRUNC(unit, {in_sql(name)}) alone'
        )

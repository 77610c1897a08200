"""What a derived column cannot be computed from, by the columns that a Table declares."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.spec.column_names import in_sql, is_name
from merlot.spec.derived import derived_of, read, unit_of
from merlot.spec.manifest.problems import Problem
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
Columns = Mapping[str, JsonObject]
Missing = Callable[[str, object], Iterator[Problem]]
PATH: Final = "spec.indexing.timestampGranularities"
_TYPES: Final = frozenset(TypeName)


def check(indexing: JsonObject, columns: Columns, missing: Missing) -> Iterator[Problem]:
    """The problems of the granularities of a table's times."""
    declared = indexing.get("timestampGranularities")
    for name, granularities in declared.items() if isinstance(declared, dict) else ():
        path = f"{PATH}.{name}"
        yield from missing(path, name)
        yield from _check_column(path, name, None, columns)
        every = granularities if isinstance(granularities, list) else []
        for position, one in enumerate(every):
            if one in every[:position]:
                yield Problem(f"{path}[{position}]", f"{one} is named twice; keep one")


def check_one(path: str, text: str, columns: Columns, missing: Missing) -> Iterator[Problem]:
    """The problems of one derived column, as it is written."""
    try:
        written = read(text)
    except InvalidInputError:
        return
    if written is None:
        return
    yield from missing(path, written.derived.column)
    yield from _check_column(path, written.derived.column, written.unit, columns)


def name_of(text: object) -> object:
    """The name of the derived column that a text is; anything else as it is."""
    try:
        written = read(text) if isinstance(text, str) else None
    except InvalidInputError:
        return text
    return text if written is None else written.derived.name


def is_derived(name: object) -> bool:
    """Whether it is the name of a derived column, or means to be one, which the model refuses."""
    return isinstance(name, str) and (derived_of(name) is not None or not is_name(name))


def _check_column(path: str, name: str, unit: str | None, columns: Columns) -> Iterator[Problem]:
    declared = columns.get(name)
    if declared is None:
        return
    type_name, format_ = declared.get("type"), declared.get("format")
    if declared.get("multiValue") is True:
        yield Problem(path, f'column "{name}" is multi-valued; what is computed ahead has one value per row')
        return
    if type_name not in _TYPES or not isinstance(format_, str | None):
        return
    try:
        found = unit_of(TypeName(str(type_name)), format_)
    except InvalidInputError:
        return
    if found is None:
        what = f"{type_name} {format_ or 'without a format'}"
        yield Problem(
            path, f'column "{name}" is {what}; computed ahead is DATETRUNC of TIMESTAMP, LONG and whole units'
        )
    elif unit not in (None, found):
        yield Problem(
            path, f'column "{name}" is in {found}, not in {unit}; write DATETRUNC(unit, {in_sql(name)}) alone'
        )

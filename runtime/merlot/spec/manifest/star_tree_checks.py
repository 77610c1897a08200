"""Check star-trees against the names and types of the columns that a Table declares."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from merlot.spec.derived import not_ahead
from merlot.spec.manifest import derived_checks
from merlot.spec.manifest.problems import ManifestProblem, suggestion
from merlot.spec.star_tree import (
    EVERY_ROW,
    FUNCTIONS,
    MAX_DIMENSIONS,
    SEPARATOR,
    UNBOUNDED,
    parts_of,
)
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
Columns = Mapping[str, JsonObject]
Missing = Callable[[str, object], Iterator[ManifestProblem]]
"""Function of a path and a name that yields a problem if no column has the name."""
PATH: Final = "spec.indexing.starTreeIndexConfigs"
_TYPES: Final = frozenset(TypeName)


def check(indexing: JsonObject, columns: Columns, raw: set[str], missing: Missing) -> Iterator[ManifestProblem]:
    """Yield the problems of all trees of a table. raw: columns that are declared to have no dictionary."""
    trees = _list(indexing.get("starTreeIndexConfigs"))
    for position, tree in enumerate(trees):
        if not isinstance(tree, dict):
            continue
        path = f"{PATH}[{position}]"
        if tree in trees[:position]:
            yield ManifestProblem(path, "the same tree is declared twice; keep one")
        yield from _check_order(f"{path}.dimensionsSplitOrder", tree, columns, raw, missing)
        yield from _check_skipped(f"{path}.skipStarNodeCreationForDimensions", tree)
        yield from _check_pairs(f"{path}.functionColumnPairs", _list(tree.get("functionColumnPairs")), columns, missing)


def _check_order(
    path: str, tree: JsonObject, columns: Columns, raw: set[str], missing: Missing
) -> Iterator[ManifestProblem]:
    written = _list(tree.get("dimensionsSplitOrder"))
    order = _canonical_names(written)
    if len(order) > MAX_DIMENSIONS:
        yield ManifestProblem(path, f"a star-tree has up to {MAX_DIMENSIONS} dimensions, got {len(order)}")
    for position, name in enumerate(order):
        where = f"{path}[{position}]"
        if name in order[:position]:
            yield ManifestProblem(where, f'"{name}" is named twice; keep one')
        if derived_checks.is_derived(name):
            yield from derived_checks.check_one(where, written[position], columns, missing)
            continue
        if isinstance(name, str) and "(" in name and name not in columns:
            yield ManifestProblem(where, not_ahead(name))
            continue
        yield from missing(where, name)
        if not isinstance(name, str):
            continue
        if columns.get(name, {}).get("multiValue") is True:
            yield ManifestProblem(
                where, f'column "{name}" is multi-valued; a dimension of a star-tree has one value per row'
            )
        if name in raw:
            reason = "a dimension of a star-tree needs a dictionary"
            yield ManifestProblem(where, f'{reason}; take "{name}" out of here, or out of the raw columns')


def _check_skipped(path: str, tree: JsonObject) -> Iterator[ManifestProblem]:
    """Yield the problems of skipped dimensions. Only derived columns, which have several spellings, are compared with
    the order here; a rule compares the others."""
    order, written = (
        _canonical_names(tree.get("dimensionsSplitOrder")),
        _list(tree.get("skipStarNodeCreationForDimensions")),
    )
    skipped = _canonical_names(written)
    for position, name in enumerate(skipped):
        where = f"{path}[{position}]"
        if name in skipped[:position]:
            yield ManifestProblem(where, f'"{name}" is named twice; keep one')
        if isinstance(name, str) and name not in order and _has_several_spellings(written[position]):
            names = [dimension for dimension in order if isinstance(dimension, str)]
            yield ManifestProblem(where, f'"{name}" is not in dimensionsSplitOrder{suggestion(name, names)}')


def _has_several_spellings(name: object) -> bool:
    return isinstance(name, str) and (name.startswith("$") or "(" in name)


def _check_pairs(path: str, pairs: list[Any], columns: Columns, missing: Missing) -> Iterator[ManifestProblem]:
    seen: set[tuple[str, str]] = set()
    for position, pair in enumerate(pairs):
        if not isinstance(pair, str):
            continue
        where = f"{path}[{position}]"
        function, column = parts_of(pair)
        if (function, column) in seen:
            yield ManifestProblem(where, f'"{pair}" is named twice; keep one')
        seen.add((function, column))
        if function in UNBOUNDED:
            reason = f"intermediate result {UNBOUNDED[function]} is unbounded"
            yield ManifestProblem(where, f"a star-tree cannot keep {function.upper()}: {reason}")
        elif function.removesuffix("mv") in FUNCTIONS and function not in FUNCTIONS:
            yield ManifestProblem(where, f"a star-tree cannot keep {function.upper()}: it takes lists")
        elif function not in FUNCTIONS:
            yield ManifestProblem(where, f'unknown function "{pair.partition(SEPARATOR)[0]}"{_function_hint(function)}')
        elif function == "count":
            if column != EVERY_ROW:
                yield ManifestProblem(
                    where, f"rows are counted, whatever a column holds; write COUNT{SEPARATOR}{EVERY_ROW}"
                )
        elif not column:
            yield ManifestProblem(where, f"names no column; write {function.upper()}{SEPARATOR} and one")
        else:
            yield from missing(where, column)
            yield from _check_type(where, function, column, columns)


def _check_type(where: str, function: str, column: str, columns: Columns) -> Iterator[ManifestProblem]:
    declared = columns.get(column, {})
    type_name = declared.get("type")
    if declared.get("multiValue") is True:
        yield ManifestProblem(where, f'column "{column}" is multi-valued; {function.upper()} takes one value per row')
    elif isinstance(type_name, str) and type_name in _TYPES and type_name not in FUNCTIONS[function].types:
        accepted = ", ".join(sorted(FUNCTIONS[function].types))
        yield ManifestProblem(
            where, f'column "{column}" is {type_name}; {function.upper()} of a star-tree takes {accepted}'
        )


def _function_hint(function: str) -> str:
    names = [name.upper() for name in FUNCTIONS]
    return suggestion(function, names) or f"; one of {', '.join(names)}"


def _canonical_names(value: object) -> list[Any]:
    """Return the dimensions, derived columns by their canonical names."""
    return [derived_checks.name_of(dimension) for dimension in _list(value)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

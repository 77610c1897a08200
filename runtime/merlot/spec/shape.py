"""Shape of a table: the part of its manifest that decides which rows a batch's segments hold, their values, and the
segments' names. Pure.

A job builds segments by one manifest and publishes into a table that was applied from another. If the two have the same
shape, the same rows give the same segments. If they differ, rows would be counted twice, or read as something else.
Indexes, replication and all else that only affects the future do not belong to the shape (`evolution` has those).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from merlot.errors import InvalidInputError
from merlot.spec.indexing import PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

Shape = Mapping[str, str]
"""Text by the path of a field in the manifest; equal texts mean the same."""

COLUMNS: Final = "spec.schema.fields"
LIMITED: Final = frozenset({TypeName.STRING, TypeName.BYTES, TypeName.JSON})
"""Types whose values have a length."""
ABSENT: Final = "(absent)"
HINT: Final = (
    "apply the manifest first, or build by the table's own: GET /tables/NAME/manifest, or a job without --table"
)
MAX_SHOWN: Final = 3
MAX_TEXT: Final = 120


class ShapeError(InvalidInputError):
    """Raised if segments were built, or are to be built, by a manifest whose shape differs from the applied table's."""


def shape_of(spec: TableSpec) -> Shape:
    """Return the shape of a table. The order of columns belongs to it, because files without a header rely on it."""
    return {
        "spec.timeColumn": spec.time_column or ABSENT,
        "spec.pushType": str(spec.push_type),
        "spec.ingestion.daysPerSegment": str(spec.ingestion.days_per_segment),
        "spec.partitioning": _partitioning(spec.partitioning),
        "spec.upsert": ABSENT if spec.upsert is None else "set",
        "spec.schema.primaryKey": ", ".join(spec.table_schema.primary_key) or ABSENT,
        COLUMNS: ", ".join(spec.table_schema.names),
        **{f"{COLUMNS}[{field.name}]": _column(field) for field in spec.table_schema.fields},
    }


def differences(applied: Shape, other: Shape) -> list[str]:
    """Return the fields in which two shapes differ.

    A field that only one of them has is no difference. The list of columns names a column that one of them lacks, and
    another version of Merlot may know more fields."""
    return [path for path, text in applied.items() if other.get(path, text) != text]


def check(applied: Shape, other: Shape, *, table: str, what: str) -> None:
    """Raise ShapeError, which names the fields, unless the shapes are equal. what: owner of the shape `other`."""
    paths = differences(applied, other)
    if not paths:
        return
    shown = [f"{path}: {_pair(path, applied, other)}" for path in paths[:MAX_SHOWN]]
    more = f" and {len(paths) - MAX_SHOWN} more" if len(paths) > MAX_SHOWN else ""
    raise ShapeError(
        f"{what} differs from the applied table table={table} fields={len(paths)}: {'; '.join(shown)}{more}; {HINT}"
    )


def _pair(path: str, applied: Shape, other: Shape) -> str:
    """Return both values as text. For the list of columns, that is what only one of them has; for a column, what
    differs."""
    before, after = applied[path], other[path]
    if path.startswith(f"{COLUMNS}["):
        first_facts, second_facts = json.loads(before), json.loads(after)
        names = [name for name in {**first_facts, **second_facts} if first_facts.get(name) != second_facts.get(name)]
        before, after = (
            ", ".join(f"{name} {facts.get(name, 'none')}" for name in names) for facts in (first_facts, second_facts)
        )
    elif path == COLUMNS:
        first, second = before.split(", "), after.split(", ")
        if set(first) != set(second):
            before, after = _beyond(first, second), _beyond(second, first)
    return f"applied {before:.{MAX_TEXT}} and here {after:.{MAX_TEXT}}"


def _beyond(names: Sequence[str], others: Sequence[str]) -> str:
    """Return a text with the names that are not among the others."""
    own = [name for name in names if name not in set(others)]
    return f"has also {', '.join(own)}" if own else "has no more"


def _partitioning(spec: PartitioningSpec | None) -> str:
    if spec is None:
        return ABSENT
    functions = {
        name: {**function.model_dump(mode="json"), "functionName": function.function_name.lower()}
        for name, function in spec.columns.items()
    }
    return _json({"columns": functions, "enforce": str(spec.enforce)})


def _column(field: FieldSpec) -> str:
    """Return everything of a column that decides its values, defaults filled in. A later addition must be a path of its
    own, because older versions compare the whole text."""
    facts: dict[str, object] = {"type": str(field.type), "role": str(field.role)}
    if field.multi_value:
        facts["multiValue"] = True
    if field.role is FieldRole.DATE_TIME:
        facts["format"] = field.format or "TIMESTAMP"
    value = field.default_value
    facts["defaultNullValue"] = value.hex() if isinstance(value, bytes) else str(value)
    if field.longest is not None and field.type in LIMITED:
        facts["maxLength"] = field.longest
    return _json(facts)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

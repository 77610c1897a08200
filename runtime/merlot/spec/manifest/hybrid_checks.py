"""Check the time boundary of a hybrid Table against its time column, on the plain document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from merlot.errors import InvalidInputError
from merlot.spec.manifest.problems import ManifestProblem
from merlot.values import datetime_format
from merlot.values.datetime_format import EpochFormat, PatternFormat
from merlot.values.durations import duration_ms
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
PATH = "spec.ingestion.timeBoundary"


def check(spec: JsonObject, columns: Mapping[str, JsonObject]) -> Iterator[ManifestProblem]:
    """Yield the conflicts between the time boundary and the time column."""
    boundary, name = _mapping(spec.get("ingestion")).get("timeBoundary"), str(spec.get("timeColumn"))
    if boundary is not None and name in columns:
        yield from _check_column(name, columns[name], _mapping(boundary))


def _check_column(name: str, field: JsonObject, boundary: JsonObject) -> Iterator[ManifestProblem]:
    """Yield a problem unless stored times can be compared with the boundary as they are: as numbers that grow with
    time, and of which each unit of the boundary is a whole multiple."""
    try:
        format_ = datetime_format.parse(str(field.get("format", "TIMESTAMP")))
        unit_ms = duration_ms(str(boundary.get("unit", "1d")))
    except (InvalidInputError, ValueError):
        return  # the models report it
    if isinstance(format_, PatternFormat) or field.get("type") == TypeName.STRING:
        text = f'timeColumn "{name}" holds texts, which cannot be compared with it; write numbers (EPOCH or TIMESTAMP)'
        yield ManifestProblem(PATH, text)
    elif isinstance(format_, EpochFormat) and unit_ms % format_.step_ms:
        size = "" if format_.size == 1 else f"{format_.size} "
        text = f'is no whole multiple of {size}{format_.unit}, which is all that timeColumn "{name}" tells apart'
        yield ManifestProblem(f"{PATH}.unit", text)


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}

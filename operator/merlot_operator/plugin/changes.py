"""Cost of a change of a Table's spec: hot, reload or restart; or why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from merlot.spec import evolution, manifest
from merlot.spec.table import Table

Json = Mapping[str, Any]
MAX_VALUE = 60
REFUSED = "refused: the cluster would stay as it is"


class Cost(StrEnum):
    """Effect of a change on pods, from none to refusal."""

    NONE = "no effect"
    HOT = "hot"
    RELOAD = "reload"
    JOB = "batch"
    SCALE = "scale"
    RESTART = "restart"
    REFUSED = "refused"


STORED = "matters to segments built from now on; those that are there stay as they are"
COSTS: tuple[tuple[str, Cost, str], ...] = (
    ("routing", Cost.HOT, "brokers and servers take it up within seconds"),
    ("limits", Cost.HOT, "brokers and servers take it up within seconds"),
    ("nullHandling", Cost.HOT, "brokers take it up within seconds; answers of columns with nulls change"),
    ("retention", Cost.HOT, "the controller takes it up; segments past it are deleted"),
    ("deletionPolicy", Cost.HOT, "matters when the table is deleted"),
    ("pushType", Cost.HOT, "matters to the next batch"),
    ("partitioning", Cost.HOT, "matters to the next batch; segments that are there stay as they are"),
    ("indexing.sortedColumns", Cost.HOT, STORED),
    ("indexing.noDictionary", Cost.HOT, STORED),
    ("indexing.encodings", Cost.HOT, STORED),
    ("indexing.compression", Cost.HOT, STORED),
    ("indexing", Cost.HOT, "servers make the indexes of segments that are there, one after the other; queries go on"),
    ("schema", Cost.RELOAD, "servers answer new columns from the segments they have, by default values"),
    ("replication", Cost.SCALE, "segments are copied to or dropped from servers; queries go on"),
    ("ingestion.stream.secretRef", Cost.RESTART, "servers restart with it, one by one"),
    ("ingestion.stream", Cost.HOT, "the next segment of each partition begins with it, at once"),
    ("ingestion", Cost.JOB, "batches that changed run again"),
    ("tenants.broker.replicas", Cost.SCALE, "brokers are added or drained"),
    ("tenants.server.replicas", Cost.SCALE, "servers are added, or rid of their segments and removed"),
    ("tenants.server.resources.storage", Cost.HOT, "volumes grow in place"),
    ("tenants.server.storageClass", Cost.NONE, "volumes that are there keep their class"),
    ("tenants.server.name", Cost.RESTART, "another pool of servers loads the table"),
    ("tenants.server", Cost.RESTART, "servers restart one by one, each while its segments have another replica"),
    ("tenants.broker", Cost.RESTART, "brokers are replaced one by one"),
    ("deepStore.secretRef", Cost.RESTART, "controller, minions and, one by one, servers restart with it"),
    ("deepStore", Cost.HOT, "the store is opened anew with these options"),
    ("suspend", Cost.SCALE, "all servers stop, or come back; data stays"),
    ("upsert", Cost.RELOAD, "the table is set up anew around its UpsertConfig"),
)
"""Cost and effect by the beginning of the path; the first match counts."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs."""

    path: str
    before: Any
    after: Any
    cost: Cost
    effect: str

    def line(self) -> str:
        """Return `hot  spec.limits.timeoutMs: 1000 → 2000`, with the effect on a second line."""
        change = f"{_shown(self.before)} → {_shown(self.after)}"
        return f"{self.cost.value:>9}  spec.{self.path}: {change}\n{'':>11}{self.effect}"


def changes(before: Json, after: Json, refused_by_operator: Mapping[str, str]) -> list[FieldChange]:
    """Return the changes between two Tables as the API server holds them, the costliest last. Refused changes name the
    rule."""
    refused = _refused(before, after) | dict(refused_by_operator)
    differing = [
        _classed(path, old, new, refused)
        for path, old, new in _differences(before["spec"], after["spec"])
        if not _is_filled_in(path, old, new, before, after)
    ]
    others = {
        path: message
        for path, message in refused.items()
        if not any(change.path.startswith(path) or path.startswith(change.path) for change in differing)
    }
    differing += refusals(others)
    order = list(Cost)
    return sorted(differing, key=lambda change: (order.index(change.cost), change.path))


def refusals(refused: Mapping[str, str]) -> list[FieldChange]:
    """Return the refused fields of a Table as changes."""
    return [FieldChange(path, None, None, Cost.REFUSED, message) for path, message in refused.items()]


def _refused(before: Json, after: Json) -> dict[str, str]:
    try:
        problems = evolution.compare(table_of(before).spec, table_of(after).spec)
    except manifest.ManifestError as error:
        problems = error.problems
    return {problem.path.removeprefix("spec."): problem.message for problem in problems}


def table_of(body: Json) -> Table:
    """Return the Table that an object declares. Raise ManifestError if it is invalid."""
    metadata = {"name": body["metadata"]["name"]}
    declared = {key: body[key] for key in ("apiVersion", "kind", "spec")}
    return manifest.load_document({**declared, "metadata": metadata})


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths and values of the smallest parts that differ; a list is a single part."""
    if isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping) and (before or after):
        before, after = before or {}, after or {}
        for key in sorted({*before, *after}):
            inner = f"{path}.{key}" if path else key
            yield from _differences(before.get(key), after.get(key), inner)
    elif before != after:
        yield path, before, after


def _is_filled_in(path: str, old: Any, new: Any, before: Json, after: Json) -> bool:
    """Return True if two lists mean the same, one of them with defaults that CRDs once filled in."""
    if not (isinstance(old, list) and isinstance(new, list)):
        return False
    try:
        meant = [manifest.dump(table_of(body))["spec"] for body in (before, after)]
    except manifest.ManifestError:
        return False
    old, new = (_at(spec, path) for spec in meant)
    return bool(old == new and old is not None)


def _at(value: Any, path: str) -> Any:
    """Return the part of a spec at a path, or None. Keys may contain dots, as names of columns do."""
    while path and isinstance(value, Mapping):
        keys = [key for key in value if path == key or path.startswith(f"{key}.")]
        if not keys:
            return None
        key = max(keys, key=len)
        value, path = value[key], path[len(key) + 1 :]
    return None if path else value


def _classed(path: str, before: Any, after: Any, refused: Mapping[str, str]) -> FieldChange:
    for start, message in refused.items():
        if path.startswith(start) or start.startswith(path):
            return FieldChange(path, before, after, Cost.REFUSED, message)
    for start, cost, effect in COSTS:
        if path == start or path.startswith(start + "."):
            return FieldChange(path, before, after, cost, effect)
    return FieldChange(path, before, after, Cost.HOT, "written to shared state")


def summary(differing: Sequence[FieldChange]) -> str:
    """Return one line for all changes."""
    if not differing:
        return "nothing changes"
    if any(change.cost is Cost.REFUSED for change in differing):
        return REFUSED
    counts = {cost: sum(change.cost is cost for change in differing) for cost in Cost}
    return ", ".join(f"{count} {cost.value}" for cost, count in counts.items() if count)


def _shown(value: Any) -> str:
    text = "(nothing)" if value is None else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"

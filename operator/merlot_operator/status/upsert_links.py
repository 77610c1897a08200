"""Where a Table and the UpsertConfig that it names meet: what the one says against the other. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from merlot.spec import manifest
from merlot.spec.manifest.upsert_checks import against_named
from merlot.spec.table import Table
from merlot.spec.upsert import UpsertConfig
from merlot_operator.kube.kinds import Object, as_written, is_deleting
from merlot_operator.status.conditions import Condition

UPSERT_PROBLEMS = ("UpsertConfigInvalid", "UpsertConfigUnfit")
"""Reasons of UpsertConfigured that want somebody to act; objects may come in any order, so waiting for one does not."""


def table_condition(name: str, config: Object | None, table: Table | None) -> Condition:
    """What becomes of a Table's `spec.upsert`. config: as stored, None if there is none of that name."""
    if config is None or is_deleting(config):
        return Condition("UpsertConfigured", False, "NoUpsertConfig", f'waits for the UpsertConfig "{name}": apply it')
    upsert = upsert_of(config)
    if upsert is None or _is_refused(config):
        text = f'the UpsertConfig "{name}" is not accepted; see its condition Accepted'
        return Condition("UpsertConfigured", False, "UpsertConfigInvalid", text)
    problems = [] if table is None else against_named(upsert.spec, table)
    if problems:
        text = f'the UpsertConfig "{name}" does not fit: {"; ".join(map(str, problems))}'
        return Condition("UpsertConfigured", False, "UpsertConfigUnfit", text)
    return Condition("UpsertConfigured", True, "Fits", f'by the UpsertConfig "{name}"')


def upsert_of(config: Object | None) -> UpsertConfig | None:
    """The UpsertConfig of an object; None if there is none, or it is going, or wrong by itself."""
    if config is None or is_deleting(config):
        return None
    try:
        return manifest.load_document(as_written(config), UpsertConfig)
    except manifest.ManifestError:
        return None


def _is_refused(config: Object) -> bool:
    """True if the operator refused it at its last look, such as for rows that would be decided anew."""
    conditions = (config.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Accepted" and one["status"] == "False" for one in conditions)


def degraded_by(config: UpsertConfig, tables: Iterable[tuple[str, Table | None]]) -> Condition:
    """What the Tables that name an UpsertConfig say against it; one that is not accepted itself says nothing."""
    found = [
        f'table "{name}": {"; ".join(map(str, problems))}'
        for name, table in tables
        if table is not None and (problems := against_named(config.spec, table))
    ]
    if found:
        return Condition("Degraded", True, "DoesNotFit", "; ".join(found))
    return Condition("Degraded", False, "AsDeclared")

"""Checks of a Table against the UpsertConfig that it names. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from merlot.spec import manifest
from merlot.spec.manifest.upsert_checks import against_named
from merlot.spec.table import Table
from merlot.spec.upsert import UpsertConfig
from merlot_operator.kube.kinds import Object, as_written, is_deleting
from merlot_operator.status.conditions import Condition

UPSERT_PROBLEMS = ("UpsertConfigInvalid", "UpsertConfigUnfit")
"""Reasons of UpsertConfigured that need somebody to act. Waiting for an UpsertConfig does not, since objects may arrive
in any order."""


def table_condition(name: str, config: Object | None, table: Table | None) -> Condition:
    """Return UpsertConfigured for a Table's `spec.upsert`. `config` is the stored object, None if there is none of that
    name."""
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
    """Return the UpsertConfig of an object; None if there is none, it is being deleted, or it is invalid by itself."""
    if config is None or is_deleting(config):
        return None
    try:
        return manifest.load_document(as_written(config), UpsertConfig)
    except manifest.ManifestError:
        return None


def _is_refused(config: Object) -> bool:
    """Return True if the operator refused the object at its last pass, for example because a change would decide again
    which of the existing rows are valid."""
    conditions = (config.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Accepted" and condition["status"] == "False" for condition in conditions)


def degraded_by(config: UpsertConfig, tables: Iterable[tuple[str, Table | None]]) -> Condition:
    """Return the condition Degraded: True if a Table that names the UpsertConfig does not fit it. Tables that are not
    accepted themselves are ignored."""
    misfits = [
        f'table "{name}": {"; ".join(map(str, problems))}'
        for name, table in tables
        if table is not None and (problems := against_named(config.spec, table))
    ]
    if misfits:
        return Condition("Degraded", True, "DoesNotFit", "; ".join(misfits))
    return Condition("Degraded", False, "AsDeclared")

"""What a config of Pinot's changes of a table that is there: all that it says otherwise than the table's own would.

Pinot's configs cannot say all that a manifest does. So what a client sends is held against what the table's config was
before: members that differ are changed, all others stay as the manifest has them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merlot.spec.pinot_import.documents import Converted
from merlot.spec.pinot_import.source import Json
from merlot.spec.table import API_VERSION


def table_manifest(name: str, spec: Json) -> Json:
    """A Table."""
    return {"apiVersion": API_VERSION, "kind": "Table", "metadata": {"name": name}, "spec": spec}


def applied(now: Converted, before: Converted, wanted: Converted) -> Converted:
    """The table as it is `now`, with what differs between the other two; of other kinds, what is wanted besides."""
    manifest, old, new = map(_table, (now, before, wanted))
    changed = {**manifest, "spec": _changed(manifest["spec"], old["spec"], new["spec"])}
    known = {one["kind"] for one in wanted.manifests}
    others = [one for one in now.manifests if one["kind"] not in known]
    others += [one for one in wanted.manifests if one["kind"] != "Table"]
    return Converted((changed, *others), tuple(dict.fromkeys((*now.notes, *wanted.notes))))


def _table(converted: Converted) -> Json:
    return next(one for one in converted.manifests if one["kind"] == "Table")


def _changed(now: Mapping[str, Any], before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    result = dict(now)
    for name in [*wanted, *(name for name in before if name not in wanted)]:
        old, new = before.get(name), wanted.get(name)
        if old == new and name in before:
            continue
        if name not in wanted:
            result.pop(name, None)
        elif name == "fields" and isinstance(new, list):
            result[name] = _fields(now.get(name, []), old or [], new)
        elif isinstance(new, dict) and isinstance(now.get(name), dict):
            result[name] = _changed(now[name], old if isinstance(old, dict) else {}, new)
        else:
            result[name] = new
    return result


def _fields(now: Sequence[Json], before: Sequence[Json], wanted: Sequence[Json]) -> list[Json]:
    """Columns stay in their order, as queries answer them; new ones come last."""
    old, new = ({one["name"]: one for one in each} for each in (before, wanted))
    kept = [_changed(one, old.get(one["name"], {}), new[one["name"]]) for one in now if one["name"] in new]
    names = {one["name"] for one in now}
    return [*kept, *(one for one in wanted if one["name"] not in names)]

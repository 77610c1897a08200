"""Apply a changed Pinot config to an existing table.

Pinot's configs cannot express all that a manifest does. So a client's config is compared with the config that the table
had before: members that differ are changed, all others stay as the manifest has them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merlot.pinot.configs.documents import Converted
from merlot.pinot.configs.source import Json
from merlot.spec.table import API_VERSION


def table_manifest(name: str, spec: Json) -> Json:
    """Return the manifest of a Table."""
    return {"apiVersion": API_VERSION, "kind": "Table", "metadata": {"name": name}, "spec": spec}


def applied(now: Converted, before: Converted, wanted: Converted) -> Converted:
    """Return the table `now` with the differences between `before` and `wanted` applied. Manifests of other kinds are
    taken from `wanted`, or from `now` if `wanted` has none of their kind."""
    manifest, old, new = map(_table, (now, before, wanted))
    changed = {**manifest, "spec": _changed(manifest["spec"], old["spec"], new["spec"])}
    kinds = {document["kind"] for document in wanted.manifests}
    others = [document for document in now.manifests if document["kind"] not in kinds]
    others += [document for document in wanted.manifests if document["kind"] != "Table"]
    return Converted((changed, *others), tuple(dict.fromkeys((*now.notes, *wanted.notes))))


def _table(converted: Converted) -> Json:
    return next(document for document in converted.manifests if document["kind"] == "Table")


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
    """Return the changed columns. They stay in their order, in which queries answer them; new ones come last."""
    old, new = ({field["name"]: field for field in each} for each in (before, wanted))
    remaining = [
        _changed(field, old.get(field["name"], {}), new[field["name"]]) for field in now if field["name"] in new
    ]
    names = {field["name"] for field in now}
    return [*remaining, *(field for field in wanted if field["name"] not in names)]

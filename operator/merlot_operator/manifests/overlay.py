"""Overlay of a user over a pod template: objects are merged, lists of named items by name; all else is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

KEYS: Mapping[str, str] = {"volumeMounts": "mountPath", "ports": "containerPort"}
"""Key of the elements of a list; `name` for all other lists, as in Kubernetes' own strategic merge."""


def overlaid(template: Mapping[str, Any], overlay: Mapping[str, Any]) -> Json:
    """Return the template with the overlay over it. The template's own labels and annotations stay."""
    result = _merged(template, overlay)
    for name in ("labels", "annotations"):
        result["metadata"][name] |= template["metadata"][name]
    return result


def volume_names(overlay: Mapping[str, Any]) -> set[str]:
    """Return the names of the overlay's volumes."""
    return {str(volume.get("name")) for volume in overlay.get("spec", {}).get("volumes") or ()}


def _merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> Json:
    result = dict(base)
    for name, value in overlay.items():
        before = result.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = _merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[name] = _merged_lists(before, value, KEYS.get(name, "name"))
        else:
            result[name] = value
    return result


def _merged_lists(base: Sequence[Any], overlay: Sequence[Any], key: str) -> list[Any]:
    if not all(isinstance(item, Mapping) and key in item for item in (*base, *overlay)):
        return list(overlay)
    changes = {item[key]: item for item in overlay}
    merged = [_merged(item, changes.pop(item[key])) if item[key] in changes else item for item in base]
    return [*merged, *changes.values()]

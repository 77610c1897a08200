"""What a user lays over a pod template: objects are merged, lists of named things by name, all else is replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

KEYS: Mapping[str, str] = {"volumeMounts": "mountPath", "ports": "containerPort"}
"""What tells the elements of a list apart; `name` of all others, as in Kubernetes' own strategic merge."""


def overlaid(template: Mapping[str, Any], overlay: Mapping[str, Any]) -> Json:
    """The template with the overlay over it, but for the labels and annotations that the template has itself."""
    result = _merged(template, overlay)
    for name in ("labels", "annotations"):
        result["metadata"][name] |= template["metadata"][name]
    return result


def volume_names(overlay: Mapping[str, Any]) -> set[str]:
    """Volumes that the overlay has."""
    return {str(one.get("name")) for one in overlay.get("spec", {}).get("volumes") or ()}


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
    if not all(isinstance(one, Mapping) and key in one for one in (*base, *overlay)):
        return list(overlay)
    changes = {one[key]: one for one in overlay}
    kept = [_merged(one, changes.pop(one[key])) if one[key] in changes else one for one in base]
    return [*kept, *changes.values()]

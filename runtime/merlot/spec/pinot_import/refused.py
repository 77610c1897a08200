"""Settings that Pinot takes and ignores, or may have, and a manifest's checks refuse: a table works without them, so
they are left out with a note that says why. Pure."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from merlot.spec.manifest import ManifestError, load_document
from merlot.spec.pinot_import.source import Json

_OPTIONAL: Final = re.compile(
    r"spec\.(retention|indexing\.starTreeIndexConfigs\[\d+\]|indexing\.starTree|routing\.segmentPruners\[\d+\])(?![A-Za-z])"
)
"""Paths of problems that end with the setting that they are in."""


def without_refused(table: Json) -> tuple[Json, list[str]]:
    """The Table without optional settings that would be refused, and a note for each."""
    try:
        load_document(table)
    except ManifestError as error:
        found = {match[1]: one.message for one in error.problems if (match := _OPTIONAL.match(one.path))}
        left, notes = copy.deepcopy(table), []
        # From behind, so that places in lists stay what they are.
        for path, reason in reversed(found.items()):
            _remove(left["spec"], path)
            notes.append(f"{path}: left out, {reason}")
        return left, notes[::-1]
    return table, []


def _remove(spec: Any, path: str) -> None:
    *parents, last = re.findall(r"\w+", path)
    inner = spec
    for name in parents:
        inner = inner[int(name) if isinstance(inner, list) else name]
    del inner[int(last) if isinstance(inner, list) else last]
    if not inner and len(parents) > 1 and isinstance(inner, list):
        _remove(spec, ".".join(parents))

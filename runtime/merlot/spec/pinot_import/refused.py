"""Settings that Pinot takes and ignores, or may have, and a manifest's checks refuse: a table works without them, so
they are left out with a note that says why. Pure."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from merlot.spec.manifest import ManifestError, load_document
from merlot.spec.pinot_import.source import Json

_OPTIONAL: Final = re.compile(
    r"""spec\.(retention|routing\.segmentPruners\[\d+\]|indexing\.(?:
        starTreeIndexConfigs\[\d+\](?:\.functionColumnPairs\[\d+\])? | starTree |
        (?:inverted|range|text|jsonPaths|bloom|sortedColumns|noDictionary)\[\d+\]))(?![A-Za-z])""",
    re.VERBOSE,
)
"""Paths of problems that end with the setting that they are in: a pair of a star-tree where that alone is wrong."""
_PIECE: Final = re.compile(r"\w+")


def without_refused(table: Json) -> tuple[Json, list[str]]:
    """The Table without optional settings that would be refused, and a note for each."""
    left, notes = copy.deepcopy(table), []
    while found := _refused(left):
        notes += [f"{path}: {_shown(left['spec'], path)}left out, {reason}" for path, reason in found.items()]
        # From behind, so that places in lists stay what they are.
        for path in sorted(found, key=_place, reverse=True):
            _remove(left["spec"], path)
    return left, notes


def _refused(table: Json) -> dict[str, str]:
    """Why optional settings are refused, by their paths; of a setting that is refused as a whole, no piece."""
    try:
        load_document(table)
    except ManifestError as error:
        found = {match[1]: one.message for one in error.problems if (match := _OPTIONAL.match(one.path))}
        return {path: reason for path, reason in found.items() if path.rpartition(".")[0] not in found}
    return {}


def _place(path: str) -> tuple[int, ...]:
    return tuple(int(piece) for piece in _PIECE.findall(path) if piece.isdecimal())


def _shown(spec: Any, path: str) -> str:
    """Return the word at a path, if there is one."""
    inner = spec
    for piece in _PIECE.findall(path):
        inner = inner[int(piece) if isinstance(inner, list) else piece]
    return f"{inner} is " if isinstance(inner, str) else ""


def _remove(spec: Any, path: str) -> None:
    *parents, last = _PIECE.findall(path)
    inner = spec
    for name in parents:
        inner = inner[int(name) if isinstance(inner, list) else name]
    del inner[int(last) if isinstance(inner, list) else last]
    if not inner and len(parents) > 1 and isinstance(inner, list):
        # What is left of a list is nothing: neither is what had to have it.
        _remove(spec, ".".join(parents[:-1] if parents[-1] == "functionColumnPairs" else parents))

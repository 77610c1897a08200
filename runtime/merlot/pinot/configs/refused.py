"""Leave out settings that Pinot ignores or allows, but a manifest's checks refuse. A table works without them, and a
note gives the reason. Pure.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from merlot.pinot.configs.source import Json
from merlot.spec.manifest import ManifestError, load_document

_OPTIONAL: Final = re.compile(
    r"""spec\.(retention|routing\.segmentPruners\[\d+\]|indexing\.(?:
        starTreeIndexConfigs\[\d+\](?:\.functionColumnPairs\[\d+\])? | starTree |
        (?:inverted|range|text|jsonPaths|bloom|sortedColumns|noDictionary)\[\d+\]))(?![A-Za-z])""",
    re.VERBOSE,
)
"""Pattern of a problem's path, up to the setting to remove. If only a pair of a star-tree is wrong, that is the
pair."""
_PIECE: Final = re.compile(r"\w+")


def without_refused(table: Json) -> tuple[Json, list[str]]:
    """Return the Table without optional settings that would be refused, and a note for each of them."""
    left, notes = copy.deepcopy(table), []
    while reasons := _refused(left):
        notes += [f"{path}: {_shown(left['spec'], path)}left out, {reason}" for path, reason in reasons.items()]
        # Remove from the end, so that earlier positions in lists stay valid.
        for path in sorted(reasons, key=_place, reverse=True):
            _remove(left["spec"], path)
    return left, notes


def _refused(table: Json) -> dict[str, str]:
    """Return the reasons for refusal by the paths of optional settings. A part of a setting that is itself refused is
    left out."""
    try:
        load_document(table)
    except ManifestError as error:
        reasons = {match[1]: problem.message for problem in error.problems if (match := _OPTIONAL.match(problem.path))}
        return {path: reason for path, reason in reasons.items() if path.rpartition(".")[0] not in reasons}
    return {}


def _place(path: str) -> tuple[int, ...]:
    return tuple(int(piece) for piece in _PIECE.findall(path) if piece.isdecimal())


def _shown(spec: Any, path: str) -> str:
    """Return `WORD is ` for the text at a path; empty if there is no text."""
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
        # An empty list goes too, and so does the star-tree that must not be without its pairs.
        _remove(spec, ".".join(parents[:-1] if parents[-1] == "functionColumnPairs" else parents))

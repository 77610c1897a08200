"""Choose the layouts that run a case: all of them; at the quick level some of each kind, and those it is pinned to.

The cases of a file are put in the order of a hash of their texts and dealt out to the layouts in turn. So cases that
resemble each other, which stand side by side, go to different layouts, and every layout gets its share of every file.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence

from tests.budget import IS_QUICK
from tests.sql.slt_layouts import IN_PROCESS, OVER_HTTP
from tests.sql.slt_reader import Case

_NEAR, _FAR = tuple(IN_PROCESS), (*OVER_HTTP, "embedded-node", "embedded-node")
"""A quarter of the cases goes to servers over ZooKeeper, each of whose answers costs twice those of a node."""
_STAGES = re.compile(r"\bjoin\b|\bover\b|\(\s*select\b|\bunion\b|\bexcept\b|\bintersect\b|multistage", re.IGNORECASE)
"""Recognises most queries of several stages. Starting their engine costs ten times a query of one stage."""


def deal(cases: Sequence[Case], layouts: Iterable[str]) -> dict[str, list[Case]]:
    """For each layout, the cases of a file that it runs, in their order."""
    if not IS_QUICK:
        return {name: list(cases) for name in layouts}
    chosen = _chosen(cases)
    return {name: [case for case, names in zip(cases, chosen, strict=True) if name in names] for name in layouts}


def _chosen(cases: Sequence[Case]) -> list[set[str]]:
    """Choose the layouts of each case: one over HTTP and two in this process, or one if it has several stages."""
    found = [set(case.pinned) for case in cases]
    hashes = [zlib.crc32(case.sql.encode()) for case in cases]
    first = zlib.crc32(cases[0].file.encode())
    for turn, place in enumerate(sorted(range(len(cases)), key=lambda place: (hashes[place], place)), first):
        found[place] |= {_NEAR[turn % len(_NEAR)], _FAR[turn % len(_FAR)]}
        if not _STAGES.search(cases[place].sql):
            found[place].add(_NEAR[(turn + len(_NEAR) // 2) % len(_NEAR)])
    return found

"""Defects that the product once had, or would have without a rule of it, each put back while histories are played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from merlot.controller.cleaning import trash
from merlot.controller.cleaning.sure_time import Mark


@dataclass(frozen=True)
class Defect:
    """What to replace by what, and the rules of the ledger that see it."""

    name: str
    patches: Mapping[str, Callable[..., Any]]
    rules: tuple[str, ...]

    def planted(self) -> ExitStack:
        stack = ExitStack()
        for target, made in self.patches.items():
            stack.enter_context(mock.patch(target, made))
        return stack


def _delete_by_any_list(cleaner: Any, table: Any, files: Any, record: Any, kept: object) -> int:
    return trash._delete_old(cleaner, table, files, record.urls, record.deleted_ms)


CLEANING: Final = "merlot.controller.cleaning"
SEGMENTS: Final = "merlot.cluster.segments"
ROUTING: Final = "merlot.broker.routing"

DEFECTS: Final = (
    Defect(
        "the leader believes its wall clock",
        {f"{CLEANING}.sure_time.followed": lambda mark, wall_ms, monotonic_s: Mark(wall_ms, monotonic_s)},
        ("L1", "L5"),
    ),
    Defect(
        "segments that change together are routed one by one",
        {f"{ROUTING}.routes.arriving": lambda before, now: frozenset()},
        ("L2", "L3"),
    ),
    Defect(
        "a server that restarts forgets what it has answered",
        {"merlot.cluster.instances.reports.ReportWriter._read_former": lambda self: set()},
        ("L3",),
    ),
    Defect(
        "nobody compares the metastore with the catalog",
        {f"{CLEANING}.catalogs.what_is_lost": lambda kept, own_id, record, view: ""},
        ("L6",),
    ),
    Defect(
        "a replacement ends though its inputs were removed",
        {f"{SEGMENTS}.lineage_rules._unmarked": lambda draft, names, **marks: []},
        ("L1", "L2"),
    ),
    Defect(
        "a list of the trash deletes what was removed again since",
        {f"{CLEANING}.trash._delete_files": _delete_by_any_list},
        ("L5",),
    ),
    Defect(
        "a broker takes a recovery for an exchange",
        {f"{ROUTING}.routes._back": lambda previous, now: frozenset()},
        ("L3",),
    ),
    Defect(
        "the trash forgets what a merged segment was made of",
        {f"{SEGMENTS}.draft.Draft._remembering": lambda self, record: record},
        ("L2",),
    ),
)

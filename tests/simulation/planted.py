"""Defects that the product once had, or would have without a rule of it, each put back while histories are played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from merlot.broker.routing.switching import Switched
from merlot.cluster import paths
from merlot.cluster.segments.mutations import RevertReplacement
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.sure_time import Mark
from merlot.metastore.protocol import Check
from merlot.uris import canonical


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


def _visible_urls(view: TableView) -> set[str]:
    return {canonical(record.url) for record in view.visible.values()}


def _unguarded(metastore: Any, table: str, urls: object) -> Check:
    """A check that always holds: of the node's version as it is now, whatever it says."""
    if metastore.get(paths.condemned(table)) is None:
        metastore.create(paths.condemned(table), b"")
    return Check(paths.condemned(table), metastore.get(paths.condemned(table)).version)


def _follow_at_once(view: TableView, *rest: object) -> Switched:
    return Switched(frozenset(one for one, mark in view.lineage.items() if mark.state == "COMPLETED"))


def _revert_whatever_is_there(draft: object, mutation: RevertReplacement) -> None:
    """As if the inputs, and the outputs, were still there."""


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
        "the trash believes whoever stamped a list",
        {f"{CLEANING}.trash._noticed": lambda metastore, path, record, now_ms, last_pass_ms: record.deleted_ms},
        ("L5",),
    ),
    Defect(
        "a cleaner that was frozen goes on deleting",
        {f"{CLEANING}.trash.check_may_delete": lambda condemned, now: None},
        ("L4",),
    ),
    Defect("a publish does not look for condemned files", {f"{SEGMENTS}.transaction.guard": _unguarded}, ("L4", "L7")),
    Defect("the trash spares files of visible records only", {f"{CLEANING}.trash._urls_of": _visible_urls}, ("L4",)),
    Defect(
        "the trash deletes files that were written again",
        {f"{CLEANING}.trash._is_old": lambda files, url, deleted_ms: files.modified_ms(url) is not None},
        ("L5", "L7"),
    ),
    Defect(
        "segments that change together are routed one by one",
        {f"{ROUTING}.routes.arriving": lambda before, now: frozenset()},
        ("L2", "L3"),
    ),
    Defect("replacements are followed at once", {f"{ROUTING}.switching.follow": _follow_at_once}, ("L2", "L3")),
    Defect(
        "a server that restarts forgets what it has answered",
        {"merlot.cluster.instances.reports.ReportWriter._read_former": lambda self: set()},
        ("L3",),
    ),
    Defect(
        "a broker believes a metastore that went back",
        {"merlot.broker.setbacks.Setbacks.is_behind": lambda self, *place, is_marked: False},
        ("L3",),
    ),
    Defect(
        "nobody compares the metastore with the catalog",
        {f"{CLEANING}.catalogs.what_is_lost": lambda kept, own_id, record, view: ""},
        ("L3", "L7"),
    ),
    Defect(
        "a segment comes back though its rows have by another way",
        {f"{SEGMENTS}.restoring.check": lambda view, records, removed_ms, divided: None},
        ("L2",),
    ),
    Defect(
        "a segment is pushed again though others hold its rows",
        {f"{SEGMENTS}.republish.PushedAgain.is_merged": lambda self, record: False},
        ("L2",),
    ),
    Defect(
        "a replacement is reverted though its segments are gone",
        {f"{SEGMENTS}.lineage_rules._check_reversible": _revert_whatever_is_there},
        ("L1", "L2"),
    ),
    Defect(
        "a replacement ends though its inputs were removed",
        {f"{SEGMENTS}.lineage_rules._unmarked": lambda draft, names, **marks: []},
        ("L1", "L2"),
    ),
)

"""Manifests of any kind as they were last applied. Each has a node, whose record counts its revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from merlot.cluster import paths
from merlot.cluster.records import ManifestRecord, TableRecord
from merlot.errors import ConflictError, CorruptionError, NotFoundError
from merlot.metastore.protocol import Metastore, Node

_ATTEMPTS = 20
RecordT = TypeVar("RecordT", bound=ManifestRecord)


class ApplyOutcome(StrEnum):
    """Outcome of applying a manifest, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ApplyResult(Generic[RecordT]):
    """The record after its manifest was applied."""

    record: RecordT
    outcome: ApplyOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests(Generic[RecordT]):
    """Manifests of one kind: the children of `root`."""

    kind: str
    root: str
    path: Callable[[str], str]
    record: type[RecordT]

    def find(self, metastore: Metastore, name: str) -> RecordT | None:
        """Return the record of this name, or None."""
        node = metastore.get(self.path(name))
        return None if node is None else self.read(name, node)

    def get(self, metastore: Metastore, name: str) -> RecordT:
        """Return the record of this name; raise NotFoundError if there is none."""
        return self.get_version(metastore, name)[0]

    def get_version(self, metastore: Metastore, name: str) -> tuple[RecordT, int]:
        """Return the record of this name with the version of its node, for a Check; raise NotFoundError if there is
        none."""
        node = metastore.get(self.path(name))
        if node is None:
            raise NotFoundError(f"{self.kind} does not exist name={name}")
        return self.read(name, node), node.version

    def all(self, metastore: Metastore) -> Mapping[str, RecordT]:
        """Return all records, by name."""
        return {name: record for name, (record, _) in self.versions(metastore).items()}

    def names(self, metastore: Metastore) -> list[str]:
        """Return the names of all manifests, also of those whose records cannot be read."""
        return list(metastore.children(self.root))

    def readable(self, metastore: Metastore) -> tuple[Mapping[str, RecordT], Set[str]]:
        """Return the records by name, and the names of the records that cannot be read. These manifests exist: treat
        none of them as deleted."""
        versions, unreadable = self.readable_versions(metastore)
        return {name: record for name, (record, _) in versions.items()}, unreadable

    def readable_versions(self, metastore: Metastore) -> tuple[Mapping[str, tuple[RecordT, int]], Set[str]]:
        """Return what `readable` does, with the versions of the nodes, for a Check."""
        records: dict[str, tuple[RecordT, int]] = {}
        unreadable: set[str] = set()
        for name, node in self._nodes(metastore):
            try:
                records[name] = (self.read(name, node), node.version)
            except CorruptionError:
                unreadable.add(name)
        return records, unreadable

    def versions(self, metastore: Metastore) -> Mapping[str, tuple[RecordT, int]]:
        """Return all records, by name, with the versions of their nodes, for a Check."""
        return {name: (self.read(name, node), node.version) for name, node in self._nodes(metastore)}

    def _nodes(self, metastore: Metastore) -> list[tuple[str, Node]]:
        names = self.names(metastore)
        nodes = metastore.get_many([self.path(name) for name in names])
        return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]

    def read(self, name: str, node: Node) -> RecordT:
        """Return the record in a node; raise CorruptionError if it cannot be read."""
        return self.record.from_bytes(node.data, self.path(name))

    def apply(
        self,
        metastore: Metastore,
        name: str,
        create: Callable[[], RecordT],
        change: Callable[[RecordT, int], ApplyResult[RecordT]],
    ) -> ApplyResult[RecordT]:
        """Create the manifest, or change it as of the node's version. If others write it at the same time, try again;
        raise ConflictError after `_ATTEMPTS` attempts."""
        for _ in range(_ATTEMPTS):
            node = metastore.get(self.path(name))
            try:
                if node is None:
                    return ApplyResult(create(), ApplyOutcome.CREATED)
                return change(self.read(name, node), node.version)
            except (ConflictError, NotFoundError):
                continue
        raise ConflictError(f"{self.kind} is applied by too many at once name={name}")

    def revise(
        self, metastore: Metastore, record: RecordT, version: int, document: dict[str, Any], now_ms: int
    ) -> ApplyResult[RecordT]:
        """Write the manifest as the next revision, unless it is the same; raise ConflictError if the node has changed
        since `version`."""
        if record.manifest == document:
            return ApplyResult(record, ApplyOutcome.UNCHANGED)
        update = {"revision": record.revision + 1, "manifest": document, "updated_ms": now_ms}
        changed = record.model_copy(update=update)
        metastore.put(self.path(record.name), changed.to_bytes(), version)
        return ApplyResult(changed, ApplyOutcome.CONFIGURED)


TABLES = Manifests(kind="Table", root=paths.TABLES, path=paths.table_config, record=TableRecord)

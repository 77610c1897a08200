"""Deep stores, folders and hosts of streams that the Tables of a cluster may name."""

from __future__ import annotations

from dataclasses import dataclass, field

from merlot.spec.manifest import ManifestProblem
from merlot.spec.table import Table
from merlot.store.allowed import AllowedStores
from merlot.streams.allowed import AllowedStreams


def _no_store() -> AllowedStores:
    return AllowedStores(own=None)


@dataclass(frozen=True, slots=True)
class AllowedPlaces:
    """Allowed deep stores and streams. By default a Table may name no deep store and no folder."""

    stores: AllowedStores = field(default_factory=_no_store)
    streams: AllowedStreams = field(default_factory=AllowedStreams)

    def problems_of(self, table: Table) -> list[ManifestProblem]:
        """Return why the table may not have the deep store, or consume the stream, that it names."""
        declared, stream = table.spec.deep_store_uri, table.spec.ingestion.stream
        problem = None if declared is None else self.stores.problem_of(declared)
        problems = [] if problem is None else [ManifestProblem("spec.deepStore.uri", problem)]
        refused = () if stream is None else self.streams.problems_of(stream)
        return problems + [ManifestProblem(f"spec.ingestion.stream.{path}", message) for path, message in refused]

"""Which places a Table may have its pods read and write: those that the chart's values name. Pure.

Whoever writes Tables is not whoever runs the operator: pods read files and send requests, signed with the cluster's
keys, which the author of a Table could not.
"""

from __future__ import annotations

from collections.abc import Iterator

from merlot.errors import InvalidInputError
from merlot.spec.table import Table
from merlot.store.allowed import AllowedSources, AllowedStores
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import AllowedFolders
from merlot_operator.config import Config


class NotAllowedError(InvalidInputError):
    """The Table names places that it may not."""


def check_places(table: Table, config: Config, namespace: str) -> None:
    """NotAllowedError unless the Table may name what it names."""
    problem = places_problem(table, config, namespace)
    if problem is not None:
        raise NotAllowedError(problem)


def places_problem(table: Table, config: Config, namespace: str) -> str | None:
    """Each field that is wrong, and what would allow it; None if none is."""
    return "; ".join(f"{path}: {problem}" for path, problem in places_problems(table, config, namespace)) or None


def places_problems(table: Table, config: Config, namespace: str) -> Iterator[tuple[str, str]]:
    """The path of each field that is wrong, and what would allow it."""
    stores = AllowedStores(own=config.deep_store_of(namespace), prefixes=config.deep_store_prefixes_of(namespace))
    sources = AllowedSources(stores=stores, prefixes=config.source_prefixes_of(namespace))
    declared, stream = table.spec.deep_store_uri, table.spec.ingestion.stream
    found = [] if declared is None else [("spec.deepStore.uri", stores.problem_of(declared))]
    for number, batch in enumerate(table.spec.ingestion.batch):
        found.append((f"spec.ingestion.batch[{number}].sourceUri", sources.problem_of(batch.source_uri)))
    yield from ((path, problem) for path, problem in found if problem is not None)
    if stream is not None:
        folders = AllowedFolders(config.stream_folders_of(namespace))
        streams = AllowedStreams(config.stream_hosts_of(namespace), folders)
        yield from ((f"spec.ingestion.stream.{path}", problem) for path, problem in streams.problems_of(stream))

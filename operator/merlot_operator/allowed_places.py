"""Check that the chart's values allow the places (URIs, hosts and folders) that a Table names. Pure.

The author of a Table may have fewer rights than the operator. Pods read files, and send requests that are signed with
the cluster's keys; the author may have no right to do either.
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
    """The Table names places that it may not name."""


def check_places(table: Table, config: Config, namespace: str) -> None:
    """Raise NotAllowedError if the Table names a place that it may not."""
    problem = places_problem(table, config, namespace)
    if problem is not None:
        raise NotAllowedError(problem)


def places_problem(table: Table, config: Config, namespace: str) -> str | None:
    """Return a message that names each refused field and what would allow it; None if every field is allowed."""
    return "; ".join(f"{path}: {problem}" for path, problem in places_problems(table, config, namespace)) or None


def places_problems(table: Table, config: Config, namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each refused field, and what would allow it."""
    stores = AllowedStores(own=config.deep_store_of(namespace), prefixes=config.deep_store_prefixes_of(namespace))
    sources = AllowedSources(stores=stores, prefixes=config.source_prefixes_of(namespace))
    declared, stream = table.spec.deep_store_uri, table.spec.ingestion.stream
    problems = [] if declared is None else [("spec.deepStore.uri", stores.problem_of(declared))]
    for number, batch in enumerate(table.spec.ingestion.batch):
        problems.append((f"spec.ingestion.batch[{number}].sourceUri", sources.problem_of(batch.source_uri)))
    yield from ((path, problem) for path, problem in problems if problem is not None)
    if stream is not None:
        folders = AllowedFolders(config.stream_folders_of(namespace))
        streams = AllowedStreams(config.stream_hosts_of(namespace), folders)
        yield from ((f"spec.ingestion.stream.{path}", problem) for path, problem in streams.problems_of(stream))

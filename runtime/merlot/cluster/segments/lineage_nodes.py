"""Nodes of the details of replacements: one immutable node for each entry, and chunks for the names that exceed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merlot.cluster import paths
from merlot.cluster.records import LineageChunk, LineageMark, LineageRecord
from merlot.errors import InvalidInputError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore

NODE_NAMES = 5_000
"""Names in one node: 100 KB compressed, if they are random."""


def details_nodes(table: TableName, entry: str, content_id: str, record: LineageRecord) -> dict[str, bytes]:
    """Return the nodes of an entry's details by path; the node that leads to the others is last."""
    chunks = _chunks(record.segments_from, record.segments_to)
    nodes = {
        paths.lineage_chunk(table, entry, content_id, number): chunk.to_bytes()
        for number, chunk in enumerate(chunks[1:], start=1)
    }
    head = {"segments_from": chunks[0].segments_from, "segments_to": chunks[0].segments_to}
    head_record = record.model_copy(update={**head, "num_chunks": len(chunks) - 1})
    return nodes | {paths.lineage_entry(table, entry, content_id): head_record.to_bytes()}


def read_details(
    metastore: Metastore, table: TableName, lineage: Mapping[str, LineageMark]
) -> dict[str, LineageRecord | None]:
    """Return the whole details of these entries; None for an entry whose nodes are gone, because the root has moved
    on."""
    heads = [paths.lineage_entry(table, entry, mark.details) for entry, mark in lineage.items()]
    details: dict[str, LineageRecord | None] = {}
    for (entry, mark), path, node in zip(lineage.items(), heads, metastore.get_many(heads), strict=True):
        head = None if node is None else LineageRecord.from_bytes(node.data, path)
        details[entry] = head if head is None or not head.num_chunks else _joined(metastore, table, entry, mark, head)
    return details


def dropped_outputs(details: LineageRecord, entry: str, segments_to: Sequence[str] | None) -> tuple[str, ...]:
    """Return the outputs of the entry that are not among `segments_to`; None keeps them all."""
    if segments_to is None:
        return ()
    strange = sorted(set(segments_to) - set(details.segments_to))
    if strange:
        raise InvalidInputError(f"segments are no outputs of the replacement entry={entry} segments={strange[:3]}")
    return tuple(name for name in details.segments_to if name not in set(segments_to))


def epoch_of_node(name: str) -> int:
    """Return the epoch that a node of details was written for."""
    return int(name.split("~")[1].partition(".")[0])


def head_of_node(name: str) -> tuple[str, str]:
    """Return entry and content id of a node of details."""
    entry, content_id = name.split("~")[:2]
    return entry, content_id


def _joined(
    metastore: Metastore, table: TableName, entry: str, mark: LineageMark, head: LineageRecord
) -> LineageRecord | None:
    chunk_paths = [paths.lineage_chunk(table, entry, mark.details, number) for number in range(1, head.num_chunks + 1)]
    segments_from, segments_to = list(head.segments_from), list(head.segments_to)
    for path, node in zip(chunk_paths, metastore.get_many(chunk_paths), strict=True):
        if node is None:
            return None
        chunk = LineageChunk.from_bytes(node.data, path)
        segments_from += chunk.segments_from
        segments_to += chunk.segments_to
    update = {"segments_from": tuple(segments_from), "segments_to": tuple(segments_to), "num_chunks": 0}
    return head.model_copy(update=update)


def _chunks(segments_from: Sequence[str], segments_to: Sequence[str]) -> list[LineageChunk]:
    """Divide the names into chunks, inputs first. There is at least one chunk."""
    chunks = [
        LineageChunk(segments_from=tuple(segments_from[at : at + NODE_NAMES]))
        for at in range(0, len(segments_from), NODE_NAMES)
    ]
    chunks += [
        LineageChunk(segments_to=tuple(segments_to[at : at + NODE_NAMES]))
        for at in range(0, len(segments_to), NODE_NAMES)
    ]
    if len(chunks) == 2 and len(segments_from) + len(segments_to) <= NODE_NAMES:
        return [LineageChunk(segments_from=chunks[0].segments_from, segments_to=chunks[1].segments_to)]
    return chunks or [LineageChunk()]

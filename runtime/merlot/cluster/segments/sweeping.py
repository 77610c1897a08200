"""Delete nodes that crashed writers left: no root names them, and none ever will."""

from __future__ import annotations

from merlot.cluster import paths
from merlot.cluster.segments.commit import delete_quietly
from merlot.cluster.segments.lineage_nodes import epoch_of_node, head_of_node
from merlot.cluster.segments.view import load_root
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore


def sweep(metastore: Metastore, table: TableName) -> int:
    """Delete buckets, and details of replacements, that crashed writers left; return how many.

    A content id has the epoch that it was meant for. Once the root has reached that epoch, a node that it does not name
    is never named, so it can be deleted at once. A node for the next epoch may belong to a write under way, and
    stays."""
    root, _ = load_root(metastore, table)
    named = {f"{number}-{content_id}" for number, content_id in root.buckets.items()} | set(root.retired)
    unread = [
        paths.child(paths.segments_root(table), name)
        for name in metastore.children(paths.segments_root(table))
        if name not in named and epoch_of_bucket(name) <= root.epoch
    ]
    details = {(entry, mark.details) for entry, mark in root.lineage.items()}
    unread += [
        paths.child(paths.lineage(table), name)
        for name in metastore.children(paths.lineage(table))
        if head_of_node(name) not in details and epoch_of_node(name) <= root.epoch
    ]
    return delete_quietly(metastore, unread)


def epoch_of_bucket(bucket_name: str) -> int:
    """Return the epoch that a bucket was written for."""
    return int(bucket_name.partition("-")[2].partition(".")[0])

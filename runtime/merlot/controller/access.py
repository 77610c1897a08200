"""Access to the cluster for the controller's operations on files: its state, allowed stores, and a way to publish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from merlot.clock import Clock
from merlot.cluster.segments.publish import PublishRequest, PublishResult
from merlot.cluster.segments.view import TableView
from merlot.metastore.protocol import Metastore
from merlot.store.allowed import AllowedStores


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """A cluster, for operations that block; any thread may use it."""

    metastore: Metastore
    stores: AllowedStores
    clock: Clock
    publish: Callable[[str, PublishRequest], PublishResult]
    """Function that makes segments of a table visible if they are its own and fit it."""
    view_of: Callable[[str], TableView]
    """Function that reads a table's current view."""

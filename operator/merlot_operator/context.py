"""Dependencies of every reconcile, and the notes that reconciles leave for each other. One event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from merlot.clock import Clock
from merlot_operator.config import Config
from merlot_operator.controllers.metastores import Metastores
from merlot_operator.controllers.statuses import ClusterStatuses, StatusChanges
from merlot_operator.desired.demand import Conflict, pool_of
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Kube
from merlot_operator.kube.events import Events
from merlot_operator.kube.kinds import TABLES, UPSERTS, config_ref, name_of
from merlot_operator.kube.ownership import Owner
from merlot_operator.kube.writer import Writer
from merlot_operator.progress import OperatorProgress, Place
from merlot_operator.workqueue import QueueKey, Subject, WorkQueue

SETTLE_S = 0.3
"""Seconds before a wake takes effect: changes come in bursts, and one pass serves all of them."""


@dataclass(frozen=True, slots=True)
class PoolNote:
    """Result of the last pass over a pool; its tables show it in their status."""

    steps: tuple[str, ...] = ()
    num_outdated: int = 0
    wanted: int = 0
    """Number of servers that there shall be."""
    replicas: int = 0
    """Replicas of the StatefulSet for now: more than `wanted` while surplus servers still hold segments."""
    problem: str | None = None
    is_stuck: bool = False
    """True if the same steps have been waited for too long."""
    notes: tuple[str, ...] = ()
    """Requests that are never carried out, such as to shrink a volume."""
    refused: str | None = None
    """Reason why Kubernetes cannot create the pool's pods or claims."""
    conflicts: tuple[Conflict, ...] = ()
    """Settings of the pool's tables that do not take effect."""


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """Result of the last pass over a namespace's cluster."""

    problem: str | None = None
    num_brokers: int = 0
    """Number of brokers that there shall be."""
    shares_with: tuple[str, ...] = ()
    """Other namespaces whose tables are in the same shared state, from a time before each namespace had its own."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The last failed attempt to create an object that Kubernetes refuses."""

    message: str
    pause_s: float
    next_s: float
    """Monotonic time of the clock at which to try again."""


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Dependencies and shared notes of the operator's reconciles."""

    config: Config
    kube: Kube
    store: Store
    writer: Writer
    queue: WorkQueue
    metastores: Metastores
    statuses: ClusterStatuses
    events: Events
    clock: Clock
    progress: OperatorProgress
    owner: Owner
    """Identity of this process in the marks of namespaces."""
    pools: dict[tuple[str, str], PoolNote] = field(default_factory=dict)
    clusters: dict[str, ClusterNote] = field(default_factory=dict)
    waiting: dict[tuple[str, str], tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """Steps that each pool waits for, and the time since when."""
    lacking_pods_since: dict[str, float] = field(default_factory=dict)
    """Time since when a StatefulSet or Job, by uid, has had fewer pods than it wants."""
    failed_attempts: dict[str, FailedAttempt] = field(default_factory=dict)
    """Jobs that could not be created, by `namespace/name`."""
    ownership_locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    """Lock of each namespace, held while its owner is determined."""
    owned: set[str] = field(default_factory=set)
    """Namespaces that this process has marked as its own; another process may have taken one over since."""
    deleting: set[str] = field(default_factory=set)
    """Namespaces that are being deleted; no declared object in them waits for the operator."""
    unjudged_since: dict[str, float] = field(default_factory=dict)
    """Time since when an object, by uid, that is left to another operator has not been judged by that operator."""
    last_busy: dict[str, float] = field(default_factory=dict)
    """Time when a namespace last had tasks for minions."""

    def forget(self, place: Place) -> None:
        """Drop everything that is stored about a place, so that all of it is looked at anew when the place is served
        again."""
        self.store.forget(place)
        for namespace in [name for name in self.clusters if place in (None, name)]:
            del self.clusters[namespace]
            self.statuses.forget(namespace)
            self.metastores.leave(namespace)
        for pool in [key for key in self.pools if place in (None, key[0])]:
            del self.pools[pool]

    def note_failure(self, key: QueueKey, problem: str) -> None:
        """Note that a pass over a cluster or a pool failed, so that its Tables show why. A problem that the pass itself
        noted says more, and stays."""
        namespace = key.namespace
        if key.subject is Subject.CLUSTER:
            cluster = self.clusters.get(namespace, ClusterNote())
            if cluster.problem is None:
                self.clusters[namespace] = replace(cluster, problem=problem)
                self.wake_tables(namespace)
        elif key.subject is Subject.POOL:
            pool = self.pools.get((namespace, key.name), PoolNote())
            if pool.problem is None:
                self.pools[namespace, key.name] = replace(pool, problem=problem)
                self.wake_tables(namespace, key.name)

    def wake_table(self, namespace: str, name: str, delay_s: float = 0.0) -> None:
        """Have a Table reconciled."""
        self.queue.wake(QueueKey(Subject.TABLE, namespace, name), delay_s)

    def wake_tables(self, namespace: str, pool: str | None = None) -> None:
        """Have the Tables of a namespace, or of one of its pools, reconciled soon."""
        for table in self.store.of(TABLES, namespace):
            if pool is None or pool_of(table) == pool:
                self.wake_table(namespace, name_of(table), SETTLE_S)

    def wake_changed(self, namespace: str, changes: StatusChanges) -> None:
        """Have the objects reconciled about which the controller's status has changed."""
        if changes.is_reachability:
            self.wake_tables(namespace)
            for config in self.store.of(UPSERTS, namespace):
                self.queue.wake(QueueKey(Subject.UPSERT, namespace, name_of(config)), SETTLE_S)
        if changes.is_tasks:
            self.wake_cluster(namespace)
        for name in changes.rollups:
            self.queue.wake(QueueKey(Subject.ROLLUP, namespace, name))
        for name in changes.tables:
            self.wake_table(namespace, name, 0.1)
            table = self.store.get(TABLES, namespace, name)
            if table is not None:
                self.wake_pool(namespace, pool_of(table))
                if upsert := config_ref(table):
                    self.queue.wake(QueueKey(Subject.UPSERT, namespace, upsert), 0.1)

    def wake_cluster(self, namespace: str) -> None:
        """Have what a namespace's Tables share reconciled soon."""
        self.queue.wake(QueueKey(Subject.CLUSTER, namespace), SETTLE_S)

    def wake_pool(self, namespace: str, pool: str) -> None:
        """Have a pool of servers reconciled soon."""
        self.queue.wake(QueueKey(Subject.POOL, namespace, pool), SETTLE_S)

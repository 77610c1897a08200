"""What every reconcile needs at hand, and what reconciles tell each other. One event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from merlot.clock import Clock
from merlot_operator.config import Config
from merlot_operator.controllers.metastores import Metastores
from merlot_operator.controllers.statuses import Changes, ClusterStatuses
from merlot_operator.desired.demand import Conflict, pool_of
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Kube
from merlot_operator.kube.events import Events
from merlot_operator.kube.kinds import TABLES, UPSERTS, config_ref, name_of
from merlot_operator.kube.ownership import Owner
from merlot_operator.kube.writer import Writer
from merlot_operator.progress import Place, Progress
from merlot_operator.workqueue import Key, Subject, WorkQueue

SETTLE_S = 0.3
"""Changes come in swarms: one pass for all of them."""


@dataclass(frozen=True, slots=True)
class PoolNote:
    """What the last pass over a pool found: its tables tell it in their status."""

    steps: tuple[str, ...] = ()
    num_outdated: int = 0
    wanted: int = 0
    """Servers that there shall be."""
    replicas: int = 0
    """Those that the StatefulSet shall have for now: more, while some still hold segments."""
    problem: str | None = None
    is_stuck: bool = False
    """Whether the same steps have been waited for too long."""
    notes: tuple[str, ...] = ()
    """What is asked for and never done, such as to shrink a volume."""
    refused: str | None = None
    """Why Kubernetes cannot create its pods or claims."""
    conflicts: tuple[Conflict, ...] = ()
    """What its tables ask for that does not go together."""


@dataclass(frozen=True, slots=True)
class ClusterNote:
    """What the last pass over a namespace's cluster found."""

    problem: str | None = None
    num_brokers: int = 0
    """Brokers that there shall be."""
    shares_with: tuple[str, ...] = ()
    """Other namespaces whose tables are in the same shared state, from a time before each had its own."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The last attempt to make something that is refused."""

    message: str
    pause_s: float
    next_s: float
    """When to try again; the clock's monotonic time."""


@dataclass(frozen=True, slots=True)
class Context:
    """The operator's parts."""

    config: Config
    kube: Kube
    store: Store
    writer: Writer
    queue: WorkQueue
    metastores: Metastores
    statuses: ClusterStatuses
    events: Events
    clock: Clock
    progress: Progress
    owner: Owner
    """This very process, in the marks of namespaces."""
    pools: dict[tuple[str, str], PoolNote] = field(default_factory=dict)
    clusters: dict[str, ClusterNote] = field(default_factory=dict)
    waiting: dict[tuple[str, str], tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """By pool: the steps that it waits for, and since when."""
    lacking: dict[str, float] = field(default_factory=dict)
    """By uid of a StatefulSet or Job: since when it has fewer pods than it wants."""
    trials: dict[str, Trial] = field(default_factory=dict)
    """By namespace and name of a Job that could not be made."""
    taking: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By namespace: held while it is decided whose it is."""
    owned: set[str] = field(default_factory=set)
    """Namespaces that this process has marked as its own, though another one may have come since."""
    going: set[str] = field(default_factory=set)
    """Namespaces that are being deleted, in which nothing declared waits for the operator."""
    unjudged: dict[str, float] = field(default_factory=dict)
    """By uid of what is left to another operator: since when that has not judged it."""
    last_busy: dict[str, float] = field(default_factory=dict)
    """When a namespace last had tasks for minions."""

    def forget(self, place: Place) -> None:
        """Know nothing any more of a place: when it is taken up again, everything is looked at anew."""
        self.store.forget(place)
        for namespace in [one for one in self.clusters if place in (None, one)]:
            del self.clusters[namespace]
            self.statuses.forget(namespace)
            self.metastores.leave(namespace)
        for pool in [one for one in self.pools if place in (None, one[0])]:
            del self.pools[pool]

    def note_failure(self, key: Key, problem: str) -> None:
        """A pass over a cluster or a pool failed: its Tables tell why, whatever it was. A note of the pass's own says
        more."""
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
        """Reconcile one Table."""
        self.queue.wake(Key(Subject.TABLE, namespace, name), delay_s)

    def wake_tables(self, namespace: str, pool: str | None = None) -> None:
        """Reconcile the Tables of a namespace, or of one of its pools, soon."""
        for table in self.store.of(TABLES, namespace):
            if pool is None or pool_of(table) == pool:
                self.wake_table(namespace, name_of(table), SETTLE_S)

    def wake_changed(self, namespace: str, changes: Changes) -> None:
        """Reconcile what the controller now says something else about."""
        if changes.is_reachability:
            self.wake_tables(namespace)
            for config in self.store.of(UPSERTS, namespace):
                self.queue.wake(Key(Subject.UPSERT, namespace, name_of(config)), SETTLE_S)
        if changes.is_tasks:
            self.wake_cluster(namespace)
        for name in changes.rollups:
            self.queue.wake(Key(Subject.ROLLUP, namespace, name))
        for name in changes.tables:
            self.wake_table(namespace, name, 0.1)
            table = self.store.get(TABLES, namespace, name)
            if table is not None:
                self.wake_pool(namespace, pool_of(table))
                if upsert := config_ref(table):
                    self.queue.wake(Key(Subject.UPSERT, namespace, upsert), 0.1)

    def wake_cluster(self, namespace: str) -> None:
        """Reconcile what a namespace's Tables share, soon."""
        self.queue.wake(Key(Subject.CLUSTER, namespace), SETTLE_S)

    def wake_pool(self, namespace: str, pool: str) -> None:
        """Reconcile a pool of servers, soon."""
        self.queue.wake(Key(Subject.POOL, namespace, pool), SETTLE_S)

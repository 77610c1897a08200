"""Chains of a stream's segments over ZooKeeper: writers that die at any write, and many that want the same."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest
from tests.support.faults import Fault, FaultyMetastore, ProcessDied
from tests.unit.cluster.stream_table import MANIFEST, SERVERS, TABLE, begin, end_of, opened, sealed

from merlot.cluster.consuming.commits import commit_segment, propose_end
from merlot.cluster.consuming.partitions import stream_segment
from merlot.cluster.manifests import tables
from merlot.cluster.records import ConsumingStatus
from merlot.cluster.segments.view import TableView, load
from merlot.errors import MerlotError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore

pytestmark = pytest.mark.cluster


def live_once(store: Metastore) -> None:
    """A partition's first segment from its beginning to its commit; what is done already stays."""
    begin(store, 0)
    first = next(one for one in load(store, TABLE).stream_segments if one.sequence == 0)
    propose_end(store, TABLE, end_of(first, 20))
    commit_segment(store, TABLE, sealed(first, 20))


def states(view: TableView) -> list[tuple[str, int, int | None]]:
    return [(one.status, one.start_offset, one.end_offset) for one in view.stream_segments]


LIFE: list[list[tuple[str, int, int | None]]] = [
    [],
    [(ConsumingStatus.CONSUMING, 0, None)],
    [(ConsumingStatus.SEALING, 0, 20)],
    [(ConsumingStatus.DONE, 0, 20), (ConsumingStatus.CONSUMING, 20, None)],
]


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_a_writer_that_dies_at_any_write_leaves_a_whole_chain_and_another_goes_on(zookeeper: str, fault: Fault) -> None:
    for step in itertools.count():
        with contextlib.closing(ZooKeeperMetastore(f"{zookeeper}-{step}")) as store:
            tables.put_table(store, MANIFEST)
            faulty = FaultyMetastore(store, fault, step)
            with contextlib.suppress(ProcessDied, MerlotError):
                live_once(faulty)
            assert states(load(store, TABLE)) in LIFE
            live_once(store)
            assert states(load(store, TABLE)) == LIFE[-1]
            if faulty.num_writes <= step:
                assert step >= len(LIFE) - 1
                return


def test_of_many_servers_one_end_and_one_file_hold(zookeeper: str) -> None:
    stores = [ZooKeeperMetastore(zookeeper) for _ in range(4)]
    tables.put_table(stores[0], MANIFEST)
    begin(stores[0], 0)
    files: list[str] = []

    def race(number: int) -> None:
        store = stores[number]
        for _ in range(5):
            record = opened(store)
            end = end_of(record, record.start_offset + 1 + number, InstanceId(f"s{number}"))
            agreed = stream_segment(propose_end(store, TABLE, end), record.name)
            if agreed is None or agreed.end_offset is None:
                continue
            made = sealed(record, agreed.end_offset, upload=f"u{number}")
            assert made.file is not None
            if commit_segment(store, TABLE, made).took(made.file.url):
                files.append(made.file.url)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = load(stores[0], TABLE).stream_segments
    assert [one.url for one in chain if not one.is_open] == sorted(files, key=[one.url for one in chain].index)
    assert all(one.end_offset == following.start_offset for one, following in itertools.pairwise(chain))
    assert load(stores[0], TABLE).servers_of(chain[-1].name) == SERVERS
    for store in stores:
        store.close()

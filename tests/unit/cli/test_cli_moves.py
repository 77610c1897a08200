"""`rebalance`, `drain` and `undrain` against the controller's endpoint."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from merlot.cli import drain, rebalance
from merlot.cli.main import run
from merlot.cluster.instances.drains import marks
from merlot.cluster.instances.echoes import write_echo
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.rebalances import rebalances
from merlot.cluster.instances.reports import ReportWriter, write_report
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import EchoRecord, InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.transaction import Assign, mutate
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.ids import InstanceId, TableName
from merlot.spec.manifest import load

Captured = pytest.CaptureFixture[str]

TABLE = TableName("t_OFFLINE")
ONE, TWO, BROKER = InstanceId("Server_1"), InstanceId("Server_2"), InstanceId("Broker_h_1")
NAMES = [f"s{number}" for number in range(6)]
KEYS = [f"{name}@1" for name in NAMES]
MANIFEST = """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: t}
spec: {schema: {fields: [{name: a, type: INT}]}}
"""


@pytest.fixture
def uneven(node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Six segments on one of two servers."""
    monkeypatch.setattr(rebalance, "POLL_S", 0.01)
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    store = node.metastore
    put_table(store, load(MANIFEST)[0])
    publish(store, TABLE, [SegmentRecord(name=one, crc=1, size_bytes=7, url=one, total_docs=1) for one in NAMES])
    mutate(store, TABLE, lambda _: [Assign(dict.fromkeys(NAMES, (ONE,)))])
    ReportWriter(store, TABLE, ONE).write(KEYS, {}, revision=1)
    for one in (ONE, TWO):
        register(store.session(), InstanceRecord(id=one, role=Role.SERVER, host="h"))
    return node


@pytest.fixture
def controller(uneven: Any) -> Iterator[ControllerLoop]:
    """Decides once something is asked for, before which it would give the second server its share unasked."""
    loop = ControllerLoop(uneven.metastore, LoopConfig(owner="c"))
    is_over = threading.Event()

    def decide() -> None:
        while not is_over.wait(0.01):
            if TABLE not in rebalances(uneven.metastore) and not marks(uneven.metastore):
                continue
            loop.round()
            write_report(uneven.metastore, TABLE, TWO, KEYS, {})

    thread = threading.Thread(target=decide)
    yield loop, thread
    is_over.set()
    if thread.is_alive():
        thread.join()
    loop.close()


def test_a_dry_run_shows_what_would_move(uneven: Any, capsys: Captured) -> None:
    assert run(["rebalance", "t", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[2:4]] == [[ONE, "6", "3"], [TWO, "0", "3"]]
    assert out.endswith("3 segments to move, 3 copies to load (21 B)\n")


def test_a_rebalance_is_followed_to_its_end(uneven: Any, controller: Any, capsys: Captured) -> None:
    controller[1].start()
    assert run(["rebalance", "t"]) == 0
    assert capsys.readouterr().out.endswith("table/t rebalanced\n")
    assert run(["rebalance", "t"]) == 0
    assert capsys.readouterr().out == "table/t is balanced, nothing to move\n"


def test_an_abort_is_said(uneven: Any, capsys: Captured) -> None:
    assert run(["rebalance", "t", "--abort"]) == 0
    assert "no longer rebalanced" in capsys.readouterr().out
    assert run(["rebalance", "t", "--abort", "--dry-run"]) == 2


def test_a_server_is_drained_when_brokers_say_so(uneven: Any, capsys: Captured) -> None:
    register(uneven.metastore, InstanceRecord(id=BROKER, role=Role.BROKER, host="h"))
    assert run(["drain", ONE, "--no-wait"]) == 0
    token = marks(uneven.metastore)[ONE].token
    write_echo(uneven.metastore, BROKER, EchoRecord(drains={ONE: token}, busy={ONE: (TABLE,)}))
    assert run(["drain", ONE, "--timeout", "0.05"]) == 1
    assert "table t: 6 segments assigned" in capsys.readouterr().err
    write_echo(uneven.metastore, BROKER, EchoRecord(drains={ONE: token}))
    assert run(["drain", ONE, "--timeout", "0.05"]) == 1, "it alone has them, whatever brokers said a moment ago"
    write_report(uneven.metastore, TABLE, TWO, KEYS, {})
    capsys.readouterr()
    assert run(["drain", ONE]) == 0
    assert capsys.readouterr().out == f"instance/{ONE} drained\n"
    assert run(["undrain", ONE]) == 0
    assert marks(uneven.metastore) == {}


def test_a_server_that_leaves_is_drained_when_another_has_its_segments(
    uneven: Any, controller: Any, capsys: Captured
) -> None:
    controller[1].start()
    assert run(["drain", ONE, "--leaving"]) == 0
    assert capsys.readouterr().out == f"instance/{ONE} drained\n"


def test_the_wide_list_tells_how_many_processes_run_the_revision(uneven: Any, capsys: Captured) -> None:
    register(uneven.metastore, InstanceRecord(id=BROKER, role=Role.BROKER, host="h"))
    write_echo(uneven.metastore, BROKER, EchoRecord(revisions={TABLE: 1}))
    assert run(["get", "tables", "-o", "wide"]) == 0
    assert " 2/3\n" in capsys.readouterr().out

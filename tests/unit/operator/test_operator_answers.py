"""Whatever answers in a controller's stead, the operator goes on."""

from __future__ import annotations

import contextlib
import copy
import json
import tracemalloc
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.operator_parts import server_word, table_word

from merlot.errors import UnavailableError
from merlot_operator.config import Config
from merlot_operator.controllers import status_answer
from merlot_operator.controllers.status_answer import parse
from merlot_operator.controllers.statuses import ClusterStatus, ClusterStatuses, _changes
from merlot_operator.kube.events import END_MS
from merlot_operator.reconcilers.rollups import rollup_conditions, rollup_status
from merlot_operator.status.upserts import UpsertStatusFacts, upsert_conditions, upsert_status

ROLLUP: dict[str, Any] = {
    "state": "Running",
    "message": None,
    "lastRunMs": 5,
    "nextRunMs": None,
    "levels": [
        {
            "name": "daily",
            "state": "Running",
            "watermarkMs": 5,
            "delay": 0,
            "progress": "1/2",
            "tasksRunning": 1,
            "tasksPoisoned": 0,
        }
    ],
    "running": [{"id": "2", "level": "daily", "minion": "m", "phase": "MERGE", "percent": None, "startedMs": 5}],
    "history": [{"id": "1", "outcome": "Completed", "windows": [[1, 2]], "startedMs": 1, "endedMs": 5}],
}
UPSERT: dict[str, Any] = {
    "revision": 1,
    "replicas": 2,
    "inForce": 2,
    "waitsFor": "",
    "behind": [],
    "ttl": "none",
    "keys": 7,
    "valid": 7,
    "invalid": 2,
    "expired": 0,
    "memoryBytes": 700,
    "short": [],
    "worst": {"partition": 1, "memoryBytes": 500},
    "snapshots": {"wanted": True, "oldestMs": 5_000, "missing": 0, "error": None},
    "backfill": {
        "name": "july",
        "step": "DONE",
        "number": 3,
        "steps": 4,
        "sinceMs": 5_000,
        "message": "",
        "cancelled": False,
        "waitsForMemory": False,
    },
    "compaction": {
        "rewritten": 1,
        "removed": 1,
        "merged": None,
        "rowsRemoved": 2,
        "failing": 0,
        "suspended": False,
        "error": "",
    },
}
GOOD: dict[str, Any] = {
    "tables": {"flights": table_word(servers={"Server_1": server_word()}, upsert=UPSERT)},
    "rollups": {"flights": ROLLUP},
    "tasks": {"queued": 1, "by": {"anything": "else"}},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every value inside."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


@given(path=st.sampled_from(list(paths(GOOD))), other=JSON)
def test_an_answer_with_anything_else_in_it_is_taken_or_refused_by_its_path(path: tuple[Any, ...], other: Any) -> None:
    document = copy.deepcopy(GOOD)
    place: Any = {"root": document}
    for key in ("root", *path)[:-1]:
        place = place[key]
    place[("root", *path)[-1]] = other
    changed = place["root"] if not path else document
    with contextlib.suppress(ValueError):
        taken = parse(json.dumps(changed).encode())
        cluster = ClusterStatus(taken["tables"], taken.get("rollups") or {})
        for name in cluster.rollups:
            rollup_conditions(name, True, None, None, cluster)
            rollup_status(_rollup(name), 1, cluster)
        for name, table in cluster.tables.items():
            if (upsert := table.get("upsert")) is not None:
                _upsert_status({name: upsert})
            assert type(table["segments"]) is int
            assert {type(server["live"]) for server in table["servers"].values()} <= {bool}


def _rollup(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"table": "flights"}}


def _upsert_status(answers: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the messages of the conditions, and the status."""
    facts = UpsertStatusFacts(tables=sorted(answers), answers=answers, revision=1, problem=None)
    return [condition.message for condition in upsert_conditions(facts)], upsert_status(facts, {}, refused=False)


@pytest.mark.parametrize("millis", [-1, END_MS, 2**63 - 1, -(2**63)])
def test_a_time_that_no_timestamp_can_write_takes_nothing_but_itself_from_a_status(millis: int) -> None:
    strange = UPSERT | {
        "snapshots": UPSERT["snapshots"] | {"oldestMs": millis},
        "backfill": UPSERT["backfill"] | {"sinceMs": millis},
    }
    messages, status = _upsert_status({"flights": strange})
    assert "july of table flights" in messages
    assert "snapshot" not in status
    _, status = _upsert_status({"flights": strange, "trips": UPSERT})
    assert (status["snapshot"], status["keys"]) == ("1970-01-01T00:00:05Z", 14)


def test_the_oldest_snapshot_and_the_end_of_a_backfill_are_shown() -> None:
    later = UPSERT | {"snapshots": UPSERT["snapshots"] | {"oldestMs": END_MS - 1}, "backfill": None}
    messages, status = _upsert_status({"flights": later, "trips": UPSERT})
    assert "july of table trips since 1970-01-01T00:00:05Z" in messages
    assert status["snapshot"] == "1970-01-01T00:00:05Z"
    assert _upsert_status({"flights": later})[1]["snapshot"] == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nextRunMs": "x"}, "nextRunMs must be int"),
        ({"running": 5}, "running must be list"),
        ({"running": [5]}, r"running\[0\] must be dict"),
        ({"levels": [ROLLUP["levels"][0] | {"progress": 5}]}, r"levels\[0\].progress must be str"),
        ({"levels": [ROLLUP["levels"][0] | {"tasksRunning": "x"}]}, r"levels\[0\].tasksRunning must be int"),
        ({"nextRunMs": 10**400}, "nextRunMs must be an integer of 64 bits got=1329 bits"),
        ({"history": [ROLLUP["history"][0] | {"windows": [[]]}]}, r"windows\[0\] must be 2 integers got=0"),
    ],
)
def test_a_rollup_of_another_shape_is_refused_by_its_path(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match=path):
        parse(json.dumps(GOOD | {"rollups": {"flights": ROLLUP | changes}}).encode())


def test_members_of_a_rollup_may_be_null() -> None:
    level = dict.fromkeys(ROLLUP["levels"][0]) | {"name": "daily", "state": "Failing"}
    run = dict.fromkeys(ROLLUP["history"][0]) | {"id": "1", "outcome": "Failed"}
    rollup = dict.fromkeys(ROLLUP) | {"state": "Failing", "levels": [level], "history": [run]}
    taken = parse(json.dumps(GOOD | {"rollups": {"flights": rollup}}).encode())
    status = rollup_status(_rollup("flights"), 1, ClusterStatus(rollups=taken["rollups"]))
    assert "0 tasks failed for good" in status["message"]
    assert status["history"] == [{"id": "1", "outcome": "Failed"}]


def test_a_good_answer_is_taken() -> None:
    assert parse(json.dumps(GOOD).encode()) == GOOD
    assert parse(b'{"tables": {}}') == {"tables": {}}


UNREADABLE = {"name": "trips", "error": "record cannot be read path=/x", "servers": {}, "brokers": {}}


@pytest.mark.parametrize("unreadable", [UNREADABLE, {"error": UNREADABLE["error"]}])
async def test_a_table_that_the_controller_cannot_read_leaves_the_others_as_they_are(
    unreadable: dict[str, Any],
) -> None:
    tables = {**GOOD["tables"], "trips": unreadable}
    status = await _ask(json.dumps(GOOD | {"tables": tables}).encode(), "")
    assert status.tables == GOOD["tables"]
    assert status.unreadable == {"trips": UNREADABLE["error"]}
    assert _changes(ClusterStatus(GOOD["tables"]), status).tables == {"trips"}


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"null", b"7", b'"text"', b"{}", b"", b"{", b"\xff\xfe", b'{"tables": []}', b'{"tables": {"t": []}}'),
        b"[" * 100_000,
        b'{"tables": {"t": {}}}',
        b'{"tables": {"t": {"error": 5}}}',
        b'{"tables": {}, "rollups": {"r": {"state": 1}}}',
    ],
)
async def test_a_controller_that_answers_nonsense_is_one_that_does_not_answer(body: bytes) -> None:
    await _ask(body, "controller does not answer at")


async def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_answer, "LEAST_BYTES", 1000)
    await _ask(b" " * 100_000, "the answer has more than 1000 bytes tables=0 pods=0")


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":1}', b"[[]]", b"1.5", b'""'])
def test_a_hostile_answer_takes_little_memory(item: bytes) -> None:
    """The operator's container has 512 MiB."""
    share = 32
    body = b'{"tables":{},"x":[%s0]}' % (b"%s," % item * (status_answer.LEAST_BYTES // share // (len(item) + 1)))
    tracemalloc.start()
    try:
        status_answer.parse(body)
        assert tracemalloc.get_traced_memory()[1] * share < 300 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("num_tables", "num_pods"), [(1, 1), (10, 100), (300, 30)])
async def test_an_answer_may_be_as_large_as_its_tables_and_pods_make_it(
    num_tables: int, num_pods: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_answer, "LEAST_BYTES", 1000)
    table = copy.deepcopy(GOOD["tables"]["flights"])
    (server,) = table["servers"].values()
    table["servers"] = {f"{'x' * 60}-{number}": server for number in range(num_pods)}
    answer = {**GOOD, "tables": {f"{'t' * 50}{number}": table for number in range(num_tables)}}
    body, counts = json.dumps(answer).encode(), (num_tables, num_pods)
    await _ask(body, "", counts=counts)
    body += b" " * status_answer.max_bytes(*counts)
    await _ask(body, f"bytes tables={num_tables} pods={num_pods}", counts=counts)


async def test_an_answer_that_leads_elsewhere_is_not_followed() -> None:
    await _ask(b"", "controller does not answer at", 302)


async def test_an_order_that_is_led_elsewhere_goes_nowhere() -> None:
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        statuses = ClusterStatuses(_config(server))
        with pytest.raises(UnavailableError, match=r"controller leads elsewhere .* status=307"):
            await statuses.retry_rollup("n", "r")
        await statuses.close()
        server.shutdown()
    assert asked == ["/rollups/r/run"]


def _config(server: ThreadingHTTPServer) -> Config:
    url = f"http://127.0.0.1:{server.server_port}"
    return Config(metastore="zk://z:1", deep_store="s3://b", runtime_image="r", spark_image="s", controller_url=url)


async def _ask(body: bytes, problem: str, code: int = 200, counts: tuple[int, int] = (0, 0)) -> ClusterStatus:
    """Have the operator read an answer, and return what it took; an empty `problem`: it is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        statuses = ClusterStatuses(_config(server), lambda _: counts)
        await statuses.refresh("n")
        reported = statuses.of("n").problem
        assert (reported is None) == (not problem)
        assert problem in (reported or "")
        await statuses.close()
        server.shutdown()
        return statuses.of("n")


def test_the_shape_names_what_is_wrong() -> None:
    document = copy.deepcopy(GOOD)
    document["tables"]["flights"]["servers"]["Server_1"]["assigned"] = True
    with pytest.raises(ValueError, match=r"answer.tables.flights.servers.Server_1.assigned must be int got=bool"):
        status_answer.check(document, status_answer.ANSWER, "answer")

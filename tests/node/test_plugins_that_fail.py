"""What users' own pruners and partition functions break stays theirs: answers are whole, and the status tells."""

from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.node.nodes import StartNode, until_answer, until_rows
from tests.support.plugins import installed
from tests.support.sample import ORDERS, START_MS, orders_manifest

from merlot.broker import echo
from merlot.broker.routing import plugin_pruners
from merlot.cluster.records import PartitionRecord, SegmentRecord
from merlot.embedded.node import EmbeddedNode
from merlot.query.plan.binding import bind
from merlot.spec.table import Table
from merlot.sql.parse import parse
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS

DAYS = list(range(4))
COUNT = "SELECT count(*) FROM orders WHERE city IN ('Bern', 'Lima', 'Oslo', 'Rome')"
PRUNERS = """
import numpy as np

def loses_its_way(spec, records):
    raise RuntimeError("no map")

def raises(spec, records):
    def ask(where):
        raise KeyError("where")
    return ask

def answers_too_little(spec, records):
    return lambda where: np.zeros(1, bool)

def answers_text(spec, records):
    return lambda where: "all of them"

def answers_nothing(spec, records):
    return lambda where: None

def answers_positions(spec, records):
    return lambda where: np.arange(len(records))

def answers_shares(spec, records):
    return lambda where: [0.0] * len(records)

def answers_objects(spec, records):
    return lambda where: np.zeros(len(records), object)

def answers_a_table(spec, records):
    return lambda where: np.zeros((len(records), 1), bool)

def keeps_one(spec, records):
    return lambda where: np.arange(len(records)) == 0
"""
FUNCTIONS = """
def factory_fails(spec):
    raise RuntimeError("no seed")

def value_error(spec):
    def partition_of(text):
        raise ValueError(text)
    return partition_of

def answers_none(spec):
    return lambda text: None

def always_one(spec):
    return lambda text: 1
"""
NO_MASKS = ("too_little", "text", "nothing", "positions", "shares", "objects", "a_table")
"""Answers of pruners that are no masks."""
PRUNER_NAMES = (
    *("acme.loses_its_way", "acme.raises", "acme.keeps_one"),
    *(f"acme.answers_{answer}" for answer in NO_MASKS),
)
FUNCTION_NAMES = ("factory_fails", "value_error", "answers_none", "always_one")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pruners = {name: f"acme_pruners:{name.removeprefix('acme.')}" for name in PRUNER_NAMES}
    groups = {
        "merlot.segment_pruners": {**pruners, "acme.missing": "acme_nowhere:prune", "acme.broken": "acme_broken:prune"},
        "merlot.partition_functions": {name: f"acme_functions:{name}" for name in FUNCTION_NAMES},
    }
    modules = {"acme_pruners": PRUNERS, "acme_functions": FUNCTIONS, "acme_broken": "import acme_nowhere\n"}
    with installed(tmp_path / "site", modules, groups):
        yield


def pruned_by(*names: str) -> Table:
    table = orders_manifest()
    routing = table.spec.routing.model_copy(update={"segment_pruners": names})
    return table.model_copy(update={"spec": table.spec.model_copy(update={"routing": routing})})


async def problems(node: EmbeddedNode) -> list[str]:
    """As brokers tell them by way of the controller's status."""
    async with aiohttp.ClientSession() as session, session.get(f"{node.url}/status") as answer:
        status = await answer.json()
    (broker,) = status["tables"]["orders"]["brokers"].values()
    found: list[str] = broker["problems"]
    return found


LOADING = {"acme.missing": "cannot be had", "acme.broken": "cannot be had", "acme.loses_its_way": "no map"}
ASKING = {"acme.raises": "KeyError", "acme.answers_too_little": "no mask", "acme.answers_text": "no mask"}
OTHER_TYPES = {f"acme.answers_{answer}": "no mask" for answer in NO_MASKS[2:]}
assert {*LOADING, *ASKING, *OTHER_TYPES, "acme.keeps_one"} >= set(PRUNER_NAMES)
assert max(map(len, (LOADING, ASKING, OTHER_TYPES))) <= echo.MAX_PROBLEMS


@pytest.mark.parametrize(
    "failures", [LOADING, ASKING, OTHER_TYPES], ids=["while they are loaded", "when they are asked", "other types"]
)
async def test_pruners_that_fail_prune_nothing_and_each_is_told(
    start_with_orders: StartNode, failures: dict[str, str]
) -> None:
    node = await start_with_orders(pruned_by("time", *failures), DAYS)
    await until_rows(node, COUNT, [[100 * len(DAYS)]])

    async def is_told() -> bool:
        found = await problems(node)
        counts = [sum(name in one and told in one for one in found) for name, told in failures.items()]
        return counts == [1] * len(found) == [1] * len(failures)

    await until(is_told)
    # The others go on pruning.
    await until_answer(node, f"{COUNT} AND at < {START_MS + DAY_MS}", "numSegmentsPrunedByBroker", len(DAYS) - 1)


async def test_a_pruner_that_works_is_asked_and_no_problem(start_with_orders: StartNode) -> None:
    node = await start_with_orders(pruned_by("acme.keeps_one"), DAYS)
    await until_answer(node, COUNT, "numSegmentsPrunedByBroker", len(DAYS) - 1)
    assert await problems(node) == []


async def test_a_pruner_that_fails_in_each_query_is_logged_once(
    start_with_orders: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_with_orders(pruned_by("acme.raises", "acme.answers_positions"), DAYS)
    for number in range(5):
        await until_rows(node, f"{COUNT} AND at > {number}", [[100 * len(DAYS)]])
    messages = [record.getMessage() for record in caplog.records]
    for name in ("acme.raises", "acme.answers_positions"):
        assert len([text for text in messages if "segments are kept" in text and name in text]) == 1


def test_a_failure_in_an_older_snapshot_is_logged_once_though_a_newer_one_was_made_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = pruned_by("acme.raises", "acme.keeps_one").spec
    where = bind(parse("SELECT count(*) FROM orders WHERE city = 'Bern'"), spec.table_schema, {}).where
    assert where is not None
    snapshots = [plugin_pruners.prepare_all(ORDERS, spec, [None])]
    for _ in range(2):
        snapshots.append(plugin_pruners.prepare_all(ORDERS, spec, [None], snapshots[-1]))
    for own in snapshots:
        assert [pruner.keep(where).all() for pruner in own] == [True, True]
    assert ["acme.raises" in record.getMessage() for record in caplog.records] == [True]
    assert [[pruner.problem is not None for pruner in own] for own in snapshots] == [[True, False]] * 3


def partitioned_by(function: str) -> Callable[[SegmentRecord], SegmentRecord]:
    entry = PartitionRecord(function_name=function, num_partitions=4, partitions=(0,))
    return lambda record: record.model_copy(update={"partitions": {"city": entry}})


@pytest.mark.parametrize("function", ["factory_fails", "value_error", "answers_none"])
async def test_a_partition_function_that_fails_prunes_nothing_and_is_told(
    start_with_orders: StartNode, function: str
) -> None:
    node = await start_with_orders(pruned_by("partition"), DAYS, partitioned_by(function))
    await until_rows(node, COUNT, [[100 * len(DAYS)]])

    async def is_told() -> bool:
        return [function in one for one in await problems(node)] == [True]

    await until(is_told)


async def test_a_partition_function_that_works_prunes(start_with_orders: StartNode) -> None:
    node = await start_with_orders(pruned_by("partition"), DAYS, partitioned_by("always_one"))
    await until_answer(node, COUNT, "numSegmentsPrunedByBroker", len(DAYS))


async def test_a_partition_function_that_cannot_be_had_is_refused_at_apply(start_node: StartNode) -> None:
    node = await start_node()
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document["spec"]["partitioning"] = {"columns": {"city": {"functionName": "factory_fails", "numPartitions": 4}}}
    text = yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/apply", data=text) as answer:
        assert answer.status == 400
        assert "no seed" in await answer.text()

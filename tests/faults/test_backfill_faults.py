"""A backfill is killed, interrupted or frozen at each call of the node and of the deep store, also while it takes back
what it did; others do the same backfill meanwhile. Old rows answer or new ones, and no file that is needed goes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.budget import count, seed
from tests.faults.moments import some_of
from tests.node.nodes import ask
from tests.support.faults import STORE_CALLS, ProcessDied
from tests.support.sample import ORDERS, START_MS, order_rows, orders_manifest, upload_orders

from merlot.cli import backfiller
from merlot.cli.client import NodeClient
from merlot.cli.replacement import TimeWindow
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.segments.publish import publish
from merlot.embedded.node import METASTORE_FILE, EmbeddedNode, NodeConfig
from merlot.errors import MerlotError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS

NUM_MOMENTS = count("MERLOT_KILLS", quick=2, every=5, fuzz=100)
"""Of a backfill at which it is met."""
STEPS = ("startReplaceSegments", "publish", "endReplaceSegments")
DAYS = range(4)
WINDOW = TimeWindow(START_MS + DAY_MS * 3 // 2, START_MS + DAY_MS * 5 // 2)
"""It cuts two segments."""
TOTALS = "SELECT count(*), sum(amount) FROM orders"


@dataclass
class Calls:
    """What a backfill asks the node and the deep store for, counted; `at` this one, before it is made, `act`."""

    at: int = -1
    act: Callable[[], None] = lambda: None
    interrupted_at: int = -1
    """Before this one somebody presses Ctrl-C."""
    names: list[str] = field(default_factory=list)
    is_dead: bool = False

    def meet(self, name: str) -> None:
        if self.is_dead:
            raise ProcessDied
        number = len(self.names)
        self.names.append(name)
        if number == self.interrupted_at:
            raise KeyboardInterrupt
        if number == self.at:
            try:
                self.act()
            except ProcessDied:
                self.is_dead = True
                raise


class MetClient(NodeClient):
    """Each call is met twice: before it is made, and before its answer is heard."""

    def __init__(self, url: str, calls: Calls) -> None:
        super().__init__(url)
        self._calls = calls

    def call(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        self._calls.meet(f"{method} {path}")
        answer = super().call(method, path, body, headers)
        self._calls.meet(f"answer to {path}")
        return answer


class MetStore:
    def __init__(self, uri: str, calls: Calls) -> None:
        self._inner = DeepStore(uri)
        self._calls = calls
        self.uri = self._inner.uri

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in STORE_CALLS:
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._calls.meet(name)
            return found(*args, **options)

        return call


@dataclass
class World:
    """A node, and the rows that each revision of the window makes."""

    node: EmbeddedNode
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    revision: int = 0

    def backfill(self, revision: int, calls: Calls | None = None) -> None:
        """Blocks."""
        calls = calls or Calls()
        source = self.folder / f"{revision}.parquet"
        parquet.write_table(pa.concat_tables([order_rows(day, revision=revision) for day in DAYS]), source)
        client = MetClient(f"http://127.0.0.1:{self.node.port}", calls)
        order = backfiller.BackfillRequest(
            client=client,
            table=orders_manifest(),
            window=WINDOW,
            source=BatchIngestion(source_uri=str(source), format=BatchFormat.PARQUET),
        )
        with self.monkeypatch.context() as patch:
            patch.setattr(backfiller, "DeepStore", lambda uri: MetStore(uri, calls))
            backfiller.backfill(order)

    def another(self, revision: int) -> None:
        """Somebody else does the same backfill from rows of their own."""
        self.backfill(revision)

    async def totals(self) -> list[int]:
        answer = await ask(self.node, TOTALS)
        assert answer["exceptions"] == [], answer
        return list(answer["resultTable"]["rows"][0])

    def check_files(self) -> None:
        """Every file that a record names is there."""
        statuses = NodeClient(f"http://127.0.0.1:{self.node.port}").get("/segments/orders/metadata")
        named = {one["url"] for one in statuses.values()}
        assert named <= set(DeepStore(str(self.folder / "node" / "deepstore")).list(ORDERS))


def expected(revision: int) -> list[int]:
    """Number of rows and sum of amounts once the window has the rows of a revision."""

    def is_in(row: Mapping[str, Any]) -> bool:
        return bool(WINDOW.start_ms <= row["at"] < WINDOW.end_ms)

    old = [row["amount"] for day in DAYS for row in order_rows(day).to_pylist() if not is_in(row)]
    new = [row["amount"] for day in DAYS for row in order_rows(day, revision=revision).to_pylist() if is_in(row)]
    amounts = old + new
    return [len(amounts), sum(amounts)]


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    folder = tmp_path / "node"
    folder.mkdir()
    metastore = SqliteMetastore(folder / METASTORE_FILE)
    put_table(metastore, orders_manifest())
    publish(metastore, ORDERS, upload_orders(DeepStore(str(folder / "deepstore")), DAYS))
    metastore.close()
    node = EmbeddedNode(NodeConfig(data_dir=folder, http_port=0))
    await node.start()
    world = World(node, tmp_path, monkeypatch)

    async def is_up() -> bool:
        answer = await ask(node, TOTALS)
        return not answer["exceptions"] and answer["resultTable"]["rows"] == [expected(0)]

    await until(is_up)
    yield world
    await node.stop()


async def run(world: World, revision: int, calls: Calls) -> bool:
    """Whether it came to its end. ProcessDied is no error of a thread that asyncio could pass on."""

    def attempt() -> bool:
        try:
            world.backfill(revision, calls)
        except (MerlotError, KeyboardInterrupt, ProcessDied):
            return False
        return True

    return await asyncio.to_thread(attempt)


async def count_calls(world: World, **options: Any) -> list[str]:
    """The calls of a backfill that nothing hinders but, perhaps, Ctrl-C. The first one finds segments as they were."""
    world.revision += 1
    calls = Calls(**options)
    await run(world, world.revision, calls)
    return calls.names


async def meet_each(world: World, numbers: list[int], act: Callable[[], None], **options: Any) -> None:
    """A backfill that is met at each of these calls, and then one that is not."""
    for number in numbers:
        before = await world.totals()
        world.revision += 3
        mine = world.revision
        calls = Calls(at=number, act=act, **options)
        is_done = await run(world, mine, calls)
        now = await world.totals()
        assert now in (before, expected(mine), expected(mine + 1)), calls.names
        assert not is_done or now != before, "a query right after the end sees the new rows"
        await asyncio.to_thread(world.check_files)
        await asyncio.to_thread(world.another, mine + 2)
        assert await world.totals() == expected(mine + 2), calls.names
        await asyncio.to_thread(world.check_files)


def die() -> None:
    raise ProcessDied


async def test_a_backfill_that_is_killed_leaves_old_rows_or_new_ones_and_can_be_run_again(world: World) -> None:
    await count_calls(world)
    names = await count_calls(world)
    await meet_each(world, some_of(len(names), NUM_MOMENTS, 0, 2), die)


async def test_a_backfill_that_wakes_late_takes_nothing_from_those_who_did_it_meanwhile(world: World) -> None:
    await count_calls(world)
    names = await count_calls(world)
    for number in some_of(len(names), NUM_MOMENTS, 1, 2):
        other = partial(world.another, world.revision + 4)
        await meet_each(world, [number], other)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fate", ["killed", "frozen"])
async def test_what_a_backfill_takes_back_is_its_own_whatever_happens_to_it_meanwhile(
    step: str, fate: str, world: World
) -> None:
    await count_calls(world)
    names = await count_calls(world)
    at = next(number for number, name in enumerate(names) if name.startswith("POST") and step in name)
    interrupted_at = random.Random(f"{seed()} {step}").choice([at, at + 1])
    undone = await count_calls(world, interrupted_at=interrupted_at)
    for number in some_of(len(undone) - interrupted_at - 1, NUM_MOMENTS, fate == "frozen", 2):
        other = partial(world.another, world.revision + 4)
        act = die if fate == "killed" else other
        with contextlib.suppress(KeyboardInterrupt):
            await meet_each(world, [interrupted_at + 1 + number], act, interrupted_at=interrupted_at)

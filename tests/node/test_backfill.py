"""A window of a table's time is replaced, before it was merged and after, on a node with all of its roles."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.node.nodes import StartNode, ask, until_rows
from tests.support.sample import BY_THREE_DAYS, ORDERS, START_MS, order_rows, orders_manifest

from merlot.cli import backfiller, main
from merlot.cli.errors import CommandError
from merlot.cli.replacement import Replacer
from merlot.cli.starting import INTERRUPTED
from merlot.cluster.records import SegmentRecord
from merlot.embedded.node import EmbeddedNode
from merlot.spec.tasks import BACKFILLED, ROUNDED_TO
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS

DAYS = range(6)
TOTALS = "SELECT count(*), sum(amount) FROM orders"
NUM_BUCKETS = 3
"""Of three days, counted from 1970."""


@pytest.fixture
async def node(start_with_orders: StartNode) -> EmbeddedNode:
    node = await start_with_orders(orders_manifest(), DAYS)
    await settled(node, expected(DAYS))
    return node


def url_of(node: EmbeddedNode) -> str:
    return f"http://127.0.0.1:{node.port}"


def expected(days: Any, revision: int = 0) -> list[int]:
    """Number of rows and sum of amounts."""
    amounts = [amount for day in days for amount in order_rows(day, revision=revision)["amount"].to_pylist()]
    return [len(amounts), sum(amounts)]


async def totals(node: EmbeddedNode) -> list[Any]:
    answer = await ask(node, TOTALS)
    assert answer["exceptions"] == [], answer
    return list(answer["resultTable"]["rows"][0])


async def settled(node: EmbeddedNode, wanted: list[Any]) -> None:
    await until_rows(node, TOTALS, [wanted])


async def watch(node: EmbeddedNode, seen: list[list[Any]]) -> None:
    while True:
        now = await totals(node)
        if not seen or seen[-1] != now:
            seen.append(now)
        await asyncio.sleep(0.01)


def write_source(folder: Path, days: Any, revision: int) -> Path:
    rows = pa.concat_tables([order_rows(day, revision=revision) for day in days])
    path = folder / f"source-{revision}.parquet"
    parquet.write_table(rows, path)
    return path


def command(node: EmbeddedNode, source: Path, start: int, end: int) -> list[str]:
    window = ["--from", str(START_MS + start * DAY_MS), "--to", str(START_MS + end * DAY_MS)]
    return ["backfill", "orders", *window, "--source", str(source), "--local", "--json", "--url", url_of(node)]


async def run(node: EmbeddedNode, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert await asyncio.to_thread(main.run, arguments) == 0, capsys.readouterr().err
    outcome: dict[str, Any] = json.loads(capsys.readouterr().out)
    return outcome


async def segments(node: EmbeddedNode) -> list[SegmentRecord]:
    async with httpx.AsyncClient(base_url=url_of(node)) as client:
        names = (await client.get("/segments/orders/select")).json()[0]["OFFLINE"]
        statuses = (await client.get("/segments/orders/metadata")).json()
    return [SegmentRecord.model_validate(statuses[name]) for name in names]


async def test_a_window_shows_its_old_rows_until_it_shows_all_of_the_new_ones(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, range(1, 5), revision=1)
    old, kept, new = expected(DAYS), expected([0, 1, 4, 5]), expected([2, 3], revision=1)
    seen: list[list[Any]] = []
    watching = asyncio.create_task(watch(node, seen))
    try:
        outcome = await run(node, command(node, source, 2, 4), capsys)
        await settled(node, [kept[0] + new[0], kept[1] + new[1]])
    finally:
        watching.cancel()
    assert seen[0] == old
    assert seen[1:] in ([], [[kept[0] + new[0], kept[1] + new[1]]])
    assert (outcome["rows"], outcome["rows_outside"], len(outcome["replaced"])) == (200, 200, 2)
    assert outcome["rows_replaced"] == 200
    assert outcome["rewritten"] == []


async def test_an_empty_table_is_filled_in_the_deep_store_of_its_node(
    start_with_orders: StartNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_with_orders(orders_manifest(), range(0))
    outcome = await run(node, command(node, write_source(tmp_path, range(3), revision=0), 0, 3), capsys)
    assert (outcome["rows"], outcome["replaced"]) == (300, [])
    await settled(node, expected(range(3)))


async def test_segments_that_reach_beyond_the_window_keep_their_other_rows(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noon = [row for row in order_rows(2).to_pylist() if row["at"] >= START_MS + 2.5 * DAY_MS]
    morning = [row for row in order_rows(3).to_pylist() if row["at"] < START_MS + 3.5 * DAY_MS]
    gone = [len(noon) + len(morning), sum(row["amount"] for row in [*noon, *morning])]
    new = [row for day in (2, 3) for row in order_rows(day, revision=1).to_pylist()]
    window = (START_MS + round(2.5 * DAY_MS), START_MS + round(3.5 * DAY_MS))
    new = [row for row in new if window[0] <= row["at"] < window[1]]
    source = write_source(tmp_path, [2, 3], revision=1)
    arguments = command(node, source, 0, 0)
    arguments[3], arguments[5] = map(str, window)
    outcome = await run(node, arguments, capsys)
    assert len(outcome["rewritten"]) == 2
    assert (outcome["rows_replaced"], outcome["rows"]) == (gone[0], len(new))
    old = expected(DAYS)
    await settled(node, [old[0] - gone[0] + len(new), old[1] - gone[1] + sum(row["amount"] for row in new)])
    assert all(record.custom_map[BACKFILLED] for record in await segments(node) if record.name in outcome["published"])


async def test_what_was_merged_before_is_merged_again(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with httpx.AsyncClient(base_url=url_of(node)) as client:
        (await client.post("/apply", content=BY_THREE_DAYS)).raise_for_status()

    async def is_merged() -> bool:
        return len(await segments(node)) == NUM_BUCKETS

    await until(is_merged)
    await settled(node, expected(DAYS))
    source = write_source(tmp_path, [1], revision=1)
    outcome = await run(node, command(node, source, 1, 2), capsys)
    assert len(outcome["rewritten"]) == 1
    kept, new = expected([0, 2, 3, 4, 5]), expected([1], revision=1)
    await settled(node, [kept[0] + new[0], kept[1] + new[1]])
    await until(is_merged)
    await settled(node, [kept[0] + new[0], kept[1] + new[1]])


async def test_a_window_that_was_rounded_together_with_more_is_replaced_with_all_of_it_or_not_at_all(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rolled = "bufferTimePeriod: 0d, mergeType: rollup, roundBucketTimePeriod: 3d,"
    async with httpx.AsyncClient(base_url=url_of(node)) as client:
        text = BY_THREE_DAYS.replace("bufferTimePeriod: 0d,", rolled)
        (await client.post("/apply", content=text)).raise_for_status()

    async def is_merged() -> bool:
        found = await segments(node)
        return len(found) == NUM_BUCKETS and all(ROUNDED_TO in one.custom_map for one in found)

    await until(is_merged)
    old = await totals(node)
    assert old[1] == expected(DAYS)[1]
    source = write_source(tmp_path, range(2, 5), revision=1)
    assert await asyncio.to_thread(main.run, command(node, source, 3, 4)) == 1
    said = capsys.readouterr().err
    assert "the smallest that can is --from 2024-01-03 --to 2024-01-06" in said
    assert await totals(node) == old
    outcome = await run(node, [*command(node, source, 3, 4), "--widen"], capsys)
    assert outcome["rows"] == 300
    await until(is_merged)
    assert (await totals(node))[1] == expected([0, 1, 5])[1] + expected([2, 3, 4], revision=1)[1]


async def test_a_second_run_of_the_same_backfill_replaces_the_first(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, [2], revision=1)
    first = await run(node, command(node, source, 2, 3), capsys)
    second = await run(node, command(node, source, 2, 3), capsys)
    assert second["replaced"] == first["published"]
    kept, new = expected([0, 1, 3, 4, 5]), expected([2], revision=1)
    await settled(node, [kept[0] + new[0], kept[1] + new[1]])


async def test_names_do_not_grow_however_often_a_window_of_one_segment_is_replaced(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, [2], revision=1)
    hour_ms = DAY_MS // 24
    lengths = []
    for hour in range(1, 9):
        arguments = command(node, source, 2, 3)
        arguments[3], arguments[5] = (str(START_MS + 2 * DAY_MS + at * hour_ms) for at in (hour, hour + 1))
        outcome = await run(node, arguments, capsys)
        assert outcome["brokers_behind"] == []
        lengths.append(max(map(len, outcome["published"])))
        old, new = order_rows(2).to_pylist(), order_rows(2, revision=1).to_pylist()
        first, last = START_MS + 2 * DAY_MS + hour_ms, START_MS + 2 * DAY_MS + (hour + 1) * hour_ms
        kept = [row["amount"] for row in old if not first <= row["at"] < last]
        added = [row["amount"] for row in new if first <= row["at"] < last]
        others = expected([0, 1, 3, 4, 5])
        wanted = [others[0] + len(kept) + len(added), others[1] + sum(kept) + sum(added)]
        assert await totals(node) == wanted, "a query right after the command sees the new rows"
    assert max(lengths) - min(lengths) <= len("_0")


def test_a_segment_with_a_long_name_keeps_its_other_rows_under_a_name_that_fits() -> None:
    record = SegmentRecord(name="ü" * 95, crc=1, size_bytes=1, url="file:///x", total_docs=1)
    name = backfiller._rest_name(record, 3, "_b0123456789ab")
    assert name == "ü" * 60 + "_b0123456789ab_3"
    again = record.model_copy(update={"name": f"{name}_1704067200000_1704153600000_0"})
    assert backfiller._rest_name(again, 0, "_bcccccccccccc") == "ü" * 60 + "_bcccccccccccc_0"


@pytest.mark.parametrize("step", ["start", "put", "end"])
async def test_a_backfill_that_is_interrupted_leaves_the_old_rows_and_no_file(
    step: str, node: EmbeddedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, [2], revision=1)
    original = getattr(Replacer, step)
    files = DeepStore(str(tmp_path / "node" / "deepstore"))
    before = files.list(ORDERS)

    def interrupted(*arguments: Any) -> None:
        if step != "end":
            original(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Replacer, step, interrupted)
    assert await asyncio.to_thread(main.run, command(node, source, 2, 3)) == INTERRUPTED
    assert "the old rows answer" in capsys.readouterr().err
    monkeypatch.undo()
    assert await totals(node) == expected(DAYS)
    assert len(await segments(node)) == len(DAYS)
    if step != "end":
        assert files.list(ORDERS) == before
    await run(node, command(node, source, 2, 3), capsys)
    kept, new = expected([0, 1, 3, 4, 5]), expected([2], revision=1)
    await settled(node, [kept[0] + new[0], kept[1] + new[1]])


async def test_a_source_without_a_row_of_the_window_empties_it_only_if_it_is_told_to(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, [4], revision=1)
    arguments = command(node, source, 2, 3)
    assert await asyncio.to_thread(main.run, arguments) == 1
    assert "no row of the window, and 1 segments of orders may lose theirs" in capsys.readouterr().err
    assert await totals(node) == expected(DAYS)
    arguments.remove("--json")
    assert await asyncio.to_thread(main.run, [*arguments, "--replace-rows"]) == 0
    assert "orders: 0 rows in 0 segments replace 100 rows of 1 segment, in" in capsys.readouterr().out
    await settled(node, expected([0, 1, 3, 4, 5]))


async def test_wrong_calls_end_in_one_line(
    node: EmbeddedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path, [2], revision=1)
    cases = {
        "--from must be before --to": command(node, source, 3, 2),
        "no source files": command(node, tmp_path / "nothing.parquet", 2, 3),
        "table does not exist": [*command(node, source, 2, 3)[:1], "nobody", *command(node, source, 2, 3)[2:]],
        "say what": command(node, tmp_path / "source", 2, 3),
    }
    for text, arguments in cases.items():
        assert await asyncio.to_thread(main.run, arguments) in {1, 2}
        message = capsys.readouterr().err
        assert text in message
        assert len(message.strip().splitlines()) == 1
    with pytest.raises(CommandError, match="REFRESH"):
        backfiller.check_table(
            orders_manifest().model_copy(
                update={"spec": orders_manifest().spec.model_copy(update={"push_type": backfiller.PushType.REFRESH})}
            )
        )
    assert await totals(node) == expected(DAYS)

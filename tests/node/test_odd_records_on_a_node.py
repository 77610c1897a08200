"""Records as a later version, or somebody else, may publish them: each is refused, or its rows are in every answer."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.budget import seed
from tests.node.nodes import StartNode, until_rows
from tests.support.sample import CITIES, START_MS, orders_manifest, upload_orders

from merlot.cluster.records import SegmentRecord
from merlot.embedded.node import EmbeddedNode
from merlot.spec import pruners
from merlot.store.deepstore import DeepStore
from merlot.values.periods import DAY_MS

NUM_RECORDS = 40
NO_NUMBERS: tuple[Any, ...] = (None, "", "NaN", "soon", 0.5, 1e308, 10**30, -(10**400), [], [[2]], {})
NO_TEXTS: tuple[Any, ...] = (None, 0, 7, 0.5, True, [], ["a"], {})
BOUNDS = {"at": NO_NUMBERS, "id": NO_NUMBERS, "city": NO_TEXTS, "amount": NO_NUMBERS, "absent": NO_TEXTS, "": NO_TEXTS}
"""Bounds that are none of a column; readable ones that lie are the publisher's fault."""
PARTITIONS: tuple[Any, ...] = (
    {"functionName": "Quantum", "numPartitions": 4, "partitions": [0]},
    {"functionName": "Murmur", "numPartitions": 4, "partitions": []},
    {"functionName": "Murmur", "numPartitions": 0, "partitions": [0]},
    {"functionName": "Murmur", "numPartitions": -1, "partitions": [0]},
    {"functionName": "Murmur", "numPartitions": 10**30, "partitions": []},
    {"functionName": "Murmur3", "numPartitions": 4, "partitions": [0], "functionConfig": {"variant": "x128"}},
    {"functionName": "", "numPartitions": 4, "partitions": [0]},
    *NO_TEXTS,
)
BLOOMS: tuple[Any, ...] = ("nonsense", "AAA", "====", *NO_TEXTS)
TIMES: tuple[Any, ...] = (None, 0, -1, 2**63 - 1, -(2**63), 10**15, 10**30, "soon", 0.5)


async def test_odd_records_hide_no_row(start_node: StartNode, tmp_path: Path) -> None:
    rng = random.Random(seed())
    node = await start_node()
    store = DeepStore(str(tmp_path / "node" / "deepstore"))
    records = await asyncio.to_thread(upload_orders, store, list(range(NUM_RECORDS)), 10)
    await _apply(node)
    async with aiohttp.ClientSession() as session:
        taken = [day for day, record in enumerate(records) if await _publish(session, node, _odd(rng, record))]
    assert len(taken) > NUM_RECORDS // 4
    everything = f"SELECT count(*) FROM orders WHERE city IN {CITIES} AND at >= {START_MS}"
    await until_rows(node, everything, [[10 * len(taken)]])
    for day in taken:
        start_ms = START_MS + day * DAY_MS
        await until_rows(
            node,
            f"SELECT count(*) FROM orders WHERE at BETWEEN {start_ms} AND {start_ms + DAY_MS - 1} AND id >= {day * 10}",
            [[10]],
        )


async def _apply(node: EmbeddedNode) -> None:
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document["spec"]["partitioning"] = {"columns": {"city": {"functionName": "Murmur", "numPartitions": 4}}}
    document["spec"]["indexing"] = {"sortedColumns": ["at"], "bloom": ["id"]}
    document["spec"]["routing"] = {"segmentPruners": list(pruners.SEGMENT_PRUNERS)}
    text = yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/apply", data=text) as answer:
        assert answer.status == 200, await answer.text()


async def _publish(session: aiohttp.ClientSession, node: EmbeddedNode, record: dict[str, Any]) -> bool:
    """Whether it was taken; what is not is refused in words."""
    async with session.post(f"{node.url}/segments/orders/publish", data=json.dumps({"records": [record]})) as answer:
        assert answer.status in (200, 400), await answer.text()
        return answer.status == 200


def _odd(rng: random.Random, record: SegmentRecord) -> dict[str, Any]:
    """The record with some members that this version does not know, or cannot read."""
    plain: dict[str, Any] = record.model_dump(mode="json", by_alias=True)
    fields = dict(plain)
    for _ in range(rng.randrange(1, 4)):
        column = rng.choice(list(BOUNDS))
        match rng.randrange(8):
            case 0:
                fields["columns"] = _odd_columns(rng, str(fields["columns"]))
            case 1:
                fields["ranges"] = {**plain["ranges"], column: [rng.choice(BOUNDS[column]) for _ in range(2)]}
            case 2:
                fields["ranges"] = rng.choice([{column: rng.choice(BOUNDS[column])}, [1], "all", {column: [1, 2, 3]}])
            case 3:
                fields["partitions"] = rng.choice([{column: rng.choice(PARTITIONS)}, [1], {"city": PARTITIONS[1]}])
            case 4:
                fields["blooms"] = rng.choice([{column: rng.choice(BLOOMS)}, "all", {"id": "nonsense"}])
            case 5:
                fields["status"] = rng.choice(["CONSUMING", "", "uploaded", "UPLOADED"])
            case 6:
                fields[rng.choice(["startTimeMs", "endTimeMs"])] = rng.choice(TIMES)
            case _:
                fields[rng.choice(["tier", "validDocs", "x-y"])] = rng.choice(
                    [1, "new", [1, {"a": None}], {"b": 10**400}]
                )
    return fields


def _odd_columns(rng: random.Random, text: str) -> str:
    items = text.split(",")
    place = rng.randrange(len(items))
    name = items[place].partition(":")[0]
    items[place] = rng.choice([f"{name}:EON", f"{name}:LONG[][]", name, f"{name}:", ":LONG", "", f"{name}:long"])
    return ",".join(items)

"""Columns whose names are no plain words, on a node with all of its roles: files of each format, streams with upserts,
every clause over HTTP beside DuckDB, gRPC, EXPLAIN."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import pytest_asyncio
from pyarrow import json as arrow_json
from pyarrow import orc, parquet
from tests.node import grpc_client, nodes
from tests.node.nodes import SHORT_WAITS

from merlot.cli import main
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.spec.column_names import in_sql
from merlot.spec.formats import BatchFormat

pytestmark = pytest.mark.asyncio(loop_scope="module")
ID, AT, COLOR, SIZE = "payload.id", "event.at$ms", "some-color", 'größe,"m"||`x`'
COUNT, TAGS, DOC, VERSION = "__metadata$offset", "a__b[]", "it's:(json)", "version.no"
FIELDS = [
    {"name": ID, "type": "LONG"},
    {"name": COLOR, "type": "STRING"},
    {"name": TAGS, "type": "STRING", "multiValue": True},
    {"name": DOC, "type": "JSON"},
    {"name": VERSION, "type": "LONG"},
    {"name": COUNT, "type": "LONG", "role": "metric"},
    {"name": SIZE, "type": "DOUBLE", "role": "metric"},
    {"name": AT, "type": "TIMESTAMP", "role": "dateTime"},
]
NUM_ROWS = 240
START_MS = 1_700_000_000_000


def row(number: int) -> dict[str, Any]:
    return {
        ID: number,
        COLOR: ("red", "green", None, "b'l\"u`e")[number % 4],
        TAGS: [f"t{number % 3}", f"t{number % 5}"],
        DOC: json.dumps({"k": number % 7}),
        VERSION: number // 3,
        COUNT: number * 11 % 17,
        SIZE: number / 8,
        AT: START_MS + number * 7_200_000,
    }


ROWS = [row(number) for number in range(NUM_ROWS)]
INDEXING = {
    "sortedColumns": [COLOR],
    "inverted": [COLOR, TAGS],
    "range": [COUNT],
    "text": [COLOR],
    "jsonPaths": [DOC],
    "bloom": [ID],
    "bloomFpp": {ID: 0.01},
    "noDictionary": [SIZE],
    "compression": {SIZE: "ZSTD"},
    "encodings": {VERSION: "DICTIONARY"},
    "timestampGranularities": {AT: ["DAY"]},
    "starTreeIndexConfigs": [
        {
            "dimensionsSplitOrder": [COLOR, f"DATETRUNC('DAY', {in_sql(AT)})", VERSION],
            "functionColumnPairs": ["COUNT__*", f"SUM__{COUNT}", f"MAX__{SIZE}"],
            "maxLeafRecords": 2,
        }
    ],
}


def manifest(name: str, **more: Any) -> str:
    spec = {"schema": {"fields": FIELDS}, "timeColumn": AT, **more}
    return json.dumps({"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": name}, "spec": spec})


def quoted(text: str, table: str = "t") -> str:
    """A query of a table with the names in braces as SQL writes them, `{color}`."""
    names = {"id": ID, "at": AT, "color": COLOR, "size": SIZE, "count": COUNT, "tags": TAGS, "doc": DOC, "no": VERSION}
    return text.format(t=in_sql(table), **{key: in_sql(name) for key, name in names.items()})


ONE_STAGE = [
    "SELECT {id}, {size}, {count} FROM {t} t WHERE {color} = 'red' AND {count} > 5 ORDER BY {size} DESC, {id} LIMIT 9",
    "SELECT {color}, COUNT(*), SUM({count}), MAX({size}) FROM {t} t GROUP BY {color} ORDER BY {color} NULLS LAST",
    "SELECT {no} % 2 AS {doc}, AVG({size}) AS {tags} FROM {t} t GROUP BY {no} % 2 HAVING AVG({size}) > 1 ORDER BY 1",
    "SELECT DISTINCT {color} FROM {t} t WHERE {id} IN (1, 2, 3, 7) OR {color} LIKE '%r%' ORDER BY {color}",
    "SELECT SUM(CASE WHEN {color} IS NULL THEN {count} ELSE -{count} END), COUNT({color}) FROM {t} t",
    "SELECT t.{id} + t.{no}, {size} * 2 FROM {t} t WHERE t.{size} BETWEEN 3 AND 4 ORDER BY t.{id}",
]
SEVERAL_STAGES = [
    "SELECT a.{color}, COUNT(*), SUM(b.{size}) FROM {t} a JOIN {t} b ON a.{id} = b.{no} GROUP BY a.{color} ORDER BY 1",
    "SELECT {id}, SUM({count}) OVER (PARTITION BY {color} ORDER BY {id}) FROM {t} t WHERE {id} < 30 ORDER BY {id}",
    "SELECT {id} FROM {t} t WHERE {no} IN (SELECT {id} FROM {t} t WHERE {color} = 'green') ORDER BY {id} LIMIT 20",
    "WITH w AS (SELECT {id} AS {at}, {color} FROM {t} t) SELECT MAX({at}), {color} FROM w GROUP BY {color} ORDER BY 1",
    "SELECT {no} FROM {t} t WHERE {id} < 9 UNION SELECT {id} FROM {t} t WHERE {id} < 4 ORDER BY {no}",
    "SELECT x.{id} FROM (SELECT {id}, RANK() OVER (ORDER BY {size}) AS {no} FROM {t} t) x WHERE x.{no} < 4 ORDER BY 1",
    "SELECT COUNT(*) FROM {t} a LEFT JOIN {t} b USING ({id}, {no}) WHERE b.{color} IS NULL",
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    """The rows in DuckDB."""
    connection = duckdb.connect(config={"threads": 1})
    rows = pa.Table.from_pylist(ROWS)
    connection.register("t", rows)
    yield connection
    connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedNode]:
    folder = tmp_path_factory.mktemp("names")
    node = EmbeddedNode(
        NodeConfig(
            data_dir=folder / "node", http_port=0, grpc_port=0, stream_folders=(str(folder.parent),), tuning=SHORT_WAITS
        )
    )
    await node.start()
    yield node
    await node.stop()


def source(format_: BatchFormat) -> bytes:
    """The rows as a file."""
    sink = io.BytesIO()
    lines = "".join(json.dumps(one) + "\n" for one in ROWS).encode()
    match format_:
        case BatchFormat.JSON:
            return lines
        case BatchFormat.CSV:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(ROWS[0]))
            writer.writeheader()
            writer.writerows({**one, TAGS: json.dumps(one[TAGS])} for one in ROWS)
            return text.getvalue().encode()
        case BatchFormat.PARQUET:
            parquet.write_table(arrow_json.read_json(io.BytesIO(lines)), sink)
        case BatchFormat.ORC:
            orc.write_table(arrow_json.read_json(io.BytesIO(lines)), sink)
    return sink.getvalue()


async def answers(node: EmbeddedNode, sql: str) -> list[list[Any]]:
    fields = await nodes.ask(node, f"SET enableNullHandling=true; {sql}")
    assert fields["exceptions"] == [], (sql, fields["exceptions"])
    found: list[list[Any]] = fields["resultTable"]["rows"]
    return found


def in_duckdb(oracle: duckdb.DuckDBPyConnection, sql: str) -> list[list[Any]]:
    return [[int(cell) if isinstance(cell, float) and cell == int(cell) else cell for cell in one] for one in
            oracle.execute(sql).fetchall()]  # fmt: skip


async def fill(node: EmbeddedNode, table: str, format_: BatchFormat, folder: Path, **more: Any) -> None:
    """Declare a table, and put the rows into it from a file."""
    path = folder / f"{table}.{format_.lower()}"
    path.write_bytes(await asyncio.to_thread(source, format_))
    await nodes.apply(node, manifest(table, **more))
    window = ["--from", "2023-11-01", "--to", "2024-02-01", "--format", format_.lower()]
    arguments = ["backfill", table, *window, "--source", str(path), "--local", "--json", "--url", node.url]
    assert await asyncio.to_thread(main.run, arguments) == 0
    await nodes.until_rows(node, f"SELECT COUNT(*) FROM {in_sql(table)}", [[NUM_ROWS]])


@pytest.mark.parametrize("format_", list(BatchFormat))
async def test_files_of_each_format_answer_every_clause_as_duckdb_does(
    node: EmbeddedNode, oracle: duckdb.DuckDBPyConnection, tmp_path: Path, format_: BatchFormat
) -> None:
    table = f"of-{format_.lower()}"
    await fill(node, table, format_, tmp_path, indexing=INDEXING)
    for text in [*ONE_STAGE, *SEVERAL_STAGES]:
        assert await answers(node, quoted(text, table)) == in_duckdb(oracle, quoted(text)), text


async def test_backticks_dots_without_quotes_and_labels_are_as_in_pinot(node: EmbeddedNode, tmp_path: Path) -> None:
    await fill(node, "plain", BatchFormat.JSON, tmp_path)
    sql = f"SELECT payload.id, plain.payload.id, `{COLOR}`, SUM(payload.id) FROM plain GROUP BY payload.id, `{COLOR}`"
    fields = await nodes.ask(node, f"{sql} ORDER BY payload.id LIMIT 1")
    assert fields["exceptions"] == []
    assert fields["resultTable"]["dataSchema"]["columnNames"] == [ID, ID, COLOR, f"sum({ID})"]
    assert fields["resultTable"]["rows"] == [[0, 0, "red", 0]]
    (everything,) = [await nodes.ask(node, "SELECT * FROM plain LIMIT 1")]
    assert everything["resultTable"]["dataSchema"]["columnNames"] == [field["name"] for field in FIELDS]
    missing = await nodes.ask(node, "SELECT payload.idd FROM plain")
    assert "unknown column name=payload.idd" in missing["exceptions"][0]["message"]
    assert "did you mean payload.id?" in missing["exceptions"][0]["message"]


async def test_plans_name_columns_trees_and_indexes(node: EmbeddedNode, tmp_path: Path) -> None:
    await fill(node, "planned", BatchFormat.PARQUET, tmp_path, indexing=INDEXING)

    async def plan(text: str) -> str:
        fields = await nodes.ask(node, f"SET enableNullHandling=false; EXPLAIN PLAN FOR {quoted(text, 'planned')}")
        assert fields["exceptions"] == [], fields
        return json.dumps(fields["resultTable"]["rows"], ensure_ascii=False)

    tree = await plan("SELECT {color}, SUM({count}) FROM {t} t WHERE {no} < 9 GROUP BY {color}")
    assert "STARTREE" in tree
    assert COLOR in tree
    assert "STARTREE" in await plan("SELECT DATETRUNC('DAY', {at}), MAX({size}) FROM {t} t GROUP BY 1")
    assert "INVERTED" in await plan("SELECT {id} FROM {t} t WHERE {tags} = 't1'")
    assert "TEXT" in await plan("SELECT {id} FROM {t} t WHERE TEXT_MATCH({color}, 'red')")
    assert "JSON" in await plan("SELECT {id} FROM {t} t WHERE JSON_MATCH({doc}, '\"$.k\" = 3')")
    assert COUNT in await plan("SELECT a.{count} FROM {t} a JOIN {t} b ON a.{id} = b.{id}")


async def test_blocks_over_grpc_have_the_names(node: EmbeddedNode, tmp_path: Path) -> None:
    await fill(node, "blocks", BatchFormat.JSON, tmp_path)
    names = [ID, COLOR, SIZE, AT]
    sql = f"SELECT {', '.join(map(in_sql, names))} FROM blocks ORDER BY {in_sql(ID)} LIMIT 3"
    for encoding in ("ARROW", "JSON"):
        answer = await grpc_client.ask(node.grpc_port, sql, encoding=encoding)
        assert answer.names == names
        assert [one[0] for one in answer.rows] == [0, 1, 2]


async def test_rows_of_a_stream_replace_each_other_by_keys_of_such_names(node: EmbeddedNode, tmp_path: Path) -> None:
    topic = tmp_path / "topic"
    (topic / "0").mkdir(parents=True)
    lines = [
        {**row(number), ID: number % 50, "more.left": number, "nested": {"x": number}} for number in range(NUM_ROWS)
    ]
    (topic / "0" / "rows.json").write_text("".join(json.dumps(one) + "\n" for one in reversed(lines)))
    derived = {SIZE: '"more.left" / 2.0', TAGS: "jsonPathArray(nested, '$.x')"}
    stream = {
        "type": "files",
        "topic": str(topic),
        "flush": {"rows": 100},
        "derivedColumns": derived,
        "filter": f"{in_sql(COUNT)} <> 3",
    }
    schema = {"fields": FIELDS, "primaryKey": [ID]}
    more = {
        "schema": schema,
        "ingestion": {"stream": stream},
        "partitioning": {"columns": {ID: {"functionName": "Modulo", "numPartitions": 1}}},
        "upsert": {"config": {"mode": "FULL", "comparisonColumns": [VERSION]}},
        "indexing": {"inverted": [COLOR], "noDictionary": [SIZE]},
    }
    await nodes.apply(node, manifest("latest", **more))
    newest: dict[int, dict[str, Any]] = {}
    for one in reversed(lines):
        if one[COUNT] != 3 and (one[ID] not in newest or one[VERSION] >= newest[one[ID]][VERSION]):
            newest[one[ID]] = one
    expected = [
        [one[ID], one[VERSION], one["more.left"] / 2, [str(one["nested"]["x"])], one[COLOR]]
        for one in sorted(newest.values(), key=lambda one: one[ID])
    ]
    sql = quoted("SELECT {id}, {no}, {size}, {tags}, {color} FROM {t} t ORDER BY {id} LIMIT 100", "latest")
    await nodes.until_rows(node, f"SET enableNullHandling=true; {sql}", expected)

"""pinotdb, its DB-API connection and its SQLAlchemy dialect, work against a node as they do against Pinot."""

import datetime as dt
import decimal
from collections.abc import Iterator
from typing import Any

import httpx
import pinotdb
import pytest
import sqlalchemy as sa
from pinotdb import exceptions
from tests.clients.flights_node import NUM_ROWS, NUM_SEGMENTS, Address


@pytest.fixture
def cursor(node: Address) -> Iterator[Any]:
    connection = pinotdb.connect(host=node.host, port=node.port)
    yield connection.cursor()
    connection.close()


def test_rows_come_back_as_python_values(cursor: Any) -> None:
    cursor.execute(
        "SELECT departed, carrier, cancelled, notes, tag, fare, delay, distance, load, stops "
        "FROM flights WHERE delay = -4 ORDER BY departed LIMIT 1"
    )
    (row,) = cursor.fetchall()
    departed, carrier, cancelled, notes, tag, fare, *numbers, stops = row
    assert departed == dt.datetime(2013, 1, 1, 0, 1)  # noqa: DTZ001 - pinotdb's timestamps are naive
    assert (carrier, cancelled, notes, tag, stops) == ("B6", False, {"gate": 1}, "01", ["ORD", "DEN"])
    assert decimal.Decimal(fare.strip('"')) == decimal.Decimal("1.25")
    assert numbers == [-4, 100, 0.125]


def test_description_names_the_columns(cursor: Any) -> None:
    cursor.execute("SELECT carrier, COUNT(*), SUM(distance) AS miles FROM flights GROUP BY carrier ORDER BY carrier")
    assert [column[0] for column in cursor.description] == ["carrier", "count(*)", "miles"]
    assert [column["type"] for column in cursor.schema] == ["STRING", "LONG", "DOUBLE"]
    rows = cursor.fetchall()
    assert [row[0] for row in rows] == ["AA", "B6", "DL", "UA"]
    assert sum(row[1] for row in rows) == NUM_ROWS


def test_parameters_and_options(cursor: Any) -> None:
    cursor.execute(
        "SELECT COUNT(*) FROM flights WHERE carrier = %(carrier)s", {"carrier": "UA"}, queryOptions="timeoutMs=5000"
    )
    assert cursor.fetchone() == [NUM_ROWS // 4]


def test_preserve_types_option_is_understood(node: Address) -> None:
    with pinotdb.connect(host=node.host, port=node.port, preserve_types=True) as cursor:
        cursor.execute("SELECT COUNT(*) FROM flights")
        assert cursor.fetchone() == [NUM_ROWS]


def test_statistics_tell_what_was_queried(cursor: Any) -> None:
    cursor.execute("SELECT COUNT(*) FROM flights")
    stats = cursor.query_stats
    assert (stats["totalDocs"], stats["numSegmentsQueried"]) == (NUM_ROWS, NUM_SEGMENTS)
    assert stats["numServersQueried"] == stats["numServersResponded"] == 1


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT COUNT(*) FROM flights WHERE carrier = 'none'"])
def test_answer_that_needs_no_rows_counts_a_server(cursor: Any, sql: str) -> None:
    cursor.execute(sql)
    assert cursor.fetchall() in ([[1]], [[0]])


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELEC 1", 150),
        ("SELECT * FROM planes", 190),
        ("SELECT altitude FROM flights", 710),
        ("SELECT SUM(delay) FROM flights WHERE SUM(delay) > 3", 200),
    ],
)
def test_wrong_query_raises_with_pinots_code(cursor: Any, sql: str, code: int) -> None:
    with pytest.raises(exceptions.DatabaseError, match=f"'errorCode': {code}") as raised:
        cursor.execute(sql)
    assert "Traceback" not in str(raised.value)
    assert cursor.raw_query_response["status_code"] == 200


def test_error_can_be_ignored_by_code(node: Address) -> None:
    connection = pinotdb.connect(host=node.host, port=node.port, ignore_exception_error_codes="190")
    cursor = connection.cursor()
    cursor.execute("SELECT * FROM planes")
    assert cursor.fetchall() == []
    connection.close()


async def test_async_connection(node: Address) -> None:
    connection = pinotdb.connect_async(host=node.host, port=node.port)
    cursor = connection.cursor()
    await cursor.execute("SELECT COUNT(*) FROM flights")
    assert cursor.fetchone() == [NUM_ROWS]
    await connection.close()


@pytest.fixture
def engine(node: Address) -> Iterator[sa.Engine]:
    url = f"pinot://{node.host}:{node.port}/query/sql?controller=http://{node.host}:{node.port}/"
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def test_sqlalchemy_reflects_tables_and_columns(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["flights"]
    types = {column["name"]: type(column["type"]).__name__ for column in inspector.get_columns("flights")}
    assert types["carrier"].upper() in {"STRING", "TEXT", "VARCHAR"}
    assert types["distance"].upper() in {"BIGINT", "BIGINTEGER"}
    assert len(types) == 11


def test_sqlalchemy_builds_and_runs_a_query(engine: sa.Engine) -> None:
    flights = sa.Table("flights", sa.MetaData(), autoload_with=engine)
    query = (
        sa.select(flights.c.carrier, sa.func.max(flights.c.delay).label("worst"))
        .where(flights.c.origin == "JFK")
        .group_by(flights.c.carrier)
        .order_by(flights.c.carrier)
    )
    with engine.connect() as connection:
        rows = connection.execute(query).fetchall()
    assert [tuple(row) for row in rows] == [("B6", 32), ("UA", 34)]


def test_sqlalchemy_wraps_errors(engine: sa.Engine) -> None:
    with engine.connect() as connection, pytest.raises(sa.exc.DatabaseError, match="190"):
        connection.execute(sa.text("SELECT * FROM planes"))


@pytest.mark.parametrize("path", ["/query/sql", "/sql"])
def test_controllers_path_answers_queries_too(node: Address, path: str) -> None:
    answer = httpx.post(f"{node.url}{path}", json={"sql": "SELECT COUNT(*) FROM flights"})
    assert answer.json()["resultTable"]["rows"] == [[NUM_ROWS]]
    assert answer.headers["X-Pinot-Error-Code"] == "-1"


def test_routing_table_is_what_trino_reads(node: Address) -> None:
    routing = httpx.get(f"{node.url}/debug/routingTable/flights").json()
    ((server, segments),) = routing["flights_OFFLINE"].items()
    assert server.startswith("Server_")
    assert sorted(segments) == ["flights_0", "flights_1", "flights_2"]
    assert httpx.get(f"{node.url}/debug/timeBoundary/flights").status_code == 404
    assert httpx.head(f"{node.url}/mytables").status_code == 404

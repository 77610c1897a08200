"""What Superset asks through pinotdb: its time grains for Pinot, as its engine spec writes them, and reflection."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from tests.clients.asking import Rows
from tests.clients.flights_node import NUM_ROWS, ROWS_PER_SEGMENT, Address

DAYS = ("2013-01-01 00:00:00.0", "2013-01-02 00:00:00.0", "2013-01-03 00:00:00.0")
EPOCH_S = "DATETIMECONVERT({col}, '1:SECONDS:EPOCH', '1:SECONDS:EPOCH', '1:SECONDS')"


def truncated(unit: str, column: str = "departed") -> str:
    return f"CAST(DATE_TRUNC('{unit}', CAST({column} AS TIMESTAMP)) AS TIMESTAMP)"


def rounded(milliseconds: int) -> str:
    return f"CAST(ROUND(DATE_TRUNC('minute', CAST(departed AS TIMESTAMP)), {milliseconds}) AS TIMESTAMP)"


@pytest.fixture(scope="module", params=["false", "true"], ids=["one stage", "several stages"])
def engine(node: Address, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    url = f"pinot://{node.host}:{node.port}/query/sql?controller=http://{node.host}:{node.port}/"
    engine = sa.create_engine(url, connect_args={"use_multistage_engine": request.param})
    yield engine
    engine.dispose()


def run(engine: sa.Engine, sql: str) -> Rows:
    with engine.connect() as connection:
        return [list(row) for row in connection.exec_driver_sql(sql)]


def grouped(engine: sa.Engine, expression: str) -> Rows:
    """A chart's query, as Superset writes it; times as texts, in order."""
    sql = f"SELECT {expression}, COUNT(*) FROM flights GROUP BY {expression} ORDER BY COUNT(*) DESC LIMIT 10000"
    return sorted([str(moment), count] for moment, count in run(engine, sql))


@pytest.mark.parametrize(("unit", "number"), [("second", NUM_ROWS), ("minute", NUM_ROWS), ("hour", 3), ("day", 3)])
def test_grains_within_a_day(engine: sa.Engine, unit: str, number: int) -> None:
    rows = grouped(engine, truncated(unit))
    assert len(rows) == number
    assert rows[0] == ["2013-01-01 00:00:00", NUM_ROWS // number]


@pytest.mark.parametrize(
    ("unit", "first"),
    [("week", "2012-12-31"), ("month", "2013-01-01"), ("quarter", "2013-01-01"), ("year", "2013-01-01")],
)
def test_grains_of_days(engine: sa.Engine, unit: str, first: str) -> None:
    assert grouped(engine, truncated(unit)) == [[f"{first} 00:00:00", NUM_ROWS]]


@pytest.mark.parametrize("minutes", [5, 10, 15, 30])
def test_grains_of_several_minutes(engine: sa.Engine, minutes: int) -> None:
    rows = grouped(engine, rounded(minutes * 60_000))
    whole, rest = divmod(ROWS_PER_SEGMENT, minutes)
    of_a_day = [minutes] * whole + [rest] * (rest > 0)
    assert [count for _, count in rows] == of_a_day * 3
    assert rows[1][0] == f"2013-01-01 00:{minutes:02}:00"


def test_grain_of_seconds_since_the_epoch(engine: sa.Engine) -> None:
    """The spec leaves seconds as they are and casts them: Pinot takes them for milliseconds, so do we."""
    assert grouped(engine, truncated("day", EPOCH_S.format(col="distance"))) == [["1970-01-01 00:00:00", NUM_ROWS]]


def test_metrics_are_labelled_and_ordered_by_their_expression(engine: sa.Engine) -> None:
    sql = (
        'SELECT carrier AS carrier, SUM(delay) AS "SUM(delay)" FROM flights '
        "WHERE departed >= '2013-01-01 00:10:00.000000' AND departed < '2013-01-02 00:00:00.000000' "
        "GROUP BY carrier ORDER BY SUM(delay) DESC LIMIT 2"
    )
    assert run(engine, sql) == [["UA", 160], ["DL", 152]]


def test_reflection_finds_tables_columns_and_no_keys(engine: sa.Engine) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["flights"]
    assert inspector.has_table("flights")
    assert inspector.get_view_names() == []
    assert len(inspector.get_columns("flights")) == 11
    assert inspector.get_pk_constraint("flights")["constrained_columns"] == []
    assert inspector.get_foreign_keys("flights") == inspector.get_indexes("flights") == []

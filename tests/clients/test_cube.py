"""What Cube's Pinot driver and dialect write."""

import pytest
from tests.clients.asking import answer_of, rows_of
from tests.clients.flights_node import NUM_ROWS, Address

OPTIONS = "useMultistageEngine=true;enableNullHandling={};timeoutMs=600000"
NULLS = pytest.mark.parametrize("nulls", ["true", "false"])
LOCAL = "CAST(toDateTime(f.departed, 'yyyy-MM-dd HH:mm:ss.SSS', 'America/New_York') as TIMESTAMP)"


@NULLS
def test_connection_is_tried_by_a_constant(node: Address, nulls: str) -> None:
    assert rows_of(node, "select 1", OPTIONS.format(nulls)) == [[1]]


@NULLS
def test_days_of_a_time_zone(node: Address, nulls: str) -> None:
    sql = (
        f"SELECT CAST(dateTrunc('day', {LOCAL}) as TIMESTAMP) flights__departed_day, count(*) flights__count "
        "FROM flights AS f WHERE (f.departed >= '2013-01-01 00:30:00.000' AND f.departed <= '2013-01-05 04:59:59.999') "
        "GROUP BY 1 ORDER BY 1 ASC LIMIT 10000"
    )
    table = answer_of(node, sql, OPTIONS.format(nulls))["resultTable"]
    assert table["dataSchema"] == {
        "columnNames": ["flights__departed_day", "flights__count"],
        "columnDataTypes": ["TIMESTAMP", "LONG"],
    }
    assert table["rows"] == [
        ["2012-12-31 00:00:00.0", 10],
        ["2013-01-01 00:00:00.0", 40],
        ["2013-01-02 00:00:00.0", 40],
    ]


@NULLS
def test_offset_comes_before_limit(node: Address, nulls: str) -> None:
    sql = "SELECT f.carrier f__carrier, count(*) n FROM flights AS f GROUP BY 1 ORDER BY 1 DESC OFFSET 1 LIMIT 2"
    assert rows_of(node, sql, OPTIONS.format(nulls)) == [["DL", 30], ["B6", 30]]


@NULLS
def test_measures_of_every_kind_by_a_dimension(node: Address, nulls: str) -> None:
    """As its compiler writes them; the quoted alias is the table's name."""
    sql = """SELECT
      "flights".carrier "flights__carrier", count(*) "flights__count", sum("flights".distance) "flights__miles",
      max("flights".delay) "flights__worst", count(1) FILTER (WHERE ("flights".delay > 3)) "flights__late",
      count(distinct "flights".origin) "flights__origins"
    FROM
      flights AS "flights"  GROUP BY 1 HAVING (sum("flights".distance) > CAST('58000' AS DOUBLE)) ORDER BY 3 DESC"""
    table = answer_of(node, sql, OPTIONS.format(nulls))["resultTable"]
    assert table["dataSchema"]["columnNames"][4:] == ["flights__late", "flights__origins"]
    assert table["rows"] == [["UA", 30, 63000, 34, 24, 1], ["DL", 30, 60000, 33, 24, 1]]


def test_measures_are_filtered(node: Address) -> None:
    sql = (
        "SELECT f.carrier f__carrier, sum(f.distance) FILTER (WHERE (f.origin = 'JFK')) f__miles "
        "FROM flights AS f GROUP BY 1 ORDER BY 1 ASC LIMIT 10000"
    )
    expected = [["AA", None], ["B6", 57000], ["DL", None], ["UA", 63000]]
    assert rows_of(node, sql, OPTIONS.format("true")) == expected


@NULLS
@pytest.mark.parametrize(("operator", "carriers"), [("LIKE", ["AA", "UA"]), ("NOT LIKE", ["B6", "DL"])])
def test_contains_is_like_with_an_escape(node: Address, nulls: str, operator: str, carriers: list[str]) -> None:
    sql = (
        "SELECT f.carrier f__carrier, count(*) f__count FROM flights AS f "
        f"WHERE (LOWER(f.carrier) {operator} CONCAT('%', LOWER('A') , '%') ESCAPE '\\') GROUP BY 1 ORDER BY 1 LIMIT 100"
    )
    assert [row[0] for row in rows_of(node, sql, OPTIONS.format(nulls))] == carriers


@NULLS
def test_parameters_are_cast(node: Address, nulls: str) -> None:
    sql = (
        "SELECT count(*) n FROM flights AS f "
        "WHERE (f.cancelled = CAST('true' AS BOOLEAN)) AND f.delay < CAST('3' AS DOUBLE)"
    )
    assert rows_of(node, sql, OPTIONS.format(nulls)) == [[3]]


@NULLS
def test_series_of_dates_is_a_union_of_constants(node: Address, nulls: str) -> None:
    days = [
        ("2013-01-01 00:00:00.000", "2013-01-01 23:59:59.999"),
        ("2013-01-02 00:00:00.000", "2013-01-02 23:59:59.999"),
    ]
    values = " UNION ALL ".join(f"select '{first}' f, '{last}' t" for first, last in days)
    sql = f"SELECT CAST(dates.f as TIMESTAMP) date_from, CAST(dates.t as TIMESTAMP) date_to FROM ({values}) AS dates"
    assert sorted(rows_of(node, sql, OPTIONS.format(nulls))) == [  # nobody asks for an order
        ["2013-01-01 00:00:00.0", "2013-01-01 23:59:59.999"],
        ["2013-01-02 00:00:00.0", "2013-01-02 23:59:59.999"],
    ]


@NULLS
def test_intervals_are_sums_of_milliseconds(node: Address, nulls: str) -> None:
    limit = "CAST('2013-01-03 00:00:00.000' as TIMESTAMP) - fromEpochDays(1)"
    sql = f"SELECT count(*) FROM flights AS f WHERE f.departed < {limit}"
    assert rows_of(node, sql, OPTIONS.format(nulls)) == [[NUM_ROWS // 3]]


@NULLS
def test_sql_interface_wraps_and_orders_nulls_last(node: Address, nulls: str) -> None:
    sql = (
        'SELECT "f".carrier "carrier", DATE_TRUNC(\'month\', "f".departed) "month" \n'
        'FROM (\n  SELECT carrier, departed FROM flights\n) AS "f" \n GROUP BY 1, 2 '
        'ORDER BY "f".carrier IS NULL ASC, "f".carrier ASC\nOFFSET 1\nLIMIT 2'
    )
    assert rows_of(node, sql, OPTIONS.format(nulls)) == [["B6", 1356998400000], ["DL", 1356998400000]]


@NULLS
def test_parts_of_times_and_their_literals(node: Address, nulls: str) -> None:
    sql = (
        "SELECT EXTRACT(YEAR FROM f.departed) y, count(*) n FROM flights AS f "
        "WHERE f.departed >= fromDateTime('2013-01-02 00:00:00.000', 'yyyy-MM-dd HH:mm:ss.SSS') GROUP BY 1"
    )
    assert rows_of(node, sql, OPTIONS.format(nulls)) == [[2013, 80]]

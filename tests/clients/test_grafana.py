"""What Grafana's data source `startree-pinot-datasource` asks of a controller and a broker."""

import httpx
import pytest
from tests.clients.asking import answer_of, rows_of
from tests.clients.flights_node import NUM_ROWS, NUM_SEGMENTS, Address

SERIES = """SELECT
    "carrier" AS 'airline',
    DATETIMECONVERT("departed", '1:MILLISECONDS:EPOCH', '1:MILLISECONDS:EPOCH', '15:MINUTES') AS "time",
    SUM("delay") AS "metric"
FROM
    "flights"
WHERE
    "departed" >= 1356998400000 AND "departed" < 1357084800000
    AND ("origin" = 'JFK')
GROUP BY
    "carrier",
    "time"
ORDER BY
    "time" DESC,
    "metric" ASC
LIMIT 100000;"""
OPTIONS = ["SET timeoutMs=5000;\n{}", "{}\nSET timeoutMs=5000;"]


@pytest.mark.parametrize("path", ["/mytables", "/timeseries/api/v1/query_range"])
def test_paths_that_it_probes_for_other_features_are_not_there(node: Address, path: str) -> None:
    """Another status on HEAD makes it use them."""
    assert httpx.head(f"{node.url}{path}").status_code == 404
    assert httpx.get(f"{node.url}{path}").status_code == 404


def test_health_check_finds_tables_and_a_constant(node: Address) -> None:
    assert httpx.get(f"{node.url}/tables", headers={"Accept": "application/json"}).json() == {"tables": ["flights"]}
    assert rows_of(node, "SELECT 1") == [[1]]


def test_databases_and_their_header(node: Address) -> None:
    assert httpx.get(f"{node.url}/databases").json() == ["default"]
    assert httpx.get(f"{node.url}/tables", headers={"Database": "default"}).json() == {"tables": ["flights"]}


def test_table_config_is_by_type(node: Address) -> None:
    (config,) = httpx.get(f"{node.url}/tables/flights").json().values()
    assert (config["tableName"], config["tableType"]) == ("flights_OFFLINE", "OFFLINE")


def test_schema_has_the_format_of_the_time_column(node: Address) -> None:
    """Of TIMESTAMP columns it knows this form alone, and converts them as milliseconds since the epoch."""
    schema = httpx.get(f"{node.url}/tables/flights/schema").json()
    (time,) = schema["dateTimeFieldSpecs"]
    assert (time["name"], time["dataType"], time["format"]) == ("departed", "TIMESTAMP", "TIMESTAMP")
    assert {one["name"] for one in schema["metricFieldSpecs"]} == {"delay", "distance", "load"}


def test_metadata_counts_rows_and_bytes(node: Address) -> None:
    metadata = httpx.get(f"{node.url}/tables/flights/metadata").json()
    assert (metadata["numRows"], metadata["numSegments"]) == (NUM_ROWS, NUM_SEGMENTS)
    assert metadata["diskSizeInBytes"] > 0


@pytest.mark.parametrize("form", OPTIONS, ids=["options before", "options after"])
def test_time_series_of_its_builder(node: Address, form: str) -> None:
    table = answer_of(node, form.format(SERIES))["resultTable"]
    assert table["dataSchema"]["columnNames"] == ["airline", "time", "metric"]
    assert table["dataSchema"]["columnDataTypes"] == ["STRING", "LONG", "DOUBLE"]
    assert table["rows"] == [
        ["B6", 1357000200000, 60.0],
        ["UA", 1357000200000, 90.0],
        ["UA", 1356999300000, 64.0],
        ["B6", 1356999300000, 72.0],
        ["UA", 1356998400000, 6.0],
        ["B6", 1356998400000, 8.0],
    ]


def test_values_of_a_variable(node: Address) -> None:
    sql = 'SELECT DISTINCT "carrier" FROM "flights" WHERE "departed" >= 1356998400000 ORDER BY "carrier" ASC LIMIT 100;'
    assert rows_of(node, sql) == [["AA"], ["B6"], ["DL"], ["UA"]]

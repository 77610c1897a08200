"""What Metabase's Pinot driver asks: all of it of the controller."""

from typing import Any

import httpx
import pytest
from tests.clients.asking import rows_of
from tests.clients.flights_node import ROWS_PER_SEGMENT, Address

OPTIONS = "timeoutMs=30000"
DAY = "DATETRUNC('day', \"departed\", 'MILLISECONDS', '{zone}', 'MILLISECONDS')"


def test_connection_is_tried_by_health(node: Address) -> None:
    response = httpx.get(f"{node.url}/health", headers={"Authorization": "Basic dTpw", "database": "default"})
    assert (response.status_code, response.text) == (200, "OK")


def test_version_is_that_of_pinots_uploader(node: Address) -> None:
    assert httpx.get(f"{node.url}/version").json()["pinot-segment-uploader-default"]


def test_sync_lists_tables_and_fields(node: Address) -> None:
    headers = {"Content-Type": "application/json;charset=UTF-8"}
    assert httpx.get(f"{node.url}/tables", headers=headers).json()["tables"] == ["flights"]
    schema = httpx.get(f"{node.url}/tables/flights/schema", headers=headers).json()
    fields = [*schema["dimensionFieldSpecs"], *schema["metricFieldSpecs"], *schema["dateTimeFieldSpecs"]]
    assert len({one["name"] for one in fields}) == 11
    assert all({"name", "dataType"} <= one.keys() for one in fields)
    assert schema["dateTimeFieldSpecs"][0]["granularity"]


@pytest.mark.parametrize(
    ("zone", "rows"),
    [
        ("UTC", [[1356998400000, ROWS_PER_SEGMENT], [1357084800000, ROWS_PER_SEGMENT]]),
        ("America/New_York", [[1356930000000, ROWS_PER_SEGMENT], [1357016400000, ROWS_PER_SEGMENT]]),
    ],
)
def test_question_by_day_in_a_time_zone(node: Address, zone: str, rows: list[list[Any]]) -> None:
    day = DAY.format(zone=zone)
    sql = f'SELECT {day} AS "departed__day", COUNT(*) AS count FROM flights GROUP BY {day} ORDER BY {day} asc LIMIT 2'
    assert rows_of(node, sql, OPTIONS, "/sql") == rows


def test_question_with_filters_and_a_page(node: Address) -> None:
    sql = (
        'SELECT "carrier", "delay" FROM flights WHERE (("delay" BETWEEN 3 AND 30 AND LOWER("carrier") LIKE \'%a%\') '
        'AND "origin" != \'EWR\') ORDER BY "delay" desc, "departed" asc LIMIT 3, 2'
    )
    assert rows_of(node, sql, OPTIONS, "/sql") == [["UA", 26], ["UA", 26]]


def test_cancelling_is_not_found_as_in_pinot(node: Address) -> None:
    assert httpx.delete(f"{node.url}/pinot/v2/17").status_code == 404

"""Pinot's JDBC driver and Java client, 1.2.0, work against a node as they do against Pinot."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients import java_jars
from tests.clients.flights_node import NUM_ROWS, NUM_SEGMENTS, Address

pytestmark = pytest.mark.timeout(600)  # the first run on a machine fetches jars

PROGRAM = Path(__file__).with_name("PinotClients.java")
RUN_TIMEOUT_S = 240
OF_A_CARRIER = NUM_ROWS // 4
Told = Callable[[str], str]


@pytest.fixture(scope="module")
def told(node: Address) -> Told:
    """What the program printed under a name."""
    java, jars, address = java_jars.compiler(), java_jars.class_path(), f"{node.host}:{node.port}"
    command = [java, "-Duser.timezone=UTC", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM), address, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t", 1) for line in done.stdout.splitlines()).__getitem__


def test_jdbc_lists_tables_and_columns(told: Told) -> None:
    assert told("jdbc.tables") == "[flights]"
    types = {
        "departed": "TIMESTAMP",
        "carrier": "STRING",
        "stops": "STRING",
        "cancelled": "BOOLEAN",
        "notes": "JSON",
        "tag": "BYTES",
        "fare": "BIG_DECIMAL",
        "delay": "INT",
        "distance": "LONG",
        "load": "DOUBLE",
    }
    assert {name: told(f"jdbc.column.{name}") for name in types} == types


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timestamp", "2013-01-01 00:01:00.0"),
        ("string", "B6"),
        ("boolean", "false"),
        ("json", '{"gate": 1}'),
        ("bytes", "01"),
        ("decimal", "1.25"),
        ("int", "-4"),
        ("long", "100"),
        ("double", "0.125"),
        ("list", '["ORD","DEN"]'),
    ],
)
def test_jdbc_reads_a_value_of_every_type(told: Told, name: str, value: str) -> None:
    assert told(f"jdbc.{name}") == value


def test_jdbc_knows_the_types_of_columns(told: Told) -> None:
    assert told("jdbc.types") == (
        "[departed TIMESTAMP, carrier STRING, cancelled BOOLEAN, notes JSON, tag BYTES, fare BIG_DECIMAL, delay INT, "
        "distance LONG, load DOUBLE, stops STRING_ARRAY]"
    )


def test_jdbc_gets_all_rows_no_rows_and_a_constant(told: Told) -> None:
    assert told("jdbc.all_rows") == str(NUM_ROWS)
    assert told("jdbc.no_rows") == "[]"
    assert told("jdbc.constant") == "[[1]]"


def test_jdbc_fills_in_parameters(told: Told) -> None:
    assert told("jdbc.prepared") == "[[8, 30.0]]"


def test_jdbc_sends_its_properties_as_options(told: Told) -> None:
    assert told("jdbc.options") == f"[[{NUM_ROWS * NUM_SEGMENTS}]]"


def test_jdbc_raises_with_pinots_code(told: Told) -> None:
    assert error_code(told("jdbc.error")) == 710


@pytest.mark.parametrize("found_by", ["controller", "brokers"])
def test_java_client_finds_brokers_and_reads_answers(told: Told, found_by: str) -> None:
    miles = {"AA": "54000.0", "B6": "57000.0", "DL": "60000.0", "UA": "63000.0"}
    groups = ", ".join(f"[{carrier}, {OF_A_CARRIER}, {total}]" for carrier, total in miles.items())
    assert told(f"{found_by}.groups") == f"[{groups}]"
    assert told(f"{found_by}.of_table") == f"[[{NUM_ROWS}]]"
    assert told(f"{found_by}.async") == "[[-5.0]]"
    assert told(f"{found_by}.two_tables") == f"[[{NUM_ROWS * NUM_SEGMENTS}]]"
    assert told(f"{found_by}.prepared") == "[[51]]"
    assert told(f"{found_by}.stats") == f"{NUM_ROWS} {NUM_SEGMENTS} 1 1"


@pytest.mark.parametrize("found_by", ["controller", "brokers"])
def test_java_client_raises_with_pinots_code(told: Told, found_by: str) -> None:
    assert error_code(told(f"{found_by}.error")) == 150


def test_java_client_can_hand_over_exceptions_instead(told: Told) -> None:
    assert told("brokers.tolerated") == "1 exceptions, 0 results"


def error_code(message: str) -> int:
    """Of the client's message, which ends with the exceptions as JSON."""
    (problem,) = json.loads(message.removeprefix("Query had processing exceptions: "))
    code: int = problem["errorCode"]
    return code

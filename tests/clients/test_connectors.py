"""What Trino's connector and Pinot's Spark connector ask before they read, and the brokers that both find."""

import re
from typing import Any

import httpx
from tests.clients.asking import answer_of
from tests.clients.flights_node import NUM_ROWS, Address

TRINOS_BROKER = re.compile(r"Broker_(.*)_(\d+)")


def fetched(node: Address, path: str) -> Any:
    response = httpx.get(f"{node.url}{path}", headers={"Accept": "application/json"})
    assert response.status_code == 200
    return response.json()


def test_trino_lists_tables_and_reads_a_schema(node: Address) -> None:
    assert fetched(node, "/tables") == {"tables": ["flights"]}
    schema = fetched(node, "/tables/flights/schema")
    lists = [one["name"] for one in schema["dimensionFieldSpecs"] if not one["singleValueField"]]
    assert lists == ["stops"]


def test_trino_finds_a_broker_in_its_instances(node: Address) -> None:
    brokers = fetched(node, "/tables/flights/instances")["brokers"]
    (found,) = {TRINOS_BROKER.fullmatch(name) for one in brokers for name in one["instances"]}
    assert found is not None
    assert found.groups() == (node.host, str(node.port))


def test_trino_pushes_a_query_to_the_broker(node: Address) -> None:
    """Its payload has a space before the end, and it counts the servers that answered."""
    content = """{"sql" : "SELECT 'carrier', count('*') FROM flights GROUP BY 'carrier' LIMIT 10" }"""
    body = content.replace("'", '\\"')
    answer = httpx.post(f"{node.url}/query/sql", content=body, headers={"Content-Type": "application/json"}).json()
    assert answer["numServersResponded"] == answer["numServersQueried"] == 1
    assert sorted(answer["resultTable"]["rows"]) == [[name, 30] for name in ("AA", "B6", "DL", "UA")]


def test_tables_of_one_part_have_no_time_boundary(node: Address) -> None:
    assert httpx.get(f"{node.url}/debug/timeBoundary/flights").status_code == 404


def test_spark_finds_brokers_of_a_table(node: Address) -> None:
    """It takes a host that is text and a port that is a number."""
    (broker,) = fetched(node, "/v2/brokers/tables/flights")
    assert (broker["host"], broker["port"]) == (node.host, node.port)
    assert fetched(node, "/tables/livebrokers?tables=flights") == {"flights_OFFLINE": [broker]}
    assert fetched(node, "/tables/livebrokers?tables=planes") == {}


def test_spark_reads_every_instance(node: Address) -> None:
    """It takes a port that is text and a gRPC port that is a number."""
    names = fetched(node, "/instances")["instances"]
    assert {name.partition("_")[0] for name in names} >= {"Broker", "Server", "Controller"}
    for name in names:
        instance = fetched(node, f"/instances/{name}")
        assert instance["instanceName"] == name
        assert (type(instance["hostName"]), type(instance["port"]), type(instance["grpcPort"])) == (str, str, int)


def test_pinots_console_and_cli_post_sql(node: Address) -> None:
    body = {"sql": "SELECT COUNT(*) FROM flights", "trace": False, "queryOptions": "timeoutMs=10000"}
    for path in ("/sql", "/query/sql", "/query"):
        answer = httpx.post(f"{node.url}{path}", json=body).json()
        assert answer["resultTable"]["rows"] == [[NUM_ROWS]]
        assert answer["exceptions"] == []
    assert answer_of(node, "SELECT COUNT(*) FROM flights", path="/sql")["traceInfo"] == {}

"""Places that a Table of a namespace may name, by the operator's environment."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.pool_parts import DEMAND

from merlot.errors import InvalidInputError
from merlot.spec.manifest import load_document
from merlot.spec.table import Table
from merlot_operator import restrictions
from merlot_operator.allowed_places import NotAllowedError, check_places, places_problem
from merlot_operator.config import Config, RoleSize, from_environment
from merlot_operator.desired.demand import ClusterDemand
from merlot_operator.manifests.cluster import cluster_objects
from merlot_operator.manifests.pool import pool_objects

ENVIRONMENT = {
    "MERLOT_METASTORE": "zk://zk:2181/m",
    "MERLOT_DEEP_STORE": "s3://deep/merlot?endpoint_override=minio:9000",
    "MERLOT_DEEP_STORE_PREFIXES": "s3://teams/{namespace}?region=eu-west-1 file:///deep",
    "MERLOT_SOURCE_PREFIXES": "file:///incoming/{namespace}",
    "MERLOT_STREAM_HOSTS": "kafka.{namespace}.svc:9092, *.brokers.example",
    "MERLOT_RUNTIME_IMAGE": "r:1",
    "MERLOT_SPARK_IMAGE": "s:1",
}


@pytest.fixture
def config() -> Config:
    return from_environment(ENVIRONMENT)


VARIABLES = {
    "streams.hosts": "MERLOT_STREAM_HOSTS",
    "sources.prefixes": "MERLOT_SOURCE_PREFIXES",
    "deepStore.prefixes": "MERLOT_DEEP_STORE_PREFIXES",
}
"""What the chart makes of its values."""
EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*/table.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_example_says_what_of_the_chart_has_to_allow_it(path: Path) -> None:
    """With the chart's defaults it is accepted if it says nothing, and refused by the value that it names otherwise."""
    text = path.read_text()
    told = dict(re.findall(r"--set '([\w.]+)=\{(\S+)\}'", text.partition("apiVersion:")[0]))
    declared = {**yaml.safe_load(text)}
    declared["metadata"]["namespace"] = "n"
    defaults = ENVIRONMENT | dict.fromkeys(VARIABLES.values(), "")
    problem = places_problem(load_document(declared), from_environment(defaults), "n")
    if not told:
        assert problem is None
        return
    assert problem is not None
    assert all(f"{value} of the chart" in problem for value in told)
    allowed = from_environment(defaults | {VARIABLES[value]: given for value, given in told.items()})
    check_places(load_document(declared), allowed, "n")
    assert not list(restrictions.problems(declared["spec"], allowed))


def table(**spec: Any) -> Table:
    return load_document(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": "orders"},
            "spec": {"schema": {"fields": [{"name": "a", "type": "INT"}]}, **spec},
        }
    )


def batches(*uris: str) -> dict[str, Any]:
    return {"batch": [{"name": f"b{number}", "sourceUri": uri, "format": "CSV"} for number, uri in enumerate(uris)]}


def test_a_namespace_has_its_own_folders_and_no_other_s(config: Config) -> None:
    for uri in ("s3://deep/merlot/shop/x?endpoint_override=minio:9000", "s3://teams/shop/x", "file:///deep/x"):
        check_places(table(deepStore={"uri": uri}), config, "shop")
    for uri in ("s3://deep/merlot/bank?endpoint_override=minio:9000", "s3://teams/bank", "s3://teams", "file:///"):
        with pytest.raises(NotAllowedError, match=r"spec\.deepStore\.uri: deep store is not allowed"):
            check_places(table(deepStore={"uri": uri}), config, "shop")


def test_a_folder_of_growing_files_is_a_place_too(config: Config) -> None:
    def streaming(folder: str) -> Table:
        # Past the checks of manifests, as what another version has stored.
        declared = table().model_dump(by_alias=True, mode="json", exclude_none=True)
        declared["spec"]["ingestion"] = {"stream": {"type": "files", "topic": folder}}
        return Table.model_validate(declared)

    check_places(streaming("/incoming/shop/clicks"), config, "shop")
    with pytest.raises(NotAllowedError, match=r"spec\.ingestion\.stream\.topic: folder is not allowed"):
        check_places(streaming("/etc"), config, "shop")


def test_a_namespace_consumes_from_its_own_brokers_and_no_other_s(config: Config) -> None:
    def streaming(servers: str) -> Table:
        stream = {"type": "kafka", "topic": "t", "properties": {"bootstrap.servers": servers}}
        return table(ingestion={"stream": stream})

    for servers in ("kafka.shop.svc:9092", "kafka.shop.svc", "a.brokers.example:1,b.brokers.example:2"):
        check_places(streaming(servers), config, "shop")
    for servers in ("kafka.bank.svc:9092", "kafka.shop.svc:22", "kafka.shop.svc:9092,evil:9092"):
        with pytest.raises(
            NotAllowedError, match=r"spec\.ingestion\.stream\.properties\.bootstrap\.servers: host is not"
        ):
            check_places(streaming(servers), config, "shop")
    none = from_environment({**ENVIRONMENT, "MERLOT_STREAM_HOSTS": ""})
    with pytest.raises(NotAllowedError, match="it must be none"):
        check_places(streaming("kafka.shop.svc:9092"), none, "shop")


def test_every_place_that_is_not_allowed_is_named(config: Config) -> None:
    sources = ("s3://lake/x", "s3://lake/x?endpoint_override=minio:9000", "file:///incoming/shop/*.csv")
    check_places(table(ingestion=batches(*sources)), config, "shop")
    wrong = table(
        deepStore={"uri": "s3://deep/x?endpoint_override=evil"},
        ingestion=batches("s3://lake/x", "file:///etc/passwd", "s3://lake/x?endpoint_override=evil:80"),
    )
    with pytest.raises(NotAllowedError) as refused:
        check_places(wrong, config, "shop")
    for path in ("spec.deepStore.uri", "spec.ingestion.batch[1].sourceUri", "spec.ingestion.batch[2].sourceUri"):
        assert f"{path}: " in str(refused.value)
    assert "batch[0]" not in str(refused.value)


def test_pods_that_open_deep_stores_are_told_the_prefixes(config: Config) -> None:
    demand = ClusterDemand(
        namespace="shop", tables=("orders",), controller=RoleSize(), broker=RoleSize(), minion=RoleSize()
    )
    objects = cluster_objects(demand, config, 1)
    told = {
        one["metadata"]["name"]: [
            argument
            for argument in one["spec"]["template"]["spec"]["containers"][0]["args"]
            if argument.startswith("--deep-store-prefix")
        ]
        for one in objects
        if one["kind"] == "Deployment"
    }
    prefixes = ["--deep-store-prefix=s3://teams/shop?region=eu-west-1", "--deep-store-prefix=file:///deep"]
    assert told == {"merlot-controller": prefixes, "merlot-broker": [], "merlot-minion": prefixes}


def test_servers_and_controllers_are_told_the_folders_of_streams(config: Config) -> None:
    """Those among the sources, and nothing where there are none: pods of such clusters keep their arguments."""

    def told(config: Config) -> dict[str, list[str]]:
        pool = pool_objects(replace(DEMAND, namespace="shop"), config, 1)
        roles = ClusterDemand(
            namespace="shop", tables=("orders",), controller=RoleSize(), broker=RoleSize(), minion=RoleSize()
        )
        pods = [
            one["spec"]["template"]["spec"]["containers"][0]
            for one in [*pool, *cluster_objects(roles, config, 1)]
            if one["kind"] in ("Deployment", "StatefulSet")
        ]
        return {pod["name"]: [text for text in pod["args"] if text.startswith("--stream-folders")] for pod in pods}

    more = "s3://lake/x file:///incoming/{namespace} file:///a,/etc hdfs://h/x file:///b%20c"
    folders = ["--stream-folders=/incoming/shop,/b c"]
    assert told(from_environment({**ENVIRONMENT, "MERLOT_SOURCE_PREFIXES": more})) == {
        "server": folders,
        "controller": folders,
        "broker": [],
        "minion": [],
    }
    assert set(map(tuple, told(from_environment({**ENVIRONMENT, "MERLOT_SOURCE_PREFIXES": ""})).values())) == {()}


@pytest.mark.parametrize("variable", ["MERLOT_DEEP_STORE_PREFIXES", "MERLOT_SOURCE_PREFIXES"])
@pytest.mark.parametrize("uri", ["s3://KEY:hush@b/x", "s3://b/x?secret_key=hush", "file:///x/../y"])
def test_prefixes_are_plain_places(variable: str, uri: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        from_environment({**ENVIRONMENT, variable: uri})
    assert "hush" not in str(refused.value)

"""A real API server takes the CRD and the examples, and refuses wrong manifests with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.operator_parts import Api

from merlot.spec import manifest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights" / "table.yaml"


@pytest.fixture
def stored(api: Api) -> Api:
    """A namespace that holds the flights table."""
    api.create("tables", yaml.safe_load(FLIGHTS.read_text()))
    return api


@pytest.fixture
def flights(merlot_api: Any, stored: Api) -> Any:
    """kubectl in that namespace."""
    return merlot_api.within(stored.namespace)


def refusal(api: Api, text: str) -> str:
    """What the API server says against a manifest, of a new table or of one that is there."""
    table = yaml.safe_load(text)
    there = api.get("tables", table["metadata"]["name"]) is not None
    return api.change_refusal("tables", table) if there else api.refusal("tables", table)


def edited(*edits: tuple[str, str]) -> str:
    text = FLIGHTS.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/table.yaml")), ids=lambda path: path.parent.name)
def test_example_is_accepted(api: Api, path: Path) -> None:
    assert refusal(api, path.read_text()) == ""


def test_what_is_applied_again_is_unchanged(merlot_api: Any, api: Api) -> None:
    kubectl = merlot_api.within(api.namespace)
    files = [f"--filename={path}" for path in sorted(ROOT.glob("examples/*/*.yaml"))]
    kubectl.check("apply", *[one for one in files if "by-day" not in one])
    again = kubectl.check("apply", *[one for one in files if "by-day" not in one]).splitlines()
    assert {one.rpartition(" ")[2] for one in again} == {"unchanged"}


def test_an_object_that_an_older_definition_filled_in_may_lose_what_it_filled_in(stored: Api) -> None:
    table = yaml.safe_load(FLIGHTS.read_text())
    for column in table["spec"]["schema"]["fields"]:
        column |= {"role": column.get("role", "dimension"), "multiValue": False}
    assert stored.change_refusal("tables", table) == ""
    stored.patch("tables", "flights", {"spec": {"schema": table["spec"]["schema"]}})
    assert stored.change_refusal("tables", yaml.safe_load(FLIGHTS.read_text())) == ""


def test_stored_object_means_what_the_manifest_means(flights: Any) -> None:
    [declared] = manifest.load(FLIGHTS.read_text())
    stored = manifest.load_document(json.loads(flights.check("get", "tbl/flights", "-o", "json")))
    assert stored.spec == declared.spec
    header, row = flights.check("get", "merlot").splitlines()
    assert header.split() == ["NAME", "READY", "SEGMENTS", "DOCS", "SIZE", "BROKERS", "SERVERS", "AGE"]
    assert row.removeprefix("table.merlot.dev/").startswith("flights ")


def test_status_is_kept_apart(flights: Any) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"segments": 366, "totalDocs": 336776, "size": "9.1 MiB", "brokers": "1/1", "servers": "2/2"}
    patch = json.dumps({"status": {**status, "conditions": [ready]}})
    flights.check("patch", "tbl/flights", "--subresource=status", "--type=merge", "-p", patch)
    _, row = flights.check("get", "tbl").splitlines()
    assert row.split()[:8] == ["flights", "True", "366", "336776", "9.1", "MiB", "1/1", "2/2"]
    reread = manifest.load_document(json.loads(flights.check("get", "tbl/flights", "-o", "json")))
    assert reread.metadata.name == "flights"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("tailnum, type: STRING", "tailnum, type: STRNG"), 'Unsupported value: "STRNG"'),
        (("replication: 1", "replication: 0"), "should be greater than or equal to 1"),
        (("replication: 1", "replicas: 1"), 'unknown field "spec.replicas"'),
        (("timeColumn: time_hour", "timeColumn: hour"), "timeColumn must be one of schema.fields, with role: dateTime"),
        (("replication: 1", "retention: 30 days"), "should match"),
        (
            ("replication: 1", "ingestion: {batch: [{sourceUri: /x, format: JSON, csv: {}}]}"),
            "csv goes with format: CSV",
        ),
        (("replication: 1", "deepStore: {uri: ftp://x}"), "a deep store is s3://bucket/path"),
        (("replication: 1", "deletionPolicy: Keep"), 'Unsupported value: "Keep"'),
        (("replication: 1", "ingestion: {batch: [{sourceUri: x, format: JSON, job: {deadline: 6}}]}"), "deadline"),
        (("replication: 1", "tenants: {server: {resources: {storage: 10 GB}}}"), "should match"),
        (("replication: 1", "routing: {segmentPruners: [tmie]}"), "unknown segment pruner"),
        (("dep_delay, type: INT", "dep_delay, multiValue: true, type: INT"), "only a dimension can be multi-valued"),
        (("dep_delay, type: INT", "dep_delay, format: TIMESTAMP, type: INT"), "only a dateTime column has a format"),
        (("name: tailnum", "name: carrier"), "Duplicate value"),
        *(
            (("name: tailnum", f"name: {name}"), "should match")
            for name in ("tail num", "$tailnum", "'*'", '"tail\\x00"')
        ),
    ],
)
def test_wrong_manifest_is_refused(api: Api, edit: tuple[str, str], message: str) -> None:
    refused = refusal(api, edited(edit))
    assert message in refused
    with pytest.raises(manifest.ManifestError):
        manifest.load(edited(edit))


def with_tree(**changed: Any) -> str:
    """The flights table with a star-tree."""
    tree = {"dimensionsSplitOrder": ["carrier", "origin"], "functionColumnPairs": ["SUM__distance"], **changed}
    return edited(("  indexing:\n", f"  indexing:\n    starTreeIndexConfigs: [{json.dumps(tree)}]\n"))


@pytest.mark.parametrize(
    "name", ["payload.id", "__metadata$offset", "a||b", '"x`y\\', "f(x),y", "größe", "1-%2C", "it's"]
)
def test_columns_of_any_name_are_accepted_wherever_columns_are_named(api: Api, name: str) -> None:
    table = yaml.safe_load(FLIGHTS.read_text())
    spec = table["spec"]
    spec["schema"]["fields"] += [{"name": name, "type": "STRING"}, {"name": f"{name}.at", "type": "TIMESTAMP"}]
    spec["schema"]["primaryKey"] = [name]
    quoted = '"' + name.replace('"', '""') + '.at"'
    tree = {"dimensionsSplitOrder": [name, f"DATETRUNC('DAY', {quoted})"], "functionColumnPairs": [f"MAX__{name}.at"]}
    spec["indexing"] |= {
        "inverted": [name],
        "bloom": [name],
        "bloomFpp": {name: 0.01},
        "compression": {name: "ZSTD"},
        "timestampGranularities": {f"{name}.at": ["DAY"]},
        "starTreeIndexConfigs": [tree],
    }
    assert api.refusal("tables", table) == ""
    manifest.load_document(table)


TREE = "spec.indexing.starTreeIndexConfigs[0]"


@pytest.mark.parametrize(
    ("changed", "path", "message"),
    [
        ({"dimensionsSplitOrder": ["carrier", "origin", "carrier"]}, "dimensionsSplitOrder[2]", "Duplicate value"),
        ({"dimensionsSplitOrder": [f"c{n}" for n in range(65)]}, "dimensionsSplitOrder", "must have at most 64 items"),
        ({"dimensionsSplitOrder": []}, "dimensionsSplitOrder", "should have at least 1 items"),
        ({"functionColumnPairs": []}, "functionColumnPairs", "should have at least 1 items"),
        (
            {"skipStarNodeCreationForDimensions": ["origin", "dest"]},
            "skipStarNodeCreationForDimensions",
            "not in dimensionsSplitOrder",
        ),
    ],
)
def test_a_broken_star_tree_is_refused_with_its_path(
    api: Api, changed: dict[str, Any], path: str, message: str
) -> None:
    """What names and types of columns decide is the operator's to refuse."""
    assert refusal(api, with_tree()) == ""
    refused = refusal(api, with_tree(**changed))
    assert f"{TREE}.{path}: " in refused
    assert message in refused
    with pytest.raises(manifest.ManifestError):
        manifest.load(with_tree(**changed))


@pytest.mark.parametrize(
    "uri",
    ["s3://KEY:hush@bucket/x", "s3://hush@bucket/x", "s3://bucket/x?region=eu&secret_key=hush", "hdfs://u:hush@host/x"],
)
@pytest.mark.parametrize("field", ["deepStore: {uri: '%s'}", "ingestion: {batch: [{sourceUri: '%s', format: JSON}]}"])
def test_a_uri_with_credentials_is_refused_and_not_repeated(api: Api, field: str, uri: str) -> None:
    wrong = edited(("replication: 1", field % uri))
    refused = refusal(api, wrong)
    assert "a URI holds no credentials" in refused
    assert "hush" not in refused
    with pytest.raises(manifest.ManifestError, match="a URI holds no credentials") as problems:
        manifest.load(wrong)
    assert "hush" not in str(problems.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("tenants: {server: {replicas: 2}}\n  replication: 3", "at least as many servers as replication, or none"),
        ("tenants: {server: {name: own-flights}}", "names of servers that belong to one table"),
        ("upsert: {configRef: latest}", "an upsert table needs schema.primaryKey"),
    ],
)
def test_manifest_that_only_a_cluster_cannot_take_is_refused(api: Api, edit: str, message: str) -> None:
    refused = refusal(api, edited(("replication: 1", edit)))
    assert message in refused


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([("timeColumn: time_hour\n", "\n")], "timeColumn cannot change"),
        ([("pushType: APPEND", "pushType: REFRESH")], "pushType cannot change"),
        ([("replication: 1", "upsert: {configRef: x}")], "a table cannot become an upsert table"),
        ([("flight, type: INT", "flight, type: STRING")], "can only be widened without loss"),
        ([("distance, type: INT, role: metric", "distance, type: INT")], "the role of a column cannot change"),
        ([("tailnum, type: STRING", "tailnum, multiValue: true, type: STRING")], "multiValue cannot change"),
    ],
)
def test_change_of_what_is_fixed_is_refused(stored: Api, edits: list[tuple[str, str]], message: str) -> None:
    refused = refusal(stored, edited(*edits))
    assert message in refused


def test_an_autoscaler_finds_a_number_that_nobody_wrote(stored: Api) -> None:
    assert "replicas" not in FLIGHTS.read_text()
    assert stored.get("tables", "flights/scale")["spec"] == {"replicas": 1}
    assert refusal(stored, edited(("replication: 1", "replication: 3"))) == ""


def test_servers_are_scaled_by_kubectl(flights: Any) -> None:
    flights.check("scale", "tbl/flights", "--replicas=3")
    assert flights.check("get", "tbl/flights", "-o", "jsonpath={.spec.tenants.server.replicas}") == "3"


def test_column_can_be_added_and_widened(stored: Api) -> None:
    text = edited(
        ("flight, type: INT", "flight, type: LONG"),
        ("      # Which flight", "      - { name: tags, type: STRING, multiValue: true }\n      # Which flight"),
        ("replication: 1", "replication: 2"),
    )
    assert refusal(stored, text) == ""


def stream(
    more: str = "", source: str = "type: kafka, topic: t", properties: str = "bootstrap.servers: 'a:9092'"
) -> str:
    declared = f"ingestion: {{stream: {{{source}, properties: {{{properties}}}{more}}}}}"
    return edited(("replication: 1", declared))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (stream(properties="sasl.password: hush"), "secrets belong into the Secret that secretRef names"),
        (stream(properties="group.id: g"), "is not for a table to set"),
        (stream(properties="sasl.kerberos.kinit.cmd: reboot"), "is not for a table to set"),
        (stream(source="type: kafka"), "kafka needs a topic"),
        (stream(", decoder: {type: XML}"), 'Unsupported value: "XML"'),
        (stream(", start: soon"), "should match"),
    ],
)
def test_wrong_stream_is_refused(api: Api, wrong: str, message: str) -> None:
    refused = refusal(api, wrong)
    assert message in refused
    with pytest.raises(manifest.ManifestError):
        manifest.load(wrong)


def test_stream_that_is_consumed_stays_where_its_offsets_are(stored: Api) -> None:
    stored.replace("tables", yaml.safe_load(stream()))
    assert refusal(stored, stream(", badMessages: stop")) == ""
    for other in (
        stream(source="type: kafka, topic: u"),
        stream(source="type: files, topic: t"),
        stream(", start: latest"),
    ):
        assert "cannot change, since segments hold offsets" in refusal(stored, other)
    assert "a table keeps its stream" in refusal(stored, FLIGHTS.read_text())

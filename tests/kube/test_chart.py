"""The chart: what it renders, what it refuses, and that what it renders is what the API server and the house take.

`MERLOT_UPDATE_GOLDEN=1 pytest tests/kube/test_chart.py` writes the golden files anew.
"""

import functools
import itertools
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.operator_parts import Api

from merlot_operator import rights
from merlot_operator.config import from_environment

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "merlot"
GOLDEN = Path(__file__).parent / "chart"
STORE = {"deepStore": {"uri": "s3://bucket/merlot?region=eu-west-1"}}
CASES: dict[str, dict[str, Any]] = {
    "least": STORE,
    "all": {
        "scope": {"clusterWide": True},
        "images": {"registry": "registry.example.com/", "tag": "1.2.3", "pullSecrets": ["registry"]},
        "zookeeper": {"bundled": False, "address": "zk-0.zk:2181,zk-1.zk:2181"},
        "deepStore": {
            **STORE["deepStore"],
            "credentials": {"AWS_ACCESS_KEY_ID": "one"},
            "tableSecrets": ["team-*", "lake"],
        },
        "podTemplates": {"unrestricted": True},
        "operator": {"nodeSelector": {"pool": "system"}, "podAnnotations": {"team": "data"}},
        "monitoring": {"serviceMonitor": True, "labels": {"release": "prometheus"}},
    },
    "namespaces": {
        **STORE,
        "scope": {"namespaces": ["a", "b"]},
        "spark": {"executors": False},
        "crds": {"install": False},
        "deepStore": {**STORE["deepStore"], "tableSecrets": []},
    },
}
REFUSED = [
    ({}, "deepStore.uri: say where segment files are kept"),
    ({"deepStore": {"uri": "http://x"}}, "/deepStore/uri"),
    ({"deepStore": {"uri": "s3://KEY:hush@bucket/x"}}, "/deepStore/uri"),
    ({"deepStore": {"uri": "s3://bucket/x?secret_key=hush"}}, "/deepStore/uri"),
    ({"deepStore": {**STORE["deepStore"], "prefixes": ["s3://KEY:hush@bucket/x"]}}, "/deepStore/prefixes/0"),
    ({**STORE, "sources": {"prefixes": ["/data"]}}, "/sources/prefixes/0"),
    ({**STORE, "zookeeper": {"bundled": False}}, "zookeeper.address: name your ZooKeeper"),
    ({**STORE, "zookeeper": {"bundled": False, "address": "zk"}}, "/zookeeper/address"),
    ({**STORE, "zookeper": {"bundled": False}}, "zookeper"),
    ({**STORE, "sizes": {"broker": {"replicas": -1}}}, "/sizes/broker/replicas"),
    ({**STORE, "sizes": {"server": {"resources": {"storage": "lots"}}}}, "/sizes/server/resources/storage"),
    ({**STORE, "images": {"pullPolicy": "Sometimes"}}, "/images/pullPolicy"),
]


def render(helm: Path, values: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `helm template` says; the same values are rendered once."""
    return _rendered(helm, yaml.safe_dump(values), arguments)


@functools.cache
def _rendered(helm: Path, values: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "merlot", CHART, "--namespace=merlot", "--values=-", *arguments]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=60, check=False)


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def test_lint(helm: Path) -> None:
    command = [helm, "lint", "--strict", CHART, "--set", "deepStore.uri=s3://bucket/merlot"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", CASES)
def test_rendered_as_before(helm: Path, name: str) -> None:
    done = render(helm, CASES[name])
    assert done.returncode == 0, done.stderr
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("MERLOT_UPDATE_GOLDEN"):
        golden.write_text(done.stdout)
    assert done.stdout == golden.read_text(), "intended? MERLOT_UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_wrong_values_are_refused_by_name(helm: Path, values: dict[str, Any], message: str) -> None:
    done = render(helm, values)
    assert done.returncode != 0
    assert message in done.stderr


def environment(rendered: list[dict[str, Any]]) -> dict[str, str]:
    """What the chart tells the operator."""
    (deployment,) = (one for one in rendered if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}


@pytest.mark.parametrize("name", CASES)
def test_what_is_granted_is_what_the_operator_uses(helm: Path, name: str) -> None:
    rendered = documents(render(helm, CASES[name]).stdout)
    used = rights.rules(from_environment(environment(rendered)))
    kind = "ClusterRole" if name == "all" else "Role"
    roles = [one for one in rendered if one["kind"] == kind and one["metadata"]["name"] == "merlot-operator"]
    assert len(roles) == len(CASES[name].get("scope", {}).get("namespaces", ["merlot"]))
    for role in roles:
        granted: dict[tuple[str, str], set[str]] = defaultdict(set)
        for rule in role["rules"]:
            for key in itertools.product(rule["apiGroups"], rule["resources"]):
                granted[key] |= set(rule["verbs"])
        if kind == "ClusterRole":
            # Kopf notices namespaces and definitions that come and go.
            granted["", "namespaces"] -= {"list", "watch"}
            assert granted.pop(("apiextensions.k8s.io", "customresourcedefinitions")) == {"get", "list", "watch"}
        assert granted == used


@pytest.mark.parametrize("name", CASES)
def test_the_operator_understands_its_environment(helm: Path, name: str) -> None:
    config = from_environment(environment(documents(render(helm, CASES[name]).stdout)))
    assert config.is_cluster_wide == (name == "all")
    assert config.sizes.broker.replicas == 2
    assert config.deep_store == "s3://bucket/merlot?region=eu-west-1"
    assert bool(config.spark_driver_role) == (name != "namespaces")
    assert config.has_unrestricted_templates == (name == "all")
    names = {"least": ("merlot-*",), "all": ("team-*", "lake"), "namespaces": ()}
    assert config.table_secrets == names[name]


@pytest.mark.parametrize("name", CASES)
def test_every_pod_is_restricted(helm: Path, name: str) -> None:
    for one in documents(render(helm, CASES[name]).stdout):
        template = one["spec"].get("template", {}).get("spec") if "spec" in one else None
        if template is None:
            continue
        assert template["securityContext"]["runAsNonRoot"]
        assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in template["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "latest" not in container["image"]


@pytest.mark.cluster
@pytest.mark.parametrize("name", CASES)
def test_a_restricted_namespace_takes_all_of_it(helm: Path, merlot_api: Any, api: Api, name: str) -> None:
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    merlot_api.check("label", "namespace", api.namespace, *labels)
    values = CASES[name] if name == "all" else {**CASES[name], "scope": {"namespaces": [api.namespace]}}
    rendered = documents(render(helm, values, f"--namespace={api.namespace}").stdout)
    known = [one for one in rendered if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    done = merlot_api("apply", "--dry-run=server", "-f", "-", text=yaml.safe_dump_all(known))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(known)


@pytest.mark.parametrize(
    ("scope", "is_told"),
    [
        ({}, False),
        ({"namespaces": ["merlot"]}, False),
        ({"namespaces": ["a", "b"]}, True),
        ({"clusterWide": True}, True),
    ],
)
def test_who_serves_other_namespaces_is_told_to_copy_the_secret(
    helm: Path, tmp_path: Path, scope: dict[str, Any], is_told: bool
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"deepStore": {**STORE["deepStore"], "credentials": {"ID": "1"}}, "scope": scope}))
    command = [helm, "install", "merlot", CHART, "--namespace=merlot", "--dry-run=client", "--values", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert ("Secret merlot-deep-store" in done.stdout.partition("NOTES:")[2]) == is_told

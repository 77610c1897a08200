"""What a Table may not say of its pods, nor take: refused by name, and never rendered whatever was accepted once."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.hostile_templates import VOLUMES, all_at_once, refused, taken
from tests.unit.operator.pool_parts import CONFIG
from tests.unit.operator.test_operator_demand import table

from merlot.spec import manifest
from merlot_operator.config import Config
from merlot_operator.desired.demand import cluster_demand, owner_reference, pool_demand, pool_of
from merlot_operator.manifests.batch import BatchPod, job
from merlot_operator.manifests.cluster import cluster_objects
from merlot_operator.manifests.merge import MergePod, merge_job
from merlot_operator.manifests.pool import pool_objects
from merlot_operator.reconcilers.tables import accept
from merlot_operator.restrictions import allowed, problems, without_templates

ROLES = ("server", "broker")
CASES = [(role, name) for role in ROLES for name in refused(role)]
UNRESTRICTED = dataclasses.replace(CONFIG, has_unrestricted_templates=True)
SCHEMA = {"fields": [{"name": "carrier", "type": "STRING"}]}
LEFT: dict[str, Any] = {
    "env": [{"name": "TZ", "value": "UTC"}, {"name": "STOLEN"}],
    "volumeMounts": [{"name": "tmp", "mountPath": "/mnt/a"}],
    **{name: {} for name in ("livenessProbe", "readinessProbe", "resources")},
}
BATCH = {"name": "all", "sourceUri": "s3://b/f", "format": "PARQUET", "job": {"executors": 2}}


def document(role: str, template: dict[str, Any]) -> dict[str, Any]:
    spec = {"schema": SCHEMA, "tenants": {role: {"podTemplate": template}}, "ingestion": {"batch": [BATCH]}}
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(("role", "name"), CASES)
def test_what_a_pod_may_do_is_refused_by_its_path(role: str, name: str) -> None:
    template, field = refused(role)[name]
    with pytest.raises(manifest.ManifestError) as error:
        manifest.load_document(document(role, template))
    paths = [one.path for one in error.value.problems]
    assert any(path.startswith(f"spec.tenants.{role}.podTemplate.") and field in path for path in paths), paths
    whole, *found = problems(document(role, template)["spec"], CONFIG)
    assert whole.path == f"spec.tenants.{role}.podTemplate"
    assert "podTemplates.unrestricted of the chart" in whole.message
    assert [one.path for one in found] == paths
    assert list(problems(document(role, template)["spec"], UNRESTRICTED)) == []


@pytest.mark.parametrize(("role", "name"), CASES)
def test_what_is_refused_is_taken_out_of_what_was_accepted(role: str, name: str) -> None:
    template, _ = refused(role)[name]
    before = copy.deepcopy(template)
    kept = allowed(template, role, CONFIG)
    assert kept is not None
    assert kept != template == before
    manifest.load_document(document(role, dict(kept)))
    assert allowed(template, role, UNRESTRICTED) == template


@pytest.mark.parametrize("role", ROLES)
def test_what_says_where_pods_run_is_taken_whole(role: str) -> None:
    manifest.load_document(document(role, taken(role)))
    assert list(problems(document(role, taken(role))["spec"], CONFIG)) == []
    assert allowed(taken(role), role, CONFIG) == taken(role)


def test_container_of_another_role_is_refused() -> None:
    template = {"spec": {"containers": [{"name": "broker"}]}}
    with pytest.raises(manifest.ManifestError, match="the container of these pods is server"):
        manifest.load_document(document("server", template))
    _, found = problems(document("server", template)["spec"], CONFIG)
    assert found.path == "spec.tenants.server.podTemplate.spec.containers[0]"
    assert allowed(template, "server", CONFIG) == {"spec": {"containers": []}}


def test_pods_of_a_hostile_table_are_those_of_an_honest_one() -> None:
    assert rendered(all_at_once) == rendered(honest)
    assert "nodeSelector" in rendered(honest)
    assert "evil" in rendered(all_at_once, UNRESTRICTED)


def test_servers_are_told_nothing_of_pods() -> None:
    hostile = table("a", **document("server", all_at_once("server"))["spec"])
    declared, refusal = accept(hostile)
    assert refusal is None
    assert declared is not None
    assert "podTemplate" not in yaml.safe_dump(manifest.dump(declared))
    assert hostile["spec"]["tenants"]["server"]["podTemplate"] == all_at_once("server")
    assert without_templates({"replication": 1}) == {"replication": 1, "tenants": {}}


@pytest.mark.parametrize(
    ("secret", "allowed_names", "is_taken"),
    [
        ("merlot-lake", ("merlot-*",), True),
        ("lake", ("merlot-*", "lake"), True),
        ("database-password", ("merlot-*",), False),
        ("Merlot-lake", ("merlot-*",), False),
        ("merlot-lake", (), False),
        ("deep-store", (), True),
        ("database-password", ("*",), True),
    ],
)
def test_secret_is_taken_if_its_name_is_one_that_the_chart_allows(
    secret: str, allowed_names: tuple[str, ...], is_taken: bool
) -> None:
    config = dataclasses.replace(CONFIG, deep_store_secret="deep-store", table_secrets=allowed_names)
    found = list(problems({"deepStore": {"uri": "s3://b/m", "secretRef": secret}}, config))
    assert [one.path for one in found] == ([] if is_taken else ["spec.deepStore.secretRef"])
    assert all(secret in one.message and "deepStore.tableSecrets" in one.message for one in found)
    of_stream = list(problems({"ingestion": {"stream": {"secretRef": secret}}}, config))
    is_for_streams = is_taken and secret != "deep-store"  # the keys of the cluster's own store are nobody else's
    assert [one.path for one in of_stream] == ([] if is_for_streams else ["spec.ingestion.stream.secretRef"])


def honest(role: str) -> dict[str, Any]:
    """What is left of everything at once."""
    return {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"disk": "nvme"},
            "containers": [{"name": role, **LEFT}],
            "volumes": [
                *({"name": name.lower()} for name in VOLUMES),
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
            ],
        },
    }


def rendered(template: Callable[[str], dict[str, Any]], config: Config = CONFIG) -> str:
    """Every pod of a Table whose spec was accepted."""
    spec = document("server", template("server"))["spec"]
    spec["tenants"]["broker"] = {"podTemplate": template("broker")}
    accepted = table("a", **spec)
    servers = pool_demand("n", pool_of(accepted), [accepted], config)
    cluster = cluster_demand("n", [accepted], config)
    declared, _ = accept(accepted)
    assert servers is not None
    assert cluster is not None
    assert declared is not None
    run = BatchPod(
        namespace="n",
        job="run",
        table="a",
        owner=owner_reference(accepted),
        manifest=manifest.dump(declared),
        batch=declared.spec.ingestion.batch[0],
        deep_store="s3://b/m",
        secrets=[],
        is_suspended=False,
    )
    merge = MergePod(namespace="n", table="a", task="t", owner=owner_reference(accepted))
    driver = dataclasses.replace(config, spark_driver_role="ClusterRole/driver")
    objects = [
        *cluster_objects(cluster, config, num_minions=1),
        *pool_objects(servers, config, 1),
        *(job(run, driver), merge_job(merge, config)),
    ]
    return yaml.safe_dump_all(objects)

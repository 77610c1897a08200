"""What Tables ask of their servers, together: the largest, the oldest, and never less than one of them was promised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.pool_parts import CONFIG

from merlot.spec.tenancy import Resources
from merlot_operator.accepted import spec_of, text_of, with_accepted_spec, with_accepted_specs
from merlot_operator.desired import sizes
from merlot_operator.desired.demand import PoolDemand, cluster_demand, own_pool, pool_demand, pool_of, tenant_of
from merlot_operator.kube.compare import quantity
from merlot_operator.reconcilers.tables import accept

LABEL = 63
"""Characters of a label's value, and of a host's name."""
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["250m", "1", "512Mi", "2Gi", "8Gi"]))


def table(name: str, *, created: str = "2026-01-01T00:00:00Z", accepted: Any = None, **spec: Any) -> dict[str, Any]:
    """A Table that runs what it declares, or what was `accepted`."""
    metadata = {"name": name, "uid": name, "namespace": "n", "creationTimestamp": created}
    status = {"revision": 1, "accepted": text_of(spec if accepted is None else accepted)}
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": metadata, "spec": spec, "status": status}


def shared(name: str = "hot", **server: Any) -> dict[str, Any]:
    return {"server": {"name": name, **server}}


def demand(*tables: dict[str, Any]) -> PoolDemand:
    found = pool_demand("n", pool_of(tables[0]), tables, CONFIG)
    assert found is not None
    return found


@pytest.mark.parametrize("length", [1, 30, *range(56, 64)])
def test_a_name_as_long_as_the_definition_allows_is_accepted(length: int) -> None:
    name = ("a" * 57 + "-bcdef")[:length].rstrip("-").ljust(length, "z")
    columns = [{"name": "at", "type": "TIMESTAMP", "role": "dateTime"}]
    schema = {"fields": columns}
    declared = table(name, schema=schema, timeColumn="at", tenants={})
    accepted, refusal = accept(declared)
    assert refusal is None
    assert accepted is not None
    assert accepted.metadata.name == name
    found = demand(declared)
    assert found.tenant == tenant_of(declared)
    assert found.name == own_pool(name)
    assert max(len(found.name) + len("-999-0123456789"), len(found.tenant)) <= LABEL


def test_long_names_that_begin_alike_have_servers_of_their_own() -> None:
    names = ["a" * 62 + letter for letter in "xyz"]
    assert len({tenant_of(table(name, tenants={})) for name in names}) == len(names)
    assert len({own_pool(name) for name in names}) == len(names)


def restarted(name: str, text: str) -> dict[str, Any]:
    asking = table(name, tenants=shared())
    return {**asking, "metadata": {**asking["metadata"], "annotations": {"merlot.dev/restarted-at": text}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Wed Nov  4 10:00:00 UTC 2026", "Tue Dec  1 10:00:00 UTC 2026"),
        ("Wed Nov  4 10:00:00 UTC 2026", "2026-12-01T10:00:00Z"),
        ("2026-11-01T10:00:00Z", "2026-12-01T10:00:00Z"),
        ("b", "a"),
    ],
)
def test_every_change_of_an_annotation_restarts_the_servers_of_a_pool(before: str, after: str) -> None:
    other = restarted("other", "2026-11-02T00:00:00Z" if before < "A" else "z")
    assert demand(restarted("a", before), other).restarted_at != demand(restarted("a", after), other).restarted_at
    assert demand(restarted("a", after), table("b", tenants=shared())).restarted_at == after


def test_refused_change_asks_for_nothing() -> None:
    before = {"tenants": {"server": {"replicas": 2}, "broker": {"replicas": 3}}}
    wrong = {"tenants": {"server": {"name": "other", "replicas": 9}, "broker": {"replicas": 9}}, "suspend": True}
    changed = table("a", accepted=before, **wrong)
    assert (pool_of(changed), demand(changed).replicas) == ("merlot-server-a", 2)
    cluster = cluster_demand("n", [changed], CONFIG)
    assert cluster is not None
    assert cluster.broker.replicas == 3


def test_table_that_was_never_accepted_asks_for_no_servers() -> None:
    new = {**table("a", tenants={"broker": {"replicas": 9}}), "status": {}}
    assert (spec_of(new), with_accepted_spec(new), with_accepted_specs([new])) == (None, new, [])
    assert pool_demand("n", pool_of(new), [new], CONFIG) is None
    cluster = cluster_demand("n", [new], CONFIG)
    assert cluster is not None
    assert cluster.broker.replicas == 1


def test_table_from_before_specs_were_kept_runs_what_it_declares() -> None:
    old = {**table("a", tenants={"server": {"replicas": 4}}), "status": {"revision": 3}}
    assert demand(old).replicas == 4


def test_tenants_that_differ_in_capitals_have_servers_of_their_own() -> None:
    upper, lower = table("a", tenants=shared("Hot")), table("b", tenants=shared("hot"))
    assert pool_of(upper) != pool_of(lower) == "merlot-tenant-hot"
    assert (tenant_of(upper), tenant_of(lower)) == ("Hot", "hot")
    assert demand(lower, upper).tables == ("b",)


def test_new_table_of_a_tenant_changes_the_pods_of_none() -> None:
    mine, theirs = {"spec": {"nodeSelector": {"disk": "nvme"}}}, {"spec": {"nodeSelector": {"disk": "hdd"}}}
    old = table("z", tenants=shared(podTemplate=mine, storageClass="fast"))
    new = table("a", created="2026-02-01T00:00:00Z", tenants=shared(podTemplate=theirs, storageClass="slow"))
    both = demand(old, new)
    assert (both.pod_template, both.storage_class) == (mine, "fast")
    assert [(one.reason, one.table) for one in both.conflicts] == [("TenantConflict", "a")] * 2
    assert "table z" in both.conflicts[0].message
    same = table("a", created="2026-02-01T00:00:00Z", tenants=shared(podTemplate=mine))
    assert demand(old, same).conflicts == ()


@pytest.mark.parametrize(("replicas", "told"), [(2, ["TooFewServers"]), (3, []), (0, [])])
def test_more_copies_than_servers_are_told(replicas: int, told: list[str]) -> None:
    asking = table("a", replication=3, tenants=shared(replicas=replicas))
    assert [one.reason for one in demand(asking).conflicts] == told


def test_limit_of_one_table_is_no_less_than_the_request_of_another() -> None:
    small = table("a", tenants=shared(resources={"limits": {"memory": "1Gi"}}))
    large = table("b", tenants=shared(resources={"requests": {"memory": "2Gi"}}))
    assert demand(small, large).resources.limits == {"memory": "2Gi"}


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_default_follows_what_a_user_wrote(
    requests: dict[str, str], limits: dict[str, str], default_requests: dict[str, str], default_limits: dict[str, str]
) -> None:
    default = Resources(requests=default_requests, limits=default_limits)
    sound = sizes.over(default, Resources())
    asked = Resources(requests=requests, limits=limits)
    chosen = sizes.over(sound, asked)
    assert requests.items() <= chosen.requests.items()
    assert limits.items() <= chosen.limits.items()
    for name in chosen.requests.keys() & chosen.limits.keys():
        is_below = quantity(chosen.requests[name]) <= quantity(chosen.limits[name])
        is_chosen = name in requests and name in limits
        is_wrong_default = name not in requests and name not in limits and chosen.limits[name] == sound.limits[name]
        assert is_below or is_chosen or is_wrong_default


@pytest.mark.parametrize("damaged", ["", "{", "[]", "null", '"spec"', "[" * 100_000])
def test_a_status_that_somebody_damaged_takes_nothing_from_a_served_table(damaged: str) -> None:
    served = table("orders", schema={"fields": []})
    served["status"]["accepted"] = damaged
    assert spec_of(served) is served["spec"]
    assert with_accepted_specs([served]) == [served]
    del served["status"]["revision"]
    assert spec_of(served) is None

"""Python's comparison of two specs refuses what the rules of changes refuse, and more only where CEL says nothing."""

import copy

import pytest
from tests.unit.spec.rule_changes import CHANGES, OLD, Json

from merlot.spec import evolution, manifest
from merlot.spec.rules import table
from merlot.spec.rules.rule import violations

CHANGE_RULES = {
    scope: [rule for rule in each if "oldSelf" in rule.condition.cel] for scope, each in table.RULES.items()
}
BEYOND_CEL = {"spec.schema.fields", "spec.schema.fields[0].defaultNullValue"}
"""The types of keys of upsert tables, and defaults of nulls that segments hold."""


def document(spec: Json) -> Json:
    return {"apiVersion": "merlot.dev/v1alpha1", "kind": "Table", "metadata": {"name": "drawn"}, "spec": spec}


@pytest.mark.parametrize("change", range(len(CHANGES["Table"])))
@pytest.mark.parametrize("start", range(len(OLD["Table"])))
def test_a_change_that_a_rule_refuses_is_refused_by_the_comparison_at_the_same_field(start: int, change: int) -> None:
    old = document(OLD["Table"][start])
    new = copy.deepcopy(old)
    CHANGES["Table"][change](new["spec"])
    by_rules = {one.field for one in violations(CHANGE_RULES, new, old)}
    compared = evolution.compare(manifest.from_stored(old).spec, manifest.from_stored(new).spec)
    by_comparison = {one.path for one in compared}
    assert by_rules <= by_comparison
    assert by_comparison <= by_rules | BEYOND_CEL

"""Conditions of rules: their CEL text, and what they say of documents as they are written."""

from typing import Any

import pytest

from merlot.spec.rules.language import ITEM, OLD, SELF, RuleCondition, any_of, every, has, is_empty, pairs, some, unique
from merlot.spec.rules.rule import Rule, Violation, violations

A, B, MODE = SELF.field("a"), SELF.field("b"), SELF.field("mode", default="FULL", allowed=("FULL", "DEDUP"))


@pytest.mark.parametrize(
    ("condition", "cel"),
    [
        (has(A), "has(self.a)"),
        (~has(A), "!has(self.a)"),
        (~~has(A), "has(self.a)"),
        (has(SELF.field("a.b")), "has(self.a) && has(self.a.b)"),
        (~has(SELF.field("a.b")), "!(has(self.a) && has(self.a.b))"),
        (has(SELF.part("a").field("b")), "has(self.a.b)"),
        (A.equals("x"), "self.a == 'x'"),
        (~A.equals("x"), "self.a != 'x'"),
        (~~A.equals("x"), "self.a == 'x'"),
        (~A.is_in("x", "y"), "!(self.a in ['x', 'y'])"),
        (~B.is_member_of(A), "!(self.b in self.a)"),
        (A.matches(r"^\S'$"), r"self.a.matches('^\\S\'$')"),
        (has(A) & has(B) | MODE.equals("FULL"), "has(self.a) && has(self.b) || self.mode == 'FULL'"),
        (has(A) & (has(B) | MODE.equals("FULL")), "has(self.a) && (has(self.b) || self.mode == 'FULL')"),
        ((has(A) | has(B)) >> MODE.equals("FULL"), "!(has(self.a) || has(self.b)) || self.mode == 'FULL'"),
        (has(A).same_as(has(B)), "has(self.a) == has(self.b)"),
        (~has(A).same_as(has(B)), "has(self.a) != has(self.b)"),
        (has(A).same_as(has(B) & has(A)), "has(self.a) == (has(self.b) && has(self.a))"),
        (ITEM.field("a", default="x").equals("y"), "(has(self.a) ? self.a : 'x') == 'y'"),
        (is_empty(A), "!has(self.a) || size(self.a) == 0"),
        (every(A, "x", lambda x: ~x.equals("y")), "self.a.all(x, x != 'y')"),
        (some(A, "x", lambda x: x.field("b").equals(B)), "self.a.exists(x, x.b == self.b)"),
        (unique(A), "self.a.all(a, self.a.exists_one(b, a == b))"),
        (
            pairs(A, 3, lambda i, j: i.field("n").before(j.field("n")) | j.field("n").equals("")),
            (
                "[1, 2].all(j, j >= size(self.a) || "
                "[0, 1].all(i, i >= j || self.a[i].n < self.a[j].n || self.a[j].n == ''))"
            ),
        ),
    ],
)
def test_a_condition_is_written_in_cel(condition: RuleCondition, cel: str) -> None:
    assert condition.cel == cel


@pytest.mark.parametrize(
    ("condition", "document", "failures"),
    [
        (has(A), {}, [""]),
        (has(SELF.field("a.b")), {"a": {}}, [""]),
        (has(SELF.field("a.b")), {"a": {"b": 0}}, []),
        (MODE.equals("FULL"), {}, []),
        (MODE.equals("FULL"), {"mode": "DEDUP"}, [""]),
        (has(A) >> has(B), {"a": 1}, [""]),
        (has(A) >> has(B), {}, []),
        (has(A) & A.equals("x"), {}, [""]),
        (~has(A) | A.equals("x"), {}, []),
        (A.matches("^a$"), {"a": "a\n"}, [""]),
        (A.matches("^a$"), {"a": "a"}, []),
        (every(A, "x", lambda x: x.equals("y")), {"a": ["y", "z", "y", "w"]}, ["[1]", "[3]"]),
        (every(A, "x", lambda x: x.equals("y")), {"a": {"y": 1, "z": 1}}, [".z"]),
        (has(B) >> every(A, "x", lambda x: x.equals("y")), {"a": ["z"], "b": 1}, ["[0]"]),
        (~every(A, "x", lambda x: x.equals("y")), {"a": ["y"]}, [""]),
        (some(A, "x", lambda x: x.equals("y")), {"a": ["z"]}, [""]),
        (some(A, "x", lambda x: x.equals("y")), {"a": ["z", "y"]}, []),
        (some(A, "x", lambda x: x.equals("y")), {"a": []}, [""]),
        (unique(A, lambda x: x.field("n").lower(), ".n"), {"a": [{"n": "x"}, {"n": "y"}, {"n": "X"}]}, ["[2].n"]),
        (pairs(A, 9, lambda i, j: i.before(j), ".n"), {"a": ["b", "c", "a", "d"]}, ["[2].n"]),
        (any_of([has(A), has(B)]), {}, [""]),
    ],
)
def test_a_condition_says_where_it_fails(condition: RuleCondition, document: Any, failures: list[str]) -> None:
    assert list(condition.failures({"self": document})) == failures


@pytest.mark.parametrize(
    ("condition", "document"),
    [
        (A.equals("x"), {}),
        (A.equals("x"), {"a": 1}),
        (A.equals(1), {"a": True}),
        (MODE.equals("FULL"), {"mode": "FUL"}),
        (has(SELF.field("a.b")), {"a": []}),
        (A.matches("x"), {"a": None}),
        (every(A, "x", lambda x: x.equals("y")), {"a": "yy"}),
        (every(A, "x", lambda x: x.equals("y")), {"a": [1, "y"]}),
        (unique(A, lambda x: x.field("n")), {"a": [{}, {}, 3, "x"]}),
        (pairs(A, 9, lambda i, j: i.before(j)), {"a": [1, 0]}),
        (A.at_least(B), {"a": "1", "b": 2}),
        (A.equals(OLD.field("a")), {"a": "x"}),
        (has(A), 3),
    ],
)
def test_a_rule_passes_over_what_is_malformed(condition: RuleCondition, document: Any) -> None:
    assert list(violations({"spec": [Rule("a", condition, "m")]}, {"spec": document})) == []


def test_rules_are_of_objects_at_a_path() -> None:
    rules = {"spec.a[].b": [Rule("c", has(ITEM.field("c")), "is missing")]}
    document = {"spec": {"a": [{"b": {}}, {}, {"b": {"c": 1}}, 3, {"b": {}}]}}
    assert list(violations(rules, document)) == [
        Violation("spec.a[0].b.c", "is missing", "spec.a[0].b.c"),
        Violation("spec.a[4].b.c", "is missing", "spec.a[4].b.c"),
    ]


def test_a_change_is_judged_by_the_item_of_the_same_name() -> None:
    rules = {"a[]": [Rule("t", ITEM.field("t").equals(OLD.field("t")), "cannot change")]}
    old = {"a": [{"name": "x", "t": 1}, {"name": "y", "t": 2}]}
    new = {"a": [{"name": "new", "t": 5}, {"name": "y", "t": 3}, {"name": "x", "t": 1}]}
    assert [one.path for one in violations(rules, new, old)] == ["a[1].t"]
    assert list(violations(rules, new)) == []


def test_rules_of_kubernetes_are_left_out_elsewhere() -> None:
    rules = {"spec": [Rule("a", has(A), "is missing", is_of_kubernetes=True)]}
    assert list(violations(rules, {"spec": {}})) == []
    assert [one.path for one in violations(rules, {"spec": {}}, as_api_server=True)] == ["spec.a"]

"""Rules do what their file says, and each of them has an example there."""

from __future__ import annotations

import difflib

from tests.plans.rewrite_fixtures import FILE, rendered

from merlot.query.stages.leaves import RULE_NAMES


def test_rules_rewrite_queries_as_written() -> None:
    text = FILE.read_text()
    wanted, got = text.splitlines(), rendered(text).splitlines()
    difference = list(difflib.unified_diff(wanted, got, FILE.name, "now", n=12, lineterm=""))
    assert not difference, "\n".join([*difference, "if that is right: make plans"])


def test_every_rule_has_an_example() -> None:
    applied = {
        name
        for line in FILE.read_text().splitlines()
        if line.startswith("  after ")
        for name in line.removeprefix("  after ").split(", ")
    }
    assert set(RULE_NAMES) <= applied

"""Rules of rewriting, in the order in which they run, again and again until none changes anything. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from merlot.query.stages.rewrites.distinct_below_joins import distinct_below_joins
from merlot.query.stages.rewrites.drop_columns import drop_columns
from merlot.query.stages.rewrites.group_below_joins import group_below_joins
from merlot.query.stages.rewrites.inline_with import inline_with
from merlot.query.stages.rewrites.merge_derived import merge_derived
from merlot.query.stages.rewrites.merge_outer import merge_outer
from merlot.query.stages.rewrites.partial_aggregates import partial_aggregates
from merlot.query.stages.rewrites.push_filters import push_filters
from merlot.query.stages.rewrites.push_limits import push_limits
from merlot.query.stages.rewrites.reduce_joins import reduce_joins
from merlot.query.stages.rewrites.simplify import simplify
from merlot.query.stages.sizes import TableSizes, UnknownSizes
from merlot.sql.budget import Budget
from merlot.tree.relations import Statement

SKIP_OPTION: Final = "skipPlannerRules"
"""Option with the names of rules that do not run, separated by commas. It is Pinot's option; Pinot's rules have other
names."""
MAX_ROUNDS: Final = 20
"""Most rounds of all rules: more than any statement needed in tests. A rule that undoes another would go on for
ever."""


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """Rule that rewrites a statement into one with the same answer."""

    name: str
    apply: Callable[[Statement, TableSizes], Statement]
    """Function that returns the rewritten statement, or the very statement if it changes nothing."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """Statement before and after rewriting, and the rules that changed it, in the order in which they first did."""

    before: Statement
    statement: Statement
    rules: tuple[str, ...] = ()


def _whatever_sizes(apply: Callable[[Statement], Statement]) -> Callable[[Statement, TableSizes], Statement]:
    return lambda statement, _: apply(statement)


RULES: Final = (
    RewriteRule("InlineWith", _whatever_sizes(inline_with)),
    RewriteRule("MergeDerived", _whatever_sizes(merge_derived)),
    RewriteRule("MergeOuter", _whatever_sizes(merge_outer)),
    RewriteRule("ReduceJoins", _whatever_sizes(reduce_joins)),
    RewriteRule("PushFilters", _whatever_sizes(push_filters)),
    RewriteRule("Simplify", _whatever_sizes(simplify)),
    RewriteRule("DropColumns", _whatever_sizes(drop_columns)),
    RewriteRule("PushLimits", _whatever_sizes(push_limits)),
    RewriteRule("PartialAggregates", _whatever_sizes(partial_aggregates)),
    RewriteRule("GroupBelowJoins", group_below_joins),
    RewriteRule("DistinctBelowJoins", distinct_below_joins),
)


def rewritten(statement: Statement, budget: Budget | None = None, sizes: TableSizes | None = None) -> RewriteResult:
    """Return the statement after all rules but those that its option skips. Raise the errors of `budget`.

    sizes: estimates for its tables; None: nothing is known of them."""
    budget = budget or Budget()
    sizes = sizes or UnknownSizes()
    skipped = skipped_rules(statement)
    rules = [rule for rule in RULES if rule.name.lower() not in skipped]
    made, applied = statement, dict[str, None]()
    for _ in range(MAX_ROUNDS):
        before = made
        for rule in rules:
            budget.look()
            after = rule.apply(made, sizes)
            if after is not made:
                applied[rule.name] = None
                made = after
        if made is before:
            break
    return RewriteResult(statement, made, tuple(applied))


def skipped_rules(statement: Statement) -> frozenset[str]:
    """Return the names of rules that are not to run, in lower case."""
    return frozenset(name.strip().lower() for name in (statement.option(SKIP_OPTION) or "").split(","))

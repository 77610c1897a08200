"""Rights and views: a union of grants, proved on rows that a small evaluator filters."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.security.access import (
    ANONYMOUS,
    NO_LIMITS,
    OPEN,
    WHOLE_TABLE,
    AccessPolicy,
    AccessView,
    Grant,
    Identity,
    IdentityLimits,
    Right,
    united,
)

COLUMNS = ("a", "b", "c")
FILTERS = ("a = 1", "b > 1 OR c = 0", "c IS NOT NULL", "a <> b")
MASKS = ("0", "NULL")
ROWS = [(a, b, c) for a in (0, 1, None) for b in (0, 1, 2) for c in (0, 1, None)]


def views() -> st.SearchStrategy[AccessView]:
    return st.builds(
        AccessView,
        st.lists(st.sampled_from(FILTERS), max_size=2, unique=True).map(tuple),
        st.frozensets(st.sampled_from(COLUMNS), max_size=2),
        st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(MASKS), max_size=2),
    )


def seen(view: AccessView) -> set[tuple[object, ...]]:
    """Return the rows that SQL selects under the view's filters, all columns shown."""
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (a, b, c)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
        where = " AND ".join(f"({text})" for text in view.row_filters) or "1 = 1"
        rows = set(database.execute(f"SELECT a, b, c FROM t WHERE {where}").fetchall())
    database.close()
    return rows


@settings(max_examples=150, deadline=None)
@given(st.lists(views(), min_size=1, max_size=4))
def test_united_views_show_the_rows_that_any_of_them_shows(several: list[AccessView]) -> None:
    assert seen(united(several)) == set[tuple[object, ...]]().union(*map(seen, several))


@given(st.lists(views(), min_size=1, max_size=4))
def test_a_column_is_hidden_or_masked_only_if_no_view_shows_it_better(several: list[AccessView]) -> None:
    whole = united(several)
    assert whole.hidden == frozenset.intersection(*(view.hidden for view in several))
    for column in set(COLUMNS) - whole.hidden:
        plain = any(column not in view.hidden and column not in view.masks for view in several)
        assert (column in whole.masks) is not plain
        assert plain or whole.masks[column] in {view.masks.get(column) for view in several if column not in view.hidden}


@given(st.lists(views(), min_size=1, max_size=3), views())
def test_another_role_never_shows_less(several: list[AccessView], more: AccessView) -> None:
    before, after = united(several), united([*several, more])
    assert seen(before) <= seen(after)
    assert after.hidden <= before.hidden
    assert set(after.masks) - before.hidden <= set(before.masks)


TABLES = ("sales", "Sales_eu_OFFLINE", "flights", "flights_REALTIME")
PATTERNS = ("*", "sales*", "FLIGHTS", "flights_*", "sales_??")


@given(
    st.dictionaries(
        st.sampled_from(("r1", "r2", "r3")),
        st.lists(
            st.builds(
                Grant,
                st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(tuple),
                st.frozensets(st.sampled_from(Right), min_size=1),
                views(),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.frozensets(st.sampled_from(("r1", "r2", "r3"))),
    st.frozensets(st.sampled_from(("r1", "r2", "r3"))),
    st.sampled_from(Right),
    st.sampled_from((*TABLES, None)),
)
def test_rights_are_those_of_any_role_and_no_others(
    grants: dict[str, tuple[Grant, ...]], mine: frozenset[str], ours: frozenset[str], right: Right, table: str | None
) -> None:
    access = AccessPolicy(grants, {"ann": mine}, {"team": ours})
    ann = Identity("ann", frozenset({"team"}), "basic")
    given_ = [g for role in mine | ours for g in grants.get(role, ())]
    assert access.allows(ann, right, table) is any(g.gives(right) and g.covers(table) for g in given_)
    assert not access.allows(Identity("bob", frozenset(), "basic"), right, table)
    assert not access.allows(ANONYMOUS, right, table)
    if table is not None:
        assert (access.view(ann, table) is not None) is access.allows(ann, Right.QUERY, table)


@pytest.mark.parametrize(
    ("pattern", "table", "is_covered"),
    [
        ("sales", "SALES_OFFLINE", True),
        ("sales", "sales_OFFLINE_REALTIME", True),  # a handler may take off both
        ("sales", "sales_eu", False),
        ("flights_*", "flights_REALTIME", False),  # the suffix is a type, not a part of the name
        ("*", None, True),
        ("sales*", None, False),
        ("[abc]", "a", True),
    ],
)
def test_patterns_are_of_names_without_type_and_case(pattern: str, table: str | None, is_covered: bool) -> None:
    assert Grant((pattern,), frozenset({Right.QUERY})).covers(table) is is_covered


def test_admin_implies_every_right_and_no_other_right_does() -> None:
    for right in Right:
        grant = Grant(("t",), frozenset({right}))
        assert {other for other in Right if grant.gives(other)} == (set(Right) if right is Right.ADMIN else {right})


def test_without_a_document_anonymous_may_do_everything() -> None:
    assert all(OPEN.allows(ANONYMOUS, right, table) for right in Right for table in ("t", None))
    assert OPEN.view(ANONYMOUS, "t") is WHOLE_TABLE
    assert OPEN.limits(ANONYMOUS) == NO_LIMITS


def test_limits_are_ones_own_or_the_loosest_of_ones_groups() -> None:
    access = AccessPolicy(
        user_limits={"ann": IdentityLimits(1, 1)},
        group_limits={"slow": IdentityLimits(2, 4), "fast": IdentityLimits(9, 3), "free": IdentityLimits(None, 5)},
    )
    groups = frozenset({"slow", "fast"})
    assert access.limits(Identity("ann", groups)) == IdentityLimits(1, 1)
    assert access.limits(Identity("bob", groups)) == IdentityLimits(9, 4)
    assert access.limits(Identity("bob", groups | {"free"})) == IdentityLimits(None, 5)
    assert access.limits(Identity("bob")) == NO_LIMITS

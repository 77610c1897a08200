"""Which UpsertConfig counts where two places have one of the name, and when a Table may not name one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.controller.test_row_rules import BOARD, FULL, apply, config, inline, named

from merlot.cluster.consuming.transactions import Begin, begin
from merlot.cluster.manifests import tables, upserts
from merlot.cluster.segments.transaction import mutate
from merlot.controller.apply import ApplyError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.spec.manifest.upsert_checks import INLINE, NAMED, settings_of
from merlot.spec.table import Table
from merlot.spec.upsert import UpsertConfig
from merlot_operator.reconcilers.tables import rule_problems

UNFIT = "mode: FULL, comparisonColumns: [nowhere]"
OTHER = "mode: FULL, comparisonColumns: [other]"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    made = SqliteMetastore(tmp_path / "meta.db")
    yield made
    made.close()


def table_of(text: str) -> Table:
    (document,) = manifest.load(text)
    assert isinstance(document, Table)
    return document


def config_of(spec: str, name: str = "a") -> UpsertConfig:
    (document,) = manifest.load(config(spec, name))
    assert isinstance(document, UpsertConfig)
    return document


def test_the_first_config_of_the_name_counts() -> None:
    first, second, other = config_of(FULL), config_of(OTHER), config_of(UNFIT, "b")
    for order in itertools.permutations([first, second, other, None]):
        expected = next(one for one in order if one in (first, second))
        found = settings_of(table_of(named()), order)
        assert found is not None
        assert (found.spec, found.path, found.config) == (expected.spec, NAMED, expected)
    assert settings_of(table_of(named()), [other, None]) is None


def test_what_a_table_declares_itself_counts_alone() -> None:
    found = settings_of(table_of(inline(FULL)), [config_of(OTHER)])
    assert found is not None
    assert (list(found.spec.comparison_columns), found.path, found.config) == (["version"], INLINE, None)


def consume(store: SqliteMetastore) -> None:
    mutate(store, BOARD, lambda view: begin(view, [Begin(partition=0, offset=0, servers=())], "", 0))


def test_the_controller_judges_by_what_the_request_brings(store: SqliteMetastore) -> None:
    apply(store, named() + config(FULL))
    consume(store)
    with pytest.raises(ApplyError, match="cannot change on tables that have rows"):
        apply(store, named() + config(OTHER))
    with pytest.raises(ApplyError, match='"a" does not fit'):
        apply(store, named() + config(UNFIT))
    upserts.put_upsert(store, config_of(UNFIT, "b"))
    with pytest.raises(ApplyError, match='"b" does not fit'):
        apply(store, named("b"))
    apply(store, named("b") + config(FULL, "b"))


def test_the_operator_judges_by_what_is_stored(store: SqliteMetastore) -> None:
    """What is declared may be refused itself; it counts only where nothing of the name is stored."""
    apply(store, named() + config(FULL))
    consume(store)
    assert rule_problems(store, table_of(named()), config_of(OTHER)) == []
    assert "cannot change" in str(rule_problems(store, table_of(named("b")), config_of(OTHER, "b")))
    upserts.put_upsert(store, config_of(FULL, "b"))
    assert rule_problems(store, table_of(named("b")), config_of(OTHER, "b")) == []
    assert rule_problems(store, table_of(named("b")), config_of(UNFIT, "b")) == []


def test_the_operator_refuses_settings_that_a_consumed_table_does_not_fit(store: SqliteMetastore) -> None:
    assert rule_problems(store, table_of(named()), config_of(UNFIT)) == [], "a new table waits"
    tables.put_table(store, table_of(named()))
    assert rule_problems(store, table_of(named("b")), config_of(UNFIT, "b")) == [], "it waits already"
    upserts.put_upsert(store, config_of(FULL))
    consume(store)
    upserts.put_upsert(store, config_of(UNFIT, "b"))
    for declared in (None, config_of(FULL, "b")):
        [problem, *_] = rule_problems(store, table_of(named("b")), declared)
        assert (problem.path, '"b" does not fit' in problem.message) == (NAMED, True)
    [problem, *_] = rule_problems(store, table_of(named("c")), config_of(UNFIT, "c"))
    assert '"c" does not fit' in problem.message
    assert rule_problems(store, table_of(named("d")), None) == [], "it waits for a config that is to come"

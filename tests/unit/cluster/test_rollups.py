"""MergeRollupTasks and UpsertConfigs in shared state."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from merlot.cluster.manifests import rollups, upserts
from merlot.cluster.manifests.rollups import RollupConflictError
from merlot.cluster.manifests.store import ApplyOutcome
from merlot.errors import NotFoundError
from merlot.ids import TableName
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.manifest import load
from merlot.spec.tasks import MergeRollupTask
from merlot.spec.upsert import UpsertConfig

TABLE = TableName("t_OFFLINE")


def rollup(name: str = "merge", table: str = "t", buffer: str = "1d") -> MergeRollupTask:
    levels = f"[{{name: daily, bucketTimePeriod: 1d, bufferTimePeriod: {buffer}}}]"
    head = f"apiVersion: merlot.dev/v1alpha1\nkind: MergeRollupTask\nmetadata: {{name: {name}}}\n"
    [found] = load(f"{head}spec: {{table: {table}, levels: {levels}}}\n")
    assert isinstance(found, MergeRollupTask)
    return found


def upsert(ttl: str = "1d") -> UpsertConfig:
    head = "apiVersion: merlot.dev/v1alpha1\nkind: UpsertConfig\nmetadata: {name: latest}\n"
    [found] = load(f"{head}spec: {{mode: FULL, primaryKeyTtl: {ttl}}}\n")
    assert isinstance(found, UpsertConfig)
    return found


def test_applying_again_changes_nothing_and_a_change_makes_a_revision(store: SqliteMetastore) -> None:
    assert rollups.apply_rollup(store, rollup()).outcome is ApplyOutcome.CREATED
    assert rollups.apply_rollup(store, rollup()).outcome is ApplyOutcome.UNCHANGED
    assert rollups.check_rollup(store, rollup(buffer="2d")) is ApplyOutcome.CONFIGURED
    applied = rollups.apply_rollup(store, rollup(buffer="2d"))
    assert (applied.outcome, applied.record.revision) == (ApplyOutcome.CONFIGURED, 2)
    assert rollups.spec_of(rollups.get_rollup(store, "merge")) == rollup(buffer="2d")


def test_of_many_that_claim_a_table_at_once_one_has_it(store: SqliteMetastore) -> None:
    def claim(number: int) -> bool:
        try:
            rollups.put_rollup(store, rollup(f"merge-{number}"))
        except RollupConflictError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(claim, range(8))) == 1
    assert len(rollups.list_rollups(store)) == 1


def test_a_table_is_free_once_its_rollup_is_deleted(store: SqliteMetastore) -> None:
    rollups.put_rollup(store, rollup())
    with pytest.raises(RollupConflictError, match='has the MergeRollupTask "merge" already'):
        rollups.put_rollup(store, rollup("other"))
    rollups.delete_rollup(store, "merge")
    assert rollups.watermarks(store, TABLE)[1] is None
    rollups.put_rollup(store, rollup("other"))
    with pytest.raises(NotFoundError):
        rollups.delete_rollup(store, "merge")
    assert rollups.watermarks(store, TABLE)[0].rollup == "other"


def test_the_table_of_a_rollup_cannot_change(store: SqliteMetastore) -> None:
    rollups.put_rollup(store, rollup())
    for attempt in (rollups.put_rollup, rollups.check_rollup):
        with pytest.raises(RollupConflictError, match="cannot change"):
            attempt(store, rollup(table="u"))


def test_an_upsert_config_is_kept(store: SqliteMetastore) -> None:
    assert upserts.apply_upsert(store, upsert()).outcome is ApplyOutcome.CREATED
    assert upserts.apply_upsert(store, upsert()).outcome is ApplyOutcome.UNCHANGED
    record = upserts.put_upsert(store, upsert("2d"))
    assert record.revision == 2
    assert upserts.spec_of(upserts.list_upserts(store)["latest"]) == upsert("2d")
    upserts.delete_upsert(store, "latest")
    with pytest.raises(NotFoundError):
        upserts.delete_upsert(store, "latest")

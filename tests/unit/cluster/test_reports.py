"""Reports: what a reader reads is what the server wrote last, whatever happened in between."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.support.faults import Fault, FaultyMetastore

from merlot.cluster import paths
from merlot.cluster.instances.reports import ReportReader, ReportWriter, remove_report
from merlot.errors import UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore

TABLE = TableName("t_OFFLINE")
SERVER = InstanceId("Server_a_1")
keys = st.sets(st.integers(0, 40).map(lambda number: f"s{number}@1"))


class ForgetfulMetastore(FaultyMetastore):
    """Loses the answer of a write when told."""

    def __init__(self, inner: Metastore) -> None:
        super().__init__(inner, Fault.LOSE_ANSWER, -1)

    def fail_next(self) -> None:
        self._at = self.num_writes

    def recover(self) -> None:
        self._at = -1


@settings(deadline=None, max_examples=examples(30))
@given(steps=st.lists(st.tuples(keys, keys, st.sampled_from(["write", "restart", "clean", "fault"])), max_size=8))
def test_a_reader_sees_the_last_report(
    steps: list[tuple[set[str], set[str], str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = SqliteMetastore(tmp_path_factory.mktemp("reports") / "meta.db")
    store_of_writer = ForgetfulMetastore(store)
    writer = ReportWriter(store_of_writer, TABLE, SERVER, max_multi_bytes=200)
    reader = ReportReader(store, TABLE)
    for loaded, failed, how in steps:
        errors = dict.fromkeys(failed - loaded, "broken")
        if how == "clean":
            remove_report(store, TABLE, SERVER)
        if how == "fault":
            store_of_writer.fail_next()
            with contextlib.suppress(UnavailableError):
                writer.write(errors, {})
            store_of_writer.recover()
            reader.read()
        if how == "restart":
            writer = ReportWriter(store_of_writer, TABLE, SERVER, max_multi_bytes=200)
        if not writer.write(loaded, errors) and how == "clean":
            continue  # nothing changed for the server, so it does not look; readers see nothing until it does
        report = reader.read()[SERVER]
        assert report.loaded == loaded
        assert report.errors == errors
    store.close()


def test_a_restarted_server_starts_from_an_empty_report(store: SqliteMetastore) -> None:
    ReportWriter(store, TABLE, SERVER).write(["s1@1", "s2@1"], {})
    reader = ReportReader(store, TABLE)
    assert reader.read()[SERVER].loaded == {"s1@1", "s2@1"}
    ReportWriter(store, TABLE, SERVER).write([], {}, revision=3)
    assert reader.read()[SERVER].loaded == frozenset()
    assert reader.read()[SERVER].revision == 3
    assert reader.read()[SERVER].served == {"s1@1", "s2@1"}, "they were answered once"


def test_what_was_served_once_is_told_until_it_is_loaded_or_not_missed(store: SqliteMetastore) -> None:
    reader = ReportReader(store, TABLE)
    ReportWriter(store, TABLE, SERVER).write(["s1@1", "s2@1", "s3@1"], {})
    ReportWriter(store, TABLE, SERVER).write([], {})
    writer = ReportWriter(store, TABLE, SERVER)
    writer.write(["s1@1"], {"s2@1": "damaged"})
    report = reader.read()[SERVER]
    assert (report.loaded, report.served) == ({"s1@1"}, {"s2@1", "s3@1"})
    writer.write(["s1@1"], {"s2@1": "damaged"}, is_missed=lambda key: key != "s3@1")
    assert reader.read()[SERVER].served == {"s2@1"}
    writer.write([], {"s2@1": "damaged"}, is_missed=lambda key: key != "s3@1")
    assert reader.read()[SERVER].served == {"s1@1", "s2@1"}
    writer.write(["s1@1", "s2@1"], {})
    assert reader.read()[SERVER].served == frozenset()


def test_the_same_report_is_not_written_twice(store: SqliteMetastore) -> None:
    writer = ReportWriter(store, TABLE, SERVER)
    assert writer.write(["s1@1"], {})
    assert not writer.write(["s1@1"], {})
    assert writer.write(["s1@1"], {}, revision=2)


def test_a_cleared_report_is_gone(store: SqliteMetastore) -> None:
    writer = ReportWriter(store, TABLE, SERVER)
    writer.write(["s1@1"], {})
    writer.clear()
    assert dict(ReportReader(store, TABLE).read()) == {}
    writer.write(["s1@1"], {})
    assert ReportReader(store, TABLE).read()[SERVER].loaded == {"s1@1"}


def test_an_old_life_that_writes_late_leaves_the_new_ones_report(store: SqliteMetastore) -> None:
    old, new = ReportWriter(store, TABLE, SERVER), ReportWriter(store, TABLE, SERVER)
    old.write(["s1@1"], {})
    new.write(["s1@1", "s2@1"], {})
    assert not old.write([], {})
    assert (old.is_superseded, new.is_superseded) == (True, False)
    assert ReportReader(store, TABLE).read()[SERVER].loaded == {"s1@1", "s2@1"}
    assert new.write(["s2@1"], {})
    assert ReportReader(store, TABLE).read()[SERVER].loaded == {"s2@1"}


def test_a_doubted_report_is_mended_if_it_was_cleaned_away_or_rolled_back(store: SqliteMetastore) -> None:
    older = ReportWriter(store, TABLE, SERVER)
    older.write(["s0@1"], {})
    root = paths.report_root(TABLE, SERVER)
    before = store.get(root)
    assert before is not None
    writer = ReportWriter(store, TABLE, SERVER)
    writer.write(["s1@1"], {})
    remove_report(store, TABLE, SERVER)
    writer.recheck()
    assert writer.write(["s1@1"], {})
    assert ReportReader(store, TABLE).read()[SERVER].loaded == {"s1@1"}
    now = store.get(root)
    assert now is not None
    store.put(root, before.data, now.version)  # a metastore restored from an older snapshot
    writer.recheck()
    assert writer.write(["s1@1"], {})
    assert ReportReader(store, TABLE).read()[SERVER].loaded == {"s1@1"}
    writer.recheck()
    assert not writer.write(["s1@1"], {})

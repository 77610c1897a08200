"""SQLite keeps the metastore's contract."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from merlot.metastore.protocol import Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.testing.metastore_contract import MetastoreContract


class TestSqliteMetastore(MetastoreContract):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Iterator[Callable[[], Metastore]]:
        first = SqliteMetastore(tmp_path / "meta.db")
        sessions = [first]

        def open_another() -> Metastore:
            sessions.append(first.session())
            return sessions[-1]

        yield open_another
        for session in sessions:
            session.close()


def test_the_file_and_those_beside_it_are_their_owner_s_alone(tmp_path: Path) -> None:
    """Whatever the umask, and those of a version that did not see to it."""
    path = tmp_path / "meta.db"
    before = os.umask(0)
    try:
        path.touch(mode=0o644)
        store = SqliteMetastore(path)
        store.create("/a", b"{}")
    finally:
        os.umask(before)
    assert {file.name for file in tmp_path.iterdir()} == {"meta.db", "meta.db-wal", "meta.db-shm", "meta.db.lock"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    store.close()

"""SQLite keeps the metastore's contract."""

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

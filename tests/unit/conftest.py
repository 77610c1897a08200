"""Fixtures that folders of unit tests share."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from merlot.metastore.sqlite import SqliteMetastore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMetastore]:
    """An empty metastore."""
    with contextlib.closing(SqliteMetastore(tmp_path / "meta.db")) as store:
        yield store

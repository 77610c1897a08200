"""One process owns the file; what a dead process left is cleaned up."""

import subprocess
import sys
from pathlib import Path

import pytest

from merlot.errors import CorruptionError, UnavailableError
from merlot.metastore.sqlite import SqliteMetastore


def test_a_second_process_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    code = f"from merlot.metastore.sqlite import SqliteMetastore; SqliteMetastore({str(path)!r})"
    first = SqliteMetastore(path)
    try:
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert "another node has this directory open" in second.stderr
    finally:
        first.close()
    third = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr


def test_ephemerals_of_a_killed_process_are_gone_and_the_rest_is_there(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    code = f"""
import os, signal
from merlot.metastore.sqlite import SqliteMetastore
store = SqliteMetastore({str(path)!r})
store.create("/live/a", b"", ephemeral=True)
store.create("/kept/b", b"kept")
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    store = SqliteMetastore(path)
    try:
        assert store.children("/live") == []
        node = store.get("/kept/b")
        assert node is not None
        assert node.data == b"kept"
    finally:
        store.close()


def test_a_closed_session_refuses_calls(tmp_path: Path) -> None:
    store = SqliteMetastore(tmp_path / "meta.db")
    store.close()
    store.close()
    with pytest.raises(UnavailableError, match="closed"):
        store.get("/a")


def test_a_file_that_is_no_database_is_corruption(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    path.write_bytes(b"not a database at all, but long enough to have a header" * 100)
    with pytest.raises(CorruptionError, match="damaged"):
        SqliteMetastore(path)

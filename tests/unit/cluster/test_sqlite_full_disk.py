"""A node whose disk is full says so, and goes on as soon as there is room."""

import contextlib
from pathlib import Path

import pytest
from tests.support.processes import can_mount, resize_disk, small_disk

from merlot.errors import UnavailableError
from merlot.metastore.sqlite import SqliteMetastore


@pytest.mark.skipif(not can_mount(), reason="mounting a tmpfs needs root")
def test_a_write_that_found_no_room_leaves_nothing_and_blocks_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256 << 10) as disk:
        store = SqliteMetastore(disk / "meta.db")
        store.create("/a", b"old")
        with contextlib.suppress(UnavailableError):
            for number in range(100):
                store.create(f"/n{number}", b"x" * 20_000)
        with pytest.raises(UnavailableError, match="full"):
            store.create("/too-large", b"x" * 400_000)
        node = store.get("/a")
        assert node is not None
        assert (node.data, store.get("/too-large")) == (b"old", None)
        resize_disk(disk, 8 << 20)
        store.put("/a", b"new", node.version)
        store.close()

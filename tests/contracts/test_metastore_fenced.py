"""A fenced metastore is a metastore, until somebody else comes to write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from merlot.cluster.fence import Fence, Fenced, WriterSupersededError, parse, take
from merlot.cluster.records import OperatorRecord
from merlot.errors import InvalidInputError
from merlot.metastore.protocol import Create, Metastore
from merlot.metastore.sqlite import SqliteMetastore
from merlot.testing.metastore_contract import MetastoreContract, OpenSession

NAMESPACE = "n"


class TestFenced(MetastoreContract):
    @pytest.fixture
    def open_session(self, tmp_path: Path) -> Iterator[OpenSession]:
        plain = SqliteMetastore(tmp_path / "meta.db")
        fence = take(plain, NAMESPACE, OperatorRecord(holder="all of this test"))
        sessions: list[Metastore] = [Fenced(plain, fence)]

        def open_another() -> Metastore:
            sessions.append(Fenced(plain.session(), fence))
            return sessions[-1]

        yield open_another
        for session in sessions:
            session.close()


def test_whoever_came_before_writes_nothing_any_more(tmp_path: Path) -> None:
    plain = SqliteMetastore(tmp_path / "meta.db")
    first = Fenced(plain, take(plain, NAMESPACE, OperatorRecord(holder="first")))
    first.create("/a", b"1")
    second = Fenced(plain, take(plain, NAMESPACE, OperatorRecord(holder="second")))
    for write in (
        lambda: first.create("/b", b""),
        lambda: first.put("/a", b"2", 0),
        lambda: first.delete("/a"),
        lambda: first.multi([Create("/b", b"")]),
    ):
        with pytest.raises(WriterSupersededError, match="holder=second"):
            write()
    assert (plain.get("/b"), second.put("/a", b"3", 0)) == (None, 1)
    plain.close()


def test_a_fence_that_is_gone_lets_nobody_through(tmp_path: Path) -> None:
    plain = SqliteMetastore(tmp_path / "meta.db")
    fenced = Fenced(plain, take(plain, NAMESPACE, OperatorRecord(holder="first")))
    plain.delete("/OPERATORS/n")
    with pytest.raises(WriterSupersededError, match="nobody"):
        fenced.create("/a", b"")
    plain.close()


def test_a_fence_is_told_in_a_word() -> None:
    fence = Fence("n", 3)
    assert parse(str(fence)) == fence
    for wrong in ("", "n", "n/", "/3", "n/x", "n/" + 5000 * "1", "n/4294967296"):
        with pytest.raises(InvalidInputError, match="NAMESPACE/VERSION"):
            parse(wrong)

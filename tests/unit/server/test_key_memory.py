"""Whether memory will do for the keys of upsert tables: told of all tables of a server, before it is too late."""

from __future__ import annotations

import logging

import pytest

from merlot.server.realtime.key_memory import GROWTH, KeyMemory, measured


def test_keys_need_what_is_taken_and_room_to_grow() -> None:
    found = measured(1000, 700, 400)
    assert (found.limit_bytes, found.taken_bytes, found.keys_bytes) == (1000, 700, 400)
    assert found.needed_bytes == 700 + 400 * GROWTH


def test_a_server_tells_once_that_memory_will_not_do(caplog: pytest.LogCaptureFixture) -> None:
    memory = KeyMemory(limit_bytes=2**40)
    with caplog.at_level(logging.WARNING):
        assert memory.tell("a", 2**20).needed_bytes < 2**40
        assert not caplog.records
        many = memory.tell("b", 2**43)
        assert many.needed_bytes > many.limit_bytes
        assert many.keys_bytes == 2**20 + 2**43, "the tables of a server share its memory"
        memory.tell("b", 2**43)
    assert [record.message.startswith("memory will not do") for record in caplog.records] == [True]
    memory.forget("b")
    assert memory.tell("a", 2**20).keys_bytes == 2**20

"""Mode PARTIAL on servers: replicas merge every row once, into the same row, and make the same files."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.budget import count
from tests.support.plugins import installed
from tests.unit.server.merging_replicas import Replica, Row, Stream, interleave

from merlot.cluster.consuming.progress import StreamProblem
from merlot.errors import UnavailableError
from merlot.server.realtime.merger_retry import PoisonRowError
from merlot.server.realtime.problems import problem_of
from merlot.server.realtime.upserts import UpsertListener
from merlot.spec.schema import TableSchema

SEEDS = count("MERLOT_REPLICAS", quick=2, every=4)
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "STRING"},
            {"name": "at", "type": "LONG"},
            {"name": "name", "type": "STRING"},
            {"name": "total", "type": "LONG", "role": "metric"},
            {"name": "price", "type": "BIG_DECIMAL", "role": "metric"},
            {"name": "share", "type": "DOUBLE", "role": "metric"},
            {"name": "flags", "type": "INT", "multiValue": True},
            {"name": "log", "type": "STRING", "multiValue": True},
            {"name": "open", "type": "BOOLEAN"},
            {"name": "blob", "type": "BYTES"},
            {"name": "gone", "type": "BOOLEAN"},
        ],
        "primaryKey": ["key"],
    }
)
MERGED = (
    '"deleteRecordColumn":"gone","partialUpsertStrategies":{"total":"INCREMENT","price":"INCREMENT","share":"MAX",'
    '"flags":"UNION","log":"APPEND","blob":"FORCE_OVERWRITE","open":"IGNORE"}'
)


def message(draw: random.Random, number: int) -> Row:
    def some(value: Any) -> Any:
        return value if draw.random() < 0.6 else None

    return {
        "key": f"key {draw.randrange(6)}",
        "at": number - draw.choice((0, 0, 0, 1, 9)),
        "name": some(draw.choice(("", "a", "b" * 30))),
        "total": some(draw.choice((1, -7, 2**62, -(2**62)))),
        "price": some(draw.choice(("1.5", "2.25", "-3"))),
        "share": some(draw.choice((0.1, 0.5, -1.0))),
        "flags": some([draw.randrange(3) for _ in range(draw.randrange(1, 3))]),
        "log": some([f"{number}"]),
        "open": some(draw.random() < 0.5),
        "blob": some(bytes([number % 256])),
        "gone": draw.random() < 0.1,
    }


class Oracle:
    """Rows one by one, in a dict: what is stored of each, and the newest row of each key."""

    def __init__(self, *, drops: bool, ttl: int | None) -> None:
        self.drops, self.ttl, self.largest = drops, ttl, -(1 << 60)
        self.stored: list[Row] = []
        self.newest: dict[str, int] = {}
        self.replaced: set[int] = set()

    def add(self, row: Row) -> None:
        dead = -(1 << 61) if self.ttl is None else self.largest - self.ttl
        self.largest = max(self.largest, row["at"])
        place = self.newest.get(row["key"])
        before = None if place is None or self.stored[place]["at"] < dead else self.stored[place]
        is_older = before is not None and row["at"] < before["at"]
        if is_older and self.drops:
            return
        if before is not None and not is_older and not before["gone"] and not row["gone"]:
            row = merged(before, row)
        self.stored.append(row)
        mine = len(self.stored) - 1
        if is_older:
            self.replaced.add(mine)
        elif row["at"] >= dead:
            if before is not None and place is not None:
                self.replaced.add(place)
            self.newest[row["key"]] = mine

    @property
    def seen(self) -> list[Row]:
        return [row for place, row in enumerate(self.stored) if place not in self.replaced and not row["gone"]]


def merged(before: Row, new: Row) -> Row:
    found = {name: before[name] if value is None else value for name, value in new.items()}
    both = [name for name in new if before[name] is not None and new[name] is not None]
    meet = {
        "total": lambda one, two: (one + two + 2**63) % 2**64 - 2**63,
        "price": lambda one, two: f"{Decimal(one) + Decimal(two):f}",
        "share": max,
        "flags": lambda one, two: sorted({*one, *two}),
        "log": lambda one, two: one + two,
        "open": lambda one, _: one,
    }
    return found | {name: meet[name](before[name], new[name]) for name in both if name in meet} | {"blob": new["blob"]}


def as_stored(rows: list[Row]) -> list[Row]:
    return [row | {"price": None if row["price"] is None else Decimal(row["price"])} for row in rows]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_merge_alike_whatever_becomes_of_them(seed: int, tmp_path: Path) -> None:
    drops, ttl = (seed % 2 == 1, None if seed % 4 < 2 else 20)
    settings = '{"mode":"PARTIAL",' + MERGED + (',"dropOutOfOrderRecord":true' if drops else "")
    stream = Stream(SCHEMA, settings + ("}" if ttl is None else f',"primaryKeyTtl":"{ttl}"}}'), tmp_path)

    def check(replica: Replica) -> None:
        oracle = Oracle(drops=drops, ttl=ttl)
        for row in stream.messages[: replica.offset]:
            oracle.add(row)
        assert as_stored(replica.rows(is_valid=False)) == as_stored(oracle.stored)
        assert as_stored(replica.rows(is_valid=True)) == as_stored(oracle.seen)

    interleave(stream, random.Random(seed), message, check)


LONGEST = """
import pyarrow.compute as pc


def longest(before, new):
    is_longer = pc.fill_null(pc.greater(pc.utf8_length(new), pc.utf8_length(before)), True)
    return pc.if_else(is_longer, pc.coalesce(new, before), before)
"""


def test_replicas_merge_by_a_function_of_ones_own(tmp_path: Path) -> None:
    points = {"merlot.mergers": {"acme.longest": "acme_longest:longest"}}
    settings = '{"mode":"PARTIAL","partialUpsertStrategies":{"name":"acme.longest"}}'
    stream = Stream(SCHEMA, settings, tmp_path)

    def check(replica: Replica) -> None:
        longest: dict[str, str] = {}
        newest: dict[str, int] = {}
        for row in stream.messages[: replica.offset]:
            if row["at"] >= newest.get(row["key"], -100):
                newest[row["key"]] = row["at"]
                longest[row["key"]] = max(longest.get(row["key"]), row["name"], key=lambda name: len(name or ""))
        seen = {row["key"]: row["name"] or "" for row in replica.rows(is_valid=True)}
        assert seen == {key: name or "" for key, name in longest.items()}

    with installed(tmp_path / "acme", {"acme_longest": LONGEST}, points):
        interleave(stream, random.Random(3), message, check)


def test_a_row_waits_for_the_file_of_the_row_that_it_is_merged_into(tmp_path: Path) -> None:
    stream = Stream(SCHEMA, '{"mode":"PARTIAL",' + MERGED + "}", tmp_path)
    draw = random.Random(1)
    stream.messages = [message(draw, number) | {"key": "key", "gone": False, "at": number} for number in range(4)]
    replica = Replica(stream, 0)
    replica.read(2)
    old = stream.open
    stream.commit(2, replica.seal(2))
    replica.follow(stream.records[old.sequence], carries=True)
    replica.segments.release()
    away = stream.records[0].key_text
    replica.loaded.discard(away)
    with pytest.raises(UnavailableError):
        replica.read(3)
    replica.loaded.add(away)
    replica.listener.settle()
    replica.read(4)
    oracle = Oracle(drops=False, ttl=None)
    for row in stream.messages:
        oracle.add(row)
    assert as_stored(replica.rows(is_valid=True)) == as_stored(oracle.seen)


POISONED = """
import pathlib


def merged(before, new):
    if pathlib.Path(__file__).with_suffix(".mended").exists():
        return new
    if "poison" in new.to_pylist():
        raise ValueError("cannot merge that")
    return new
"""


def test_a_row_that_a_merger_fails_of_stops_consumption_and_says_so_until_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upsert = '{"mode":"PARTIAL","partialUpsertStrategies":{"name":"acme.poisoned"}}'
    stream = Stream(SCHEMA, upsert, tmp_path)
    draw = random.Random(1)
    names = ["a", "b", "c", "d", "poison", "e"]
    stream.messages = [
        message(draw, number) | {"key": f"key {number % 2}", "gone": False, "at": number, "name": name}
        for number, name in enumerate(names)
    ]
    points = {"merlot.mergers": {"acme.poisoned": "acme_poisoned:merged"}}
    with installed(tmp_path / "acme", {"acme_poisoned": POISONED}, points):
        replica = Replica(stream, 0)
        replica.read(3)
        built: list[int] = []
        rebuild = UpsertListener._rebuild

        def counted(self: UpsertListener, **shown: Any) -> None:
            built.append(1)
            rebuild(self, **shown)

        monkeypatch.setattr(UpsertListener, "_rebuild", counted)
        said = (
            r"merger failed name=acme\.poisoned .*cannot merge that.* column=name key={'key': 'key 0'} .*offset=4: mend"
        )
        for _ in range(5):
            with pytest.raises(PoisonRowError, match=said) as caught:
                replica.read(6)
            replica.listener.settle()
            assert [row["name"] for row in replica.rows(is_valid=True)] == ["b", "c"]
        assert problem_of(caught.value) is StreamProblem.MERGER_FAILED
        assert len(built) == 1, "the index is built once, not again and again"
        (tmp_path / "acme" / "acme_poisoned.mended").touch()
        replica.read(6)
        assert [row["name"] for row in replica.rows(is_valid=True)] == ["poison", "e"]
        assert len(built) == 1

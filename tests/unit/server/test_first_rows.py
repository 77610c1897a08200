"""Mode DEDUP and clocks that are wrong, on servers: replicas keep the same rows, and make the same files of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.budget import count
from tests.unit.server.merging_replicas import Replica, Row, Stream, interleave

from merlot.spec.schema import TableSchema

SEEDS = count("MERLOT_REPLICAS", quick=2, every=4)
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "STRING"},
            {"name": "at", "type": "TIMESTAMP", "role": "dateTime"},
            {"name": "sent", "type": "TIMESTAMP"},
            {"name": "number", "type": "LONG"},
        ],
        "primaryKey": ["key"],
    }
)
TTL_MS, SKEW_MS = 20_000, 5_000


def message(draw: random.Random, number: int) -> Row:
    """A message a second; a few clocks are behind, or far ahead, and some messages do not say when they were made."""
    now_ms = 1_000_000 + 1_000 * number
    at_ms = now_ms + draw.choice((0, 0, 0, -3_000, -40_000, 4_000, 400_000))
    sent = draw.choice((now_ms, now_ms, now_ms, None))
    return {"key": f"key {draw.randrange(5)}", "at": at_ms, "sent": sent, "number": number}


def first_rows(rows: list[Row], *, has_skew: bool) -> list[Row]:
    newest: dict[str, int] = {}
    largest, kept = -(1 << 60), []
    for row in rows:
        if newest.get(row["key"], -(1 << 61)) >= largest - TTL_MS:
            continue
        kept.append(row)
        newest[row["key"]] = max(row["at"], newest.get(row["key"], row["at"]))
        if not has_skew or row["sent"] is None or row["at"] <= row["sent"] + SKEW_MS:
            largest = max(largest, row["at"])
    return kept


def newest_rows(rows: list[Row]) -> list[Row]:
    """Mode FULL, with a time to live and clocks that are wrong."""
    newest: dict[str, int] = {}
    replaced: set[int] = set()
    largest = -(1 << 60)
    for place, row in enumerate(rows):
        dead = largest - TTL_MS
        if row["sent"] is None or row["at"] <= row["sent"] + SKEW_MS:
            largest = max(largest, row["at"])
        before = newest.get(row["key"])
        if before is not None and rows[before]["at"] >= dead:
            if row["at"] < rows[before]["at"]:
                replaced.add(place)
                continue
            replaced.add(before)
        if row["at"] >= dead:
            newest[row["key"]] = place
    return [row for place, row in enumerate(rows) if place not in replaced]


def numbers(rows: list[Row]) -> list[int]:
    return [row["number"] for row in rows]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_keep_the_first_row_of_each_key(seed: int, tmp_path: Path) -> None:
    has_skew = seed % 2 == 1
    skew = ',"maxFutureSkew":"5s","messageTimeColumn":"sent"' if has_skew else ""
    stream = Stream(SCHEMA, f'{{"mode":"DEDUP","primaryKeyTtl":"20s"{skew}}}', tmp_path)

    def check(replica: Replica) -> None:
        expected = numbers(first_rows(stream.messages[: replica.offset], has_skew=has_skew))
        assert numbers(replica.rows(is_valid=False)) == expected
        assert numbers(replica.rows(is_valid=True)) == expected

    interleave(stream, random.Random(seed), message, check)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_agree_on_what_a_clock_that_is_ahead_makes_expire(seed: int, tmp_path: Path) -> None:
    settings = '{"mode":"FULL","primaryKeyTtl":"20s","maxFutureSkew":"5s","messageTimeColumn":"sent"}'
    stream = Stream(SCHEMA, settings, tmp_path)

    def check(replica: Replica) -> None:
        messages = stream.messages[: replica.offset]
        assert numbers(replica.rows(is_valid=False)) == numbers(messages)
        assert numbers(replica.rows(is_valid=True)) == numbers(newest_rows(messages))

    interleave(stream, random.Random(seed), message, check)

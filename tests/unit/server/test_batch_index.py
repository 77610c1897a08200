"""Which docs of pushed segments are valid: the same on every replica, however it came to the segments that it has."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count

from merlot.errors import CorruptionError
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import RowReader, Segment, SomeDocs
from merlot.server.batches.index import READ_DOCS, PartitionIndex, StoppedError
from merlot.server.batches.views import EditionReadView, EditionView
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.spec.upserting import UpsertSpec
from merlot.upsert.rules import Rules

NUM_WALKS = count("MERLOT_EDITIONS", quick=3, every=20, fuzz=500)
NUM_SEGMENTS = 10
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "id", "type": "STRING"},
            {"name": "version", "type": "LONG"},
            {"name": "minor", "type": "DOUBLE"},
            {"name": "gone", "type": "BOOLEAN"},
        ],
        "primaryKey": ["id"],
    }
)
FIELDS = {"mode": "FULL", "comparisonColumns": ["version"], "deleteRecordColumn": "gone"}


def rules(**fields: Any) -> Rules:
    spec = UpsertSpec.model_validate(FIELDS | fields)
    return replace(Rules.of(spec, SCHEMA, None), nulls_are_least=True)


RULES = rules()


@dataclass(frozen=True)
class Pushed:
    """A segment and its rows."""

    rows: Sequence[dict[str, Any]]
    segment: ImmutableSegment

    @property
    def key(self) -> str:
        return str(self.segment.key)


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pushed]]:
    folder, draw = tmp_path_factory.mktemp("pushed"), random.Random(2)
    made = [build(folder, f"s{number}", rows_of(draw, draw.choice((1, 40, 150)))) for number in range(NUM_SEGMENTS)]
    yield made
    for one in made:
        one.segment.close()


def rows_of(draw: random.Random, number: int) -> list[dict[str, Any]]:
    """Of few keys, with many ties; null is smaller than all."""
    return [
        {
            "id": f"key {draw.randrange(70)}",
            "version": draw.choice((None, *range(6))),
            "minor": draw.random(),
            "gone": draw.random() < 0.1,
        }
        for _ in range(number)
    ]


def build(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> Pushed:
    request = BuildRequest(
        name=name, table="board", schema=SCHEMA, indexing=IndexingSpec(), time_column=None, partitioning=None
    )
    columns = {field.name: [row[field.name] for row in rows] for field in SCHEMA.fields}
    built = build_segment(request, pa.table(columns), folder)
    return Pushed(rows, ImmutableSegment.open(built.path))


def oracle(edition: Sequence[Pushed]) -> list[list[tuple[int, bool]]]:
    """By segment, the docs that are valid, and whether they delete their keys."""
    newest: dict[str, tuple[float, int, int, bool]] = {}
    for number, one in enumerate(edition):
        for doc, row in enumerate(one.rows):
            value = -np.inf if row["version"] is None else row["version"]
            before = newest.get(row["id"])
            if before is None or value >= before[0]:
                newest[row["id"]] = (value, number, doc, row["gone"])
    return [
        sorted((doc, is_deleted) for _, place, doc, is_deleted in newest.values() if place == number)
        for number in range(len(edition))
    ]


def shown(view: EditionView, edition: Sequence[Pushed]) -> list[list[tuple[int, bool]]]:
    """The same of what queries see."""
    cut, found = EditionReadView({view.key: view}), []
    assert cut.resolve(view.key) is not None
    for one in edition:
        segment = cut.masked(one.segment)
        assert segment is not None
        assert isinstance(segment.valid_docs, SomeDocs)
        live = docs_of(segment.valid_docs.words)
        every = live if segment.valid_docs.with_tombstones is None else docs_of(segment.valid_docs.with_tombstones)
        found.append(sorted((doc, doc not in live) for doc in every))
    return found


def docs_of(words: np.ndarray[Any, np.dtype[np.uint64]]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


class Replica:
    """An index that goes from edition to edition."""

    def __init__(self, read_docs: int = READ_DOCS) -> None:
        self.is_stopping = False
        self.index = PartitionIndex(lambda rows: 0, lambda: self.is_stopping, read_docs=read_docs)
        self.num_read = 0

    def bring(self, edition: Sequence[Pushed]) -> EditionView:
        keys = tuple(one.key for one in edition)
        unread = self.index.unread(keys, RULES)
        self.num_read += len(unread)
        segments = {one.key: one.segment for one in edition if one.key in unread}
        return self.index.bring("upsert/0@7", segments, keys, RULES)


@pytest.mark.parametrize("seed", range(NUM_WALKS))
def test_replicas_agree_with_a_dict_whatever_came_before(pushed: list[Pushed], seed: int) -> None:
    draw = random.Random(seed)
    replicas = [Replica() for _ in range(3)]
    edition: list[Pushed] = []
    for _ in range(10):
        edition = changed(edition, pushed, draw)
        # Some miss editions, as servers do that are away or slow.
        views = [one.bring(edition) for one in replicas if draw.random() < 0.6] + [Replica().bring(edition)]
        right = oracle(edition)
        for view in views:
            assert shown(view, edition) == right
    for one in replicas:
        assert shown(one.bring(edition), edition) == oracle(edition)
        stats = one.index.stats
        assert stats.keys == stats.valid == len({row["id"] for held in edition for row in held.rows})


def changed(edition: list[Pushed], pushed: list[Pushed], draw: random.Random) -> list[Pushed]:
    """A push behind all others, one more somewhere, a deletion, or another in a segment's place."""
    rest = [one for one in pushed if one not in edition]
    found = list(edition)
    match draw.choice(("push", "push", "push", "insert", "delete", "replace")):
        case "push" if rest:
            found += draw.sample(rest, min(len(rest), draw.choice((1, 1, 3))))
        case "insert" if rest:
            found.insert(draw.randrange(len(found) + 1), draw.choice(rest))
        case "delete" if found:
            found.pop(draw.randrange(len(found)))
        case "replace" if found and rest:
            found[draw.randrange(len(found))] = draw.choice(rest)
    return found


def test_a_push_reads_its_own_rows_alone(pushed: list[Pushed]) -> None:
    replica = Replica()
    replica.bring(pushed[:4])
    replica.bring(pushed[:6])
    assert replica.num_read == 6
    replica.bring(pushed[1:6])
    assert replica.num_read == 11


def test_an_edition_that_was_shown_stays_as_it_was(pushed: list[Pushed]) -> None:
    replica = Replica()
    views = [(replica.bring(pushed[:number]), pushed[:number]) for number in (1, 3, 7, 5, 9)]
    for view, edition in views:
        assert shown(view, edition) == oracle(edition)


class Broken:
    """A segment whose columns cannot be read."""

    def __init__(self, segment: ImmutableSegment) -> None:
        self._segment = segment
        self.key, self.num_docs, self.valid_docs = segment.key, segment.num_docs, segment.valid_docs
        self.instants = segment.instants

    def column(self, name: str) -> RowReader | None:
        raise CorruptionError(f"column cannot be read name={name}")

    def bounds(self, name: str) -> tuple[int, int] | None:
        return self._segment.bounds(name)


def test_nothing_is_left_of_an_edition_that_could_not_be_read(pushed: list[Pushed]) -> None:
    replica = Replica()
    before = replica.bring(pushed[:3])
    keys = tuple(one.key for one in pushed[:5])
    segments: dict[str, Segment] = {pushed[3].key: pushed[3].segment, pushed[4].key: Broken(pushed[4].segment)}
    with pytest.raises(CorruptionError):
        replica.index.bring("upsert/0@8", segments, keys, RULES)
    assert shown(before, pushed[:3]) == oracle(pushed[:3])
    assert replica.index.stats.keys == 0
    assert shown(replica.bring(pushed[:5]), pushed[:5]) == oracle(pushed[:5])


def test_building_ends_between_two_blocks_when_the_server_does(pushed: list[Pushed]) -> None:
    replica = Replica(read_docs=16)
    assert shown(replica.bring(pushed), pushed) == oracle(pushed)
    replica.is_stopping = True
    with pytest.raises(StoppedError):
        replica.bring(pushed[1:])


def test_several_comparison_columns_and_another_that_deletes_build_the_index_anew(pushed: list[Pushed]) -> None:
    replica = Replica()
    keys = tuple(one.key for one in pushed[:3])
    replica.bring(pushed[:3])
    assert replica.index.unread(keys, RULES) == ()
    assert replica.index.unread(keys, rules(comparisonColumns=["version", "minor"])) == keys
    assert replica.index.unread(keys, rules(deleteRecordColumn=None)) == keys

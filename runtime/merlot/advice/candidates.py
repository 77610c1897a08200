"""What might help the queries of a table: pure, of plans and statistics.

Generous on purpose, since each candidate is tried on real segments afterwards; what cannot pay is left out, and the
rest is in the order of what it promises, so that a trial that is cut short has tried the best ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.advice.filters import Asks, Test, tests_of
from merlot.advice.statistics import ColumnFacts, Statistics, with_derived
from merlot.advice.trees import trees_for
from merlot.advice.workload import Question
from merlot.segment.index.inverted import INDEX as INVERTED
from merlot.spec.derived import derived_of
from merlot.spec.indexing import INDEX_KINDS, IndexingSpec
from merlot.spec.star_tree import StarTreeSpec

SORTED: Final = "sorted"
DERIVED: Final = "derived"
STAR_TREE: Final = "star_tree"
_KINDS: Final[Mapping[Asks, tuple[str, ...]]] = {
    Asks.VALUES: (INVERTED.name,),
    Asks.RANGE: ("range", INVERTED.name),
    Asks.PATTERN: ("ngram", INVERTED.name),
    Asks.WORDS: ("text",),
    Asks.JSON: ("json_paths",),
}
"""Indexes that answer each."""
_BYTES_A_DOC: Final = {"inverted": 2.5, "range": 4.0}
_SHARE_OF_TEXT: Final = {"ngram": 0.6, "text": 0.4, "json_paths": 0.35}
_MOST_SHARE: Final = 0.25
"""Of rows that a filter keeps: of more, no index wins anything over a scan."""
_FEW_VALUES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One change of a table's `spec.indexing`."""

    kind: str
    """A field of IndexingSpec, SORTED, DERIVED or STAR_TREE."""
    columns: tuple[str, ...]
    """The column of an index, or a derived one; the whole sort order; the dimensions of a tree."""
    tree: StarTreeSpec | None = None
    helps: tuple[int, ...]
    """Numbers of the questions that it may help."""
    gain: float
    """Promised: the share of all time that it may save."""
    num_bytes: int
    """Promised, for the segments that the statistics are of."""

    @property
    def label(self) -> str:
        """For people."""
        names = ", ".join(self.columns)
        if self.tree is not None:
            return f"star-tree of {names}"
        if self.kind == DERIVED:
            return f"column {names}"
        return f"sorted by {names}" if self.kind == SORTED else f"{self.kind} of {names}"

    def applied(self, indexing: IndexingSpec) -> IndexingSpec:
        """The table's indexing with it."""
        if self.tree is not None:
            trees = (*indexing.star_tree_index_configs, self.tree)
            return _with(indexing, "star_tree_index_configs", trees)
        if self.kind == DERIVED:
            derived = derived_of(self.columns[0])
            assert derived is not None
            every = dict(indexing.timestamp_granularities)
            every[derived.column] = (*every.get(derived.column, ()), derived.granularity)
            return _with(indexing, "timestamp_granularities", every)
        if self.kind == SORTED:
            return _with(indexing, "sorted_columns", self.columns)
        return _with(indexing, self.kind, (*indexing.columns_of(self.kind), *self.columns))


def _with(indexing: IndexingSpec, field: str, value: object) -> IndexingSpec:
    """Made anew: a copy would keep what was worked out of the other fields."""
    fields = {name: getattr(indexing, name) for name in IndexingSpec.model_fields}
    return IndexingSpec(**{**fields, field: value})


def candidates(questions: Sequence[Question], known: Statistics, indexing: IndexingSpec) -> list[Candidate]:
    """What a table lacks and might use, what promises most first."""
    if not known.num_docs:
        return []
    known = with_derived(known, frozenset().union(*(one.derived for one in questions)))
    shares = _shares(questions)
    found = [*_indexes(questions, shares, known, indexing), *_orders(questions, shares, known, indexing)]
    found += _times(questions, shares, known, indexing)
    for tree, helps, num_documents in trees_for(questions, known, indexing):
        gain = sum(shares[number] for number in helps) * (1 - num_documents / known.docs_each)
        num_segments = known.num_docs / known.docs_each
        num_bytes = int(num_documents * num_segments) * (2 * len(tree.dimensions_split_order) + 8 * len(tree.stored))
        columns = tree.dimensions_split_order
        found.append(Candidate(kind=STAR_TREE, columns=columns, tree=tree, helps=helps, gain=gain, num_bytes=num_bytes))
    return sorted((one for one in found if one.gain > 0), key=lambda one: (-one.gain, one.num_bytes, one.label))


def _shares(questions: Sequence[Question]) -> list[float]:
    """Of all time, the part that each question takes; by counts where no time is known."""
    amounts = [one.time_ms for one in questions]
    if not all(amounts):
        amounts = [one.count for one in questions]
    total = sum(amounts) or 1.0
    return [amount / total for amount in amounts]


def _indexes(
    questions: Sequence[Question], shares: Sequence[float], known: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    gains: dict[tuple[str, str], dict[int, float]] = {}
    for number, question in enumerate(questions):
        for test in tests_of(question.leaf.filter):
            facts = known.columns.get(test.column)
            if facts is None or (share := test.share(facts)) > _MOST_SHARE:
                continue
            for kind in _kinds(test, facts, indexing):
                helped = gains.setdefault((kind, test.column), {})
                helped[number] = max(helped.get(number, 0.0), shares[number] * (1 - share))
    for (kind, column), helped in gains.items():
        yield Candidate(
            kind=kind,
            columns=(column,),
            helps=tuple(sorted(helped)),
            gain=sum(helped.values()),
            num_bytes=_size(kind, known.columns[column], known.num_docs),
        )


def _kinds(test: Test, facts: ColumnFacts, indexing: IndexingSpec) -> Iterator[str]:
    for kind in _KINDS[test.asks]:
        rule = INDEX_KINDS[kind]
        is_there = test.column in indexing.columns_of(kind)
        takes = facts.type in rule.types and (rule.takes_lists or not facts.multi_value)
        if kind == "range":
            takes = takes and facts.type in rule.raw_types
        if takes and not is_there and not facts.is_sorted and facts.cardinality > _FEW_VALUES:
            yield kind


def _orders(
    questions: Sequence[Question], shares: Sequence[float], known: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    """Rows in the order of each column that queries filter by, before what they are in the order of now."""
    gains: dict[str, dict[int, float]] = {}
    for number, question in enumerate(questions):
        for test in tests_of(question.leaf.filter):
            facts = known.columns.get(test.column)
            if facts is None or facts.multi_value or facts.is_sorted or test.asks not in (Asks.VALUES, Asks.RANGE):
                continue
            helped = gains.setdefault(test.column, {})
            helped[number] = max(helped.get(number, 0.0), shares[number] * (1 - test.share(facts)))
    best = sorted(gains, key=lambda name: (-sum(gains[name].values()), name))[:_MOST_ORDERS]
    for name in best:
        order = (name, *(one for one in indexing.sorted_columns if one != name))
        # What it does to the other queries, only the trial can tell.
        helped = gains[name]
        yield Candidate(
            kind=SORTED, columns=order, helps=tuple(sorted(helped)), gain=sum(helped.values()) / 2, num_bytes=0
        )


def _times(
    questions: Sequence[Question], shares: Sequence[float], known: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    """Times cut to a unit that queries compute."""
    helped: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        for one in question.derived:
            if one.derived not in indexing.derived and one.derived.name in known.columns:
                helped.setdefault(one.derived.name, []).append(number)
    for name, numbers in helped.items():
        yield Candidate(
            kind=DERIVED,
            columns=(name,),
            helps=tuple(numbers),
            gain=sum(shares[number] for number in numbers) / 2,
            num_bytes=2 * known.num_docs,
        )


_MOST_ORDERS: Final = 3


def _size(kind: str, facts: ColumnFacts, num_docs: int) -> int:
    if kind in _SHARE_OF_TEXT:
        return int(facts.stored_bytes * _SHARE_OF_TEXT[kind])
    return int(num_docs * _BYTES_A_DOC[kind])

"""Propose changes of a table's indexing that may speed up its queries. Pure: reads plans and statistics.

The list is generous, because a trial measures each candidate on real segments afterwards. It leaves out candidates that
cannot pay and is sorted by promised gain, so that a trial that is cut short has tried the best ones.
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
"""Kinds of index that answer each kind of test, the best first."""
_BYTES_PER_DOC: Final = {"inverted": 2.5, "range": 4.0}
_SHARE_OF_TEXT: Final = {"ngram": 0.6, "text": 0.4, "json_paths": 0.35}
_MAX_SELECTIVITY: Final = 0.25
"""Share of rows up to which a filter may match: beyond it no index beats a scan."""
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
    """Share of the total query time that it may save, estimated."""
    num_bytes: int
    """Size over the segments that the statistics describe, estimated."""

    @property
    def label(self) -> str:
        """Name of the candidate for people."""
        names = ", ".join(self.columns)
        if self.tree is not None:
            return f"star-tree of {names}"
        if self.kind == DERIVED:
            return f"column {names}"
        return f"sorted by {names}" if self.kind == SORTED else f"{self.kind} of {names}"

    def applied(self, indexing: IndexingSpec) -> IndexingSpec:
        """Return the indexing with this change."""
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
    """Return a new spec with one field replaced. `model_copy` would keep properties cached from the old fields."""
    fields = {name: getattr(indexing, name) for name in IndexingSpec.model_fields}
    return IndexingSpec(**{**fields, field: value})


def candidates(questions: Sequence[Question], statistics: Statistics, indexing: IndexingSpec) -> list[Candidate]:
    """Return the changes that the table may profit from, the highest promised gain first."""
    if not statistics.num_docs:
        return []
    statistics = with_derived(statistics, frozenset().union(*(question.derived for question in questions)))
    shares = _shares(questions)
    proposals = [*_indexes(questions, shares, statistics, indexing), *_orders(questions, shares, statistics, indexing)]
    proposals += _derived_columns(questions, shares, statistics, indexing)
    for tree, helps, num_documents in trees_for(questions, statistics, indexing):
        gain = sum(shares[number] for number in helps) * (1 - num_documents / statistics.docs_each)
        num_segments = statistics.num_docs / statistics.docs_each
        num_bytes = int(num_documents * num_segments) * (2 * len(tree.dimensions_split_order) + 8 * len(tree.stored))
        columns = tree.dimensions_split_order
        proposals.append(
            Candidate(kind=STAR_TREE, columns=columns, tree=tree, helps=helps, gain=gain, num_bytes=num_bytes)
        )
    return sorted(
        (proposal for proposal in proposals if proposal.gain > 0),
        key=lambda proposal: (-proposal.gain, proposal.num_bytes, proposal.label),
    )


def _shares(questions: Sequence[Question]) -> list[float]:
    """Return each question's share of the total time, or of the number of queries if a time is unknown."""
    amounts = [question.time_ms for question in questions]
    if not all(amounts):
        amounts = [question.count for question in questions]
    total = sum(amounts) or 1.0
    return [amount / total for amount in amounts]


def _indexes(
    questions: Sequence[Question], shares: Sequence[float], statistics: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    gains: dict[tuple[str, str], dict[int, float]] = {}
    for number, question in enumerate(questions):
        for test in tests_of(question.leaf.filter):
            facts = statistics.columns.get(test.column)
            if facts is None or (share := test.share(facts)) > _MAX_SELECTIVITY:
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
            num_bytes=_size(kind, statistics.columns[column], statistics.num_docs),
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
    questions: Sequence[Question], shares: Sequence[float], statistics: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    """Propose to sort by each of the best _MOST_ORDERS columns that queries filter by, then by the present sort
    order."""
    gains: dict[str, dict[int, float]] = {}
    for number, question in enumerate(questions):
        for test in tests_of(question.leaf.filter):
            facts = statistics.columns.get(test.column)
            if facts is None or facts.multi_value or facts.is_sorted or test.asks not in (Asks.VALUES, Asks.RANGE):
                continue
            helped = gains.setdefault(test.column, {})
            helped[number] = max(helped.get(number, 0.0), shares[number] * (1 - test.share(facts)))
    best = sorted(gains, key=lambda name: (-sum(gains[name].values()), name))[:_MOST_ORDERS]
    for name in best:
        order = (name, *(column for column in indexing.sorted_columns if column != name))
        # Only the trial can tell what another order does to the other queries.
        helped = gains[name]
        yield Candidate(
            kind=SORTED, columns=order, helps=tuple(sorted(helped)), gain=sum(helped.values()) / 2, num_bytes=0
        )


def _derived_columns(
    questions: Sequence[Question], shares: Sequence[float], statistics: Statistics, indexing: IndexingSpec
) -> Iterator[Candidate]:
    """Propose to store the truncated times that queries compute."""
    helped: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        for computed in question.derived:
            if computed.derived not in indexing.derived and computed.derived.name in statistics.columns:
                helped.setdefault(computed.derived.name, []).append(number)
    for name, numbers in helped.items():
        yield Candidate(
            kind=DERIVED,
            columns=(name,),
            helps=tuple(numbers),
            gain=sum(shares[number] for number in numbers) / 2,
            num_bytes=2 * statistics.num_docs,
        )


_MOST_ORDERS: Final = 3


def _size(kind: str, facts: ColumnFacts, num_docs: int) -> int:
    if kind in _SHARE_OF_TEXT:
        return int(facts.stored_bytes * _SHARE_OF_TEXT[kind])
    return int(num_docs * _BYTES_PER_DOC[kind])

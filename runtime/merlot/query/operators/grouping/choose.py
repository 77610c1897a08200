"""Choice of a strategy for GROUP BY: a pure function from facts to a `Strategy`.

The codes of a row's keys are packed into words. `space` is the number of words that are possible. The first strategy
whose condition holds is taken.

| strategy | when | why |
|---|---|---|
| RANGE_PARTITIONED | `splits_keys`: one large target, few docs for each key | no two tasks have a key in common |
| BYPASS | in a sample almost every doc has keys of its own | a table would be as large as its input |
| ENCODED | lists of values, or codes that need all rows at once | there is no other way |
| DENSE | few words are possible, or about as many as there are docs | an array needs no search |
| HASHED | otherwise | memory grows with the groups that occur |

CPU time in ms of 1,500,000 rows of ClickBench's schema, generated, in 8 segments or, where marked, in one. The last
column is the time of the strategy that is next in line. Two threads shared two busy cores.

| strategy | query | threads | ms | next |
|---|---|---|---|---|
| RANGE_PARTITIONED | 249,000 users, one segment | 2 | 50 | 144 |
| RANGE_PARTITIONED | the same | 1 | 57 | 38 |
| BYPASS | pairs of WatchID and ClientIP, all different | 2 | 227 | 470 |
| BYPASS | 365,000 URLs | 2 | 411 | 1,146 |
| BYPASS | 636,000 addresses | 2 | 90 | 83 |
| DENSE | 90 operating systems, one segment | 1 | 8.0 | 12.3 |
| DENSE | 5,000 regions, three aggregates | 1 | 13 | 27 |
| DENSE | 82,000 phrases | 1 | 12 | 32 |
| DENSE | 249,000 users, one segment | 1 | 36 | 35 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

SMALL_SPACE: Final = 4_096
"""Most possible keys for which arrays are taken however few docs there are. Hash tables are as fast there (0.21 ms for
both over 8 segments), but arrays give groups in the order of their keys."""
MAX_DENSE_SPACE: Final = 1 << 22
"""Most possible keys of arrays."""
LEAST_BYPASSED_DOCS: Final = 1 << 15
"""Fewest docs of a task that may bypass grouping. Fewer cost little to group."""
LEAST_BYPASSED_SHARE: Final = 0.985
"""Least share of groups among the rows of the sample: that of 8,192 rows drawn from 270,000 keys."""
LEAST_BYPASSED_SHARE_OF_TEXTS: Final = 0.75
"""The same, if each task would have to read texts, and the merge again."""
LEAST_PARTITIONED_DOCS: Final = 1 << 20
MOST_DOCS_PER_KEY: Final = 8
"""Most docs for each possible key in a range. With more docs, groups are few and quickly merged."""
MOST_KEYS_PER_DOC: Final = 4
"""Most possible keys for each doc in a range."""
MOST_PARTITIONED_SPACE: Final = 1 << 24
MOST_PARTITIONED_BYTES: Final = 384 << 20
"""Most bytes of the arrays of all ranges together."""
_STATE_BYTES: Final = 16
"""Approximate size of a light state."""


class Strategy(Enum):
    """Way of grouping, implemented by the module of the same name."""

    RANGE_PARTITIONED = "range_partitioned"
    BYPASS = "bypass"
    ENCODED = "encoded"
    DENSE = "dense"
    HASHED = "hashed"


@dataclass(frozen=True, slots=True)
class WorkFacts:
    """Facts of a GROUP BY that hold for all segments."""

    num_states: int
    is_light: bool
    """True if all functions of aggregates are light: a state is a few numbers, and a row costs a few nanoseconds."""
    is_narrow: bool
    """True if no aggregate has an argument of variable width or of type BIG_DECIMAL."""
    has_lists: bool
    """True if a key may have several values in a row."""


@dataclass(frozen=True, slots=True)
class KeySample:
    """Keys of a task's first rows."""

    share_of_groups: float
    """Number of groups, divided by the number of rows."""
    reads_texts: bool
    """True if a key is a text without a dictionary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Facts of the docs that a task groups. Functions read data, and are called only if their result matters."""

    num_docs: int
    num_docs_of_query: int
    """Number of docs of all tasks."""
    max_groups: int
    """Most groups that the query may have."""
    has_stored_states: bool
    """True if a doc stands for rows that were aggregated in advance."""
    sample: Callable[[], KeySample]
    space: Callable[[], int | None]
    """Number of possible keys; None if keys have codes only once all rows are read."""


def choose(work: WorkFacts, task: TaskFacts) -> Strategy:
    """Return the strategy for a task's docs."""
    if _may_bypass(work, task) and _mostly_differ(task.sample()):
        return Strategy.BYPASS
    return choose_table(work, task)


def choose_table(work: WorkFacts, task: TaskFacts) -> Strategy:
    """Return the strategy for a task that has to group its docs itself."""
    space = None if work.has_lists else task.space()
    if space is None:
        return Strategy.ENCODED
    is_small = space <= SMALL_SPACE or space <= min(2 * task.num_docs, MAX_DENSE_SPACE)
    return Strategy.DENSE if is_small else Strategy.HASHED


def _may_bypass(work: WorkFacts, task: TaskFacts) -> bool:
    """Return whether a row of keys and states for each doc is small, and allowed by the query's limits."""
    if task.num_docs < LEAST_BYPASSED_DOCS or task.num_docs_of_query > task.max_groups or task.has_stored_states:
        return False
    return work.is_light and work.is_narrow and not work.has_lists


def _mostly_differ(sample: KeySample) -> bool:
    least = LEAST_BYPASSED_SHARE_OF_TEXTS if sample.reads_texts else LEAST_BYPASSED_SHARE
    return sample.share_of_groups >= least


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """Facts of a query's only target, before it is split into tasks."""

    num_docs: int
    selects_all: bool
    """True if every doc passes the filter."""
    has_stored_states: bool
    space: Callable[[], int | None]
    """Number of possible keys; None if a key is neither a dict id nor a whole number."""


def splits_keys(work: WorkFacts, target: TargetFacts) -> bool:
    """Return whether tasks take ranges of the target's keys, by RANGE_PARTITIONED, instead of ranges of its docs."""
    if target.num_docs < LEAST_PARTITIONED_DOCS or not target.selects_all or target.has_stored_states:
        return False
    if not work.is_light or work.has_lists:
        return False
    space = target.space()
    if space is None or space * _STATE_BYTES * (1 + work.num_states) > MOST_PARTITIONED_BYTES:
        return False
    return (
        target.num_docs / MOST_DOCS_PER_KEY <= space <= min(MOST_KEYS_PER_DOC * target.num_docs, MOST_PARTITIONED_SPACE)
    )

"""Mergers of mode PARTIAL: functions that combine a column's new value with the value before.

A merger is a function of `Chains` and of all values: the previous values, then a batch in order. It returns the batch's
values merged; several rows of one key are merged in order. Names are Pinot's. A null is no value: except with
FORCE_OVERWRITE the other value wins. A user's own merger is found by its dotted name among the entry points of group
`merlot.mergers`: a function of the values before and the new values, two arrays of the same length, null where there is
no value. It is called at most once for each row that a key has in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.entry_points import entry_points_named
from merlot.errors import InvalidInputError
from merlot.kernels import partial as kernels
from merlot.spec.schema import FieldSpec
from merlot.spec.upserting import MERGER_GROUP
from merlot.spec.upserting import PartialUpsertStrategy as Strategy
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly, plain_text

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chains:
    """The row that each row of a batch is merged into."""

    num_previous: int
    """Number of previous rows; they come first."""
    prior: Longs
    """Row before each row of the batch, (N,); -1 if there is none."""

    def own(self, values: Any) -> Any:
        """Return the part of an array that belongs to the batch."""
        return values[self.num_previous :]

    def rows(self) -> Longs:
        """Return the numbers of all rows."""
        return np.arange(self.num_previous + len(self.prior))


Merger = Callable[[FieldSpec, Chains, pa.Array], pa.Array]


def merger_of(name: str) -> Merger:
    """Return the merger of a strategy or of a dotted name; raise InvalidInputError if there is none."""
    merger = _MERGERS.get(name)
    if merger is not None:
        return merger
    if "." not in name:
        raise InvalidInputError(f"no such merger name={name} known={', '.join(_MERGERS)}")
    return _user_merger(name)


class MergerError(InvalidInputError):
    """Raised when a user's merger fails for a row: the partition consumes nothing behind it until the merger
    succeeds."""

    def __init__(self, text: str, *, row: int, again: Callable[[], object]) -> None:
        super().__init__(text)
        self.row = row
        """Number of the row in the batch."""
        self.again = again
        """Calls the merger with the same values again; raises InvalidInputError while it fails for them."""


@cache
def _user_merger(name: str) -> Merger:
    points = tuple(entry_points_named(MERGER_GROUP, name))
    if len(points) != 1:
        raise InvalidInputError(f"a merger needs one entry point group={MERGER_GROUP} name={name} found={len(points)}")
    try:
        merge = points[0].load()
    except Exception as error:
        raise InvalidInputError(f"merger cannot be had name={name} cause={error!r}") from error

    def merged(field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
        return _by_depth(merge, name, chains, values)

    return merged


def _by_depth(merge: Callable[[pa.Array, pa.Array], pa.Array], name: str, chains: Chains, values: pa.Array) -> pa.Array:
    """Merge the first rows of all keys, then the second rows, and so on."""
    depths = np.zeros(len(values), np.int64)
    deepest = kernels.depths(chains.prior, depths)
    for depth in range(deepest + 1):
        numbers = np.flatnonzero((chains.own(depths) == depth) & (chains.prior >= 0))
        before, new = (values.take(pa.array(rows)) for rows in (chains.prior[numbers], numbers + chains.num_previous))
        try:
            merged = _called(merge, name, before, new)
        except MergerError as error:
            error.row = int(numbers[error.row])
            raise
        mask = np.zeros(len(values), np.bool_)
        mask[numbers + chains.num_previous] = True
        values = pc.replace_with_mask(values, pa.array(mask), merged)
    return chains.own(values)


def _called(merge: Callable[[pa.Array, pa.Array], pa.Array], name: str, before: pa.Array, new: pa.Array) -> pa.Array:
    """Call a user's merger and check its result; raise MergerError with the first row that it fails for."""
    try:
        return _checked(merge, name, before, new)
    except InvalidInputError as error:
        count = _first_failing(merge, name, before, new)
        some = before[:count], new[:count]
        raise MergerError(str(error), row=count - 1, again=lambda: _checked(merge, name, *some)) from error


def _first_failing(merge: Callable[[pa.Array, pa.Array], pa.Array], name: str, before: pa.Array, new: pa.Array) -> int:
    """Return the number of rows up to the first row that the merger fails for, that row included."""
    low, high = 0, len(new)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _checked(merge, name, before[:middle], new[:middle])
            low = middle
        except InvalidInputError:
            high = middle
    return high


def _checked(merge: Callable[[pa.Array, pa.Array], pa.Array], name: str, before: pa.Array, new: pa.Array) -> pa.Array:
    try:
        merged = merge(before, new)
    except Exception as error:
        raise InvalidInputError(f"merger failed name={name} cause={error!r}") from error
    if not isinstance(merged, pa.Array) or len(merged) != len(new) or merged.type != new.type:
        what = (
            f"type={merged.type} rows={len(merged)}" if isinstance(merged, pa.Array) else f"got={type(merged).__name__}"
        )
        raise InvalidInputError(f"a merger must return as many values of the same type name={name} {what}")
    return merged


def _valid(values: pa.Array) -> NDArray[np.uint8]:
    return np.asarray(values.is_valid().cast(pa.uint8())).copy()


def _taken(chains: Chains, values: pa.Array, sources: Longs) -> pa.Array:
    return values.take(pa.array(chains.own(sources)))


def _overwrite(_field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    sources = chains.rows()
    kernels.last_values(chains.prior, _valid(values), sources)
    return _taken(chains, values, sources)


def _force_overwrite(_field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    return chains.own(values)


def _ignore(_field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    sources = chains.rows()
    kernels.first_values(chains.prior, _valid(values), sources)
    return _taken(chains, values, sources)


def _extreme(*, largest: bool) -> Merger:
    def merged(field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
        sources = chains.rows()
        kernels.extremes(chains.prior, _valid(values), _ranks(field, values), largest, sources)
        return _taken(chains, values, sources)

    return merged


def _ranks(field: FieldSpec, values: pa.Array) -> Longs:
    """Return numbers from 1 on that order like the values, equal for equal values."""
    if field.type is TypeName.BIG_DECIMAL:
        encoded = values.dictionary_encode()
        distinct = [Decimal(text) for text in encoded.dictionary.to_pylist()]
        by_rank = {number: rank for rank, number in enumerate(sorted(set(distinct)), 1)}
        of_entries = np.array([*(by_rank[number] for number in distinct), 0], np.int64)
        ranks: Longs = of_entries[np.asarray(pc.fill_null(encoded.indices, len(distinct)))]
        return ranks
    if field.type is TypeName.BOOLEAN:
        values = values.cast(pa.uint8())
    return np.asarray(pc.rank(values, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)


def _increment(field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    if field.type is TypeName.BIG_DECIMAL:
        return _add_decimals(chains, values)
    valid = _valid(values)
    numbers = np.array(pc.fill_null(values, 0))
    kernels.sums(chains.prior, valid, numbers)
    return chains.own(pa.array(numbers, values.type, mask=valid == 0))


def _add_decimals(chains: Chains, values: pa.Array) -> pa.Array:
    """Add row by row: kernels cannot add numbers of any length."""
    numbers = [None if text is None else Decimal(text) for text in values.to_pylist()]
    with exactly():
        for number, before in enumerate(chains.prior.tolist()):
            row = chains.num_previous + number
            previous, current = (numbers[before] if before >= 0 else None), numbers[row]
            if previous is not None:
                numbers[row] = previous if current is None else previous + current
    return pa.array([None if number is None else plain_text(number) for number in chains.own(numbers)], values.type)


def _append(_field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    flat, starts = _lists(values)
    lengths = np.diff(starts)
    kernels.append_lengths(chains.prior, lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    elements = np.empty(offsets[-1], np.int64)
    kernels.append_lists(chains.prior, starts, offsets, elements)
    return chains.own(_as_lists(chains, values, offsets, flat.take(pa.array(elements))))


def _union(field: FieldSpec, chains: Chains, values: pa.Array) -> pa.Array:
    flat, starts = _lists(values)
    ranks = _ranks(field, flat)
    # Sorted within each list; the lists stay in order.
    owners = np.repeat(np.arange(len(values)), np.diff(starts))
    ranks = ranks[np.lexsort((ranks, owners))]
    offsets, merged, row = np.zeros(len(values) + 1, np.int64), np.empty(len(ranks), np.int64), 0
    while (row := kernels.unite(chains.prior, starts, ranks, row, offsets, merged)) < len(values):
        merged = np.concatenate([merged, np.empty(len(merged) + 1024, np.int64)])
    kinds, firsts = np.unique(_ranks(field, flat), return_index=True)
    elements = firsts[np.searchsorted(kinds, merged[: offsets[-1]])]
    united = _as_lists(chains, values, offsets, flat.take(pa.array(elements, pa.int64())))
    # A list that was not united with another list stays unchanged, above all a first row's.
    sources, valid = chains.rows(), _valid(values)
    num_lists = valid.astype(np.int64)
    kernels.sums(chains.prior, np.ones(len(values), np.uint8), num_lists)
    kernels.last_values(chains.prior, valid, sources)
    rows = np.where(num_lists > 1, len(values) + np.arange(len(values)), sources)
    return chains.own(pa.concat_arrays([values, united]).take(pa.array(rows)))


def _lists(values: pa.Array) -> tuple[pa.Array, Longs]:
    """Return the elements of lists and the start of each list; a null has no elements."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0)).astype(np.int64)
    return values.flatten(), np.concatenate([[0], np.cumsum(lengths)])


def _as_lists(chains: Chains, values: pa.Array, offsets: Longs, elements: pa.Array) -> pa.Array:
    """Build lists; a list is null where every list of its chain is null."""
    sources = chains.rows()
    valid = _valid(values)
    kernels.last_values(chains.prior, valid, sources)
    mask = pa.array(valid[sources] == 0)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, values.type, mask=mask)


_MERGERS: Final[Mapping[str, Merger]] = {
    Strategy.OVERWRITE: _overwrite,
    Strategy.FORCE_OVERWRITE: _force_overwrite,
    Strategy.IGNORE: _ignore,
    Strategy.INCREMENT: _increment,
    Strategy.APPEND: _append,
    Strategy.UNION: _union,
    Strategy.MAX: _extreme(largest=True),
    Strategy.MIN: _extreme(largest=False),
}

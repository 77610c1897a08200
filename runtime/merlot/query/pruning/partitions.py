"""Partitions of one column, of all segments. Each distinct set of partitions is evaluated once, however many segments
have it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.query.pruning.verdicts import NONE, SOME, Verdicts, constant
from merlot.segment.build.partitions import texts
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionFunctionSpec
from merlot.spec.partition_functions import PartitionFunction, PlugInError
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

CACHED_PARTITIONS = 4096
"""Constants per function whose partitions are cached."""
MOST_CACHED_LETTERS = 1_000
"""Most letters of a constant whose partition is cached."""


class HashedFunction:
    """Partition function with a cache of the partitions of constants. It is compared by identity: see `function_of`."""

    __slots__ = ("partition_of", "problem")

    def __init__(self, function: PartitionFunction) -> None:
        self.problem: str | None = None
        """Last error of a user's own function; None if it never failed."""

        def compute(text: str) -> int:
            try:
                return function(text)
            except PlugInError as error:
                self.problem = str(error)
                raise

        cached = functools.lru_cache(maxsize=CACHED_PARTITIONS)(compute)

        def partition_of(text: str) -> int:
            return cached(text) if len(text) <= MOST_CACHED_LETTERS else compute(text)

        self.partition_of = partition_of


def function_of(name: str, num_partitions: int, config: Mapping[str, str] | None) -> HashedFunction:
    """Return the same object for the same declaration. Raises InvalidInputError if the declaration is wrong."""
    return _function_of(name, num_partitions, tuple(sorted((config or {}).items())))


@functools.lru_cache(maxsize=1024)
def _function_of(name: str, num_partitions: int, config: tuple[tuple[str, str], ...]) -> HashedFunction:
    try:
        spec = PartitionFunctionSpec(function_name=name, num_partitions=num_partitions, function_config=dict(config))
    except ValueError as error:
        raise InvalidInputError(f"partition function cannot be read name={name} partitions={num_partitions}") from error
    return HashedFunction(partition_functions.get(spec))


@dataclass(frozen=True, slots=True)
class SegmentPartitions:
    """Partitions of one column in one segment: all values fall into these partitions of this function."""

    function: HashedFunction
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ColumnPartitions:
    """Partitions by segment. `signatures` are numbers of distinct sets; 0 stands for segments whose partitions are
    unknown."""

    type: TypeName
    signatures: NDArray[np.intp]
    num_signatures: int
    holders: Mapping[HashedFunction, Mapping[int, NDArray[np.int32]]] = field(repr=False)
    """Signatures that hold a partition, by function and partition."""

    @classmethod
    def of(cls, type_: TypeName, segments: Sequence[SegmentPartitions | None]) -> ColumnPartitions:
        """Return the partitions of a column, given those of each segment; None for a segment whose partitions are
        unknown."""
        numbers: dict[SegmentPartitions | None, int] = {None: 0}
        signatures = np.array([numbers.setdefault(segment, len(numbers)) for segment in segments], np.intp)
        holders: dict[HashedFunction, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for declared, number in numbers.items():
            if declared is not None:
                for partition in declared.partitions:
                    holders[declared.function][partition].append(number)
        arrays = {
            function: {partition: np.array(signatures_, np.int32) for partition, signatures_ in by_partition.items()}
            for function, by_partition in holders.items()
        }
        return cls(type_, signatures, len(numbers), arrays)

    @property
    def num_known(self) -> int:
        """Number of segments whose partitions are known."""
        return int(np.count_nonzero(self.signatures))

    @property
    def nbytes(self) -> int:
        """Bytes of the array by segment."""
        return self.signatures.nbytes

    def holding(self, values: Sequence[Any]) -> Verdicts:
        """Return NONE for segments that hold no row with any of these values, SOME for the others."""
        of_signature = self._of_signatures(values)
        if of_signature is None:
            return constant(len(self.signatures), SOME)
        verdicts: Verdicts = of_signature[self.signatures]
        return verdicts

    def _of_signatures(self, values: Sequence[Any]) -> Verdicts | None:
        texts_of_values = [value_text(self.type, value) for value in values]
        if None in texts_of_values:
            return None
        verdicts = constant(self.num_signatures, NONE)
        verdicts[0] = SOME
        for function, by_partition in self.holders.items():
            for text in texts_of_values:
                assert text is not None
                try:
                    partition = function.partition_of(text)
                except InvalidInputError:
                    for signatures in by_partition.values():
                        verdicts[signatures] = SOME
                    break
                signatures_or_none = by_partition.get(partition)
                if signatures_or_none is not None:
                    verdicts[signatures_or_none] = SOME
        return verdicts


def value_text(type_: TypeName, value: Any) -> str | None:
    """Return a constant as the text that partition functions read when a segment is built; None if equal values have
    several texts."""
    match type_:
        case TypeName.INT | TypeName.LONG | TypeName.TIMESTAMP:
            return str(int(value)) if isinstance(value, int) else None
        case TypeName.STRING | TypeName.JSON:
            return value if isinstance(value, str) else None
        case TypeName.BYTES:
            return value.hex() if isinstance(value, bytes) else None
        case TypeName.BOOLEAN:
            return "true" if value else "false"
        case TypeName.BIG_DECIMAL:
            return plain_text(value) if isinstance(value, Decimal) else None
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _float_text(type_, value)
    return None


def _float_text(type_: TypeName, value: Any) -> str | None:
    if not isinstance(value, float) or value == 0 or value != value:
        return None  # 0.0 and -0.0 are equal and have two texts
    array = np.array([value], np.float32 if type_ is TypeName.FLOAT else np.float64)
    return texts(type_, array)[0]

"""Choose the encoding of a column: a pure function of its statistics and of what the table asks for. ADR 1."""

from dataclasses import dataclass
from typing import Final

from merlot.segment.index import dict_ids, raw
from merlot.segment.metadata import ColumnEncoding
from merlot.spec.indexing import Encoding
from merlot.spec.schema import FieldRole

ALIGNED_SHARE: Final = 0.86
"""Share of their unpacked bytes from which ids and raw integers are not packed: packing would save little and cost a
copy in memory."""
SMALL_VALUES: Final = 16_384
"""Number of values up to which a column of variable width has a dictionary, however many of its values differ."""
RAW_SHARE: Final = 0.75
"""Share of the raw bytes that a metric's dictionary and ids must not exceed, nor another column's dictionary alone."""
DISTINCT_SHARE: Final = 0.7
"""Share of distinct values above which a column of variable width is stored raw, unless it is small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnStatistics:
    """Statistics that the choice depends on."""

    role: FieldRole
    num_values: int
    cardinality: int
    raw_bytes: int
    """Bytes of all values without a dictionary; like `dictionary_bytes`, 0 unless they have a fixed width."""
    dictionary_bytes: int
    is_fixed_width: bool
    is_sorted: bool
    """True if values never decrease, with one value per doc; False for raw values of variable width, which are not
    compared."""
    integer_width: int | None
    """Bits of the largest distance from the minimum; None if the values are not integers, or there are none."""


def choose(statistics: ColumnStatistics, wish: Encoding, *, needs_dictionary: bool) -> ColumnEncoding:
    """Return the encoding. `needs_dictionary` is set for sort keys, and is ignored if the table asks for RAW."""
    if wish is Encoding.DICTIONARY or (wish is Encoding.AUTO and (needs_dictionary or _dictionary_pays(statistics))):
        return _choose_ids(statistics)
    return _choose_raw(statistics)


def _dictionary_pays(statistics: ColumnStatistics) -> bool:
    if statistics.num_values == 0:
        return True
    if not statistics.is_fixed_width:
        return statistics.cardinality <= DISTINCT_SHARE * statistics.num_values or statistics.num_values <= SMALL_VALUES
    ids = dict_ids.aligned_size_bytes(statistics.num_values, statistics.cardinality)
    with_dictionary = statistics.dictionary_bytes + ids
    if statistics.is_sorted:
        with_dictionary = statistics.dictionary_bytes + dict_ids.runs_size_bytes(statistics.cardinality)
    if statistics.role is FieldRole.METRIC:
        return with_dictionary <= RAW_SHARE * statistics.raw_bytes
    # Dimensions serve GROUP BY and filters, so dense ids may take as much space as the values.
    return statistics.dictionary_bytes <= RAW_SHARE * statistics.raw_bytes


def _choose_ids(statistics: ColumnStatistics) -> ColumnEncoding:
    count, cardinality = statistics.num_values, statistics.cardinality
    aligned = dict_ids.aligned_size_bytes(count, cardinality)
    packed = dict_ids.packed_size_bytes(count, cardinality)
    if statistics.is_sorted and count and dict_ids.runs_size_bytes(cardinality) <= packed:
        return ColumnEncoding.DICTIONARY_RUNS
    if packed >= ALIGNED_SHARE * aligned:
        return ColumnEncoding.DICTIONARY_ALIGNED
    return ColumnEncoding.DICTIONARY_PACKED


def _choose_raw(statistics: ColumnStatistics) -> ColumnEncoding:
    if not statistics.is_fixed_width:
        return ColumnEncoding.RAW_VARIABLE
    width = statistics.integer_width
    if width is None or width > 63 or statistics.num_values == 0:
        return ColumnEncoding.RAW_FIXED
    packed = raw.packed_size_bytes(statistics.num_values, width)
    return ColumnEncoding.RAW_PACKED if packed < ALIGNED_SHARE * statistics.raw_bytes else ColumnEncoding.RAW_FIXED

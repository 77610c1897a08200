"""What readers look at before they trust a file: strings in order, bitmaps that are what they claim."""

import struct
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from merlot.kernels import ordering, roaring
from merlot.kernels.jit import read_only
from merlot.segment.json_values import plain_text

TEXTS = st.lists(st.binary(max_size=3), max_size=6) | st.lists(st.binary(max_size=3), max_size=6, unique=True).map(
    sorted
)
DECIMALS = st.decimals(-200, 200, places=2, allow_nan=False).map(lambda value: Decimal(plain_text(value)))
NUMBERS = st.lists(DECIMALS, max_size=6) | st.lists(DECIMALS, max_size=6, unique=True).map(sorted)
LAST_DOC = (1 << 32) - 1
DOCS = st.one_of(
    st.sets(st.integers(0, 1 << 20), max_size=40),
    st.sets(st.integers(0, LAST_DOC), max_size=40),
    st.tuples(st.integers(0, 1 << 18), st.integers(1, 9000), st.integers(1, 9)).map(
        lambda run: set(range(run[0], run[0] + run[1] * run[2], run[2]))
    ),
)


def laid_out(texts: list[bytes], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(dtype)
    return read_only(offsets), read_only(np.frombuffer(b"".join(texts) or b"", np.uint8))


@pytest.mark.parametrize("dtype", ["<i4", "<i8"])
@given(texts=TEXTS)
def test_strings_ascend_by_their_bytes(dtype: str, texts: list[bytes]) -> None:
    ascends = all(one < other for one, other in pairwise(texts))
    assert ordering.strings_ascend(*laid_out(texts, dtype)) == ascends


@given(parts=st.lists(TEXTS, min_size=1, max_size=4))
def test_strings_of_parts_ascend_each_part_by_itself(parts: list[list[bytes]]) -> None:
    texts = laid_out([text for part in parts for text in part], "<i4")
    firsts = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    ascends = all(one < other for part in parts for one, other in pairwise(part))
    assert ordering.strings_ascend_in_parts(*texts, firsts) == ascends


@pytest.mark.parametrize("dtype", ["<i4", "<i8"])
@given(numbers=st.lists(st.integers(-3, 3) | st.sampled_from([-(1 << 31), (1 << 31) - 1]), max_size=5))
def test_integers_ascend(dtype: str, numbers: list[int]) -> None:
    ascends = all(one < other for one, other in pairwise(numbers))
    assert ordering.integers_ascend(read_only(np.array(numbers, dtype))) == ascends


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@given(numbers=st.lists(st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2.5, np.inf, np.nan, -np.nan]), max_size=4))
def test_floats_ascend_with_both_zeros_and_nan_last(dtype: str, numbers: list[float]) -> None:
    values = np.array(numbers, dtype)
    # As integers, floats that are not negative are in order, and negative ones in reverse order.
    bits = values.view(dtype.replace("f", "i"))
    ordered = np.where(bits < 0, ~bits ^ np.iinfo(bits.dtype).min, bits)
    ascends = bool(np.all(ordered[1:] > ordered[:-1])) and not np.isnan(values[:-1]).any()
    assert ordering.floats_ascend(read_only(values)) == ascends


@given(numbers=NUMBERS)
def test_texts_of_decimals_ascend_by_value(numbers: list[Decimal]) -> None:
    ascends = all(one < other for one, other in pairwise(numbers))
    assert ordering.decimals_ascend(*laid_out([plain_text(one).encode() for one in numbers], "<i4")) == ascends


def serialized(docs: set[int], *, with_runs: bool) -> np.ndarray:
    bitmap = BitMap(docs)
    if with_runs:
        bitmap.run_optimize()
    data = bitmap.serialize()
    return np.frombuffer(data + bytes(-len(data) % 4), np.uint8)


@given(docs=DOCS, with_runs=st.booleans())
def test_a_bitmap_that_the_library_wrote_is_counted(docs: set[int], with_runs: bool) -> None:
    data = read_only(serialized(docs, with_runs=with_runs))
    assert roaring.count_bitmap(data, LAST_DOC + 1) == len(docs)
    if docs:
        assert roaring.count_bitmap(data, max(docs) + 1) == len(docs)
        assert roaring.count_bitmap(data, max(docs)) == -1


@given(docs=DOCS, with_runs=st.booleans(), data=st.data())
def test_a_bitmap_of_other_bytes_is_refused_or_read_alike(docs: set[int], with_runs: bool, data: st.DataObject) -> None:
    """The twin is the library, which reads what is accepted: as many docs as were counted, in order, none too far."""
    changed = bytearray(serialized(docs, with_runs=with_runs).tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, min(len(changed) - 1, 40)) | st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.integers(0, len(changed)) | st.just(len(changed)))]
    count = roaring.count_bitmap(read_only(np.frombuffer(bytes(changed), np.uint8)), LAST_DOC + 1)
    if count >= 0:
        found = np.array(BitMap.deserialize(bytes(changed)).to_array(), np.uint32)
        assert len(found) == count
        assert roaring.ascend(read_only(found))


@given(docs=st.lists(st.integers(0, 9), max_size=5))
def test_docs_ascend_if_each_is_before_the_next(docs: list[int]) -> None:
    assert roaring.ascend(read_only(np.array(docs, np.uint32))) == all(one < other for one, other in pairwise(docs))


@pytest.mark.parametrize(("second_run", "num_docs"), [(5, -1), (6, 10)], ids=["touching", "apart"])
def test_runs_of_a_bitmap_that_touch_are_refused_as_the_library_does(second_run: int, num_docs: int) -> None:
    header = struct.pack("<HHBHH", 12347, 0, 1, 0, 9)
    data = np.frombuffer(header + struct.pack("<HHHHH", 2, 0, 4, second_run, 4), np.uint8)
    assert roaring.count_bitmap(read_only(data.copy()), 64) == num_docs
    if num_docs < 0:
        with pytest.raises(ValueError, match="run start"):
            BitMap.deserialize(data.tobytes())
    else:
        assert len(BitMap.deserialize(data.tobytes())) == num_docs

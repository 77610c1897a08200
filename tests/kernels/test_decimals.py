"""Kernels of decimal texts beside Python's decimals."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.vectors.decimals import plain_text
from merlot.vectors.scaled import scaled_of, texts_of

NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**11), max_value=10**11)


@given(st.lists(NUMBERS), st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3))
def test_texts_become_numbers_of_one_scale(numbers: list[Decimal], type_: pa.DataType, skipped: int) -> None:
    texts = pa.array([plain_text(number) for number in numbers], type_)[skipped:]
    found = scaled_of(texts)
    assert found is not None
    assert [Decimal(value).scaleb(-found.scale) for value in found.values.tolist()] == numbers[skipped:]
    assert all(found.low <= value <= found.high for value in found.values.tolist())


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.integers(0, 30))
def test_numbers_become_their_plain_texts(numbers: list[int], scale: int) -> None:
    texts = texts_of(np.array(numbers, np.int64), scale)
    assert texts is not None
    texts.validate(full=True)
    assert texts.to_pylist() == [plain_text(Decimal(number).scaleb(-scale)) for number in numbers]


@pytest.mark.parametrize("text", ["", "-", ".5", "5.", "1e3", "1.2.3", "+1", "9" * 19, "0." + "1" * 18, "NaN", "1 "])
def test_what_is_no_plain_number_or_may_not_fit_is_left_alone(text: str) -> None:
    assert scaled_of(pa.array(["1.5", text])) is None


def test_one_scale_has_to_hold_all() -> None:
    assert scaled_of(pa.array(["123456789012", "0.000001"])) is not None
    assert scaled_of(pa.array(["1234567890123", "0.000001"])) is None

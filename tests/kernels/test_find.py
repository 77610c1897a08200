"""The search for parts of texts beside Python's."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from merlot.vectors.texts import holds_parts

LETTERS = st.text("abé", max_size=6)
AT_EDGES = st.integers(57, 131).map(lambda size: "c" * size + "ab")
"""What is found lies across the blocks that are looked at."""
TEXTS = st.lists(
    st.one_of(LETTERS, AT_EDGES, st.text("ab", min_size=50, max_size=200), st.text("bcdef", max_size=150)), max_size=20
)


def has(text: str, parts: list[str]) -> bool:
    place = 0
    for part in parts:
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


@given(
    TEXTS,
    st.lists(st.text("abé", min_size=1, max_size=5), min_size=1, max_size=3),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 2),
)
def test_parts_are_found_one_behind_the_other(
    texts: list[str], parts: list[str], type_: pa.DataType, skipped: int
) -> None:
    found = holds_parts(pa.array(texts, type_)[skipped:], parts)
    assert found.tolist() == [has(text, parts) for text in texts[skipped:]]

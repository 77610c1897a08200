"""Dict ids by arrival against a Python dict, and the first and last texts of groups against min and max."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merlot.kernels.hashing import hash_spans
from merlot.kernels.jit import read_only
from merlot.kernels.texts import EMPTY, assign_texts, best_texts, fill_text_slots

TEXTS = st.lists(st.binary(max_size=3) | st.binary(max_size=40), max_size=60)


def spans(texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = read_only(np.frombuffer(b"".join(texts), np.uint8))
    hashes = np.empty(len(texts), np.uint64)
    hash_spans(data, offsets, hashes)
    return offsets, data, hashes


@given(TEXTS, st.integers(1, 40), st.integers(0, 500), st.booleans())
def test_texts_get_the_place_of_their_first_arrival(
    texts: list[bytes], room: int, room_bytes: int, all_collide: bool
) -> None:
    offsets, data, hashes = spans(texts)
    if all_collide:
        hashes[:] = 7
    count, slots = np.zeros(1, np.int64), np.full(64, EMPTY, np.uint32)
    entry_hashes, entry_offsets = np.zeros(room, np.uint64), np.zeros(room + 1, np.int32)
    entry_data, ids = np.zeros(room_bytes, np.uint8), np.zeros(len(texts), np.uint32)
    row = assign_texts(
        offsets, data, hashes, 0, count, slots, entry_hashes, entry_offsets, entry_data, ids
    )  # fmt: skip
    known: dict[bytes, int] = {}
    for text in texts[:row]:
        known.setdefault(text, len(known))
    assert ids[:row].tolist() == [known[text] for text in texts[:row]]
    entries = [entry_data[entry_offsets[k] : entry_offsets[k + 1]].tobytes() for k in range(int(count[0]))]
    assert entries == list(known)
    if row < len(texts):
        assert texts[row] not in known
        is_full = len(known) in (room, 32)
        assert is_full or sum(map(len, known)) + len(texts[row]) > room_bytes


@given(st.lists(st.binary(max_size=9), unique=True, max_size=30))
def test_a_table_that_grew_finds_what_it_held(texts: list[bytes]) -> None:
    offsets, data, hashes = spans(texts)
    slots = np.full(64, EMPTY, np.uint32)
    fill_text_slots(hashes, slots)
    ids, count = np.zeros(len(texts), np.uint32), np.array([len(texts)], np.int64)
    row = assign_texts(offsets, data, hashes, 0, count, slots, hashes, offsets, data.copy(), ids)
    assert row == len(texts)
    assert ids.tolist() == list(range(len(texts)))
    assert count[0] == len(texts)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=3) | st.text("ab\x7f\x80", max_size=20))), st.booleans()
)
def test_the_best_text_of_each_owner_is_the_first_of_those_equal(
    pairs: list[tuple[int, bytes | str]], is_least: bool
) -> None:
    texts = [text.encode() if isinstance(text, str) else text for _, text in pairs]
    offsets, data, _ = spans(texts)
    owners = np.array([owner for owner, _ in pairs], np.int64)
    rows = np.full(5, -1)
    best_texts(read_only(offsets), data, owners, is_least, rows)
    for owner in range(5):
        mine = [row for row in range(len(texts)) if owners[row] == owner]
        best = (min if is_least else max)(mine, key=texts.__getitem__, default=-1)
        assert rows[owner] == best

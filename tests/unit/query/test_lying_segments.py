"""Files whose checksums are right and whose content is not: what kernels trust is looked at before they do.

Each lie is written by the builder itself, with one of its parts replaced. It is found when the file is opened or by a
query that meets it; run
under NUMBA_BOUNDSCHECK=1 a kernel that reads past its arrays is an IndexError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from merlot.errors import CorruptionError
from merlot.segment.index import dict_ids, dictionary, inverted, multi_value, nulls, raw, variable, zones
from merlot.spec.indexing import IndexingSpec

NUM_ROWS = 40_000
FIELDS: list[dict[str, Any]] = [
    {"name": "sorted", "type": "INT"},
    {"name": "few", "type": "STRING"},
    {"name": "some", "type": "LONG"},
    {"name": "far", "type": "LONG"},
    {"name": "text", "type": "STRING"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "maybe", "type": "INT"},
]
INDEXING = IndexingSpec(sorted_columns=("sorted",), no_dictionary=("some", "far", "text"), inverted=("few",))
QUERIES = (
    "SELECT sorted, COUNT(*), SUM(some) FROM t GROUP BY sorted LIMIT 5",
    "SELECT few, maybe, COUNT(*), MAX(far) FROM t GROUP BY few, maybe LIMIT 5",
    "SELECT some, far, text, COUNT(*) FROM t GROUP BY some, far, text LIMIT 5",
    "SELECT tags, COUNT(*), DISTINCTCOUNT(few) FROM t GROUP BY tags LIMIT 5",
    "SELECT few, some, far, text, tags, maybe FROM t ORDER BY far DESC, text LIMIT 5",
    "SELECT COUNT(*), SUM(far), MIN(some) FROM t WHERE few = 'f2' AND maybe > 2",
    "SELECT SUM(some) FROM t WHERE tags = 'a' AND sorted BETWEEN 3 AND 9 OR text LIKE 'x1%'",
    "SELECT COUNT(*) FROM t WHERE far > 900 AND sorted <> 4 AND few IN ('f1', 'f3')",
    "SET enableNullHandling=true; SELECT maybe, few, COUNT(maybe), SUM(maybe) FROM t GROUP BY maybe, few LIMIT 5",
    "SELECT DISTINCTCOUNT(maybe), DISTINCTCOUNT(tags = 'b'), COUNT(*) FROM t WHERE maybe IS NULL",
)


def changed(module: Any, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[Any, str, Any]:
    """A part of the builder that writes something else than it should."""
    honest = getattr(module, name)

    def lie(*args: Any, **named: Any) -> dict[str, Any]:
        written = honest(*args, **named)
        return {**written, **change(written)}

    return module, name, lie


def each(prefix: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change the buffers whose names start so."""
    return lambda written: {key: change(array) for key, array in written.items() if key.startswith(prefix)}


def packed_high(words: Any) -> Any:
    return np.full_like(words, np.iinfo(words.dtype).max)


def past_the_end(written: dict[str, Any]) -> Any:
    """Entries of docs that are a billion further."""
    counts, offsets = written[inverted.COUNTS], written[inverted.OFFSETS]
    payload = bytearray(written[inverted.DOCS].tobytes())
    for dict_id, count in enumerate(counts.tolist()):
        start, stop = int(offsets[dict_id]), int(offsets[dict_id + 1])
        if stop - start == 4 * count:
            docs = np.frombuffer(bytes(payload[start:stop]), "<u4") + np.uint32(10**9)
            payload[start:stop] = docs.astype("<u4").tobytes()
    return np.frombuffer(bytes(payload), np.uint8)


LIES = {
    "dict ids past the dictionary": changed(dict_ids, "write", each(dict_ids.ALIGNED, lambda ids: ids | 0x40)),
    "packed dict ids past the dictionary": changed(dict_ids, "write", each(dict_ids.PACKED, packed_high)),
    "too few dict ids": changed(dict_ids, "write", each("ids", lambda ids: ids[: len(ids) // 2].copy())),
    "runs past the docs": changed(dict_ids, "write", each(dict_ids.RUNS, lambda starts: starts * 3)),
    "runs that go back": changed(dict_ids, "write", each(dict_ids.RUNS, lambda starts: starts[::-1].copy())),
    "too few numbers in a dictionary": changed(dictionary, "write_numeric", each("dict", lambda one: one[:-1].copy())),
    "offsets of texts past their bytes": changed(
        dictionary, "write_variable", each("dict.offsets", lambda one: one + np.int32(10**8))
    ),
    "offsets of raw texts past their bytes": changed(
        variable, "write", each("raw.offsets", lambda one: one * np.int32(1000))
    ),
    "too few raw texts": changed(variable, "write", each("raw.offsets", lambda one: one[:-9].copy())),
    "too few raw numbers": changed(raw, "write", each("raw", lambda one: one[: len(one) // 2].copy())),
    "longer lists than there are values": changed(multi_value, "write", each("mv", packed_high)),
    "too few lists": changed(multi_value, "write", each("mv", lambda words: words[: len(words) // 2].copy())),
    "too few zones": changed(zones, "write", each("zones", lambda one: one[:1].copy())),
    "docs of other segments in an index": changed(
        inverted, "write", lambda written: {inverted.DOCS: past_the_end(written)}
    ),
    "too few null bits": (nulls, "words_of", lambda is_null: np.zeros(1, np.uint64)),
}


def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(9)
    return [
        {
            "sorted": number // 500,
            # Few docs of one value, whose entry in the index is a plain list.
            "few": "f9" if number % 9000 == 5 else f"f{number % 5}",
            "some": int(random.integers(0, 1000)),
            "far": int(random.integers(-(2**62), 2**62)),
            "text": f"x{random.integers(0, 10**6)}",
            "tags": ["a", "b", "c"][: 1 + number % 3],
            "maybe": None if number % 7 == 0 else number % 6,
        }
        for number in range(NUM_ROWS)
    ]


@pytest.fixture(scope="module")
def honest_rows() -> list[dict[str, Any]]:
    return rows()


@pytest.mark.parametrize("layout", ["apart"], indirect=True)
@pytest.mark.parametrize("lie", list(LIES))
def test_a_lie_is_an_error_of_the_queries_that_meet_it(make_table, monkeypatch, honest_rows, layout, lie):
    module, name, liar = LIES[lie]
    found = []
    with monkeypatch.context() as patched:
        patched.setattr(module, name, liar)
        try:
            table = make_table(FIELDS, honest_rows, indexing=INDEXING)
        except CorruptionError as error:
            table = None
            found.append(str(error))
    for sql in (*QUERIES, "SELECT COUNT(*), SUM(some) FROM t WHERE few = 'f9'") if table else ():
        try:
            table.query(sql)
        except CorruptionError as error:
            found.append(str(error))
    assert found
    assert all("segment file is damaged" in one and "path=" in one for one in found)

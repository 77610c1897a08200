"""Columns that indexes are for: rows of a fixed seed, and questions about them whose literals another seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Random = np.random.Generator
MANY_WORDS: Final = 20_000
USERS: Final = 50_000
PRICES: Final = 1 << 40
LETTERS: Final = "etaoinshrdlcumwfgypbvkjxqz"
WEIGHTS: Final = (127, 91, 82, 75, 70, 67, 63, 61, 60, 43, 40, 28, 28, 24, 24, 22, 20, 20, 19, 15, 10, 8, 2, 2, 1, 1)
"""How often English has them, of a thousand."""


class Question(NamedTuple):
    """A predicate, in SQL of Merlot and of DuckDB."""

    name: str
    where: str
    duckdb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A column `c` with one kind of index. All its tables have a metric `m`, too."""

    kind: str
    """Field of `IndexingSpec`."""
    type: str
    rows: Callable[[Random, int], Any]
    questions: Callable[[random.Random, pa.ChunkedArray], list[Question]]
    encoding: str = "AUTO"
    num_rows: int = 2_000_000
    num_segments: int = 2

    def table(self, num_rows: int) -> pa.Table:
        """The same rows each time."""
        generator = np.random.default_rng([5, num_rows])
        metric = generator.integers(0, 1000, num_rows).astype(np.int32)
        return pa.table({"c": self.rows(generator, num_rows), "m": metric})


def _prices(generator: Random, num_rows: int) -> NDArray[np.int64]:
    return generator.integers(0, PRICES, num_rows)


def _of_range(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    found = []
    for percent in (0.01, 0.1, 1.0):
        width = int(PRICES * percent / 100)
        low = chosen.randrange(PRICES - width)
        where = f"c BETWEEN {low} AND {low + width}"
        found.append(Question(f"{percent:g} % of the rows", where, where))
    return found


def _users(generator: Random, num_rows: int) -> NDArray[np.int32]:
    return generator.integers(0, USERS, num_rows).astype(np.int32)


def _of_inverted(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    one, *few = (column[chosen.randrange(len(column))].as_py() for _ in range(6))
    some = ", ".join(map(str, few))
    wheres = {"= one of 50,000": f"c = {one}", "IN (5)": f"c IN ({some})"}
    return [Question(name, where, where) for name, where in wheres.items()]


def _ids(generator: Random, num_rows: int) -> NDArray[np.int64]:
    return generator.integers(0, 1 << 62, num_rows)


def _of_bloom(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    there, absent = column[chosen.randrange(len(column))].as_py(), chosen.randrange(1 << 62)
    return [Question("= an id", f"c = {there}", f"c = {there}"), Question("= no id", f"c = {absent}", f"c = {absent}")]


def _vocabulary(generator: Random, count: int) -> NDArray[Any]:
    """Words of 4 to 9 letters, as often as English has them."""
    lengths = generator.integers(4, 10, count)
    shares = np.array(WEIGHTS) / sum(WEIGHTS)
    letters = generator.choice(list(LETTERS), (count, 9), p=shares)
    return np.array(["".join(row[:length]) for row, length in zip(letters, lengths, strict=True)])


def _texts(generator: Random, num_rows: int) -> pa.Array:
    """Twelve words each, frequent ones more often."""
    words = _vocabulary(generator, MANY_WORDS)
    drawn = (generator.random((num_rows, 12)) ** 3 * MANY_WORDS).astype(np.int64)
    return pa.array([" ".join(row) for row in words[drawn].tolist()])


def _words_of(chosen: random.Random, column: pa.ChunkedArray) -> list[str]:
    words: list[str] = column[chosen.randrange(len(column))].as_py().split()
    return words


def _of_text(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    (word, _), (first, second), (prefix, _) = (_words_of(chosen, column)[:2] for _ in range(3))
    return [
        Question("word", f"TEXT_MATCH(c, '{word}')", _has(word)),
        Question("word AND word", f"TEXT_MATCH(c, '{first} AND {second}')", f"{_has(first)} AND {_has(second)}"),
        Question("word*", f"TEXT_MATCH(c, '{prefix[:4]}*')", f"(' ' || c) LIKE '% {prefix[:4]}%'"),
    ]


def _has(word: str) -> str:
    return f"(' ' || c || ' ') LIKE '% {word} %'"


def _of_ngram(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    first, second = " ".join(_words_of(chosen, column)[2:4]), _words_of(chosen, column)[4:7]
    pattern = f"{second[0]}.*{second[2]}"
    return [
        Question("LIKE '%…%'", f"c LIKE '%{first}%'", f"c LIKE '%{first}%'"),
        Question("REGEXP_LIKE", f"REGEXP_LIKE(c, '{pattern}')", f"regexp_matches(c, '{pattern}')"),
    ]


def _orders(generator: Random, num_rows: int) -> pa.Array:
    """Orders of one customer and two items."""
    customers = generator.integers(0, 5_000, num_rows).tolist()
    ages = generator.integers(18, 90, num_rows).tolist()
    items = generator.integers(0, 3_000, (num_rows, 2)).tolist()
    return pa.array(
        f'{{"customer": {{"name": "c{customer}", "age": {age}}}, '
        f'"items": [{{"sku": "s{one}", "n": {one % 5}}}, {{"sku": "s{two}", "n": {two % 5}}}]}}'
        for customer, age, (one, two) in zip(customers, ages, items, strict=True)
    )


def _of_json(chosen: random.Random, column: pa.ChunkedArray) -> list[Question]:
    customer, sku, age = f"c{chosen.randrange(5_000)}", f"s{chosen.randrange(3_000)}", chosen.randrange(20, 85)
    name = "json_extract_string(c, '$.customer.name')"
    years = "CAST(json_extract(c, '$.customer.age') AS BIGINT)"
    skus = "json_extract_string(c, '$.items[*].sku')"
    return [
        Question("$.a.b =", f"""JSON_MATCH(c, '"$.customer.name" = ''{customer}''')""", f"{name} = '{customer}'"),
        Question("$.a[*].b =", f"""JSON_MATCH(c, '"$.items[*].sku" = ''{sku}''')""", f"list_contains({skus}, '{sku}')"),
        Question(
            "$.a.b BETWEEN",
            f"""JSON_MATCH(c, '"$.customer.age" BETWEEN {age} AND {age + 2}')""",
            f"{years} BETWEEN {age} AND {age + 2}",
        ),
    ]


SUBJECTS: Final[Sequence[Subject]] = (
    Subject(kind="range", type="LONG", rows=_prices, questions=_of_range, encoding="RAW"),
    Subject(kind="inverted", type="INT", rows=_users, questions=_of_inverted, encoding="DICTIONARY"),
    Subject(kind="text", num_rows=1_000_000, type="STRING", rows=_texts, questions=_of_text),
    Subject(kind="ngram", num_rows=1_000_000, type="STRING", rows=_texts, questions=_of_ngram),
    Subject(kind="json_paths", num_rows=1_000_000, type="JSON", rows=_orders, questions=_of_json),
    # Servers ask filters of more than four segments.
    Subject(kind="bloom", type="LONG", rows=_ids, questions=_of_bloom, encoding="RAW", num_segments=8),
)
"""Of each index a column that it is for."""

"""The datasets under names that are no plain words, and SQL that asks for them: every kind of name that Pinot takes.

A layout of them answers every case as it is written: its columns' names are put in the places of the plain ones, in
quotes, and errors are given back with the plain ones.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tests.sql.slt_answers import Answer
from tests.sql.slt_data import Dataset, datasets
from tests.sql.slt_segments import build_paths, consuming_segment, star_trees_of, varied_of

from merlot.errors import MerlotError
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.spec.column_names import in_sql
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.spec.star_tree import SEPARATOR

KINDS = (
    *("payload.{}", "{}-id", "__{}$offset", "{}||name", "a__{}", "t.{}.id.x.y", '"{}"', "`{}``", "it's{}", "back\\{}"),
    *(
        "SUM({})",
        "{},y",
        "1{}",
        "größe.{}",
        "%2C{}",
        "{}:STRING",
        "select.{}",
        "{}[0]",
        "a/{}",
        "{}$DAY",
        "日本{}",
        "{}|",
    ),
)
"""A name that stands for another one, by turns."""
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|[$\w]+|[^\w$'"`]|['"`].*""", re.DOTALL)
_DERIVED = re.compile(r"\$(\w+)\$([A-Z]+)")


class _Queried(Protocol):
    def query(self, sql: str) -> Answer: ...


class RefusedError(MerlotError):
    """What a query was refused with, in plain names."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@cache
def odd_names() -> dict[str, str]:
    """By the plain name; columns that several datasets have are called the same in each."""
    plain = dict.fromkeys(name for dataset in datasets() for name in dataset.schema.names)
    return {name: KINDS[place % len(KINDS)].format(name) for place, name in enumerate(plain)}


_WORDS_OF_SQL = frozenset({"DAY", "MONTH", "YEAR", "HOUR", "MINUTE", "REAL"})
_POSITION = re.compile(r"(line 1, column )(\d+)( near \")?")


def renamed(dataset: Dataset) -> Dataset:
    """The dataset under odd names."""
    names = [odd_names()[name] for name in dataset.schema.names]
    fields = [field.model_dump(by_alias=True, exclude_none=True) for field in dataset.schema.fields]
    schema = TableSchema.model_validate(
        {"fields": [{**field, "name": name} for field, name in zip(fields, names, strict=True)]}
    )
    return dataclasses.replace(
        dataset,
        schema=schema,
        rows=dataset.rows.rename_columns(names),
        time_column=None if dataset.time_column is None else odd_names()[dataset.time_column],
        indexings=tuple(renamed_indexing(one) for one in dataset.indexings),
        uneven=[],
    )


def renamed_indexing(indexing: IndexingSpec) -> IndexingSpec:
    """The same indexes, of odd names."""
    return IndexingSpec.model_validate(_renamed(indexing.model_dump(by_alias=True, exclude_none=True, mode="json")))


def _renamed(value: Any) -> Any:
    odd = odd_names()
    if isinstance(value, dict):
        return {odd.get(key, key): _renamed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, str):
        return value
    if (derived := _DERIVED.fullmatch(value)) is not None:
        return f"${odd[derived[1]]}${derived[2]}"
    function, separator, column = value.partition(SEPARATOR)
    return f"{function}{separator}{odd[column]}" if separator and column in odd else odd.get(value, value)


def renamed_sql(sql: str) -> str:
    """The query with odd names, in quotes."""
    return "".join(odd for _, odd in _pieces(sql))


def _pieces(sql: str) -> Iterator[tuple[str, str]]:
    """Tokens as they are written and as odd names have them: in double quotes, and every other time in backticks where
    these need no doubling."""
    tokens = _TOKEN.findall(sql)
    for place, token in enumerate(tokens):
        following = next((one for one in tokens[place + 1 :] if not one.isspace()), "")
        word = token.strip('"`')
        derived, name = _DERIVED.fullmatch(word), _odd(word)
        if derived is not None and derived[1] in odd_names():
            yield token, in_sql(f"${odd_names()[derived[1]]}${derived[2]}")
        elif name is not None and token[0] != "'" and (following != "(" or token != word):
            yield token, f"`{name}`" if place % 2 and "`" not in name else in_sql(name)
        else:
            yield token, token


def _odd(word: str) -> str | None:
    """The name for a word, in its case; None if it is no column's."""
    odd = odd_names()
    if word in odd:
        return odd[word]
    if word.upper() in _WORDS_OF_SQL or word.lower() not in odd:
        return None
    return re.sub("[a-z]", lambda letter: letter[0].upper(), odd[word.lower()])


def plain_words(text: str) -> str:
    """A message in plain names."""
    for plain, odd in sorted(odd_names().items(), key=lambda pair: -len(pair[1])):
        for written in (in_sql(odd), f"`{odd}`", odd):
            text = text.replace(written, plain)
    return text


class OddNames:
    """Answers cases over a layout of odd names."""

    def __init__(self, layout: _Queried) -> None:
        self._layout = layout

    def query(self, sql: str) -> Answer:
        """The answer to the same question; the error in plain names."""
        try:
            answer = self._layout.query(renamed_sql(sql))
        except MerlotError as error:
            raise RefusedError(plain_words(_plain_position(str(error), sql)), error.code) from error
        return answer._replace(columns=[plain_words(name) for name in answer.columns])


def _plain_position(message: str, sql: str) -> str:
    """Return the message with the position, and the excerpt of the text there, in the query as it is written."""
    match = _POSITION.search(message)
    if match is None:
        return message
    column = int(match[2])
    start = _place(sql, column)
    before, rest = message[: match.start()] + match[1] + str(start), message[match.end(2) :]
    if match[3] is None:
        return before + rest
    return before + rest.replace(_excerpt(renamed_sql(sql), column), _excerpt(sql, start), 1)


def _excerpt(sql: str, column: int) -> str:
    """Return the text that an error at a column shows, as `lexer.error_at` cuts it."""
    return sql[column - 1 : column + 19].split("\n")[0]


def _place(sql: str, column: int) -> int:
    """The place in the query as it is written of what is at a column of the renamed one."""
    start = 0
    for written, odd in _pieces(sql):
        if column <= len(odd):
            break
        column, start = column - len(odd), start + len(written)
    return start + column


@contextmanager
def odd_segments(dataset: Dataset, folder: Path) -> Iterator[Sequence[Segment]]:
    """A renamed dataset: a segment with star-trees, one in each encoding, and one that consumes."""
    odd, rows = renamed(dataset), dataset.rows.num_rows
    indexings = [renamed_indexing(one) for one in (star_trees_of(dataset), *varied_of(dataset))]
    with ExitStack() as stack:
        segments: list[Segment] = []
        edges = [rows * part // (len(indexings) + 1) for part in range(len(indexings) + 2)]
        for number, indexing in enumerate(indexings):
            cut = edges[number : number + 2]
            (path,) = build_paths(odd, folder, cut, varied=False, indexing=indexing, first=number)
            segments.append(stack.enter_context(ImmutableSegment.open(path)))
        segments.append(consuming_segment(odd, edges[-2], rows).snapshot())
        yield segments

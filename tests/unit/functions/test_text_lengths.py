"""Lengths of texts, counted by bytes where every character is one."""

import pyarrow as pa
import pytest

from merlot.functions.evaluate import evaluate
from merlot.functions.source import ValueSource
from merlot.tree.nodes import Call, Column
from merlot.tree.types import INT, STRING
from merlot.values.types import TypeName
from merlot.vectors.texts import is_ascii

TEXTS = ["", "abc", "\x7f", "é", "日本", "a\U0001f600"]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_characters_are_counted_and_not_bytes(type_):
    texts = pa.array(TEXTS, type_)
    for start in range(len(TEXTS)):
        for stop in range(start, len(TEXTS) + 1):
            some = texts.slice(start, stop - start)
            assert is_ascii(some) == all(text.isascii() for text in TEXTS[start:stop])
            length = evaluate(Call("length", (Column("x", STRING),), INT), ValueSource(TypeName.STRING, some))
            assert length.spread(len(some)).data.tolist() == [len(text) for text in TEXTS[start:stop]]

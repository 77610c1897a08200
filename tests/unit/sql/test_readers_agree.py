"""The parser makes the trees that sqlglot's makes, of every text of the repository and of texts made of their words."""

import random
from collections.abc import Callable
from typing import Any

from tests.unit.sql.former_trees import UnknownFormError, converted, normal
from tests.unit.sql.sql_texts import statements, strings

from merlot.errors import InvalidInputError
from merlot.sql.budget import Budget
from merlot.sql.lexer import tokens_of
from merlot.sql.parse import read_any
from merlot.sql.reading import read

MORE_REFUSED = ("SqlParseError", "UnsupportedSqlError")


def former(sql: str) -> Any:
    parsed = read_any(sql, Budget())
    return normal(converted(parsed.tree)), parsed.options, parsed.explain, parsed.has_stages


def present(sql: str) -> Any:
    parsed = read(sql)
    return normal(parsed.tree), parsed.options, parsed.explain, parsed.has_stages


def outcome(read: Callable[[str], Any], sql: str) -> Any:
    try:
        return read(sql)
    except InvalidInputError as error:
        assert "\n" not in str(error)
        return type(error).__name__
    except UnknownFormError:
        return "UnsupportedSqlError"


def test_statements_read_alike() -> None:
    texts = [*statements(), *strings()]
    assert len(texts) > 4_000
    different = [sql for sql in texts if outcome(former, sql) != outcome(present, sql)]
    accepted = [sql for sql in different if not isinstance(outcome(present, sql), str)]
    assert len(different) < 30, different
    assert len(accepted) < 10, accepted


def test_mutated_statements_read_alike() -> None:
    rng = random.Random(11)
    known = [tokens for tokens in map(tokens_in, statements()) if 0 < len(tokens) < 80]
    words = [word for tokens in known for word in tokens]
    different = []
    for _ in range(1_500):
        tokens = list(rng.choice(known))
        at = rng.randrange(len(tokens))
        tokens[at : at + rng.randrange(2)] = rng.choices(words, k=rng.randrange(2))
        sql = " ".join(tokens)
        found = outcome(present, sql)
        if not isinstance(found, str) and outcome(former, sql) != found:
            different.append(sql)
    assert len(different) < 8, different


def tokens_in(sql: str) -> list[str]:
    try:
        return tokens_of(sql)[1]
    except InvalidInputError:
        return []

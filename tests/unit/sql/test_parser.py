"""Every text of the repository is read, and written again as a text that is read as the same tree."""

from typing import Any

from tests.unit.sql.sql_texts import statements, strings

from merlot.errors import InvalidInputError
from merlot.sql.node_text import node_text
from merlot.sql.parse import ParsedStatement, parse_statement
from merlot.sql.syntax import Node


def parts(node: Any) -> Any:
    """A tree as plain values."""
    if isinstance(node, Node):
        kind = type(node)
        names = [name for name in kind.__dataclass_fields__ if name != "token"]  # type: ignore[attr-defined]
        return kind.__name__, [parts(getattr(node, name)) for name in names]
    return [parts(item) for item in node] if isinstance(node, list | tuple) else node


def read_of(sql: str) -> ParsedStatement | None:
    try:
        return parse_statement(sql)
    except InvalidInputError:
        return None


def test_what_is_written_of_a_tree_is_read_as_that_tree() -> None:
    num_read = 0
    for sql in (*statements(), *strings()):
        statement = read_of(sql)
        if statement is None:
            continue
        num_read += 1
        written = node_text(statement.tree)
        assert parts(parse_statement(written).tree) == parts(statement.tree), (sql, written)
    assert num_read > 3_500


def test_statements_of_the_tests_are_read_or_refused_as_they_say() -> None:
    assert sum(read_of(sql) is not None for sql in statements()) > len(statements()) * 0.8

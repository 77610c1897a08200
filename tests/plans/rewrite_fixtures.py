"""What rules make of queries of several stages, as a text file.

`rewrites.txt` has queries, each a line that begins in the first column; `#` begins a comment. Indented below a query
stand its tree before and after the rules that changed it, and what servers are asked.
`python -m tests.plans.rewrite_fixtures` writes what is indented anew; with --check, as a test does, it compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.sql.slt_stages import FEW_GROUPS

from merlot.broker.stages_explained import lines_of
from merlot.errors import NotFoundError
from merlot.query.plan.binding import fold
from merlot.query.plan.text import text_of
from merlot.query.stages.key_filters import KeyFilter
from merlot.query.stages.leaves import CutStatement, StageLeaf, cut
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.budget import Budget
from merlot.sql.parse import parse_statement
from merlot.sql.stages.bind import StageContext, bind_statement
from merlot.tree.literals import INT_MAX
from merlot.values.types import TypeName

FILE = Path(__file__).parent / "rewrites.txt"
_TABLES = {
    "flights": {"carrier": "STRING", "origin": "STRING", "delay": "INT", "day": "LONG", "at": "TIMESTAMP"},
    "airlines": {"code": "STRING", "title": "STRING"},
}
_SCHEMAS = {
    table: TableSchema(fields=tuple(FieldSpec(name=name, type=TypeName(type_)) for name, type_ in columns.items()))
    for table, columns in _TABLES.items()
}


def _schema(name: str) -> TableSchema:
    if name not in _SCHEMAS:
        raise NotFoundError(f"table does not exist table={name}")
    return _SCHEMAS[name]


def told(sql: str) -> Iterator[str]:
    """What becomes of a query, a line each."""
    context = StageContext(find_schema=_schema, fold=fold, budget=Budget())
    made = cut(bind_statement(parse_statement(sql), context, {}), sizes=FEW_GROUPS)
    yield "before"
    yield from ("  " * depth + line for line, depth, _ in lines_of(made.rewrites.before, {}))
    yield f"after {', '.join(made.rewrites.rules) or 'no rule'}"
    queries = {id_: leaf.query for id_, leaf in made.leaves.items()}
    if made.direct is None:
        yield from ("  " * depth + line for line, depth, _ in lines_of(made.statement, queries))
    for id_, leaf in made.leaves.items():
        yield from (f"  {line}" for line in _asked(leaf))
        yield from (f"    keys {_keys(made, key_filter)}" for key_filter in made.filters if key_filter.leaf == id_)


def _keys(made: CutStatement, key_filter: KeyFilter) -> str:
    source = made.leaves[key_filter.source].query
    return f"{key_filter.column.name} of {source.table}.{text_of(source.select[key_filter.position].expr)}"


def _asked(leaf: StageLeaf) -> Iterator[str]:
    query = leaf.query
    yield f"asks {query.table} for {', '.join(text_of(output.expr) for output in query.select)}"
    if query.where is not None:
        yield f"  where {text_of(query.where)}"
    if query.group_by:
        yield f"  group by {', '.join(map(text_of, query.group_by))}"
    if query.having is not None:
        yield f"  having {text_of(query.having)}"
    if query.order_by:
        keys = (f"{text_of(key.expr)} {'ASC' if key.ascending else 'DESC'}" for key in query.order_by)
        yield f"  order by {', '.join(keys)}"
    if query.limit != INT_MAX:
        yield f"  limit {query.limit}{f' offset {query.offset}' if query.offset else ''}"


def rendered(text: str) -> str:
    """The file as it should be."""
    out: list[str] = []
    for line in text.splitlines():
        if line[:1].isspace():
            continue
        out.append(line)
        if line and line[0] != "#":
            out += [f"  {one}" for one in told(line)]
    return "\n".join(out).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the file anew, or with --check say whether it differs; returns the exit code."""
    parser = argparse.ArgumentParser(prog="rewrite_fixtures.py")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is not what rules do")
    before = FILE.read_text()
    after = rendered(before)
    if parser.parse_args(arguments).check:
        if before != after:
            sys.stderr.write(f"{FILE} differs from what rules do: run `python {Path(__file__).name}`\n")
        return int(before != after)
    FILE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())

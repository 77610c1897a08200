"""Every text of the repository that may be SQL: the statements of `.slt` files, and strings of tests and benchmarks."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.sql.slt_reader import read_file

ROOT = Path(__file__).parents[3]
_SQL = re.compile(r"\s*\(*\s*(SELECT|WITH|SET|EXPLAIN|VALUES)\b", re.IGNORECASE)


@cache
def statements() -> tuple[str, ...]:
    """The statements of all `.slt` files, those that fail included."""
    cases = (case.sql for path in sorted((ROOT / "tests/sql").glob("*.slt")) for case in read_file(path))
    return tuple(dict.fromkeys(cases))


@cache
def strings() -> tuple[str, ...]:
    """Strings in Python files that begin as SQL does."""
    found: dict[str, None] = {}
    for folder in ("tests", "runtime", "spark", "operator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text()
            if "SELECT" not in source and "select" not in source:
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL.match(node.value):
                    found[node.value] = None
    return tuple(found)

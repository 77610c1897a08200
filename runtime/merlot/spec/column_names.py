"""Judge names of columns: those that Pinot takes are taken. This is the only place that says so.

Pinot refuses blanks (`SchemaUtils.validate`) and takes all else: dots, as its `complexTypeConfig` writes them
(`payload.commits`), `-`, `$`, `__`, `||`, quotes. A `$` in front marks columns that nobody declares: the virtual ones
and derived ones (`$docId`, `$ts$DAY`); Pinot leaves such columns out of `SELECT *`. `*` in front would be the star of
`COUNT(*)` and of `SUM__*`. SQL writes a name that is no plain word in double quotes or backticks.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

_REST: Final = r"[^\s\x00-\x1f\x7f]"
COLUMN: Final = rf"[^\s\x00-\x1f\x7f$*]{_REST}*"
"""A name, as a piece of a regular expression. It means the same to Python, to pydantic and to an API server, but that
the last one refuses the blanks of ASCII alone."""
PATTERN: Final = f"^{COLUMN}$"
HINT: Final = "a column's name has no blanks or control characters, and begins with neither $ nor *"
_NAME: Final = re.compile(COLUMN)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ColumnName = Annotated[str, Field(pattern=PATTERN, max_length=128)]


def is_name(text: str) -> bool:
    """Say whether a column may have this name."""
    return _NAME.fullmatch(text) is not None


def in_sql(name: str) -> str:
    """The name as SQL writes it: in quotes if it is no plain word. A reserved word is left to whoever reads it."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """The name in double quotes, which SQL takes whatever it is."""
    return '"' + name.replace('"', '""') + '"'

"""Check and quote the names of columns. Every name that Pinot accepts is accepted; this is the only place that says so.

Pinot refuses white space (`SchemaUtils.validate`) and accepts all else: dots, as its `complexTypeConfig` writes them
(`payload.commits`), `-`, `$`, `__`, `||`, quotes. A leading `$` marks columns that nobody declares: virtual and derived
columns (`$docId`, `$ts$DAY`), which Pinot leaves out of `SELECT *`. A leading `*` would be the star of `COUNT(*)` and
of `SUM__*`. SQL writes a name that is no plain word in double quotes or backticks.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

_REST: Final = r"[^\s\x00-\x1f\x7f]"
COLUMN: Final = rf"[^\s\x00-\x1f\x7f$*]{_REST}*"
"""Pattern of a column's name, as part of a regular expression. It means the same to Python, pydantic and an API server,
except that an API server refuses only ASCII white space."""
PATTERN: Final = f"^{COLUMN}$"
HINT: Final = "a column's name has no blanks or control characters, and begins with neither $ nor *"
_NAME: Final = re.compile(COLUMN)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ColumnName = Annotated[str, Field(pattern=PATTERN, max_length=128)]


def is_name(text: str) -> bool:
    """Return True if a column may have this name."""
    return _NAME.fullmatch(text) is not None


def in_sql(name: str) -> str:
    """Return the name as SQL writes it: quoted if it is no plain word. Callers have to quote reserved words
    themselves."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """Return the name in double quotes, which SQL accepts for any name."""
    return '"' + name.replace('"', '""') + '"'

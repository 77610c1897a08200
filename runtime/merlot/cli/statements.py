"""Split text into SQL statements, at semicolons outside quotes and comments, and read `SET`, which sets an option of
the session."""

import re

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'?         # a string literal; without a closing quote it goes to the end
      | "(?:[^"]|"")*"?         # a quoted identifier
      | `[^`]*`?                # a quoted identifier
      | --[^\n]*                # a comment to the end of the line
      | /\*.*?(?:\*/|\Z)        # a block comment
      | ;
      | [^'"`;/-]+
      | [/-]""",
    re.VERBOSE | re.DOTALL,
)
_SET = re.compile(r"^\s*SET\s+(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.+?)\s*$", re.IGNORECASE | re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that end in a semicolon, without empty ones, and the rest after the last semicolon."""
    statements: list[str] = []
    parts: list[str] = []
    for match in _TOKEN.finditer(text):
        if match[0] == ";":
            statements.append("".join(parts))
            parts = []
        else:
            parts.append(match[0])
    return [statement.strip() for statement in statements if not is_blank(statement)], "".join(parts)


def is_blank(text: str) -> bool:
    """Return True if the text has only white space and comments."""
    tokens = (match[0] for match in _TOKEN.finditer(text) if not match[0].startswith(("--", "/*")))
    return not "".join(tokens).strip()


def session_option(statement: str) -> tuple[str, str] | None:
    """Return the name and value of `SET name = value`; None for any other statement."""
    match = _SET.match(statement)
    return (match["name"], match["value"].strip("'\"")) if match else None

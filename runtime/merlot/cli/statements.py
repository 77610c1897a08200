"""Text to SQL statements: split at semicolons outside quotes and comments. A `SET` belongs to the session."""

import re

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'?         # text; one that is not closed goes to the end
      | "(?:[^"]|"")*"?         # a name
      | `[^`]*`?                # a name
      | --[^\n]*                # a comment to the end of the line
      | /\*.*?(?:\*/|\Z)        # a comment
      | ;
      | [^'"`;/-]+
      | [/-]""",
    re.VERBOSE | re.DOTALL,
)
_SET = re.compile(r"^\s*SET\s+(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.+?)\s*$", re.IGNORECASE | re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """The statements that a semicolon ends, and the rest behind the last one. Empty statements are left out."""
    statements: list[str] = []
    parts: list[str] = []
    for match in _TOKEN.finditer(text):
        if match[0] == ";":
            statements.append("".join(parts))
            parts = []
        else:
            parts.append(match[0])
    return [one.strip() for one in statements if not is_blank(one)], "".join(parts)


def is_blank(text: str) -> bool:
    """True if there is nothing but space and comments."""
    kept = (match[0] for match in _TOKEN.finditer(text) if not match[0].startswith(("--", "/*")))
    return not "".join(kept).strip()


def session_option(statement: str) -> tuple[str, str] | None:
    """Name and value of a `SET name = value`, or None if the statement is none."""
    match = _SET.match(statement)
    return (match["name"], match["value"].strip("'\"")) if match else None

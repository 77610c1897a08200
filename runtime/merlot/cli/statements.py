"""Split text into SQL statements, at semicolons outside quotes and comments, and read `SET`, which sets an option of
the session."""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""'(?:[^']|'')*'?         # a string literal; without a closing quote it goes to the end
      | "(?:[^"]|"")*"?         # a quoted identifier
      | `[^`]*`?                # a quoted identifier
      | --[^\n]*                # a comment to the end of the line
      | /\*                     # the start of a block comment; comments nest
      | ;
      | [^'"`;/-]+
      | [/-]""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_SET = re.compile(r"^\s*SET\s+(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.+?)\s*$", re.IGNORECASE | re.DOTALL)


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that end in a semicolon, without empty ones, and the rest after the last semicolon."""
    statements: list[str] = []
    parts: list[str] = []
    for token in _tokens(text):
        if token == ";":
            statements.append("".join(parts))
            parts = []
        else:
            parts.append(token)
    return [statement.strip() for statement in statements if not is_blank(statement)], "".join(parts)


def is_blank(text: str) -> bool:
    """Return True if the text has only white space and comments."""
    return not _without_comments(text).strip()


def session_option(statement: str) -> tuple[str, str] | None:
    """Return the name and value of `SET name = value`; None for any other statement."""
    match = _SET.match(_without_comments(statement))
    return (match["name"], match["value"].strip("'\"")) if match else None


def _without_comments(text: str) -> str:
    return "".join(" " if token.startswith(("--", "/*")) else token for token in _tokens(text))


def _tokens(text: str) -> Iterator[str]:
    end = 0
    while match := _TOKEN.match(text, end):
        end = _comment_end(text, match.end()) if match[0] == "/*" else match.end()
        yield text[match.start() : end]


def _comment_end(text: str, start: int) -> int:
    """Return the end of the block comment whose text begins at `start`; the text's end if it is not closed."""
    depth = 1
    for match in _COMMENT_MARK.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)

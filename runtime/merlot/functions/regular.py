"""Regular expressions, in Java's syntax as far as RE2 supports it: linear in the text, whatever the pattern.

RE2 itself refuses constructs that it lacks (look-around, possessive repeats). Some that it reads differently from Java
(backreferences, a class inside a class, &&, POSIX classes, \\v, the flag U) are refused here, since a wrong match would
be worse; so is \\C, a byte of a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions import sizes
from merlot.functions.comparisons import to_mask
from merlot.functions.function import TEXTS, Family, Lists, size, text, word
from merlot.functions.time_words import constant_text
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import BOOLEAN, INT, STRING, SqlType
from merlot.vectors.vector import Vector

REGULAR: Final = Family("Regular expressions")

_SPECIAL: Final = re.compile(r"\\(.?)|\$([0-9]+|.?)", re.DOTALL)
"""Parts of a Java replacement that are not taken literally: escapes and groups."""


def _letters(pattern: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the characters that are not quoted by \\Q…\\E: place, character, and True if it is inside a class. An
    escape comes as two characters."""
    place, is_class = 0, False
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            if pattern.startswith("\\Q", place):
                end = pattern.find("\\E", place)
                place = len(pattern) if end < 0 else end + 2
                continue
            yield place, pattern[place : place + 2], is_class
            place += 2
            continue
        yield place, letter, is_class
        if letter == "[" and not is_class:
            is_class = True
            # A caret is skipped, so that `_differs` sees whether a closing bracket comes first in the class. RE2 takes
            # such a bracket for a character of the class.
            place += pattern.startswith("^", place + 1)
        elif letter == "]" and is_class:
            is_class = False
        place += 1


_BACKREFERENCE: Final = re.compile(r"\\(?:[1-9]|0[0-3][0-7]{2})")
"""Backreference in Java, of one digit or more. RE2 reads two digits or more as an octal code, and reads only two digits
after a zero."""
_SWAPPED: Final = re.compile(r"\(\?[a-zA-Z-]*U")
"""Group with a flag that swaps greediness in RE2. In Java the flag means Unicode's classes."""


def _differs(pattern: str) -> str | None:
    """Return a construct of the pattern that Java and RE2 read differently; None if it has none of those looked for."""
    previous = ""
    for place, letter, is_class in _letters(pattern):
        if _BACKREFERENCE.match(pattern, place):
            return "a backslash and a number other than \\0, \\0n and \\0nn"
        if letter == "(" and not is_class and _SWAPPED.match(pattern, place):
            return "the flag U"
        if letter == "\\C":
            return letter
        if is_class and letter == "[":
            return "a class inside a class"
        if is_class and letter == previous == "&":
            return "&& in a class"
        if letter == "\\v":
            return "\\v"
        if letter == "]" and previous == "[" and is_class:
            return "an empty class"
        previous = letter
    return None


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> None:
    """Raise SqlValidationError if RE2 refuses the pattern, or if `_differs` says that Java reads it differently."""
    differs = _differs(pattern)
    if differs is not None:
        raise SqlValidationError(f"regular expression is not supported: {differs} pattern='{pattern:.100}'")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise SqlValidationError(f"regular expression is not supported: {reason} pattern='{pattern:.100}'") from error


def flagged(pattern: str, flags: str) -> str:
    return f"(?i){pattern}" if "i" in flags else pattern


def check_flag(function: str, flag: str) -> None:
    """Raise SqlValidationError unless the flag is one of those for case: i or c."""
    if flag not in ("i", "c"):
        raise SqlValidationError(f"{function}: unknown flag '{flag:.100}' expected=i|c")


def _like(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to text and pattern; the flag goes into the pattern."""
    flag = constant_text(args[2]) if len(args) > 2 else "c"
    check_flag("regexplike", flag)
    pattern = flagged(constant_text(args[1]), flag)
    check_pattern(pattern)
    return args[0], Literal(pattern, STRING)


@REGULAR.strict(
    "regexplike",
    parameters=(text(), word("pattern"), word("flag", is_optional=True)),
    result=BOOLEAN,
    complete=_like,
    lists=Lists.ANY_VALUE,
    is_predicate=True,
    examples={"REGEXP_LIKE('banana', 'n.n')": True, "REGEXP_LIKE('banana', '^B', 'i')": True},
)
def _regexp_like(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return True for texts in which the pattern is found anywhere."""
    return to_mask(pc.match_substring_regex(args[0].data, args[1].data.as_py()))


_PLACES: Final = frozenset({"\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "\\A", "\\z", "\\t", "\\n", "\\r"})
"""Escapes of two characters that stand for a class, a position or a control character."""


def spelled_out(pattern: str) -> list[str]:
    """Return texts that every match of a checked pattern contains; none where it is not plain to see."""
    if "|" in pattern or "(?" in pattern or "\\Q" in pattern:
        return []
    texts, depth, is_count = [""], 0, False
    for _, letter, is_class in _letters(pattern):
        if is_count:
            is_count = letter != "}"
        elif letter in ("*", "?", "{") and not is_class:
            # The character before a repetition may be missing.
            texts[-1:] = [texts[-1][:-1], ""]
            is_count = letter == "{"
        elif letter in ("(", ")") and not is_class:
            depth += 1 if letter == "(" else -1
            texts.append("")
        elif is_class or depth or letter in (".", "^", "$", "+", "[") or letter in _PLACES:
            texts.append("")
        elif len(letter) == 2 and (letter[1].isalnum() or not letter[1].isascii()):
            return []
        else:
            texts[-1] += letter[-1]
    return texts


def beginning_of(pattern: str) -> str:
    """Return the beginning of all texts that match a checked pattern; empty where it is not plain to see."""
    if not pattern.startswith("^") or "|" in pattern or "\\Q" in pattern:
        return ""
    beginning = ""
    for _, letter, is_class in _letters(pattern[1:]):
        if letter in ("*", "?", "{"):
            return beginning[:-1]  # the character before a repetition may be missing
        is_special = is_class or letter in (".", "^", "$", "+", "[", "(", ")")
        if is_special or (len(letter) == 2 and (letter[1].isalnum() or not letter[1].isascii())):
            break
        beginning += letter[-1]
    return beginning


def _named(pattern: str) -> tuple[str, int]:
    """Return the pattern with its groups named g1, g2, …, as Arrow requires, within a group g0; and how many groups it
    has."""
    parts: list[str] = []
    start, groups = 0, 0
    for place, letter, is_class in _letters(pattern):
        if letter != "(" or is_class:
            continue
        name = next((sign for sign in ("?P<", "?<") if pattern.startswith(sign, place + 1)), None)
        if name is None and pattern.startswith("?", place + 1):
            continue
        groups += 1
        parts += [pattern[start:place], f"(?P<g{groups}>"]
        start = place + 1 if name is None else pattern.index(">", place) + 1
    # A quotation may lack its end; then it would take in the parenthesis that is added here.
    is_open = all(place < len(pattern) for place, _, _ in _letters(f"{pattern})"))
    end = r"\E)" if is_open else ")"
    return f"(?P<g0>{''.join(parts)}{pattern[start:]}{end}", groups


def _extract(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to text, pattern with named groups, name of the group, default."""
    pattern = constant_text(args[1])
    check_pattern(pattern)
    group = args[2].value if len(args) > 2 and isinstance(args[2], Literal) else 0
    default = constant_text(args[3]) if len(args) > 3 else ""
    named, groups = _named(pattern)
    assert isinstance(group, int)
    if group < 0:
        raise SqlValidationError(f"regexpextract: no group has the number {group}")
    name = f"g{group}" if group <= groups else ""
    return args[0], *(Literal(value, STRING) for value in (named, name, default))


def _check_extract(args: tuple[Expr, ...]) -> None:
    """Raise SqlValidationError unless the pattern names the group, or the group's name is empty: then none is meant."""
    given, *words = args
    texts = _constants(words, (STRING, STRING, STRING))
    named, name, _ = texts
    check_pattern(named)
    groups = pc.extract_regex(pa.array([""]), named).type
    if given.type.is_array or given.type.base not in TEXTS.types or (name and groups.get_field_index(name) < 0):
        raise SqlValidationError("regexpextract has no such group")


def _constants(args: Sequence[Expr], types: Sequence[SqlType]) -> list[Any]:
    """Return the values of constants; raise SqlValidationError for arguments of other types, and for NULL."""
    values = [arg.value if isinstance(arg, Literal) else None for arg in args]
    if [arg.type for arg in args] != list(types) or None in values:
        raise SqlValidationError("regular expressions have other constants")
    return values


@REGULAR.strict(
    "regexpextract",
    parameters=(text(), word("pattern"), size("group", is_optional=True), word("default", is_optional=True)),
    result=STRING,
    complete=_extract,
    most_bytes=lambda args: sizes.usual(args[:1]) + sizes.num_rows(args) * sizes.bytes_of(args[3]),
    check_complete=_check_extract,
    examples={
        "REGEXP_EXTRACT('a-12-b', '[0-9]+')": "12",
        "REGEXP_EXTRACT('a-12-b', '([a-z])-([0-9]+)', 2)": "12",
        "REGEXP_EXTRACT('a', '[0-9]+', 0, 'none')": "none",
    },
)
def _regexp_extract(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the first match, or a group of it; the default where there is none."""
    pattern, name, default = (arg.data.as_py() for arg in args[1:])
    texts = pa.array([args[0].data.as_py()]) if args[0].is_constant else args[0].data
    if not name:
        extracted = pa.repeat(pa.scalar(default), len(texts))
    else:
        extracted = pc.struct_field(pc.extract_regex(texts, pattern), name).fill_null(default)
    return extracted[0] if args[0].is_constant else extracted


def _replacement(template: str, groups: int) -> str:
    """Translate Java's replacement ($1, \\$) to RE2's (\\1); raise SqlValidationError."""

    def spelled(match: re.Match[str]) -> str:
        escaped, digits = match.groups()
        if digits is None:
            return _literal(escaped or "\\")
        group, rest = _group(digits, groups) if digits.isascii() and digits.isdigit() else (groups + 1, "")
        if group > groups:
            raise SqlValidationError(f"regexpreplace: no such group in '{template:.100}'")
        if group > 9:
            raise SqlValidationError(f"regexpreplace: group {group} is not supported in '{template:.100}' limit=9")
        return f"\\{group}{rest}"

    return _SPECIAL.sub(spelled, template)


def _group(digits: str, groups: int) -> tuple[int, str]:
    """Return the group that Java reads at the beginning of the digits, and the digits after it. Java takes a further
    digit as long as the pattern has such a group."""
    group, place = int(digits[0]), 1
    while place < len(digits) and group * 10 + int(digits[place]) <= groups:
        group = group * 10 + int(digits[place])
        place += 1
    return group, digits[place:]


def _literal(replacement: str) -> str:
    return replacement.replace("\\", "\\\\")


def _replace(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to text, pattern, RE2's replacement, first position, most replacements."""
    flags = constant_text(args[5]) if len(args) > 5 else ""
    start, occurrence = (arg.value if isinstance(arg, Literal) else 0 for arg in (*args[3:5], *_DEFAULTS[len(args) :]))
    pattern = flagged(constant_text(args[1]), flags)
    check_pattern(pattern)
    if occurrence not in (-1, 0) or not isinstance(start, int) or start < 0:
        raise SqlValidationError("regexpreplace replaces all occurrences (-1) or the first (0), from a position on")
    template = constant_text(args[2])
    new = _replacement(template, _named(pattern)[1]) if occurrence == -1 else _literal(template)
    words = (Literal(pattern, STRING), Literal(new, STRING))
    return args[0], *words, Literal(start, INT), Literal(-1 if occurrence == -1 else 1, INT)


def _most_replaced(args: Sequence[Vector]) -> int:
    """Bound the bytes of the texts, of the replacement at each match, and of each group that the replacement names.

    Matches do not overlap, so that all matches of a group are no longer than all texts together."""
    texts, pattern, new, start, most = args
    replacement = sizes.word(new)
    num_groups = sum(map(bool, _GROUP.findall(replacement)))
    rows, length = sizes.num_rows(args), sizes.bytes_of(texts)
    matches = rows if sizes.whole(most) > 0 else sizes.counted(texts, sizes.word(pattern), is_regex=True)
    made = length * (1 + num_groups) + matches * len(replacement.encode())
    return made * (2 if sizes.whole(start) else 1)


_GROUP: Final = re.compile(r"\\(?:\\|([0-9]))")
"""Backslash of an RE2 replacement: it is doubled, or it begins a group."""


def _check_replace(args: tuple[Expr, ...]) -> None:
    """Raise SqlValidationError unless the replacement consists of texts and of groups of the pattern."""
    given, *words = args
    pattern, new, start, most = _constants(words, (STRING, STRING, INT, INT))
    check_pattern(pattern)
    pc.replace_substring_regex(pa.array([""]), pattern, new)
    if given.type.is_array or given.type.base not in TEXTS.types or start < 0 or most not in (-1, 1):
        raise SqlValidationError("regexpreplace replaces all occurrences (-1) or the first (1), from a position on")


_DEFAULTS: Final = (*(Literal(0, INT),) * 4, Literal(-1, INT))
"""Defaults by place; position and occurrence may be left out."""


@REGULAR.strict(
    "regexpreplace",
    parameters=(
        text(),
        word("pattern"),
        word("replacement"),
        size("start", is_optional=True),
        size("occurrence", is_optional=True),
        word("flag", is_optional=True),
    ),
    result=STRING,
    complete=_replace,
    most_bytes=_most_replaced,
    check_complete=_check_replace,
    examples={
        "REGEXP_REPLACE('banana', 'a(.)', '$1o')": "bnonoa",
        "REGEXP_REPLACE('banana', 'a', 'o', 2)": "banono",
        "REGEXP_REPLACE('banana', 'A', 'o', 0, 0, 'i')": "bonana",
    },
)
def _regexp_replace(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Replace all matches, or the first, from a position on."""
    pattern, new = args[1].data.as_py(), args[2].data.as_py()
    start, most = int(args[3].data), int(args[4].data)
    options = {"pattern": pattern, "replacement": new, "max_replacements": None if most < 0 else most}
    if not start:
        return pc.replace_substring_regex(args[0].data, **options)
    before = pc.utf8_slice_codeunits(args[0].data, start=0, stop=start)
    after = pc.replace_substring_regex(pc.utf8_slice_codeunits(args[0].data, start=start), **options)
    return pc.binary_join_element_wise(before, after, "")

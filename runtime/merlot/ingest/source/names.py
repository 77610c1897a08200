"""Find the column of a file that a column of the table stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from merlot.errors import InvalidInputError


def find(wanted: str, present: Sequence[str], file: str) -> str | None:
    """Return the column of exactly that name, else the only one that differs by case, or blanks around it, alone.
    Raises InvalidInputError if there are several."""
    meant = [name for name in present if name == wanted] or alike(wanted, present)
    if len(meant) > 1:
        raise InvalidInputError(f"several columns may be meant file={file} column={wanted} found={meant}")
    return meant[0] if meant else None


def alike(wanted: str, present: Iterable[str]) -> list[str]:
    """Return the names that differ by case, or blanks around them, alone; the equal one included."""
    lower = wanted.lower()
    return [name for name in present if name.strip().lower() == lower]

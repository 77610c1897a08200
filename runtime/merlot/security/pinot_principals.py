"""Convert Pinot's `principals` properties of basic authentication to an access document, with a note for each setting
that has no equivalent. Pure.

Pinot's permissions are READ, CREATE, UPDATE and DELETE; a principal without any has all. Tables are names, a principal
without any has all. `principals.NAME.TABLE.rls` is a row filter of READ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from merlot.errors import InvalidInputError

Json = dict[str, Any]
_KEY: Final = re.compile(r"(?P<prefix>(?:[\w.-]+\.)?)principals(?:\.(?P<rest>.+))?")
_RIGHTS: Final[Mapping[str, tuple[str, ...]]] = {
    "READ": ("query",),
    "CREATE": ("insert", "manage"),
    "UPDATE": ("insert", "manage"),
    "DELETE": ("manage",),
}
_OF_PRINCIPALS: Final = frozenset({"password", "tables", "excludeTables", "permissions"})


@dataclass(frozen=True, slots=True)
class ImportedAccess:
    """An access document, and notes about what it does not say."""

    document: Json
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Principal:
    name: str
    password: str = ""
    tables: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    row_filters: dict[str, tuple[str, ...]] | None = None


def read_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a Java properties file, without its comments."""
    properties = {}
    for line in text.replace("\\\n", "").splitlines():
        bare = line.strip()
        if bare and bare[0] not in "#!":
            key, _, value = (part.strip() for part in re.split(r"\s*([=:])\s*", bare, maxsplit=1))
            properties[key] = value
    return properties


def convert(properties: Mapping[str, str], hash_password: Callable[[str], str]) -> ImportedAccess:
    """Return the access document of the principals in a configuration. `hash_password` makes bcrypt hashes. Raise
    InvalidInputError if there are none."""
    principals: dict[str, _Principal] = {}
    notes: list[str] = []
    for key, value in properties.items():
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        if match["rest"] is None:
            for name in _listed(value):
                principals.setdefault(name, _Principal(name))
    for key, value in properties.items():
        match = _KEY.fullmatch(key)
        if match is not None and match["rest"] is not None:
            _read(principals, match["rest"], key, value, notes)
    if not principals:
        raise InvalidInputError("no principals are there: the properties are named …access.control.principals=a,b")
    named = list(principals.values())
    for principal in named:
        if not principal.password:
            raise InvalidInputError(f"principal has no password name={principal.name}")
    return ImportedAccess(
        {
            "users": [
                {"name": principal.name, "passwordHash": hash_password(principal.password)} for principal in named
            ],
            "roles": [{"name": principal.name, "grants": _grants(principal, notes)} for principal in named],
            "bindings": [{"role": principal.name, "users": [principal.name]} for principal in named],
        },
        tuple(notes),
    )


def _read(principals: Mapping[str, _Principal], rest: str, key: str, value: str, notes: list[str]) -> None:
    name = next((name for name in sorted(principals, key=len, reverse=True) if rest.startswith(f"{name}.")), None)
    if name is None:
        notes.append(f"{key}: left out, it is of no principal that is listed")
        return
    principal, setting = principals[name], rest.removeprefix(f"{name}.")
    if setting.endswith(".rls"):
        principal.row_filters = {**(principal.row_filters or {}), setting.removesuffix(".rls"): _predicates(value)}
    elif setting == "password":
        principal.password = value
    elif setting == "tables":
        principal.tables = () if value == "*" else _listed(value)
    elif setting == "excludeTables":
        principal.excluded = _listed(value)
    elif setting == "permissions":
        principal.permissions = () if value == "*" else _listed(value)
    else:
        notes.append(f"{key}: left out, known are {', '.join(sorted(_OF_PRINCIPALS))} and TABLE.rls")


def _grants(principal: _Principal, notes: list[str]) -> list[Json]:
    """Return the grants of a principal: one for each table with row filters, one for the others."""
    rights = _rights(principal, notes)
    filtered = principal.row_filters or {}
    others = [table for table in principal.tables if table not in filtered]
    grants: list[Json] = []
    if others or not principal.tables:
        excluded = [*principal.excluded, *filtered]
        whole: Json = {"rights": rights, "tables": others or ["*"]}
        grants.append({**whole, **({"exceptTables": excluded} if excluded else {})})
    for table, predicates in filtered.items():
        if not principal.tables or table in principal.tables:
            # Whoever has `admin` sees every row, so a filtered table gets the rights one by one.
            own = ["query", "insert", "manage"] if "admin" in rights else rights
            grants.append({"rights": own, "tables": [table], "rows": list(predicates)})
    return grants


def _rights(principal: _Principal, notes: list[str]) -> list[str]:
    if not principal.permissions:
        return ["query", "insert", "manage"] if principal.tables else ["admin"]
    rights: dict[str, None] = {}
    for permission in principal.permissions:
        granted = _RIGHTS.get(permission.upper())
        if granted is None:
            notes.append(f"{principal.name}: permission {permission} is left out, known are {', '.join(_RIGHTS)}")
        rights.update(dict.fromkeys(granted or ()))
    return list(rights)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _predicates(text: str) -> tuple[str, ...]:
    """Return the predicates of a list with commas, none of which are inside quotes or parentheses."""
    return tuple(part.strip() for part in _split(text) if part.strip())


def _split(text: str) -> Iterable[str]:
    depth, quote, start = 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not depth:
            yield text[start:position]
            start = position + 1
    yield text[start:]

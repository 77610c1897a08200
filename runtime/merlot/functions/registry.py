"""Registry of all scalar functions by name: one line per family."""

from __future__ import annotations

from typing import Final

from merlot.functions.addresses import ADDRESSES
from merlot.functions.arithmetic import ARITHMETIC
from merlot.functions.bits import BITS
from merlot.functions.casts import CASTS
from merlot.functions.codes import CODES
from merlot.functions.comparisons import COMPARISONS
from merlot.functions.conditional import CONDITIONAL
from merlot.functions.date_fields import DATE_FIELDS
from merlot.functions.date_formats import DATE_FORMATS
from merlot.functions.distances import DISTANCES
from merlot.functions.epochs import EPOCHS
from merlot.functions.function import Family, ScalarFunction
from merlot.functions.geospatial import GEOSPATIAL
from merlot.functions.hashes import HASHES
from merlot.functions.hop_windows import HOP_WINDOWS
from merlot.functions.instants import INSTANTS
from merlot.functions.json_keys import JSON_KEYS
from merlot.functions.json_text import JSON_TEXT
from merlot.functions.list_making import LIST_MAKING
from merlot.functions.lists import LISTS
from merlot.functions.logic import LOGIC
from merlot.functions.maps import MAPS
from merlot.functions.matching import MATCHING
from merlot.functions.mathematics import MATHEMATICS
from merlot.functions.pieces import PIECES
from merlot.functions.regular import REGULAR
from merlot.functions.rounding import ROUNDING
from merlot.functions.row_patterns import ROW_PATTERNS
from merlot.functions.search import SEARCH
from merlot.functions.splitting import SPLITTING
from merlot.functions.text import TEXT
from merlot.functions.truncation import TRUNCATION
from merlot.functions.url_forms import URL_FORMS
from merlot.functions.urls import URLS
from merlot.functions.whole_numbers import WHOLE_NUMBERS
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Call

FAMILIES: Final[tuple[Family, ...]] = (
    COMPARISONS,
    LOGIC,
    CONDITIONAL,
    CASTS,
    ARITHMETIC,
    ROUNDING,
    MATHEMATICS,
    WHOLE_NUMBERS,
    BITS,
    TEXT,
    SEARCH,
    REGULAR,
    ROW_PATTERNS,
    MATCHING,
    CODES,
    HASHES,
    URLS,
    URL_FORMS,
    ADDRESSES,
    INSTANTS,
    TRUNCATION,
    EPOCHS,
    DATE_FIELDS,
    DATE_FORMATS,
    HOP_WINDOWS,
    JSON_TEXT,
    JSON_KEYS,
    LISTS,
    LIST_MAKING,
    MAPS,
    DISTANCES,
    GEOSPATIAL,
    SPLITTING,
    PIECES,
)
FUNCTIONS: Final[tuple[ScalarFunction, ...]] = tuple(function for family in FAMILIES for function in family.functions)
BY_NAME: Final = {function.name: function for function in FUNCTIONS}
"""Functions by the names that calls have."""
_BY_KEY: Final = {
    key: function for function in FUNCTIONS for key in (function.name, *function.aliases) if not function.syntax
}


def find(name: str) -> ScalarFunction | None:
    """Return the function that may be called by the name, or None."""
    return _BY_KEY.get(canonical_key(name))


def callable_as(name: str) -> ScalarFunction:
    """Return the function that may be called by the name; raise UnsupportedSqlError."""
    function = find(name)
    if function is None:
        instead = _INSTEAD.get(canonical_key(name))
        raise UnsupportedSqlError(f"function {name.upper()}{'' if instead is None else f': write {instead}'}")
    return function


_INSTEAD: Final = {
    "insubquery": "x IN (SELECT …)",
    "inpartitionedsubquery": "x IN (SELECT …)",
    "lookup": "a JOIN with the other table",
    "groovy": "the expression in SQL, or as a derived column",
}
"""Replacements of functions that Pinot has and Merlot has in another form, by canonical key."""


def of(call: Call) -> ScalarFunction:
    """Return the function of a bound call."""
    return BY_NAME[call.function]


def names_that(trait: str) -> frozenset[str]:
    """Return canonical names of the functions for which a trait, such as `is_predicate`, is true."""
    return frozenset(function.name for function in FUNCTIONS if getattr(function, trait))

"""Parts of URLs. Each distinct text is read once. A part that a URL lacks is 'null', as Pinot answers its null texts;
a port is -1 then, and a parameter an empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from merlot.functions.by_value import by_value
from merlot.functions.function import Family, VectorFunction, text
from merlot.tree.types import INT, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector

URLS: Final = Family("URLs")
STRINGS: Final = SqlType(TypeName.STRING, is_array=True)
_ILLEGAL: Final = re.compile(r"""[\x00-\x20<>"{}|\\^`\x7f-\x9f\s]|%(?![0-9A-Fa-f]{2})""")
"""Characters that java.net.URI refuses, and percent signs without two hex digits."""


def split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it has characters that java.net.URI refuses, or cannot be read."""
    if _ILLEGAL.search(url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def host_of(url: str) -> str | None:
    """Return the host as it is written, without user and port, an IPv6 address in its brackets; None if there is
    none."""
    parts = split_url(url)
    if parts is None or not parts.hostname:
        return None
    host_and_port = parts.netloc.rpartition("@")[2]
    address, bracket, _ = host_and_port.partition("]")
    return address + bracket if bracket else host_and_port.partition(":")[0]


def _protocol(url: str) -> str | None:
    parts = split_url(url)
    return url[: len(parts.scheme)] if parts is not None and parts.scheme else None


def _bare_host(url: str) -> str | None:
    host = host_of(url)
    return None if host is None else host.removeprefix("www.")


def _top_level(url: str) -> str | None:
    host = host_of(url)
    return None if host is None else host.rpartition(".")[2]


def _path(url: str) -> str | None:
    parts = split_url(url)
    return unquote(parts.path) if parts is not None and parts.scheme and parts.hostname else None


def query_of(url: str) -> str | None:
    """Return the query as it is written; None if there is none."""
    parts = split_url(url)
    return parts.query if parts is not None and "?" in url.partition("#")[0] else None


def _fragment(url: str) -> str | None:
    parts = split_url(url)
    return unquote(parts.fragment) if parts is not None and "#" in url else None


def or_null(part: Callable[[str], str | None]) -> Callable[[str], str]:
    """Return a function that gives the part, or 'null'."""

    def compute(url: str) -> str:
        value = part(url)
        return "null" if value is None else value

    return compute


def _of(part: Callable[[str], str | None]) -> VectorFunction:
    compute = or_null(part)
    return lambda type_, args: by_value(type_, args, compute)


EXAMPLE: Final = "https://me@www.Example.com:8080/a%20b/c?x=1&y=2#top"
for _name, _part, _answer in (
    ("urlprotocol", _protocol, "https"),
    ("urldomain", host_of, "www.Example.com"),
    ("urldomainwithoutwww", _bare_host, "Example.com"),
    ("urltopleveldomain", _top_level, "com"),
    ("urlpath", _path, "/a b/c"),
    ("urlquerystring", query_of, "x=1&y=2"),
    ("urlfragment", _fragment, "top"),
):
    URLS.strict(_name, parameters=(text("url"),), result=STRING, examples={f"{_name.upper()}('{EXAMPLE}')": _answer})(
        _of(_part)
    )


@URLS.strict("urlport", parameters=(text("url"),), result=INT, examples={f"URLPORT('{EXAMPLE}')": 8080})
def _port(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the port; -1 where there is none."""

    def compute(url: str) -> int:
        parts = split_url(url)
        return -1 if parts is None or parts.port is None else parts.port

    return by_value(INT, args, compute)


def _parameters(url: str) -> list[str]:
    query = query_of(url)
    return unquote(query).split("&") if query else []


@URLS.strict(
    "extracturlparameter",
    parameters=(text("url"), text("name")),
    result=STRING,
    examples={f"EXTRACTURLPARAMETER('{EXAMPLE}', 'y')": "2", f"EXTRACTURLPARAMETER('{EXAMPLE}', 'z')": ""},
)
def _parameter(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the value of the first parameter of that name; an empty text where there is none."""

    def compute(url: str, name: str) -> str:
        pairs = (parameter.partition("=") for parameter in _parameters(url))
        return next((value for key, _, value in pairs if key == name), "")

    return by_value(STRING, args, compute)


@URLS.strict(
    "extracturlparameters",
    parameters=(text("url"),),
    result=STRINGS,
    examples={f"EXTRACTURLPARAMETERS('{EXAMPLE}')": ["x=1", "y=2"]},
)
def _all_parameters(_type: SqlType, args: Sequence[Vector]) -> Any:
    return by_value(STRINGS, args, _parameters)


@URLS.strict(
    "extracturlparameternames",
    parameters=(text("url"),),
    result=STRINGS,
    examples={f"EXTRACTURLPARAMETERNAMES('{EXAMPLE}')": ["x", "y"]},
)
def _parameter_names(_type: SqlType, args: Sequence[Vector]) -> Any:
    return by_value(STRINGS, args, lambda url: [part.partition("=")[0] for part in _parameters(url)])

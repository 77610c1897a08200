"""URLs cut, shortened and taken apart, as Pinot does by java.net.URI. Each distinct text is read once.

A part that a URL lacks is 'null'. Functions that cut something out leave a URL as it is if it cannot be read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, unquote, unquote_plus

from merlot.functions.by_value import by_value
from merlot.functions.function import Family, VectorFunction, text
from merlot.functions.urls import EXAMPLE, STRINGS, host_of, or_null, query_of, split_url
from merlot.tree.types import STRING, SqlType
from merlot.vectors import account
from merlot.vectors.vector import Vector

URL_FORMS: Final = Family("URLs, cut and taken apart")
_UNRESERVED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'()")
_IN_USER: Final = _UNRESERVED | frozenset(";:&=+$,")
_IN_PATH: Final = _UNRESERVED | frozenset(":@&=+$,;/")
_IN_QUERY: Final = _UNRESERVED | frozenset(";/?:@&=+$,[]")
_SHORT_ENDS: Final = frozenset({"com", "net", "org", "co"})
"""Top-level domains below which a site's name is one label."""


def _labels(url: str) -> list[str]:
    host = host_of(url)
    return [] if host is None else host.rstrip(".").split(".")


def _site(labels: Sequence[str]) -> Sequence[str]:
    """Return the labels of a site: its name and the domains above it."""
    if len(labels) <= 2:
        return labels
    return labels[-2:] if labels[-1] in _SHORT_ENDS else labels[-3:]


def _significant(url: str) -> str | None:
    labels = _labels(url)
    return _site(labels)[0] if labels else None


def _cut_to_site(url: str) -> str | None:
    labels = _labels(url)
    return ".".join(_site(labels)) if labels else None


def _cut_to_site_with_www(url: str) -> str | None:
    labels = _labels(url)
    site = _site(labels)
    has_www = len(labels) == len(site) + 1 and labels[0] == "www"
    return ".".join(labels if has_www else site) if labels else None


def _raw_path(url: str) -> str | None:
    parts = split_url(url)
    return parts.path if parts is not None and parts.scheme and parts.hostname else None


def _query_and_fragment(url: str) -> str | None:
    parts, query = split_url(url), query_of(url)
    if parts is None or (query is None and "#" not in url):
        return None
    fragment = _fragment(url, parts)
    return unquote(query or "") + (("#" if query else "") + fragment if fragment is not None else "")


def _netloc(url: str) -> str | None:
    parts = split_url(url)
    if parts is None:
        return None
    user = unquote(parts.netloc.rpartition("@")[0])
    return f"{user + '@' if user else ''}{host_of(url) or ''}{'' if parts.port is None else f':{parts.port}'}"


def _quoted(part: str, unquoted: frozenset[str]) -> str:
    """Quote a part for java.net.URI: ASCII characters that are not in `unquoted`, and blanks and control characters
    beyond ASCII."""
    return "".join(
        character
        if character in unquoted or (ord(character) >= 0xA0 and not character.isspace())
        else "".join(f"%{b:02X}" for b in character.encode())
        for character in part
    )


def _built(url: str, parts: SplitResult, host: str | None, query: str | None, fragment: str | None) -> str:
    """Return the URL of its parts, decoded and quoted again; the URL as it is if its parts do not make one."""
    if parts.scheme and not parts.path.startswith("/") and (parts.path or not host):
        return url
    user = unquote(parts.netloc.rpartition("@")[0])
    scheme = f"{url[: len(parts.scheme)]}:" if parts.scheme else ""
    authority = ""
    if host:
        port = "" if parts.port is None else f":{parts.port}"
        authority = f"//{_quoted(user, _IN_USER) + '@' if user else ''}{host}{port}"
    path = _quoted(unquote(parts.path), _IN_PATH)
    ending = "" if query is None else f"?{_quoted(query, _IN_QUERY)}"
    return f"{scheme}{authority}{path}{ending}{'' if fragment is None else '#' + _quoted(fragment, _IN_QUERY)}"


def _fragment(url: str, parts: SplitResult) -> str | None:
    return unquote(parts.fragment) if "#" in url else None


def _rebuilt(keeps_query: bool, keeps_fragment: bool, cuts_www: bool = False) -> Callable[[str], str]:
    def compute(url: str) -> str:
        parts = split_url(url)
        if parts is None:
            return url
        host, query = host_of(url), query_of(url)
        if cuts_www and host is not None:
            host = host.removeprefix("www.")
        kept_query = unquote(query) if keeps_query and query is not None else None
        return _built(url, parts, host, kept_query, _fragment(url, parts) if keeps_fragment else None)

    return compute


def _of(compute: Callable[[str], str]) -> VectorFunction:
    return lambda _type, args: by_value(STRING, args, compute)


for _name, _compute, _answer in (
    ("urlfirstsignificantsubdomain", or_null(_significant), "Example"),
    ("cuttofirstsignificantsubdomain", or_null(_cut_to_site), "Example.com"),
    ("cuttofirstsignificantsubdomainwithwww", or_null(_cut_to_site_with_www), "www.Example.com"),
    ("urlpathwithquery", or_null(_raw_path), "/a%20b/c"),
    ("urlquerystringandfragment", or_null(_query_and_fragment), "x=1&y=2#top"),
    ("urlnetloc", or_null(_netloc), "me@www.Example.com:8080"),
    ("cutwww", _rebuilt(True, True, cuts_www=True), "https://me@Example.com:8080/a%20b/c?x=1&y=2#top"),
    ("cutquerystring", _rebuilt(False, True), "https://me@www.Example.com:8080/a%20b/c#top"),
    ("cutfragment", _rebuilt(True, False), "https://me@www.Example.com:8080/a%20b/c?x=1&y=2"),
    ("cutquerystringandfragment", _rebuilt(False, False), "https://me@www.Example.com:8080/a%20b/c"),
):
    URL_FORMS.strict(
        _name, parameters=(text("url"),), result=STRING, examples={f"{_name.upper()}('{EXAMPLE}')": _answer}
    )(_of(_compute))


@URL_FORMS.strict(
    "cuturlparameter",
    parameters=(text("url"), text("name")),
    result=STRING,
    examples={f"CUTURLPARAMETER('{EXAMPLE}', 'x')": "https://me@www.Example.com:8080/a%20b/c?y=2#top"},
)
def _without_parameter(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return a URL without its parameters of a name. A URL without a query stays as it is."""

    def compute(url: str, name: str) -> str:
        parts, query = split_url(url), unquote(query_of(url) or "")
        if parts is None or not query:
            return url
        remaining = [parameter for parameter in query.split("&") if unquote_plus(parameter.partition("=")[0]) != name]
        return _built(url, parts, host_of(url), "&".join(remaining) or None, _fragment(url, parts))

    return by_value(STRING, args, compute)


def _steps(path: str) -> list[str]:
    """Return the parts of a path between slashes, without the empty parts at the end."""
    return path.rstrip("/").split("/") if path.rstrip("/") else []


def _grown(path: str, start: str) -> list[str]:
    """Return the start with the first step of the path, with the first two, and so on."""
    steps = (f"/{step}" for step in _steps(path)[1:])
    return account.gathered(itertools.accumulate(itertools.chain([start], steps)))[1:]


def _hierarchy(url: str) -> list[str]:
    parts, host = split_url(url), host_of(url)
    if parts is None or not parts.scheme or host is None:
        return []
    base, path = f"{url[: len(parts.scheme)]}://{host}", unquote(parts.path)
    return [base, *_grown(path, base)] if not path or _steps(path) else []


def _path_hierarchy(url: str) -> list[str]:
    parts = split_url(url)
    return [] if parts is None else _grown(unquote(parts.path), "")


for _name, _listed, _found in (
    (
        "urlhierarchy",
        _hierarchy,
        ["https://www.Example.com", "https://www.Example.com/a b", "https://www.Example.com/a b/c"],
    ),
    ("urlpathhierarchy", _path_hierarchy, ["/a b", "/a b/c"]),
):

    def _lists(_type: SqlType, args: Sequence[Vector], compute: Callable[[str], list[str]] = _listed) -> Any:
        return by_value(STRINGS, args, compute)

    URL_FORMS.strict(
        _name, parameters=(text("url"),), result=STRINGS, examples={f"{_name.upper()}('{EXAMPLE}')": _found}
    )(_lists)

"""Read URIs of files: the place that they name, whether one is below another, and secrets that must not be shown.
Write the URLs of nodes.

URIs come from users and from records, so nothing here trusts a parser that repairs or drops characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from merlot.errors import InvalidInputError
from merlot.schemes import SECRET_USERS, is_literal, scheme_named

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_REDACTED: Final = "***"
_USER_INFO = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)(?:(?=[^\s/@]*:[^\s/@]*[^\s/@0-9])[^\s\"']*@|[^\s/@]*:[^\s/@]*@)")
_SECRET_USER = re.compile(rf"(?i)(\b(?:{'|'.join(SECRET_USERS)})://)[^\s/@]*@")
_OPTION = re.compile(r"([?&;])([^\s=&;?\"']+)=([^\s&;\"']*)")
_SECRET = re.compile(
    r"(?i)(^|[._-])(access[._-]?key([._-]?id)?|secret|token|pass(word|wd)?|pwd|credentials?|sig(nature)?|auth"
    r"|(account|private|shared|api)[._-]?key|sas)($|[._-])|^key$|secret|passw|token|accesskey|credential"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Place that a URI points to, without its options."""

    scheme: str
    authority: str
    parts: tuple[str, ...]
    """Folders and file, decoded if the scheme decodes paths; none is empty or consists of dots."""

    def holds(self, other: Place) -> bool:
        """Return True if `other` is this place, or below it."""
        is_same = (self.scheme, self.authority) == (other.scheme, other.authority)
        return is_same and other.parts[: len(self.parts)] == self.parts


def http_url(host: str, port: int, *, tls: bool = False) -> str:
    """Return the URL of a node's HTTP port."""
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def scheme_of(uri: str) -> str:
    """Return the scheme in lower case; empty for a path."""
    match = _SCHEME.match(uri)
    return "" if match is None else match[1].lower()


def place_of(uri: str, *, keeps_options: bool = False) -> Place:
    """Return the place of a URI or a path. Raise InvalidInputError for one that leads up, or that programs may read in
    different ways.

    `keeps_options`: the URI has no options, and a question mark is part of a name, or of a glob."""
    scheme, authority, path = _split(uri, keeps_options=keeps_options)
    return Place(scheme, authority, tuple(_part(name, scheme, uri) for name in path.split("/") if name))


def parts_below(root: Place, url: str) -> tuple[str, ...] | None:
    """Return the folders and file of a URL below a root, as written; None if it is not below the root.

    Both may spell the root in any way. Everything below it are names, which are never decoded."""
    try:
        scheme, authority, path = _split(url, keeps_options=True)
        if (scheme, authority) != (root.scheme, root.authority):
            return None
        rest = path.removeprefix("/").split("/")
        for expected in root.parts:
            while len(rest) > 1 and not rest[0]:
                rest = rest[1:]
            if _part(rest[0], scheme, url) != expected:
                return None
            rest = rest[1:]
        for name in rest:
            _part(name, scheme, url)
    except InvalidInputError:
        return None
    return tuple(rest) if rest and all(rest) else None


def parts_of(url: str) -> tuple[str, ...]:
    """Return the folders and file of a URL, as written; empty if it cannot be read, or holds credentials."""
    try:
        scheme, authority, _ = _split(url, keeps_options=True)
    except InvalidInputError:
        return ()
    return () if credentials_problem(url) else parts_below(Place(scheme, authority, ()), url) or ()


def canonical(url: str) -> str:
    """Return the same spelling for all URLs of a file, to compare them by. A URL that cannot be read stays as it is."""
    head, _, rest = url.partition("://")
    if "%" not in rest and "//" not in rest and head.islower():
        return url
    try:
        scheme, authority, path = _split(url, keeps_options=True)
    except InvalidInputError:
        return url
    return f"{scheme}://{authority}/" + "/".join(_decoded(name, scheme) for name in path.split("/") if name)


def options_of(uri: str) -> Sequence[tuple[str, str]]:
    """Return the names and values of a URI's options, wherever a program may take its query to begin."""
    pairs = (pair.partition("=") for pair in re.split("[?&]", uri)[1:] if "=" in pair)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def endpoints_of(uri: str) -> frozenset[str | None]:
    """Return the hosts, with ports, that a URI may send its requests to; None stands for the scheme's own host."""
    return frozenset(host_of(value) for name, value in options_of(uri) if name == "endpoint_override") or frozenset(
        {None}
    )


def host_of(endpoint: str) -> str:
    """Return host and port of `minio:9000` or `https://minio:9000/`, in one spelling."""
    host, colon, port = endpoint.rpartition("://")[2].rstrip("/").lower().partition(":")
    return host.rstrip(".") + colon + port


def option_problems(uri: str, *, is_glob: bool = False) -> list[str]:
    """Return problems of a URI's options, in words: unknown names, and values that would lead to another host than they
    say.

    `is_glob`: an option with an unknown name may be part of the glob."""
    scheme = scheme_named(scheme_of(uri))
    if scheme is None or scheme.options is None or (is_glob and not scheme.is_object_storage):
        return []
    problems = []
    for name, value in options_of(uri):
        if name in scheme.options:
            if scheme.options[name].fullmatch(value) is None:
                problems.append(f"the option {name} has a value that is none")
        elif not is_glob:
            names = ", ".join(scheme.options) or "none"
            problems.append(f'unknown option "{name}"; known are {names}')
    return problems


def credentials_problem(uri: str) -> str | None:
    """Describe the part of a URI that is, or may be, a secret, without repeating it; None if there is none."""
    scheme, separator, rest = uri.partition("://")
    authority = rest.partition("?")[0].partition("/")[0] if separator else ""
    user, at, _ = authority.rpartition("@")
    is_secret_user = at and (":" in user or scheme.lower() in SECRET_USERS)
    if is_secret_user or redact(uri.partition("?")[0]) != uri.partition("?")[0]:
        return "credentials before the host"
    named = sorted({name for name, _ in options_of(uri) if _SECRET.search(name)})
    if named:
        return f"the option {', '.join(named)}"
    return "credentials in an option" if redact(uri) != uri else None


def redact(text: str) -> str:
    """Return any text with the secrets of its URIs replaced, for logs, errors, answers and statuses."""
    if "://" in text:
        text = _SECRET_USER.sub(rf"\1{_REDACTED}@", _USER_INFO.sub(rf"\1{_REDACTED}@", text))
    if "=" in text:
        text = _OPTION.sub(_hidden, text)
    return text


def _hidden(option: re.Match[str]) -> str:
    mark, name, _ = option.groups()
    return f"{mark}{name}={_REDACTED}" if _SECRET.search(unquote(name)) else option.group()


def _split(uri: str, *, keeps_options: bool = False) -> tuple[str, str, str]:
    """Return scheme, authority and path. `keeps_options`: the URI has no options, and a question mark is part of a
    name."""
    if not uri.isprintable() or "\\" in uri:
        raise InvalidInputError(f"uri has characters that no place has uri={redact(uri)!r}")
    match = _SCHEME.match(uri)
    if match is None:
        path = str(Path(uri).resolve())
        return "file", "", path.replace("%", "%25")
    rest = uri[match.end() :] if keeps_options else uri[match.end() :].partition("?")[0]
    authority, _, path = rest.partition("/") if match[2] else ("", "", rest)
    return match[1].lower(), authority, path


def _part(text: str, scheme: str, uri: str) -> str:
    """Return a folder's name, decoded. Raise InvalidInputError if another program might take it for another folder."""
    decoded = text
    while (further := unquote(decoded)) != decoded:
        decoded = further
    if "/" in decoded or "\\" in decoded or not decoded.isprintable() or (decoded and not decoded.strip(".")):
        raise InvalidInputError(f"uri leads up, or hides a slash uri={redact(uri)}")
    return _decoded(text, scheme)


def _decoded(text: str, scheme: str) -> str:
    return text if is_literal(scheme) else unquote(text)

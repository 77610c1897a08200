"""Check which deep stores and sources a Table may name: those that the process was started with, and, as sources,
object storage at its provider.

The author of a Table is not the operator of the processes. Its deep store and sources are read, written and cleaned by
processes with files, keys and a network that the author does not have. The user's own commands and Spark jobs skip this
check.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from merlot.errors import InvalidInputError
from merlot.schemes import DEEP_STORES, examples, is_object_storage, scheme_named
from merlot.uris import (
    Place,
    credentials_problem,
    endpoints_of,
    option_problems,
    options_of,
    place_of,
    redact,
    scheme_of,
)

HINT: Final = "whoever runs Merlot may allow more by --deep-store-prefix (deepStore.prefixes of the chart)"
SOURCE_HINT: Final = "whoever runs Merlot may allow more by sources.prefixes of the chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedStores:
    """Deep stores that a Table may name: `own`, the cluster's (None if the process has none), and all below
    `prefixes`."""

    own: str | None
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidInputError for a URI that names no place, or that holds a secret: `ps` shows it to
        everybody."""
        for uri in self._allowed():
            if (problem := credentials_problem(uri)) is not None:
                raise InvalidInputError(f"a deep store's URI must not hold {problem} uri={redact(uri)}")
            place_of(uri)

    def uri_of(self, declared: str | None) -> str | None:
        """Return the deep store of a table that declares `declared`; raise InvalidInputError if it may not name it."""
        if declared is None:
            return self.own
        self.check(declared)
        return declared

    def check(self, uri: str) -> None:
        """Raise InvalidInputError unless a Table may name this deep store."""
        if (problem := self.problem_of(uri)) is not None:
            raise InvalidInputError(problem)

    def problem_of(self, uri: str) -> str | None:
        """Return why a Table may not name this deep store, and what would allow it; None if it may."""
        if (problem := credentials_problem(uri)) is not None:
            return f"a deep store's URI must not hold {problem}"
        if "://" not in uri:
            return f"deep store is not allowed uri={redact(uri)}: write {examples(DEEP_STORES)}"
        try:
            place = place_of(uri)
        except InvalidInputError as error:
            return str(error)
        below = [allowed for allowed in self._allowed() if place_of(allowed).holds(place)]
        if not below:
            return f"deep store is not allowed uri={redact(uri)}: it must be below {_list(self._allowed())}; {HINT}"
        if not any(_are_allowed(uri, allowed) for allowed in below):
            wanted = f"its endpoint_override must be that of {_list(below)}"
            if not is_object_storage(place.scheme):
                wanted = f"its options must be among those of {_list(below)}"
            return f"deep store is not allowed uri={redact(uri)}: {wanted}; {HINT}"
        return None

    @property
    def endpoints(self) -> frozenset[str | None]:
        """Endpoints that requests to object storage may go to; None stands for the provider's, or the environment's."""
        return frozenset().union(*map(endpoints_of, self._allowed()))

    def _allowed(self) -> Collection[str]:
        return (*([] if self.own is None else [self.own]), *self.prefixes)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSources:
    """Sources that a Table may name: object storage at its provider or at a deep store's endpoint, and all below
    `prefixes`."""

    stores: AllowedStores
    prefixes: tuple[str, ...] = ()

    def problem_of(self, uri: str) -> str | None:
        """Return why a batch of a Table may not read this file, folder or glob, and what would allow it; None if it
        may."""
        if (problem := credentials_problem(uri)) is not None:
            return f"a source's URI must not hold {problem}"
        if "://" not in uri and not uri.startswith("/"):
            return f"source is not allowed uri={redact(uri)}: name a place by its scheme, or by a path from / on"
        try:
            place = _source_place(uri)
        except InvalidInputError as error:
            return str(error)
        scheme = scheme_named(place.scheme)
        is_storage = scheme is not None and scheme.is_object_storage
        if any(mark in part for part in place.parts for mark in "{},") and not is_storage:
            return f"source is not allowed uri={redact(uri)}: name one place, without braces and commas"
        if scheme is not None and is_storage and not scheme.authority.fullmatch(place.authority):
            return f"source is not allowed uri={redact(uri)}: it names no {scheme.names}"
        if problems := option_problems(uri, is_glob=True):
            return f"source is not allowed uri={redact(uri)}: {'; '.join(problems)}"
        below = [prefix for prefix in self.prefixes if place_of(prefix).holds(place)]
        endpoints = {endpoint for prefix in below for endpoint in endpoints_of(prefix)}
        if is_storage:
            endpoints |= {None, *self.stores.endpoints}
        if not below and not is_storage:
            return f"source is not allowed uri={redact(uri)}: it must be below {_list(self.prefixes)}; {SOURCE_HINT}"
        if not endpoints_of(uri) <= endpoints:
            named = sorted(allowed for allowed in endpoints if allowed is not None)
            return (
                f"source is not allowed uri={redact(uri)}: its endpoint_override must be one of "
                f"{', '.join(named) or 'none'}; {SOURCE_HINT}"
            )
        return None


def _are_allowed(uri: str, allowed: str) -> bool:
    """Return True if the options of a deep store lead where those of an allowed one do. File systems other than object
    storage have options that choose the user."""
    if is_object_storage(place_of(uri).scheme):
        return endpoints_of(uri) <= endpoints_of(allowed)
    return set(options_of(uri)) <= set(options_of(allowed))


def _source_place(uri: str) -> Place:
    """Return the place of a path or URI with wildcards. Where there are no options, a question mark is a wildcard."""
    if "://" not in uri:
        uri = f"file://{uri.replace('%', '%25')}"
    return place_of(uri, keeps_options=not is_object_storage(scheme_of(uri)))


def _list(uris: Collection[str]) -> str:
    return ", ".join(map(redact, uris)) or "what is allowed, and nothing is"

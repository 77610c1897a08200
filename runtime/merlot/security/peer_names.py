"""Tell from a certificate's names whether its holder may call a port of peers. Pure functions, safe on every thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

BROKERS: Final = ("broker", "broker.*", "merlot-broker", "merlot-broker.*")
"""Patterns of the names of brokers: `broker`, or a name that begins with it, as that of a Service does."""
_KINDS: Final = ("DNS", "URI")


def names_of(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the host names and URIs (SPIFFE ids) that a verified certificate is for, as its CA wrote them. The subject
    counts for nothing, since CAs check only these."""
    alternatives = (certificate or {}).get("subjectAltName", ())
    return tuple(str(name) for kind, name in alternatives if kind in _KINDS)


def is_named(certificate: Mapping[str, Any] | None, patterns: Sequence[str]) -> bool:
    """Return True if a name of the certificate matches a pattern, in which `*` stands for any text."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names_of(certificate) for pattern in patterns)

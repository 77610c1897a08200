"""Everything that an access document says, as values: how callers prove who they are, and what they may do then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from merlot.security.access import AccessPolicy, Identity

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms that a signed token may have. All are asymmetric: a key that is published cannot sign."""


@dataclass(frozen=True, slots=True)
class PasswordUser:
    """A user of HTTP Basic."""

    identity: Identity
    password_hash: bytes = field(repr=False)
    """Made by bcrypt."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A bearer token, known by its digest."""

    identity: Identity
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OidcIssuer:
    """An issuer of signed tokens, and how its tokens are read."""

    issuer: str
    audiences: tuple[str, ...]
    jwks: str
    """URL of the keys, or the text of a file with them."""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    name_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"
    """Begins names and groups, so that no issuer can name a user of the document."""
    leeway_s: float = 30.0


@dataclass(frozen=True, slots=True)
class KubernetesReview:
    """Tokens of ServiceAccounts, which the API server reviews."""

    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """A whole access document."""

    access: AccessPolicy
    users: Mapping[str, PasswordUser] = field(default_factory=dict)
    tokens: Mapping[str, StaticToken] = field(default_factory=dict)
    """Tokens by the SHA-256 of the token in hexadecimal."""
    issuers: tuple[OidcIssuer, ...] = ()
    kubernetes: KubernetesReview | None = None
    certificates: Mapping[str, Identity] = field(default_factory=dict)
    """Identities by a name in the certificate, with its kind: `DNS:ann.example`."""

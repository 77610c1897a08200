"""Read what a caller says about themselves: `Authorization` of HTTP or gRPC, and the certificate of the connection.

Nothing here is believed yet. Values never show their secrets in a repr, a log line or an error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from merlot.errors import NotAuthenticatedError

MAX_AUTHORIZATION_CHARS: Final = 8_192


@dataclass(frozen=True, slots=True)
class Password:
    """Name and password of HTTP Basic."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token, static, signed, or of a Kubernetes ServiceAccount."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """Names in a client certificate that the transport has verified, such as `DNS:ann.example` or `URI:spiffe://…`."""

    names: tuple[str, ...]


Credential = Password | BearerToken | PeerCertificate


def of_header(authorization: str) -> Password | BearerToken:
    """Parse the value of `Authorization`. Raise NotAuthenticatedError if it is neither Basic nor Bearer."""
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if not value or len(value) > MAX_AUTHORIZATION_CHARS:
        raise NotAuthenticatedError("Authorization cannot be read: send Basic or Bearer credentials")
    match scheme.lower():
        case "basic":
            return _password(value)
        case "bearer":
            return BearerToken(value)
        case _:
            raise NotAuthenticatedError(f"Authorization has another scheme, send Basic or Bearer scheme={scheme:.20}")


def of_certificate(peer: Mapping[str, Any] | None) -> PeerCertificate | None:
    """Return the names in a verified certificate as `ssl` decodes it; None if the peer sent none."""
    names = tuple(f"{kind}:{name}" for kind, name in (peer or {}).get("subjectAltName", ()))
    return PeerCertificate(names) if names else None


def basic(user: str, password: str) -> str:
    """Return the value of `Authorization` for a name and a password."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(token: str) -> str:
    """Return the value of `Authorization` for a token."""
    return f"Bearer {token}"


def _password(value: str) -> Password:
    try:
        # Some of Pinot's clients leave out the padding.
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise NotAuthenticatedError("Basic credentials cannot be read: send base64 of name:password") from error
    user, colon, password = text.partition(":")
    if not colon:
        raise NotAuthenticatedError("Basic credentials have no colon: send base64 of name:password")
    return Password(user, password)

"""Verify signed tokens (JWT) of OpenID Connect issuers: signature, issuer, audience, expiry, with an algorithm that the
access document allows.

Keys are fetched by URL, kept, and fetched again when a token names one that is not known; no token can have them
fetched more often than every `REFETCH_S`. If the issuer does not answer, the keys of before stay. Used on one event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import aiohttp
import jwt
import orjson

from merlot.clock import Clock
from merlot.errors import NotAuthenticatedError, UnavailableError
from merlot.security.access import Identity
from merlot.security.rules import OidcIssuer

_LOG = logging.getLogger(__name__)

REFRESH_S: Final = 600.0
REFETCH_S: Final = 30.0
FETCH_TIMEOUT_S: Final = 5.0
MAX_KEYS_BYTES: Final = 1 << 20
MAX_KEYS: Final = 100
MAX_GROUPS: Final = 1_000
MIN_RSA_BITS: Final = 2_048
REQUIRED: Final = ("exp", "iss", "aud")

Fetch = Callable[[str], Awaitable[bytes]]


async def fetch(url: str) -> bytes:
    """Return the document at a URL. Raise UnavailableError if it does not come, or is too large."""
    timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            answer.raise_for_status()
            data = await answer.content.read(MAX_KEYS_BYTES + 1)
            while len(data) <= MAX_KEYS_BYTES and (more := await answer.content.read(MAX_KEYS_BYTES)):
                data += more
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UnavailableError(f"keys of signed tokens cannot be fetched url={url} cause={error!r}") from error
    if len(data) > MAX_KEYS_BYTES:
        raise UnavailableError(f"keys of signed tokens are too large url={url} limit={MAX_KEYS_BYTES}")
    return data


def keys_of(document: bytes | str) -> dict[str, jwt.PyJWK]:
    """Return the signing keys of a JWKS by their ids; "" is the id of a key without one. Raise UnavailableError if the
    document is no JWKS. Symmetric and weak keys are left out, and keys of kinds that are not known (RFC 7517, 5)."""
    try:
        entries = orjson.loads(document)["keys"]
        usable = [entry for entry in entries[:MAX_KEYS] if _is_usable(entry)]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(f"keys of signed tokens are no JWKS: {error}") from error
    return {str(entry.get("kid", "")): key for entry in usable if (key := _key_of(entry)) is not None}


def _key_of(entry: Mapping[str, Any]) -> jwt.PyJWK | None:
    """Return a key; None if it cannot be used. One such key must not lock out the tokens of the others."""
    try:
        return jwt.PyJWK(_with_algorithm(entry))
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        _LOG.warning("a key of signed tokens cannot be used kid=%.100r cause=%s", entry.get("kid"), error)
        return None


def _is_usable(entry: Mapping[str, Any]) -> bool:
    is_weak = entry.get("kty") == "RSA" and len(str(entry.get("n", ""))) * 6 < MIN_RSA_BITS - 6
    return entry.get("kty") in ("RSA", "EC", "OKP") and entry.get("use", "sig") == "sig" and not is_weak


def _with_algorithm(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key without an algorithm of its own: the access document says which a token may have."""
    return {name: value for name, value in entry.items() if name != "alg"}


class OidcVerifier:
    """Verifies tokens of the issuers of one access document."""

    def __init__(self, issuers: Sequence[OidcIssuer], clock: Clock, fetch: Fetch = fetch) -> None:
        self._issuers = {issuer.issuer: _Keys(issuer, clock, fetch) for issuer in issuers}

    def knows(self, token: str) -> bool:
        """Return True if the token says that one of the issuers made it."""
        return self._issuer_in(token) in self._issuers

    async def identify(self, token: str) -> tuple[Identity, float]:
        """Return who the token is for, and when it expires, in epoch seconds. Raise NotAuthenticatedError if it is not
        valid, UnavailableError if its key cannot be fetched."""
        keys = self._issuers.get(self._issuer_in(token) or "")
        if keys is None:
            raise NotAuthenticatedError("token has an issuer that the access document does not name")
        issuer = keys.issuer
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in issuer.algorithms:
                raise NotAuthenticatedError(
                    f"token is signed with an algorithm that is not allowed alg={header.get('alg')!r:.20}"
                )
            key = await keys.key(header.get("kid"))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(issuer.algorithms),
                audience=list(issuer.audiences),
                issuer=issuer.issuer,
                leeway=issuer.leeway_s,
                options={"require": list(REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise NotAuthenticatedError(f"token is not valid: {error}") from error
        return identity_of(claims, issuer), float(claims["exp"])

    @staticmethod
    def _issuer_in(token: str) -> str | None:
        """Return the issuer that a token claims, nothing of which is verified yet."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        issuer = claims.get("iss")
        return issuer if isinstance(issuer, str) else None


def identity_of(claims: Mapping[str, Any], issuer: OidcIssuer) -> Identity:
    """Return the identity in verified claims. Raise NotAuthenticatedError if they name nobody."""
    name = claims.get(issuer.name_claim)
    if not _is_name(name):
        raise NotAuthenticatedError(f"token names nobody: it has no line of text in its claim {issuer.name_claim}")
    groups = claims.get(issuer.groups_claim, [])
    groups = [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or not all(map(_is_name, groups)):
        raise NotAuthenticatedError(
            f"token has no list of up to {MAX_GROUPS} lines of text in its claim {issuer.groups_claim}"
        )
    return Identity(issuer.prefix + name, frozenset(issuer.prefix + group for group in groups), "jwt")


def _is_name(value: object) -> TypeGuard[str]:
    """Return True if a value can be a name: a text that a line of a log can hold, hence without lone surrogates."""
    return isinstance(value, str) and value != "" and value.isprintable()


class _Keys:
    """Keys of one issuer."""

    def __init__(self, issuer: OidcIssuer, clock: Clock, fetch: Fetch) -> None:
        self.issuer = issuer
        self._clock = clock
        self._fetch = fetch
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._is_file = not issuer.jwks.startswith(("http://", "https://"))
        if self._is_file:
            self._keys = keys_of(issuer.jwks)

    async def key(self, kid: object) -> jwt.PyJWK:
        """Return the key of an id; of a token without one, the only key. Raise NotAuthenticatedError if there is
        none."""
        age = self._clock.monotonic() - self._tried_at
        if not self._is_file and (age > REFRESH_S or (self._named(kid) is None and age > REFETCH_S)):
            await self._refresh()
        key = self._named(kid)
        if key is None and not self._keys:
            raise UnavailableError(f"keys of signed tokens are not there yet issuer={self.issuer.issuer}")
        if key is None:
            raise NotAuthenticatedError("token is signed with a key that its issuer does not publish")
        return key

    def _named(self, kid: object) -> jwt.PyJWK | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid) if isinstance(kid, str) else None

    async def _refresh(self) -> None:
        before = self._tried_at
        async with self._fetching:
            if self._tried_at != before:
                return  # another request has just fetched them
            try:
                self._keys = keys_of(await self._fetch(self.issuer.jwks))
            except UnavailableError as error:
                _LOG.warning("signed tokens are verified with older keys issuer=%s cause=%s", self.issuer.issuer, error)
            finally:
                self._tried_at = self._clock.monotonic()

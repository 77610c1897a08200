"""The door of a process: who a caller is, and whether they may. One per process, on its event loop.

Identities are remembered by a keyed digest of the credential for up to a minute, so that neither a hash nor a signature
is verified for each request; a changed access document forgets them all. Without a document the door is open: everybody
is `anonymous`, and may do everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from typing import Final, NamedTuple

from merlot.clock import Clock, SystemClock
from merlot.errors import AccessDeniedError, NotAuthenticatedError
from merlot.security.access import ANONYMOUS, OPEN, Access, Identity, Right
from merlot.security.audit import AuditLog
from merlot.security.credentials import BearerToken, Credential, Password, PeerCertificate
from merlot.security.kubernetes_tokens import TokenReviewer
from merlot.security.oidc import OidcVerifier
from merlot.security.passwords import PasswordVerifier
from merlot.security.rules import AccessRules

REMEMBERED_S: Final = 60.0
MAX_REMEMBERED: Final = 10_000
OPEN_RULES: Final = AccessRules(OPEN)


class Known(NamedTuple):
    """An identity, and until when it need not be proved again."""

    identity: Identity
    until: float
    """Monotonic time."""
    version: int
    """Number of the access document that it was proved under."""


class Door:
    """Authenticates callers by the rules of the current access document."""

    def __init__(
        self, rules: AccessRules | None = None, clock: Clock | None = None, audit: AuditLog | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._passwords = PasswordVerifier(self._clock)
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._proofs: dict[tuple[bytes, int], asyncio.Task[Known]] = {}
        """Credentials that are being verified: connections that present the same one wait for one verification."""
        self.audit = audit
        self.version = 0
        self.is_open = True
        self.use(rules)

    def use(self, rules: AccessRules | None) -> None:
        """Go by other rules from now on; None opens the door."""
        self._rules = rules or OPEN_RULES
        self.is_open = rules is None
        self._oidc = OidcVerifier(self._rules.issuers, self._clock)
        review = self._rules.kubernetes
        self._reviewer = None if review is None else TokenReviewer(review)
        self._known.clear()
        self.version += 1

    def close(self) -> None:
        """Stop verifying."""
        self._passwords.close()

    @property
    def access(self) -> Access:
        """Rights by the current document."""
        return self._rules.access

    def is_fresh(self, known: Known) -> bool:
        """Return True if an identity need not be proved again yet."""
        return known.version == self.version and self._clock.monotonic() < known.until

    async def identify(self, credential: Credential | None, client: str) -> Known:
        """Return who the caller is: anonymous without a credential. `client` is their address.

        Raise NotAuthenticatedError if the credential is wrong, UnavailableError if it cannot be verified now."""
        if self.is_open or credential is None:
            return Known(ANONYMOUS, float("inf"), self.version)
        digest = self._digest(credential)
        known = self._known.get(digest)
        if known is not None and self.is_fresh(known):
            return known
        key = digest, self.version
        proof = self._proofs.get(key)
        if proof is None:
            proof = self._proofs[key] = asyncio.create_task(self._prove_and_remember(digest, credential, client))
            proof.add_done_callback(lambda done: self._forget_proof(key, done))
        return await asyncio.shield(proof)

    def _forget_proof(self, key: tuple[bytes, int], proof: asyncio.Task[Known]) -> None:
        self._proofs.pop(key, None)
        if not proof.cancelled():
            proof.exception()  # retrieved even if every waiting connection has gone

    async def _prove_and_remember(self, digest: bytes, credential: Credential, client: str) -> Known:
        version = self.version
        identity, lasts_s = await self._prove(credential, client)
        known = Known(identity, self._clock.monotonic() + lasts_s, version)
        if version == self.version:
            self._known[digest] = known
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def _prove(self, credential: Credential, client: str) -> tuple[Identity, float]:
        """Return the identity, and for how many seconds it may be remembered."""
        match credential:
            case Password():
                return await self._passwords.identify(credential, self._rules.users, client), REMEMBERED_S
            case BearerToken(token):
                return await self._prove_token(token)
            case PeerCertificate(names):
                identity = next((self._rules.certificates[n] for n in names if n in self._rules.certificates), None)
                return identity or ANONYMOUS, REMEMBERED_S

    async def _prove_token(self, token: str) -> tuple[Identity, float]:
        now_ms = self._clock.now_ms()
        static = self._rules.tokens.get(hashlib.sha256(token.encode()).hexdigest())
        if static is not None:
            left_s = REMEMBERED_S if static.expires_ms is None else (static.expires_ms - now_ms) / 1000
            if left_s <= 0:
                raise NotAuthenticatedError("token has expired: ask for a new one")
            return static.identity, min(left_s, REMEMBERED_S)
        if self._oidc.knows(token):
            identity, expires_s = await self._oidc.identify(token)
            return identity, max(0.0, min(expires_s - now_ms / 1000, REMEMBERED_S))
        if self._reviewer is not None:
            return await self._reviewer.identify(token), REMEMBERED_S
        raise NotAuthenticatedError("token is not known")

    def _digest(self, credential: Credential) -> bytes:
        match credential:
            case Password(user, password):
                text = f"password\0{user}\0{password}"
            case BearerToken(token):
                text = f"token\0{token}"
            case PeerCertificate(names):
                text = "certificate\0" + "\0".join(names)
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=32).digest()


def check(access: Access, identity: Identity, right: Right, table: str | None) -> None:
    """Raise AccessDeniedError if the identity lacks the right to the table, or, for None, to the cluster; its subclass
    NotAuthenticatedError if nobody has said who they are."""
    if not access.allows(identity, right, table):
        raise refusal(identity, right, table)


def check_any(access: Access, identity: Identity, right: Right) -> None:
    """Raise AccessDeniedError if the identity has the right to no table at all."""
    if not access.allows_any(identity, right):
        raise refusal(identity, right, None)


def refusal(identity: Identity, right: Right, table: str | None) -> AccessDeniedError:
    """Return the error of a caller who lacks a right. It does not say whether the table exists."""
    if identity.is_anonymous:
        return NotAuthenticatedError("who asks? Send Authorization: Basic or Bearer credentials")
    where = "" if table is None else f" table={table:.200}"
    return AccessDeniedError(f"permission denied user={identity.name:.200} right={right}{where}")

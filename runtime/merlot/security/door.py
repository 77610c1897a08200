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
from typing import TYPE_CHECKING, Final, NamedTuple

from merlot.clock import Clock, SystemClock
from merlot.errors import AccessDeniedError, NotAuthenticatedError
from merlot.security.access import ANONYMOUS, OPEN, AccessPolicy, Identity, Right
from merlot.security.audit import AuditLog
from merlot.security.credentials import BearerToken, Credential, Password, PeerCertificate
from merlot.security.rules import AccessRules

if TYPE_CHECKING:
    from merlot.security.verifiers import Verifiers

MAX_REMEMBERED: Final = 10_000


class ProvenIdentity(NamedTuple):
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
        self._verifiers: Verifiers | None = None
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, ProvenIdentity] = OrderedDict()
        self._proofs: dict[tuple[bytes, int], asyncio.Task[ProvenIdentity]] = {}
        """Credentials that are being verified: connections that present the same one wait for one verification."""
        self.access: AccessPolicy = OPEN
        """Rights by the current document."""
        self.audit = audit
        self.version = 0
        if rules is not None:
            self.use(rules)

    @property
    def is_open(self) -> bool:
        """Return True if there is no access document."""
        return self._verifiers is None

    def use(self, rules: AccessRules) -> None:
        """Go by a new document from now on."""
        from merlot.security.verifiers import Verifiers  # an open door needs none of their libraries

        if self._verifiers is None:
            self._verifiers = Verifiers(rules, self._clock)
        else:
            self._verifiers.use(rules)
        self.access = rules.access
        self._known.clear()
        self.version += 1

    def close(self) -> None:
        """Stop verifying, and write what waits for the audit log."""
        if self._verifiers is not None:
            self._verifiers.close()
        if self.audit is not None:
            self.audit.close()

    def is_fresh(self, proven: ProvenIdentity) -> bool:
        """Return True if an identity need not be proved again yet."""
        return proven.version == self.version and self._clock.monotonic() < proven.until

    async def identify(self, credential: Credential | None, client: str) -> ProvenIdentity:
        """Return who the caller is: anonymous without a credential. `client` is their address.

        Raise NotAuthenticatedError if the credential is wrong, UnavailableError if it cannot be verified now."""
        if self._verifiers is None or credential is None:
            return ProvenIdentity(ANONYMOUS, float("inf"), self.version)
        digest = self._digest(credential)
        proven = self._known.get(digest)
        if proven is not None and self.is_fresh(proven):
            return proven
        key = digest, self.version
        proof = self._proofs.get(key)
        if proof is None:
            proving = self._prove_and_remember(self._verifiers, digest, credential, client)
            proof = self._proofs[key] = asyncio.create_task(proving)
            proof.add_done_callback(lambda done: self._forget_proof(key, done))
        return await asyncio.shield(proof)

    def _forget_proof(self, key: tuple[bytes, int], proof: asyncio.Task[ProvenIdentity]) -> None:
        self._proofs.pop(key, None)
        if not proof.cancelled():
            proof.exception()  # retrieved even if every waiting connection has gone

    async def _prove_and_remember(
        self, verifiers: Verifiers, digest: bytes, credential: Credential, client: str
    ) -> ProvenIdentity:
        version = self.version
        identity, lasts_s = await verifiers.prove(credential, client)
        proven = ProvenIdentity(identity, self._clock.monotonic() + lasts_s, version)
        if version == self.version:
            self._known[digest] = proven
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return proven

    def _digest(self, credential: Credential) -> bytes:
        match credential:
            case Password(user, password):
                text = f"password\0{user}\0{password}"
            case BearerToken(token):
                text = f"token\0{token}"
            case PeerCertificate(names):
                text = "certificate\0" + "\0".join(names)
        return hashlib.blake2b(text.encode(), key=self._key, digest_size=32).digest()


def check(access: AccessPolicy, identity: Identity, right: Right, table: str | None) -> None:
    """Raise AccessDeniedError if the identity lacks the right to the table, or, for None, to the cluster; its subclass
    NotAuthenticatedError if nobody has said who they are."""
    if not access.allows(identity, right, table):
        raise refusal(identity, right, table)


def refusal(identity: Identity, right: Right, table: str | None) -> AccessDeniedError:
    """Return the error of a caller who lacks a right. It does not say whether the table exists."""
    if identity.is_anonymous:
        return NotAuthenticatedError("who asks? Send Authorization: Basic or Bearer credentials")
    where = "" if table is None else f" table={table:.200}"
    return AccessDeniedError(f"permission denied user={identity.name:.200} right={right}{where}")

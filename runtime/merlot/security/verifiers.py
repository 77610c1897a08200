"""Verify credentials of every kind by the rules of one access document. Loaded only once there is a document."""

from __future__ import annotations

import hashlib
from typing import Final

from merlot.clock import Clock
from merlot.errors import NotAuthenticatedError, UnavailableError
from merlot.security.access import ANONYMOUS, Identity
from merlot.security.credentials import BearerToken, Credential, Password, PeerCertificate
from merlot.security.kubernetes_tokens import TokenReviewer
from merlot.security.oidc import OidcVerifier
from merlot.security.passwords import Failures, PasswordVerifier
from merlot.security.rules import AccessRules

REMEMBERED_S: Final = 60.0
MAX_REVIEWS: Final = 16
"""Most tokens that the API server reviews at a time: it serves others, too."""

Proof = tuple[Identity, float]
"""An identity, and for how many seconds it may be remembered."""


class Verifiers:
    """Verifies credentials. `use` changes the rules; failed attempts are counted across changes."""

    def __init__(self, rules: AccessRules, clock: Clock) -> None:
        self._clock = clock
        self._passwords = PasswordVerifier(clock)
        self._failed_reviews = Failures()
        self._num_reviews = 0
        self.use(rules)

    def use(self, rules: AccessRules) -> None:
        """Go by other rules from now on."""
        self._rules = rules
        self._oidc = OidcVerifier(rules.issuers, self._clock)
        self._reviewer = None if rules.kubernetes is None else TokenReviewer(rules.kubernetes)

    def close(self) -> None:
        """Stop the threads."""
        self._passwords.close()

    async def prove(self, credential: Credential, client: str) -> Proof:
        """Return who a credential belongs to. Raise NotAuthenticatedError if it is wrong, UnavailableError if that
        cannot be verified now."""
        match credential:
            case Password():
                return await self._passwords.identify(credential, self._rules.users, client), REMEMBERED_S
            case BearerToken(token):
                return await self._prove_token(token, client)
            case PeerCertificate(names):
                certificates = self._rules.certificates
                return next((certificates[name] for name in names if name in certificates), ANONYMOUS), REMEMBERED_S

    async def _prove_token(self, token: str, client: str) -> Proof:
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
            return await self._reviewed(self._reviewer, token, client), REMEMBERED_S
        raise NotAuthenticatedError("token is not known")

    async def _reviewed(self, reviewer: TokenReviewer, token: str, client: str) -> Identity:
        """Have a token reviewed. Raise UnavailableError if too many are, or if the client has shown too many others:
        guesses must cost the API server little."""
        self._failed_reviews.check(client, self._clock.monotonic())
        if self._num_reviews >= MAX_REVIEWS:
            raise UnavailableError("too many tokens wait to be reviewed: try again in a second")
        self._num_reviews += 1
        try:
            return await reviewer.identify(token)
        except NotAuthenticatedError:
            self._failed_reviews.count(client, self._clock.monotonic())
            raise
        finally:
            self._num_reviews -= 1

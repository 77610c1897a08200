"""Callers with credentials of every kind, right and wrong, and the access document that knows them."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Final

import bcrypt
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec

from merlot.security.credentials import basic, bearer
from merlot.security.rules import AccessRules
from merlot.spec.manifest.access_document import load_access

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "merlot"
KEY: Final = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY: Final = ec.generate_private_key(ec.SECP256R1())


def jwks(*keys: tuple[str, Any]) -> str:
    """Return a JWKS of the public halves of keys, by their ids."""
    algorithm = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    entries = [{**orjson.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"} for kid, key in keys]
    return orjson.dumps({"keys": entries}).decode()


def signed(key: Any = KEY, kid: str | None = "first", algorithm: str = "ES256", **claims: Any) -> str:
    """Return a token that is valid, but for claims that are given; None leaves a claim out."""
    now = int(time.time())
    all_claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "groups": ["readers"], "exp": now + 600, **claims}
    kept = {name: value for name, value in all_claims.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers=None if kid is None else {"kid": kid})


def hashed(password: str) -> str:
    """Return a hash that is quick to verify."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def digest(token: str) -> str:
    """Return what the document says about a token."""
    return hashlib.sha256(token.encode()).hexdigest()


DOCUMENT: Final = f"""
users:
  - {{name: root, passwordHash: {hashed("root's")!r}}}
  - {{name: reader, passwordHash: {hashed("reader's")!r}, groups: [readers]}}
  - {{name: masked, passwordHash: {hashed("masked's")!r}}}
  - {{name: owner, passwordHash: {hashed("owner's")!r}}}
  - {{name: other, passwordHash: {hashed("other's")!r}}}
tokens:
  - {{name: job, sha256: {digest("a job's")}}}
  - {{name: old, sha256: {digest("an old one")}, expires: 2020-01-01T00:00:00Z, groups: [admins]}}
oidc:
  - {{issuer: {ISSUER}, audiences: [{AUDIENCE}], jwksFile: keys.json, algorithms: [ES256]}}
certificates:
  - {{san: "DNS:reader.example", name: reader, groups: [readers]}}
roles:
  - {{name: admin, grants: [{{rights: [admin], tables: ["*"]}}]}}
  - {{name: reader, grants: [{{rights: [query], tables: [flights]}}]}}
  - {{name: masked, grants: [{{rights: [query], tables: [flights], rows: ["a = 1"], hidden: [b]}}]}}
  - {{name: job, grants: [{{rights: [insert], tables: [flights]}}]}}
  - {{name: owner, grants: [{{rights: [query, insert, manage], tables: [flights]}}]}}
  - {{name: other, grants: [{{rights: [query, insert, manage], tables: ["other*"]}}]}}
bindings:
  - {{role: admin, users: [root], groups: [admins]}}
  - {{role: reader, groups: [readers, "oidc:readers"]}}
  - {{role: masked, users: [masked]}}
  - {{role: job, users: [job]}}
  - {{role: owner, users: [owner]}}
  - {{role: other, users: [other]}}
"""


def rules() -> AccessRules:
    """Return the document's rules."""
    return load_access(DOCUMENT, lambda _: jwks(("first", KEY)))


@dataclass(frozen=True)
class Caller:
    """A caller. `rights` are those to the table `flights`; `elsewhere` those to other tables."""

    name: str
    authorization: str | None
    rights: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    is_known: bool = True
    is_admin: bool = False
    is_restricted: bool = False
    """True if rows or columns are left out."""


EVERY: Final = frozenset({"query", "insert", "manage", "admin"})
OWN: Final = frozenset({"query", "insert", "manage"})
QUERY: Final = frozenset({"query"})


def callers() -> list[Caller]:
    """Return callers of every kind. Tokens are made anew: they expire."""
    return [
        Caller("none", None, is_known=False),
        Caller("wrong password", basic("root", "guess"), is_known=False),
        Caller("expired token", bearer("an old one"), is_known=False),
        Caller("wrong audience", bearer(signed(aud="else")), is_known=False),
        Caller(
            "unsigned", bearer(jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "root"}, "", "none")), is_known=False
        ),
        Caller("reader", basic("reader", "reader's"), QUERY),
        Caller("reader by jwt", bearer(signed()), QUERY),
        Caller("restricted reader", basic("masked", "masked's"), QUERY, is_restricted=True),
        Caller("job", bearer("a job's"), frozenset({"insert"})),
        Caller("owner", basic("owner", "owner's"), OWN),
        Caller("owner of another table", basic("other", "other's"), elsewhere=OWN),
        Caller("admin", basic("root", "root's"), EVERY, EVERY, is_admin=True),
    ]


class LeapingClock:
    """A clock whose every look is later, so that little is remembered and few failures are held against anybody. Its
    wall time is the machine's."""

    def __init__(self) -> None:
        self._now = 0.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        self._now += 0.5
        return self._now

"""Credentials, right and wrong: what each authenticator takes, and what a flood of them costs."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from dataclasses import replace

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.callers import (
    AUDIENCE,
    ISSUER,
    KEY,
    OTHER_KEY,
    hashed,
    jwks,
    rules,
    signed,
)

from merlot.clock import SystemClock
from merlot.errors import InvalidInputError, NotAuthenticatedError, UnavailableError
from merlot.security import credentials, passwords
from merlot.security.access import ANONYMOUS, Identity
from merlot.security.credentials import BearerToken, Credential, Password, PeerCertificate
from merlot.security.door import Door
from merlot.security.kubernetes_tokens import TokenReviewer, reviewed
from merlot.security.oidc import REFETCH_S, OidcVerifier, keys_of
from merlot.security.passwords import FAILURE_S, FAILURES, PasswordVerifier, hash_password, matches
from merlot.security.rules import KubernetesReview, OidcIssuer, PasswordUser
from merlot.security.verifiers import MAX_REVIEWS


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door(rules(), SetClock())
    yield door
    door.close()


async def identity(door: Door, credential: Credential | None, client: str = "1.2.3.4") -> Identity:
    return (await door.identify(credential, client)).identity


@given(st.text(st.characters(exclude_characters=":", codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_basic_credentials_come_back_as_they_were_sent(user: str, password: str) -> None:
    read = credentials.of_header(credentials.basic(user, password))
    assert read == Password(user, password)
    assert repr(read) == f"Password(user={user!r})"


@pytest.mark.parametrize("padding", ["", "=", "=="])
def test_padding_may_be_left_out(padding: str) -> None:
    text = base64.b64encode(b"ann:secret").decode().rstrip("=") + padding
    if len(text) % 4 in (0, 2, 3):
        assert credentials.of_header(f"basic {text}") == Password("ann", "secret")


@given(st.text(max_size=40))
def test_no_header_is_more_than_refused(text: str) -> None:
    try:
        credentials.of_header(text)
    except NotAuthenticatedError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


async def test_right_credentials_of_every_kind(door: Door) -> None:
    assert await identity(door, None) == ANONYMOUS
    assert await identity(door, Password("reader", "reader's")) == Identity("reader", frozenset({"readers"}), "basic")
    assert await identity(door, BearerToken("a job's")) == Identity("job", frozenset(), "token")
    by_jwt = Identity("oidc:ann", frozenset({"oidc:readers"}), "jwt")
    assert await identity(door, BearerToken(signed())) == by_jwt
    certificate = credentials.of_certificate({"subjectAltName": (("DNS", "x"), ("DNS", "reader.example"))})
    assert await identity(door, certificate) == Identity("reader", frozenset({"readers"}), "certificate")
    assert await identity(door, PeerCertificate(("DNS:else",))) == ANONYMOUS


PUBLIC_PEM = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def forged_by_the_public_key() -> str:
    """A token that is signed symmetrically, with the public key for a secret."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": int(time.time()) + 600}
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    parts = [
        base64.urlsafe_b64encode(str(part).replace("'", '"').encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "typ": "JWT", "kid": "first"}, claims)
    ]
    signature = algorithm.sign(b".".join(parts), PUBLIC_PEM)
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


WRONG_TOKENS = {
    "guess": "guess",
    "three parts": "a.b.c",
    "expired": signed(exp=int(time.time()) - 3_600),
    "never expires": signed(exp=None),
    "not yet": signed(nbf=int(time.time()) + 3_600),
    "wrong audience": signed(aud="else"),
    "no audience": signed(aud=None),
    "wrong issuer": signed(iss="https://evil.example"),
    "no issuer": signed(iss=None),
    "another key": signed(OTHER_KEY),
    "unknown key id": signed(kid="other"),
    "no name": signed(sub=None),
    "empty name": signed(sub=""),
    "name of two lines": signed(sub="ann\nroot"),
    "name that no text can hold": signed(sub="\ud800"),
    "group that no text can hold": signed(groups=["\ud800"]),
    "key of another kind": signed(rsa.generate_private_key(65_537, 2_048), algorithm="RS256"),
    "deep": ".".join(["W1tb" * 2_000] * 3),
    "groups are a number": signed(groups=7),
    "groups of numbers": signed(groups=[7]),
    "unsigned": jwt.encode({"iss": ISSUER, "aud": AUDIENCE, "sub": "root"}, "", "none"),
    "signed by the public key": forged_by_the_public_key(),
    "cut": signed()[:-4],
}


@pytest.mark.parametrize("token", WRONG_TOKENS.values(), ids=WRONG_TOKENS)
async def test_wrong_tokens(door: Door, token: str) -> None:
    with pytest.raises(NotAuthenticatedError):
        await identity(door, BearerToken(token))


async def test_a_tokens_name_is_never_that_of_a_user(door: Door) -> None:
    who = await identity(door, BearerToken(signed(sub="root", groups="admins")))
    assert who == Identity("oidc:root", frozenset({"oidc:admins"}), "jwt")


@pytest.mark.parametrize(
    "who", [("reader", "guess"), ("nobody", "reader's"), ("reader", ""), ("reader", "r" * 100), ("reader", "\0")]
)
async def test_wrong_passwords(door: Door, who: tuple[str, str]) -> None:
    with pytest.raises(NotAuthenticatedError, match="name or password is wrong"):
        await identity(door, Password(*who))


def test_passwords_that_bcrypt_would_cut_are_refused() -> None:
    assert matches("secret", hash_password("secret", 4).encode())
    for password in ("", "x" * 73, "a\0b", "é" * 37):
        with pytest.raises(InvalidInputError, match="1 to 72 bytes"):
            hash_password(password, 4)


async def test_a_password_is_verified_once_a_minute(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = []
    monkeypatch.setattr(passwords, "matches", lambda *given: verified.append(given) or matches(*given))
    asked = Password("reader", "reader's")
    first = await asyncio.gather(*(door.identify(asked, "1.2.3.4") for _ in range(20)))
    assert len({known.identity for known in first}) == 1
    assert len(verified) == 1, "connections that come together wait for one verification"
    clock = door._clock
    assert isinstance(clock, SetClock)
    clock.now += 59
    assert door.is_fresh(await door.identify(asked, "1.2.3.4"))
    assert len(verified) == 1
    clock.now += 2
    assert not door.is_fresh(first[0])
    await door.identify(asked, "1.2.3.4")
    assert len(verified) == 2


async def test_another_document_forgets_everybody(door: Door) -> None:
    known = await door.identify(Password("reader", "reader's"), "1.2.3.4")
    fewer = rules()
    door.use(type(fewer)(fewer.access, {}, {}))
    assert not door.is_fresh(known)
    with pytest.raises(NotAuthenticatedError):
        await door.identify(Password("reader", "reader's"), "1.2.3.4")


async def test_whoever_fails_often_waits_and_nobody_else() -> None:
    clock = SetClock()
    verifier = PasswordVerifier(clock)
    users = {"ann": PasswordUser(Identity("ann"), hashed("secret").encode())}
    for _ in range(FAILURES):
        with pytest.raises(NotAuthenticatedError):
            await verifier.identify(Password("ann", "guess"), users, "1.1.1.1")
    with pytest.raises(UnavailableError, match="too many failed attempts"):
        await verifier.identify(Password("ann", "secret"), users, "1.1.1.1")
    assert await verifier.identify(Password("ann", "secret"), users, "2.2.2.2") == Identity("ann")
    clock.now += FAILURE_S + 0.1
    assert await verifier.identify(Password("ann", "secret"), users, "1.1.1.1") == Identity("ann")
    verifier.close()


async def test_few_passwords_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "matches", lambda *_: time.sleep(0.02) or True)
    verifier = PasswordVerifier(SystemClock())
    users = {"ann": PasswordUser(Identity("ann"), hashed("secret").encode())}
    asked = [verifier.identify(Password("ann", str(number)), users, "1.1.1.1") for number in range(40)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(outcome, Identity) for outcome in outcomes) == passwords.MAX_WAITING_PER_CLIENT
    assert sum(isinstance(outcome, UnavailableError) for outcome in outcomes) == 40 - passwords.MAX_WAITING_PER_CLIENT
    verifier.close()


class Issuer:
    """Keys that an issuer publishes, and how often they were fetched."""

    def __init__(self) -> None:
        self.document = jwks(("first", KEY))
        self.num_fetched = 0
        self.is_away = False

    async def fetch(self, _: str) -> bytes:
        self.num_fetched += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise UnavailableError("away")
        return self.document.encode()


async def test_keys_rotate_without_a_flood_of_fetches() -> None:
    clock, issuer = SetClock(), Issuer()
    verifier = OidcVerifier(
        [OidcIssuer(ISSUER, (AUDIENCE,), "https://issuer.example/keys", ("ES256",))], clock, issuer.fetch
    )
    await asyncio.gather(*(verifier.identify(signed()) for _ in range(20)))
    assert issuer.num_fetched == 1
    issuer.document = jwks(("first", KEY), ("second", OTHER_KEY))
    for _ in range(100):
        with pytest.raises(NotAuthenticatedError, match="does not publish"):
            await verifier.identify(signed(OTHER_KEY, "second"))
    assert issuer.num_fetched == 1, "an unknown key id has keys fetched twice a minute at most"
    clock.now += REFETCH_S + 1
    who, _ = await verifier.identify(signed(OTHER_KEY, "second"))
    assert (who.name, issuer.num_fetched) == ("oidc:ann", 2)
    issuer.is_away = True
    clock.now += 3_600
    assert (await verifier.identify(signed()))[0].name == "oidc:ann", "the keys of before stay"
    issuer.is_away, issuer.document = False, jwks(("second", OTHER_KEY))
    clock.now += 3_600
    with pytest.raises(NotAuthenticatedError):
        await verifier.identify(signed())


def test_keys_that_cannot_be_used_lock_out_no_others() -> None:
    entries = orjson.loads(jwks(("first", KEY)))["keys"]
    odd = [
        {"kty": "OKP", "crv": "X448", "x": "AA", "kid": "unknown curve"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "no point"},
        {"kty": "RSA", "n": "A" * 400, "e": "AQAB", "kid": "zero"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "weak"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"},
        {**entries[0], "use": "enc", "kid": "for encryption"},
    ]
    assert list(keys_of(orjson.dumps({"keys": [*odd, *entries]}))) == ["first"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', '{"keys": [1]}', '{"keys": "abc"}', "[" * 10_000])
def test_other_documents_are_no_keys(text: str) -> None:
    with pytest.raises(UnavailableError, match="no JWKS"):
        keys_of(text)


@pytest.mark.parametrize(
    "bad", ["x", "$2b$03$" + "." * 53, "$2b$00$" + "." * 53, "$2b$04$" + "z" * 53, "$2b$16$" + "." * 53]
)
def test_hashes_that_would_fail_at_the_login_are_refused_before(bad: str) -> None:
    with pytest.raises(InvalidInputError):
        passwords.check_hash(bad.encode())
    passwords.check_hash(hashed("x").encode())


async def test_an_issuer_that_never_answered_is_unavailable() -> None:
    issuer = Issuer()
    issuer.is_away = True
    verifier = OidcVerifier([OidcIssuer(ISSUER, (AUDIENCE,), "https://x/keys", ("ES256",))], SetClock(), issuer.fetch)
    with pytest.raises(UnavailableError):
        await verifier.identify(signed())


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": "x"}},
        {"authenticated": "true", "user": {"username": "x"}, "audiences": ["merlot"]},
        {"authenticated": True, "user": {}, "audiences": ["merlot"]},
        {"authenticated": True, "user": {"username": "x"}, "audiences": ["else"]},
        {"authenticated": True, "user": {"username": "x"}},
        {"authenticated": True, "user": {"username": "root", "groups": ["admins"]}, "audiences": ["merlot"]},
    ],
)
def test_reviews_that_accept_nobody(status: dict[str, object]) -> None:
    with pytest.raises(NotAuthenticatedError):
        reviewed({"status": status}, ["merlot"])


async def test_guessed_tokens_cost_the_api_server_little(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    may_answer = asyncio.Event()

    async def identify(_: TokenReviewer, token: str) -> Identity:
        asked.append(token)
        await may_answer.wait()
        if token.startswith("guess"):
            raise NotAuthenticatedError("the API server does not accept the token")
        return Identity(token, frozenset(), "kubernetes")

    monkeypatch.setattr(TokenReviewer, "identify", identify)
    door = Door(replace(rules(), kubernetes=KubernetesReview()), SetClock())
    guesses = [asyncio.create_task(identity(door, BearerToken(f"guess {n}"), f"1.1.1.{n}")) for n in range(100)]
    while sum(guess.done() for guess in guesses) < len(guesses) - MAX_REVIEWS:
        await asyncio.sleep(0)
    may_answer.set()
    outcomes = await asyncio.gather(*guesses, return_exceptions=True)
    assert len(asked) == MAX_REVIEWS
    assert {type(outcome) for outcome in outcomes} == {NotAuthenticatedError, UnavailableError}
    for number in range(100):
        with pytest.raises(NotAuthenticatedError if number < FAILURES else UnavailableError):
            await identity(door, BearerToken(f"guess again {number}"), "2.2.2.2")
    assert len(asked) == MAX_REVIEWS + FAILURES
    assert (await identity(door, BearerToken("account"), "3.3.3.3")).name == "account", "others go on"
    door.close()


def test_a_review_that_accepts_an_account() -> None:
    user = {"username": "system:serviceaccount:sales:job", "groups": ["system:serviceaccounts"]}
    who = reviewed({"status": {"authenticated": True, "user": user, "audiences": ["merlot"]}}, ["merlot"])
    assert who == Identity(user["username"], frozenset({"system:serviceaccounts"}), "kubernetes")

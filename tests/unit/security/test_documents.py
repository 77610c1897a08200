"""Access documents: what is wrong is said with path and line, and never with a secret; changes are followed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.unit.security.callers import hashed, jwks

from merlot.errors import InvalidInputError
from merlot.security.access import Identity, Right
from merlot.security.credentials import Password
from merlot.security.door import Door
from merlot.security.follow import AccessFile, follow
from merlot.security.passwords import hash_password, matches
from merlot.security.pinot_principals import convert, read_properties
from merlot.spec.manifest import ManifestError
from merlot.spec.manifest.access_document import is_closed, load_access
from merlot.testing.patience import PATIENCE_S

HASH = hashed("secret")
ROLE = "roles:\n  - name: reader\n    grants:\n      - {rights: "


def problems_of(text: str, **files: str) -> list[tuple[int | None, str]]:
    def read_file(name: str) -> str:
        if name not in files:
            raise InvalidInputError(f"cannot be read path={name}")
        return files[name]

    with pytest.raises(ManifestError) as caught:
        load_access(text, read_file)
    return [(problem.line, str(problem)) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "would lock everybody out"),
        ("[]", None, "is a mapping"),
        ("a: 1\n---\nb: 2", None, "one YAML document"),
        ("users: [\n", 2, "not YAML"),
        ("users:\n  - {name: ann}", 2, "users[0]: needs one of passwordHash and passwordHashFile"),
        (f"users:\n  - name: ann\n    passwordHash: {HASH!r}\n    passwordHashFile: x", 2, "needs one of"),
        ("users:\n  - name: ann\n    passwordHash: secret", 3, "users[0].passwordHash: is no hash of bcrypt"),
        ("users:\n  - name: ann\n    passwordHashFile: none", 3, "cannot be read path=none"),
        (f"users:\n  - {{name: anonymous, passwordHash: {HASH!r}}}", 2, "choose another name"),
        (f"users:\n  - {{name: a, passwordHash: {HASH!r}}}\n  - {{name: a, passwordHash: {HASH!r}}}", 3, "keep one"),
        ("users:\n  - {nam: ann}", 2, "unknown field; did you mean name?"),
        ("tokens:\n  - {name: t, sha256: secret}", 2, "is no SHA-256"),
        ("oidc:\n  - {issuer: i, audiences: [a], jwksFile: k}", 2, "no JWKS"),
        ("oidc:\n  - {issuer: i, audiences: [], jwksUrl: 'https://x'}", 2, "at least 1"),
        ("oidc:\n  - {issuer: i, audiences: [a], jwksUrl: 'https://x', algorithms: [HS256]}", 2, "HS256"),
        (f"bindings:\n  - {{role: reder, users: [a]}}\n{ROLE}[query], tables: [t]}}", 2, "did you mean reader?"),
        (f"{ROLE}[query], tables: [t], rows: ['a = 1) OR (1 = 1']}}", 4, "rows[0]"),
        (f"{ROLE}[insert], tables: [t], rows: ['a = 1']}}", 4, "does not grant query"),
        (f"{ROLE}[query], tables: [t], hidden: [B], masks: {{b: '0'}}}}", 4, "is hidden"),
        (f"{ROLE}[read], tables: [t]}}", 4, "read"),
    ],
)
def test_problems_have_a_line_and_say_what_to_do(text: str, line: int | None, words: str) -> None:
    found = problems_of(text, k="{}")
    assert [problem for problem in found if words in problem[1] and problem[0] == line], found
    assert "secret" not in str(found)


@pytest.mark.parametrize("text", ["a = 1", "b IN ('x)', \"y(\") AND (c > 0 OR d)", "name = 'it''s; -- no comment'"])
def test_expressions_that_parentheses_hold(text: str) -> None:
    assert is_closed(text)


@pytest.mark.parametrize("text", ["a = 1) OR (b = 1", "a = 1 -- ", "a /* ", "a; DROP", "'a", '"a', "(a", "a = 'x' # y"])
def test_expressions_that_parentheses_do_not_hold(text: str) -> None:
    assert not is_closed(text)


def test_a_document_without_secrets_in_it(tmp_path: Path) -> None:
    (tmp_path / "hash").write_text(HASH + "\n")
    (tmp_path / "keys.json").write_text(jwks())
    (tmp_path / "access.yaml").write_text(
        "users: [{name: ann, passwordHashFile: hash}]\noidc: [{issuer: i, audiences: [a], jwksFile: keys.json}]\n"
    )
    rules = AccessFile(tmp_path / "access.yaml", load_access).read()
    assert rules.users["ann"].password_hash == HASH.encode()
    assert "$2" not in repr(rules)


DOCUMENT = """
users: [{name: ann, passwordHashFile: hash}]
roles: [{name: r, grants: [{rights: [query], tables: [TABLE]}]}]
bindings: [{role: r, users: [ann]}]
"""


async def test_a_changed_document_is_in_force_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.yaml"
    path.write_text(DOCUMENT.replace("TABLE", "one"))
    (tmp_path / "hash").write_text(HASH)
    file = AccessFile(path, load_access)
    door = Door(file.read())
    ann = Identity("ann")
    following = asyncio.create_task(follow(file, door, 0.01))

    async def until_version(version: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while door.version < version:
                await asyncio.sleep(0.01)

    (tmp_path / "next").write_text(DOCUMENT.replace("TABLE", "two"))
    os.replace(tmp_path / "next", path)
    await until_version(2)
    assert not door.access.allows(ann, Right.QUERY, "one")
    assert door.access.allows(ann, Right.QUERY, "two")
    (tmp_path / "hash").write_text(hashed("another"))
    await until_version(3)
    assert (await door.identify(Password("ann", "another"), "")).identity.name == "ann"
    path.write_text("roles: {")
    async with asyncio.timeout(PATIENCE_S):
        while "the one before stays in force" not in caplog.text:
            await asyncio.sleep(0.01)
    assert door.access.allows(ann, Right.QUERY, "two")
    refused = [record.getMessage() for record in caplog.records if "stays in force" in record.getMessage()]
    assert len(refused) == 1
    assert "\n" not in refused[0]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    door.close()


PROPERTIES = """
# Pinot's
pinot.broker.access.control.class=org.apache.pinot.broker.broker.BasicAuthAccessControlFactory
pinot.broker.access.control.principals=admin, ann,bob
pinot.broker.access.control.principals.admin.password=verysecret
pinot.broker.access.control.principals.ann.password: kindasecret
pinot.broker.access.control.principals.ann.tables=stuff,lessImportantStuff
pinot.broker.access.control.principals.ann.permissions=read
pinot.broker.access.control.principals.ann.stuff.rls=a IN (1,2), b = 'x,y'
pinot.broker.access.control.principals.bob.password=secret
pinot.broker.access.control.principals.bob.excludeTables=salaries
pinot.broker.access.control.principals.bob.permissions=READ,UPDATE,DANCE
pinot.broker.access.control.principals.eve.password=unlisted
"""


def test_pinots_principals() -> None:
    import yaml

    converted = convert(read_properties(PROPERTIES), lambda password: hash_password(password, 4))
    assert [note for note in converted.notes if "DANCE" in note or "eve" in note] == list(converted.notes)
    text = yaml.safe_dump(converted.document)
    assert "secret" not in text
    rules = load_access(text, lambda name: name)
    assert matches("kindasecret", rules.users["ann"].password_hash)
    access, ann, bob = rules.access, Identity("ann"), Identity("bob")
    assert access.allows(Identity("admin"), Right.ADMIN, None)
    stuff, less = access.view(ann, "stuff"), access.view(ann, "lessImportantStuff_OFFLINE")
    assert stuff is not None
    assert less is not None
    assert (stuff.row_filters, less.is_whole) == (("a IN (1,2)", "b = 'x,y'"), True)
    assert access.view(ann, "else") is None
    assert not access.allows(ann, Right.INSERT, "stuff")
    assert access.allows(bob, Right.MANAGE, "t")
    assert not access.allows(bob, Right.QUERY, "Salaries")
    assert not access.allows(bob, Right.QUERY, None)


def test_a_configuration_without_principals() -> None:
    with pytest.raises(InvalidInputError, match="no principals"):
        convert({"a": "b"}, str)

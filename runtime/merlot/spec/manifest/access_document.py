"""Convert the text of an access document to rules. All problems are reported at once, each with its path and line.

Predicates and masks are checked for what could end the parentheses that they are put into; whether they fit a table's
columns shows when the table is queried, or in `merlot access check`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import ValidationError

from merlot.errors import InvalidInputError, MerlotError
from merlot.security.access import ANONYMOUS, AccessPolicy, AccessView, Grant, Identity, IdentityLimits, Right
from merlot.security.passwords import check_hash
from merlot.security.rules import AccessRules, KubernetesReview, OidcIssuer, PasswordUser, StaticToken
from merlot.spec import access as spec
from merlot.spec.manifest import ManifestError, yaml_text
from merlot.spec.manifest import problems as manifest_problems
from merlot.spec.manifest.problems import ManifestProblem

ReadFile = Callable[[str], str]
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
EMPTY: Final = "the access document is empty; it would lock everybody out"


def load_access(text: str, read_file: ReadFile) -> AccessRules:
    """Return the rules of a document. `read_file` returns the text of a file that it names, and raises
    InvalidInputError. Raise ManifestError with all problems."""
    problems: list[ManifestProblem] = []
    documents = yaml_text.read(text, problems)
    if not problems and len(documents) != 1:
        problems.append(ManifestProblem("", EMPTY if not documents else "an access document is one YAML document"))
    if problems:
        raise ManifestError(tuple(problems))
    value = documents[0].value
    if not isinstance(value, dict):
        raise ManifestError((ManifestProblem("", "an access document is a mapping with users, roles and bindings"),))
    try:
        document = spec.AccessDocument.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = manifest_problems.from_pydantic(error, value, spec.AccessDocument)
    else:
        reader = _Reader(document, read_file)
        rules = reader.rules()
        problems = [*reader.problems, *_check(document)]
        if not problems:
            return rules
    raise ManifestError(tuple(problem.at_document(documents[0], is_only=True) for problem in problems))


class _Reader:
    """Converts a document, and collects the problems of its secrets. No problem shows a secret."""

    def __init__(self, document: spec.AccessDocument, read_file: ReadFile) -> None:
        self._document = document
        self._read_file = read_file
        self.problems: list[ManifestProblem] = []

    def rules(self) -> AccessRules:
        document = self._document
        users = [self._user(user, f"users[{number}]") for number, user in enumerate(document.users)]
        tokens = [self._token(token, f"tokens[{number}]") for number, token in enumerate(document.tokens)]
        return AccessRules(
            access=_access(document),
            users={user.identity.name: user for user in users},
            tokens=dict(tokens),
            issuers=tuple(self._issuer(issuer, f"oidc[{number}]") for number, issuer in enumerate(document.oidc)),
            kubernetes=None if document.kubernetes is None else KubernetesReview(document.kubernetes.audiences),
            certificates={
                certificate.san: Identity(certificate.name, frozenset(certificate.groups), "certificate")
                for certificate in document.certificates
            },
        )

    def _user(self, user: spec.User, path: str) -> PasswordUser:
        identity = Identity(user.name, frozenset(user.groups), "basic")
        text = self._secret(path, ("passwordHash", user.password_hash), ("passwordHashFile", user.password_hash_file))
        password_hash = text.encode()
        if text:
            try:
                check_hash(password_hash)
            except InvalidInputError as error:
                self._add(f"{path}.passwordHash", str(error))
        return PasswordUser(identity, password_hash)

    def _token(self, token: spec.ServiceToken, path: str) -> tuple[str, StaticToken]:
        digest = self._secret(path, ("sha256", token.sha256), ("sha256File", token.sha256_file)).split(" ")[0].lower()
        if digest and not _DIGEST.fullmatch(digest):
            self._add(f"{path}.sha256", "is no SHA-256 in hexadecimal: printf %s TOKEN | sha256sum")
        expires_ms = None if token.expires is None else int(token.expires.timestamp() * 1000)
        return digest, StaticToken(Identity(token.name, frozenset(token.groups), "token"), expires_ms)

    def _issuer(self, issuer: spec.Oidc, path: str) -> OidcIssuer:
        keys = issuer.jwks_url or self._secret(path, ("jwksUrl", issuer.jwks_url), ("jwksFile", issuer.jwks_file))
        if keys and issuer.jwks_url is None:
            # Imported here: the cryptography of signed tokens takes longer to load than the rest of this module.
            from merlot.security.oidc import keys_of

            try:
                keys_of(keys)
            except MerlotError as error:
                self._add(f"{path}.jwksFile", str(error))
        return OidcIssuer(
            issuer=issuer.issuer,
            audiences=issuer.audiences,
            jwks=keys,
            algorithms=issuer.algorithms,
            name_claim=issuer.name_claim,
            groups_claim=issuer.groups_claim,
            prefix=issuer.prefix,
        )

    def _secret(self, path: str, inline: tuple[str, str | None], file: tuple[str, str | None]) -> str:
        """Return the text of a value that is written or is in a file; "" after adding a problem."""
        if (inline[1] is None) == (file[1] is None):
            self._add(path, f"needs one of {inline[0]} and {file[0]}")
            return ""
        if file[1] is None:
            return (inline[1] or "").strip()
        try:
            return self._read_file(file[1]).strip()
        except InvalidInputError as error:
            self._add(f"{path}.{file[0]}", str(error))
            return ""

    def _add(self, path: str, message: str) -> None:
        self.problems.append(ManifestProblem(path, message))


def _access(document: spec.AccessDocument) -> AccessPolicy:
    users: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, set[str]] = defaultdict(set)
    for binding in document.bindings:
        for user in binding.users:
            users[user].add(binding.role)
        for group in binding.groups:
            groups[group].add(binding.role)
    limited = [(entry, IdentityLimits(entry.queries_per_second, entry.concurrent)) for entry in document.limits]
    return AccessPolicy(
        grants={role.name: tuple(map(_grant, role.grants)) for role in document.roles},
        user_roles={name: frozenset(roles) for name, roles in users.items()},
        group_roles={name: frozenset(roles) for name, roles in groups.items()},
        user_limits={name: limits for entry, limits in limited for name in entry.users},
        group_limits={name: limits for entry, limits in limited for name in entry.groups},
    )


def _grant(grant: spec.AccessGrant) -> Grant:
    masks = {column.lower(): text for column, text in grant.masks.items()}
    view = AccessView(grant.rows, frozenset(column.lower() for column in grant.hidden), masks)
    return Grant(grant.tables, frozenset(map(Right, grant.rights)), view, grant.except_tables)


def _check(document: spec.AccessDocument) -> Iterator[ManifestProblem]:
    """Return the problems between fields, and those of SQL texts."""
    identities: dict[str, Sequence[spec.User | spec.ServiceToken | spec.Certificate]] = {
        "users": document.users,
        "tokens": document.tokens,
        "certificates": document.certificates,
    }
    seen: dict[str, str] = {}
    for kind, named in identities.items():
        for number, identity in enumerate(named):
            path = f"{kind}[{number}].name"
            if identity.name == ANONYMOUS.name:
                yield ManifestProblem(path, f"{ANONYMOUS.name} is whoever shows no credential; choose another name")
            if identity.name in seen and kind == "users":
                yield ManifestProblem(path, f"{identity.name} is declared at {seen[identity.name]} too; keep one")
            seen.setdefault(identity.name, path)
    yield from _repeated("roles", (role.name for role in document.roles))
    yield from _repeated("oidc", (issuer.issuer for issuer in document.oidc))
    yield from _repeated("certificates", (entry.san for entry in document.certificates))
    roles = [role.name for role in document.roles]
    for number, binding in enumerate(document.bindings):
        if binding.role not in roles:
            hint = manifest_problems.suggestion(binding.role, roles)
            yield ManifestProblem(f"bindings[{number}].role", f"no role has the name {binding.role}{hint}")
        if not binding.users and not binding.groups:
            yield ManifestProblem(f"bindings[{number}]", "binds nobody: name users or groups")
    for role_number, role in enumerate(document.roles):
        for number, grant in enumerate(role.grants):
            yield from _check_grant(grant, f"roles[{role_number}].grants[{number}]")


def _check_grant(grant: spec.AccessGrant, path: str) -> Iterator[ManifestProblem]:
    texts: Mapping[str, str] = {
        **{f"{path}.rows[{number}]": text for number, text in enumerate(grant.rows)},
        **{f"{path}.masks.{column}": text for column, text in grant.masks.items()},
    }
    for place, text in texts.items():
        if not is_closed(text):
            yield ManifestProblem(place, "has an open quote or parenthesis, a semicolon or a comment")
    restricts = bool(grant.rows or grant.hidden or grant.masks)
    if restricts and not {"query", "admin"} & set(grant.rights):
        yield ManifestProblem(path, "restricts what query shows, and does not grant query")
    both = {column.lower() for column in grant.hidden} & {column.lower() for column in grant.masks}
    if both:
        yield ManifestProblem(f"{path}.masks", f"column {min(both)} is hidden; leave out its mask")


def is_closed(text: str) -> bool:
    """Return True if parentheses around a text hold it as one expression, whatever follows."""
    bare = _QUOTED.sub("", text)
    depth = 0
    for character in bare:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0 and not any(mark in bare for mark in ("'", '"', ";", "--", "/*", "#"))


def _repeated(kind: str, names: Iterable[str]) -> Iterator[ManifestProblem]:
    seen: set[str] = set()
    for number, name in enumerate(names):
        if name in seen:
            yield ManifestProblem(f"{kind}[{number}]", f"{name} is declared twice; keep one")
        seen.add(name)

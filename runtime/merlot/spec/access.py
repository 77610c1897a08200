"""The access document: who callers are, and what they may do. One file for all processes of a cluster.

Hashes and keys may be files of their own, named relative to the document, so that the document itself holds no secret.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from merlot.spec.model import SpecModel

NAME = r"^[^\s:,][^\r\n\t:,]*$"
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=NAME)]
FilePath = Annotated[str, Field(min_length=1, max_length=4096)]
Pattern = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^\S+$")]
Predicate = Annotated[str, Field(min_length=1, max_length=10_000)]


class User(SpecModel):
    """A user of HTTP Basic: one of `passwordHash` and `passwordHashFile`."""

    name: Name
    password_hash: str | None = None
    """Hash by bcrypt, as `merlot access hash-password` makes it."""
    password_hash_file: FilePath | None = None
    """File that holds the hash, such as a Secret's."""
    groups: tuple[Name, ...] = ()


class ServiceToken(SpecModel):
    """A bearer token of a service: one of `sha256` and `sha256File`."""

    name: Name
    sha256: str | None = None
    """SHA-256 of the token in hexadecimal, as `sha256sum` prints it."""
    sha256_file: FilePath | None = None
    """File that holds the digest."""
    groups: tuple[Name, ...] = ()
    expires: AwareDatetime | None = None


class Oidc(SpecModel):
    """An issuer of signed tokens: one of `jwksUrl` and `jwksFile`."""

    issuer: Annotated[str, Field(min_length=1, max_length=2048)]
    """Value of the claim `iss`."""
    audiences: Annotated[tuple[str, ...], Field(min_length=1)]
    """Values of the claim `aud`, one of which a token has to have."""
    jwks_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    jwks_file: FilePath | None = None
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Field(min_length=1),
    ] = ("RS256", "ES256")
    """Algorithms that a token may be signed with."""
    name_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = "oidc:"
    """Begins all names and groups of this issuer."""


class Kubernetes(SpecModel):
    """Tokens of ServiceAccounts, reviewed by the API server. Names are `system:serviceaccount:NAMESPACE:NAME`."""

    audiences: tuple[str, ...] = ()


class Certificate(SpecModel):
    """A client certificate, by a name in it."""

    san: Annotated[str, Field(pattern=r"^(DNS|URI|email|IP Address):\S")]
    """Kind and name of a subjectAltName, such as `DNS:ann.example` or `URI:spiffe://cluster/ann`."""
    name: Name
    groups: tuple[Name, ...] = ()


class AccessGrant(SpecModel):
    """Rights to some tables, and what `query` shows of them."""

    rights: Annotated[tuple[Literal["query", "insert", "manage", "admin"], ...], Field(min_length=1)]
    tables: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Names of tables with `*` and `?`; `*` alone is the whole cluster."""
    except_tables: tuple[Pattern, ...] = ()
    """Names of tables that are not granted."""
    rows: tuple[Predicate, ...] = ()
    """SQL predicates, all of which hold for the rows that are shown."""
    hidden: tuple[str, ...] = ()
    """Columns that do not exist for the role."""
    masks: dict[str, Predicate] = Field(default_factory=dict)
    """SQL expression by the column that it replaces."""


class AccessRole(SpecModel):
    """A set of grants."""

    name: Name
    grants: Annotated[tuple[AccessGrant, ...], Field(min_length=1)]


class RoleBinding(SpecModel):
    """Users and groups that have a role. The user `anonymous` is whoever shows no credential."""

    role: Name
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class AccessLimits(SpecModel):
    """Limits of the use by each of some users, or by each member of some groups."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    queries_per_second: Annotated[float, Field(gt=0)] | None = None
    concurrent: Annotated[int, Field(gt=0)] | None = None


class AccessDocument(SpecModel):
    """Everything that decides who may do what."""

    users: tuple[User, ...] = ()
    tokens: tuple[ServiceToken, ...] = ()
    oidc: tuple[Oidc, ...] = ()
    kubernetes: Kubernetes | None = None
    certificates: tuple[Certificate, ...] = ()
    roles: tuple[AccessRole, ...] = ()
    bindings: tuple[RoleBinding, ...] = ()
    limits: tuple[AccessLimits, ...] = ()

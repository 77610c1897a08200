"""Schemes of file systems: the URIs of each, how it is opened, and what Tables may use it for. Pure.

A scheme is a row of SCHEMES. URI checks, manifests, the CRDs' rules, the places that Tables may name, Secrets and
`merlot.store.filesystems`, which opens file systems, all read this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ENDPOINT: Final = re.compile(r"(https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?")
_AZURE: Final = re.compile(
    r"(?P<container>[a-z0-9$-]+)@(?P<account>[a-z0-9]+)\.(?:dfs|blob)"
    r"(?P<cloud>\.core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn))"
)


@dataclass(frozen=True, slots=True)
class FileSystemTarget:
    """Arguments of a file system's class, and the folder that the URI's path is relative to."""

    keywords: Mapping[str, Any]
    root: str


@dataclass(frozen=True, slots=True)
class Secret:
    """Keys that a Table's Secret may have."""

    prefix: str
    """Prefix of all keys; other keys are ignored."""
    options: Mapping[str, str]
    """Argument of the file system's class by key. If two keys set the same argument, the later row wins."""
    together: tuple[str, str]
    """Keys that must both be there, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A scheme of URIs and its file system."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other spellings, which sources may have."""
    example: str
    filesystem: str
    """Class in pyarrow.fs."""
    names: str = "bucket"
    """Description of the authority."""
    authority: re.Pattern[str]
    """Authorities that are allowed. They must not lead requests to a host that whoever runs Merlot did not choose."""
    target: Callable[[re.Match[str], Mapping[str, str], Mapping[str, str]], FileSystemTarget] | None
    """Makes the target from authority, options and environment. None: pyarrow reads the URI itself."""
    options: Mapping[str, re.Pattern[str]] | None
    """Options of a URI, and their values. None: only pyarrow knows them."""
    secret: Secret | None = None
    """Keys of a Secret; None: Tables can name no Secret for the scheme."""
    environment: tuple[str, ...] = ()
    """Prefixes of environment variables that give the library credentials or hosts. Tables must not set these."""
    is_object_storage: bool = False
    """True if hosts are the provider's, unless an endpoint is named. Any Table may name it as a source."""
    is_deep_store: bool = True
    shows_partial_files: bool = False
    """True if a file is there from its first byte on. Files are then written under another name and renamed."""
    is_user_secret: bool = False
    """True if a user before the bucket can only be a key."""
    is_literal: bool = False
    """True if paths are keys as written: %2F is three characters of a name."""
    error_mark: str = ""
    """Part of the text of every error that the storage sends. Damaged files raise OSError without it."""
    refusal: str = ""
    """Regular expression of errors that say that these credentials may not read the file."""


def _s3(authority: re.Match[str], options: Mapping[str, str], environment: Mapping[str, str]) -> FileSystemTarget:
    return FileSystemTarget(options, authority["bucket"])


def _gcs(authority: re.Match[str], options: Mapping[str, str], environment: Mapping[str, str]) -> FileSystemTarget:
    """Make the target; `anonymous@bucket` is read without credentials."""
    anonymous = {"anonymous": True} if authority["user"] else {}
    return FileSystemTarget({**_plain_endpoint(options), **anonymous}, authority["bucket"])


def _azure(authority: re.Match[str], options: Mapping[str, str], environment: Mapping[str, str]) -> FileSystemTarget:
    """Make the target. An account's key or SAS token from the environment goes to no other account. The library finds
    all other credentials itself."""
    keywords: dict[str, Any] = {"account_name": authority["account"]}
    for service in ("blob", "dfs"):
        keywords[f"{service}_storage_authority"] = f".{service}{authority['cloud']}"
        endpoint = _plain_endpoint(options)
        if "endpoint_override" in endpoint:
            keywords[f"{service}_storage_authority"] = endpoint["endpoint_override"]
        if "scheme" in endpoint:
            keywords[f"{service}_storage_scheme"] = endpoint["scheme"]
    if environment.get("AZURE_STORAGE_ACCOUNT") == authority["account"]:
        if key := environment.get("AZURE_STORAGE_KEY"):
            keywords["account_key"] = key
        elif token := environment.get("AZURE_STORAGE_SAS_TOKEN"):
            keywords["sas_token"] = f"?{token.removeprefix('?')}"
    return FileSystemTarget(keywords, authority["container"])


def _local(authority: re.Match[str], options: Mapping[str, str], environment: Mapping[str, str]) -> FileSystemTarget:
    return FileSystemTarget({}, "")


def _plain_endpoint(options: Mapping[str, str]) -> Mapping[str, str]:
    """Split `https://host:port/` into host:port and scheme."""
    scheme, separator, host = options.get("endpoint_override", "").rpartition("://")
    if not host:
        return options
    return {**({"scheme": scheme} if separator else {}), **options, "endpoint_override": host.rstrip("/")}


_PLACE_OPTIONS: Final = {"endpoint_override": _ENDPOINT, "scheme": re.compile("https?")}

SCHEMES: Final[Sequence[Scheme]] = (
    Scheme(
        name="s3",
        aliases=("s3a", "s3n"),
        example="s3://bucket/path",
        filesystem="S3FileSystem",
        authority=re.compile(r"(?P<bucket>[A-Za-z0-9._-]+)"),
        target=_s3,
        # A region is part of a host's name, so it must not be able to end that name.
        options={**_PLACE_OPTIONS, "region": re.compile("[A-Za-z0-9-]+")},
        secret=Secret(
            prefix="AWS_",
            options={
                "AWS_ACCESS_KEY_ID": "access_key",
                "AWS_SECRET_ACCESS_KEY": "secret_key",
                "AWS_SESSION_TOKEN": "session_token",
                "AWS_DEFAULT_REGION": "region",
                "AWS_REGION": "region",
                "AWS_ENDPOINT_URL": "endpoint_override",
                "AWS_ENDPOINT_URL_S3": "endpoint_override",
            },
            together=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ),
        environment=("AWS_",),
        is_object_storage=True,
        is_user_secret=True,
        is_literal=True,
        error_mark="AWS Error",
        refusal="ACCESS_DENIED|HTTP status 403",
    ),
    Scheme(
        name="gs",
        example="gs://bucket/path",
        filesystem="GcsFileSystem",
        authority=re.compile(r"(?P<user>anonymous@)?(?P<bucket>[A-Za-z0-9._-]+)"),
        target=_gcs,
        options=_PLACE_OPTIONS,
        environment=("GOOGLE_", "CLOUD_STORAGE_"),
        is_object_storage=True,
        error_mark="google::cloud::Status",
        refusal="PERMISSION_DENIED|UNAUTHENTICATED",
    ),
    Scheme(
        name="abfss",
        example="abfss://container@account.dfs.core.windows.net/path",
        filesystem="AzureFileSystem",
        names="container@account.dfs.core.windows.net",
        authority=_AZURE,
        target=_azure,
        options=_PLACE_OPTIONS,
        environment=("AZURE_", "IDENTITY_", "IMDS_", "MSI_"),
        is_object_storage=True,
        # pyarrow truncates a file when it opens it for writing, and fills it when it closes it: a segment that is put
        # again would be missing meanwhile, and for good if the process dies.
        is_deep_store=False,
        error_mark="Azure Error",
        refusal=r"Azure Error: \[\w*\] 40[13]",
    ),
    Scheme(
        name="hdfs",
        example="hdfs://host/path",
        filesystem="HadoopFileSystem",
        names="host",
        authority=re.compile(r"[^/?#]*"),
        target=None,
        options=None,
        shows_partial_files=True,
    ),
    Scheme(
        name="file",
        example="file:///path",
        filesystem="LocalFileSystem",
        names="path on this machine",
        authority=re.compile("(localhost)?"),
        target=_local,
        options={},
    ),
)

_BY_NAME: Final = {name: row for row in SCHEMES for name in (row.name, *row.aliases)}
SECRET_USERS: Final = tuple(name for name, row in _BY_NAME.items() if row.is_user_secret)
"""Schemes, with aliases, whose user before the bucket is a key."""
SECRET_TAKERS: Final = tuple(row.name for row in SCHEMES if row.is_deep_store and row.secret is not None)
"""Schemes of deep stores that a Table's Secret may be for."""
VARIABLES: Final = tuple(prefix for row in SCHEMES for prefix in row.environment)
"""Prefixes of variables that give a file system its credentials."""
DEEP_STORES: Final = tuple(row for row in SCHEMES if row.is_deep_store)
ERROR_MARKS: Final = tuple(row.error_mark for row in SCHEMES if row.error_mark)
REFUSALS: Final = re.compile("|".join(row.refusal for row in SCHEMES if row.refusal))


def scheme_named(name: str) -> Scheme | None:
    """Return the row of a scheme or an alias, both in lower case; None if it is not known."""
    return _BY_NAME.get(name)


def is_object_storage(name: str) -> bool:
    """Return True if the scheme's hosts are a provider's."""
    return name in _BY_NAME and _BY_NAME[name].is_object_storage


def is_literal(name: str) -> bool:
    """Return True if paths of the scheme are never decoded."""
    return name in _BY_NAME and _BY_NAME[name].is_literal


def examples(rows: Sequence[Scheme]) -> str:
    """Return the rows' examples: `s3://bucket/path, gs://bucket/path or file:///path`."""
    *most, last = (row.example for row in rows)
    return f"{', '.join(most)} or {last}"

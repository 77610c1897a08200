"""Options that several roles have, each declared once: addresses, ports, places of files, and the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from merlot.telemetry import LogFormat
from merlot.uris import credentials_problem, redact

ZooKeeper = Annotated[
    str, typer.Option("--zk", metavar="HOST:PORT[,…]/CHROOT", envvar="MERLOT_ZK", help="ZooKeeper of the cluster.")
]

MAX_PORT = 65_535
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
NOTHING = "none"
"""Text that stands for an empty list."""


def _one_log_level(value: str) -> str:
    if value.upper() not in LOG_LEVELS:
        raise typer.BadParameter(f"no such level: {value}; choose one of {', '.join(LOG_LEVELS)}")
    return value.upper()


def _one_host(value: str) -> str:
    if value in {"0.0.0.0", "::"}:
        raise typer.BadParameter(f"nobody can call {value}: give the name of this machine here, and --bind {value}")
    return value


def _without_credentials(value: list[str] | str | None) -> list[str] | str | None:
    """Refuse a URI with credentials, since `ps` and a pod's manifest show arguments to everybody."""
    for uri in [value] if isinstance(value, str) else value or ():
        if (problem := credentials_problem(uri)) is not None:
            raise typer.BadParameter(f"{redact(uri)} holds {problem}: give them by the environment")
    return value


def stream_folders_option(*, shown_default: str | bool) -> Any:
    return typer.Option(
        "--stream-folders",
        envvar="MERLOT_STREAM_FOLDERS",
        metavar="PATHS",
        help="Folders below which streams of files may read, separated by commas; none: no folder.",
        show_default=shown_default,
    )


WarmUp = Annotated[
    float,
    typer.Option("--warm-up", help="Seconds to wait at the start for query kernels to load; 0: load them when needed."),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        envvar="MERLOT_HOST",
        callback=_one_host,
        help="Name or address by which other processes reach this one.",
    ),
]
Bind = Annotated[str | None, typer.Option("--bind", help="Address to listen on, if it is not --host; 0.0.0.0: all.")]
HttpPort = Annotated[int, typer.Option("--http-port", min=0, max=MAX_PORT, help="HTTP port; 0: any free one.")]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        "--grpc-port",
        envvar="MERLOT_GRPC_PORT",
        min=0,
        max=MAX_PORT,
        help="Port for queries over gRPC; 0: any free one.",
        show_default="none",
    ),
]


def deep_store_option(text: str, *, envvar: str | None = "MERLOT_DEEP_STORE", shown_default: bool | str = True) -> Any:
    """Return the option for a deep store's URI, which holds no credentials."""
    return typer.Option(
        "--deep-store",
        envvar=envvar,
        metavar="URI",
        callback=_without_credentials,
        help=text,
        show_default=shown_default,
    )


StoreUri = Annotated[str, deep_store_option("Where segment files are kept: a folder, or s3://bucket/prefix?region=… .")]
StorePrefixes = Annotated[
    list[str] | None,
    typer.Option(
        "--deep-store-prefix",
        envvar="MERLOT_DEEP_STORE_PREFIXES",
        metavar="URI",
        callback=_without_credentials,
        help="Tables may name deep stores of their own below it, such as file:///data or s3://bucket/prefix?region=…; "
        "may be repeated.",
        show_default="only below --deep-store",
    ),
]
SecretsDir = Annotated[
    Path | None,
    typer.Option(
        "--secrets-dir",
        envvar="MERLOT_SECRETS_DIR",
        help="Folder of the Secrets that streams name (secretRef): a subfolder each, with a file per property.",
    ),
]
StreamFolders = Annotated[str, stream_folders_option(shown_default=True)]
LogLevel = Annotated[str, typer.Option("--log-level", callback=_one_log_level, help="DEBUG, INFO, WARNING or ERROR.")]
LogAs = Annotated[LogFormat, typer.Option("--log-format", help="A readable line, or a JSON object, per event.")]


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas."""
    return () if text == NOTHING else tuple(part.strip() for part in text.split(","))


def absolute_folders(text: str) -> tuple[str, ...]:
    """Return absolute paths; the process may be started with relative ones."""
    return tuple(str(Path(folder).absolute()) for folder in listed(text) if folder)

"""Options of every role that say who may do what: the access document and the audit log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from merlot.cli.sizes import parse_size
from merlot.security.audit import STDOUT, AuditLog, AuditSettings
from merlot.security.door import Door
from merlot.security.follow import AccessFile, follow
from merlot.spec.manifest.access_document import load_access

PANEL = "Access"
AUDIT = AuditSettings()


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Access document and audit log of a process; None for neither."""

    access: Path | None = None
    audit: AuditSettings | None = None


def of_door(
    *,
    access: Annotated[
        Path | None,
        typer.Option(
            "--access",
            envvar="MERLOT_ACCESS",
            metavar="FILE",
            help="Access document: users, tokens, roles. Without it, whoever reaches the port may do everything.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    audit_log: Annotated[
        str | None,
        typer.Option(
            "--audit-log",
            envvar="MERLOT_AUDIT_LOG",
            metavar="FILE",
            help=f"A JSON line for each refused or changing request; {STDOUT} for the standard output.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    audit_queries: Annotated[
        bool,
        typer.Option(
            "--audit-queries", envvar="MERLOT_AUDIT_QUERIES", help="And for each query.", rich_help_panel=PANEL
        ),
    ] = False,
    audit_texts: Annotated[
        bool,
        typer.Option(
            "--audit-texts",
            envvar="MERLOT_AUDIT_TEXTS",
            help="With the text of each query, constants included.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    audit_size: Annotated[
        int | None,
        typer.Option(
            "--audit-size",
            envvar="MERLOT_AUDIT_SIZE",
            parser=parse_size,
            metavar="SIZE",
            help="Size of an audit log, such as 64m, at which another one is begun.",
            show_default="64m",
            rich_help_panel=PANEL,
        ),
    ] = None,
    audit_files: Annotated[
        int,
        typer.Option(
            "--audit-files",
            envvar="MERLOT_AUDIT_FILES",
            min=0,
            help="Number of older audit logs that are kept.",
            rich_help_panel=PANEL,
        ),
    ] = AUDIT.num_files,
) -> DoorSettings:
    """Return the settings from the options of a command."""
    if audit_log is None:
        return DoorSettings(access)
    return DoorSettings(
        access,
        AuditSettings(
            path=audit_log,
            max_bytes=AUDIT.max_bytes if audit_size is None else audit_size,
            num_files=audit_files,
            with_queries=audit_queries,
            with_texts=audit_texts,
        ),
    )


@contextlib.asynccontextmanager
async def opened_door(settings: DoorSettings) -> AsyncIterator[Door]:
    """Open the door of a process, and follow its access document. Raise InvalidInputError if that cannot be read."""
    audit = None if settings.audit is None else AuditLog(settings.audit)
    door = Door(audit=audit)
    following = None
    try:
        if settings.access is not None:
            file = AccessFile(settings.access, load_access)
            door.use(await asyncio.to_thread(file.read))
            following = asyncio.create_task(follow(file, door), name="access-document")
        yield door
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        door.close()

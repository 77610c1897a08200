"""`merlot controller`. It loads the engine for the first file that it reads, not at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merlot.cli.doors import DoorSettings, of_door
from merlot.cli.processes import run_until_signal
from merlot.cli.role_options import (
    NOTHING,
    Bind,
    Host,
    HttpPort,
    LogAs,
    LogLevel,
    StorePrefixes,
    StreamFolders,
    ZooKeeper,
    absolute_folders,
    deep_store_option,
)
from merlot.cli.roles import RoleOptions, run_role
from merlot.cli.tls import ZooKeeperTls, files_for_zookeeper, of_tls
from merlot.cli.tuning import takes
from merlot.cluster.records import SegmentRecord
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.cleaner import TRASH_S, CleaningConfig
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.spec.table import TableSpec
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import AllowedFolders
from merlot.telemetry import LogFormat
from merlot.uris import http_url


@takes(certificates=of_tls, door_settings=of_door)
def controller(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    zk: ZooKeeper,
    zk_tls: ZooKeeperTls = False,
    host: Host = "127.0.0.1",
    bind: Bind = None,
    http_port: HttpPort = 9000,
    deep_store: Annotated[
        str | None, deep_store_option("Deep store to delete files from; if left out, files are kept.")
    ] = None,
    deep_store_prefix: StorePrefixes = None,
    stream_folders: StreamFolders = NOTHING,
    replaced_grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long replaced segments are kept.")
    ] = CleaningConfig.replaced_s,
    replaced_refresh_grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long replaced segments of REFRESH tables are kept.")
    ] = CleaningConfig.replaced_refresh_s,
    abandoned_grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long reverted and abandoned replacements are kept.")
    ] = CleaningConfig.abandoned_s,
    orphan_grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long files that no segment ever named are kept.")
    ] = CleaningConfig.orphan_s,
    trash_grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long files of removed segments are kept in the trash.")
    ] = TRASH_S,
    log_level: LogLevel = "INFO",
    log_format: LogAs = LogFormat.LINE,
) -> None:
    """Run a controller: assigns segments to servers, applies retention, serves the tables' API.

    Any number may run; one leads at a time. While none runs, queries and loaded segments are not affected.
    """
    files = files_for_zookeeper(certificates, is_wanted=zk_tls)
    cleaning = CleaningConfig(
        replaced_s=replaced_grace,
        replaced_refresh_s=replaced_refresh_grace,
        abandoned_s=abandoned_grace,
        orphan_s=orphan_grace,
    )

    async def run(metastore: Metastore, door: Door) -> None:
        deleted = None if deep_store is None else DeepStore(deep_store)
        role = ControllerRole(
            metastore,
            ControllerConfig(
                host=host,
                bind=bind or host,
                http_port=http_port,
                cleaning=cleaning,
                file_grace_s=trash_grace,
                certificates=certificates,
            ),
            files=deleted,
            open_store=DeepStore,
            places=AllowedPlaces(
                AllowedStores(own=deep_store, prefixes=tuple(deep_store_prefix or ())),
                AllowedStreams(folders=AllowedFolders(absolute_folders(stream_folders))),
            ),
        )
        role.door = door
        role.service.uploads.take = _accept_upload
        role.service.recovery.read = _read_record

        async def start() -> str:
            return f"controller serves at {http_url(host, await role.start(), tls=certificates is not None)}"

        await run_until_signal(start, role.stop)

    run_role(RoleOptions("controller", zk, files, door_settings, log_level, log_format), run)


def _accept_upload(path: Path, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
    # Imported here, as below: the engine takes longer to load than the controller, and most controllers read no file.
    from merlot.catalog.uploaded import accept_upload

    return accept_upload(path, table, spec, store_uri)


def _read_record(url: str, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
    from merlot.catalog.recovered import read

    return read(url, table, spec, store_uri)

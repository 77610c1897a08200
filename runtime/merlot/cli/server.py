"""`merlot server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merlot.cli.doors import DoorSettings, of_door
from merlot.cli.processes import run_until_signal
from merlot.cli.role_options import (
    MAX_PORT,
    NOTHING,
    Bind,
    Host,
    HttpPort,
    LogAs,
    LogLevel,
    SecretsDir,
    StorePrefixes,
    StoreUri,
    StreamFolders,
    WarmUp,
    ZooKeeper,
    absolute_folders,
    listed,
)
from merlot.cli.roles import RoleOptions, run_role
from merlot.cli.server_tuning import of_server
from merlot.cli.tls import DEFAULT_PEERS, TlsPeers, ZooKeeperTls, files_for_zookeeper, of_tls
from merlot.cli.tuning import takes
from merlot.metastore.protocol import Metastore
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.server.role import ServerConfig, ServerRole
from merlot.server.settings import ServerSettings
from merlot.streams.allowed import EVERY_HOST
from merlot.telemetry import LogFormat
from merlot.uris import http_url


@takes(certificates=of_tls, settings=of_server, door_settings=of_door)
def server(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    settings: ServerSettings,
    zk: ZooKeeper,
    zk_tls: ZooKeeperTls = False,
    tls_peers: TlsPeers = DEFAULT_PEERS,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", envvar="MERLOT_DATA_DIR", help="Folder for segment files; keep it.")
    ],
    deep_store: StoreUri,
    deep_store_prefix: StorePrefixes = None,
    host: Host = "127.0.0.1",
    bind: Bind = None,
    http_port: HttpPort = 8097,
    query_port: Annotated[
        int, typer.Option("--query-port", "--grpc-port", min=0, max=MAX_PORT, help="Port for brokers; 0: any free one.")
    ] = 8098,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            envvar="MERLOT_INSTANCE",
            help="Name of the server in assignments.",
            show_default="Server_HOST_QUERY-PORT",
        ),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Server tenant whose tables it serves.")] = "default",
    zone: Annotated[
        str,
        typer.Option(
            "--zone", envvar="MERLOT_ZONE", help="Zone that may fail as a whole; replicas are spread over zones."
        ),
    ] = "",
    secrets_dir: SecretsDir = None,
    stream_folders: StreamFolders = NOTHING,
    stream_hosts: Annotated[
        str,
        typer.Option(
            "--stream-hosts",
            help="Hosts that streams may name: host or host:port with * and ?, separated by commas; none: no host.",
        ),
    ] = EVERY_HOST,
    hand_over: Annotated[
        float,
        typer.Option(
            "--hand-over", help="Seconds to wait at a stop until consumed rows are committed or consumed elsewhere."
        ),
    ] = 20.0,
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", help="Seconds that running queries may take to finish at a stop.")
    ] = 30.0,
    warm_up: WarmUp = 30.0,
    log_level: LogLevel = "INFO",
    log_format: LogAs = LogFormat.LINE,
) -> None:
    """Run a server: holds segments and answers brokers.

    SIGTERM drains it: brokers stop choosing it, running queries end, then it exits. Files in --data-dir are verified
    and used again at the next start.
    """
    files = files_for_zookeeper(certificates, is_wanted=zk_tls)
    config = ServerConfig(
        data_dir=data_dir,
        deep_store=deep_store,
        deep_store_prefixes=tuple(deep_store_prefix or ()),
        host=host,
        bind_host=bind,
        http_port=http_port,
        query_port=query_port,
        instance=instance,
        tenant=tenant,
        zone=zone,
        secrets_dir=secrets_dir,
        stream_hosts=listed(stream_hosts),
        stream_folders=absolute_folders(stream_folders),
        hand_over_s=hand_over,
        drain_timeout_s=drain_timeout,
        warm_up_s=warm_up or None,
        settings=settings,
        certificates=certificates,
        peers=listed(tls_peers),
    )

    async def run(metastore: Metastore, door: Door) -> None:
        role = ServerRole(metastore, config, door=door)

        async def start() -> str:
            await role.start()
            health = f"health at {http_url(host, role.http_port, tls=certificates is not None)}/health"
            return f"server serves brokers at {host}:{role.query_port}, {health}"

        async def stop() -> None:
            await role.drain()
            await role.stop()

        await run_until_signal(start, stop)

    run_role(RoleOptions("server", zk, files, door_settings, log_level, log_format), run)

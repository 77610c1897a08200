"""`merlot serve`: every role in one process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

import merlot
from merlot.broker.settings import BrokerSettings
from merlot.cli.broker_tuning import of_broker
from merlot.cli.doors import DoorSettings, of_door, opened_door
from merlot.cli.processes import run_until_signal
from merlot.cli.role_options import (
    MAX_PORT,
    GrpcPort,
    LogAs,
    LogLevel,
    SecretsDir,
    StorePrefixes,
    absolute_folders,
    deep_store_option,
    stream_folders_option,
)
from merlot.cli.server_tuning import of_server
from merlot.cli.tls import of_tls
from merlot.cli.tuning import takes
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.security.tls import Certificates
from merlot.server.settings import ServerSettings
from merlot.telemetry import LogFormat, configure_logging

NODE_WARM_UP_S = 0.0
"""Time that a node waits for query kernels at its start: none, they load in the background."""


@takes(certificates=of_tls, server_settings=of_server, broker_settings=of_broker, door_settings=of_door)
def serve(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    server_settings: ServerSettings,
    broker_settings: BrokerSettings,
    data: Annotated[Path, typer.Option("--data", help="Folder of the node; created if it does not exist.")] = Path(
        "merlot-data"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=MAX_PORT, help="HTTP port; 0: any free one.")] = 8099,
    grpc_port: GrpcPort = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all.")] = "127.0.0.1",
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST",
            help="Name or address that clients use.",
            show_default="--host, or the machine's name for 0.0.0.0",
        ),
    ] = None,
    deep_store: Annotated[
        str | None, deep_store_option("Where segment files are kept.", envvar=None, shown_default="DATA/deepstore")
    ] = None,
    deep_store_prefix: StorePrefixes = None,
    secrets_dir: SecretsDir = None,
    stream_folders: Annotated[
        str | None, stream_folders_option(shown_default="the working directory, unless that is /")
    ] = None,
    log_level: LogLevel = "WARNING",
    log_format: LogAs = LogFormat.LINE,
) -> None:
    """Run every role in one process over a local folder: no ZooKeeper, no Java, no Kubernetes.

    The port answers Pinot's broker and controller paths. Ctrl-C or SIGTERM stops it after running queries have ended;
    a second one stops it at once. One folder serves one node at a time.
    """
    configure_logging(log_level, log_format, role="node")

    async def run() -> None:
        config = NodeConfig(
            data_dir=data,
            host=host,
            advertised_host=advertise,
            http_port=port,
            grpc_port=grpc_port,
            deep_store=deep_store,
            deep_store_prefixes=tuple(deep_store_prefix or ()),
            secrets_dir=secrets_dir,
            stream_folders=_started_in() if stream_folders is None else absolute_folders(stream_folders),
            warm_up_s=NODE_WARM_UP_S,
            certificates=certificates,
            server=server_settings,
            broker=broker_settings,
        )
        async with opened_door(door_settings) as door:
            node = EmbeddedNode(config, door=door)

            async def start() -> str:
                await node.start()
                return f"Merlot {merlot.__version__} serves at {node.url}, data in {data}. Stop it with Ctrl-C."

            await run_until_signal(start, node.stop)

    asyncio.run(run())


def _started_in() -> tuple[str, ...]:
    """Return the working directory; empty if that is /, which holds every file of the machine."""
    folder = Path.cwd()
    return () if folder == folder.parent else (str(folder),)

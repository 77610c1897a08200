"""`merlot serve`, and the roles as separate processes: controller, broker, server, minion."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import merlot
from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.broker.settings import BrokerSettings
from merlot.catalog import recovered, uploaded
from merlot.cli.doors import DoorSettings, of_door, opened_door
from merlot.cli.processes import run_until_signal
from merlot.cli.roles import RoleOptions, run_role
from merlot.cli.sizes import parse_size
from merlot.cli.tls import DEFAULT_PEERS, TlsPeers, ZooKeeperTls, files_for_zookeeper, of_tls
from merlot.cli.tuning import of_broker, of_server, takes
from merlot.cluster.records import InstanceRecord
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.cleaner import TRASH_S, CleaningConfig
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.errors import UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.minion.role import MinionConfig, MinionRole
from merlot.minion.spark_merge import SparkLauncher
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.server.role import ServerConfig, ServerRole
from merlot.server.settings import ServerSettings
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import EVERY_HOST, AllowedStreams
from merlot.streams.folders import AllowedFolders
from merlot.telemetry import LogFormat, configure_logging
from merlot.uris import credentials_problem, http_url, redact
from merlot.wire.client import TcpChannel

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})

ZooKeeper = Annotated[
    str, typer.Option("--zk", metavar="HOST:PORT[,…]/CHROOT", envvar="MERLOT_ZK", help="ZooKeeper of the cluster.")
]


MAX_PORT = 65_535
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
NODE_WARM_UP_S = 0.0
"""Time that a node waits for query kernels at its start: none, they load in the background."""
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


def _one_size(value: str) -> str:
    parse_size(value)
    return value


def _without_credentials(value: list[str] | str | None) -> list[str] | str | None:
    """Refuse a URI with credentials, since `ps` and a pod's manifest show arguments to everybody."""
    for uri in [value] if isinstance(value, str) else value or ():
        if (problem := credentials_problem(uri)) is not None:
            raise typer.BadParameter(f"{redact(uri)} holds {problem}: give them by the environment")
    return value


def _stream_folders(*, shown_default: str | bool) -> Any:
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


def _deep_store(text: str, *, envvar: str | None = "MERLOT_DEEP_STORE", shown_default: bool | str = True) -> Any:
    """Return the option for a deep store's URI, which holds no credentials."""
    return typer.Option(
        "--deep-store",
        envvar=envvar,
        metavar="URI",
        callback=_without_credentials,
        help=text,
        show_default=shown_default,
    )


StoreUri = Annotated[str, _deep_store("Where segment files are kept: a folder, or s3://bucket/prefix?region=… .")]
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
StreamFolders = Annotated[str, _stream_folders(shown_default=True)]
LogLevel = Annotated[str, typer.Option("--log-level", callback=_one_log_level, help="DEBUG, INFO, WARNING or ERROR.")]
LogAs = Annotated[LogFormat, typer.Option("--log-format", help="A readable line, or a JSON object, per event.")]


@app.command()
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
        str | None, _deep_store("Where segment files are kept.", envvar=None, shown_default="DATA/deepstore")
    ] = None,
    deep_store_prefix: StorePrefixes = None,
    secrets_dir: SecretsDir = None,
    stream_folders: Annotated[
        str | None, _stream_folders(shown_default="the working directory, unless that is /")
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
            stream_folders=_started_in() if stream_folders is None else _folders(stream_folders),
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


@app.command()
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
        str | None, _deep_store("Deep store to delete files from; if left out, files are kept.")
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
                AllowedStreams(folders=AllowedFolders(_folders(stream_folders))),
            ),
        )
        role.door = door
        role.service.uploads.take = uploaded.accept_upload
        role.service.recovery.read = recovered.read

        async def start() -> str:
            return f"controller serves at {http_url(host, await role.start(), tls=certificates is not None)}"

        await run_until_signal(start, role.stop)

    run_role(RoleOptions("controller", zk, files, door_settings, log_level, log_format), run)


@app.command()
@takes(certificates=of_tls, settings=of_broker, door_settings=of_door)
def broker(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    settings: BrokerSettings,
    zk: ZooKeeper,
    zk_tls: ZooKeeperTls = False,
    host: Host = "127.0.0.1",
    bind: Bind = None,
    http_port: HttpPort = 8099,
    grpc_port: GrpcPort = None,
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", help="Seconds that running queries may take to finish at a stop.")
    ] = 10.0,
    warm_up: WarmUp = 30.0,
    log_level: LogLevel = "INFO",
    log_format: LogAs = LogFormat.LINE,
) -> None:
    """Run a broker: answers queries of every table of the cluster, over Pinot's HTTP API, and over gRPC if asked."""
    files = files_for_zookeeper(certificates, is_wanted=zk_tls)

    async def run(metastore: Metastore, door: Door) -> None:
        config = BrokerConfig(
            host=host,
            bind=bind,
            http_port=http_port,
            grpc_port=grpc_port,
            drain_s=drain_timeout,
            warm_up_s=warm_up or None,
            settings=settings,
            certificates=certificates,
        )
        role = BrokerRole(metastore, config, partial(_channel_to, certificates), door=door)

        async def start() -> str:
            return f"broker serves at {http_url(host, await role.start(), tls=certificates is not None)}"

        await run_until_signal(start, role.stop)

    run_role(RoleOptions("broker", zk, files, door_settings, log_level, log_format), run)


@app.command()
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
        stream_hosts=_listed(stream_hosts),
        stream_folders=_folders(stream_folders),
        hand_over_s=hand_over,
        drain_timeout_s=drain_timeout,
        warm_up_s=warm_up or None,
        settings=settings,
        certificates=certificates,
        peers=_listed(tls_peers),
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


@app.command()
@takes(certificates=of_tls, door_settings=of_door)
def minion(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    zk: ZooKeeper,
    zk_tls: ZooKeeperTls = False,
    deep_store: Annotated[
        str | None, _deep_store("Where segment files of tables that name no deep store are kept.")
    ] = None,
    deep_store_prefix: StorePrefixes = None,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", envvar="MERLOT_DATA_DIR", help="Folder for files in progress; may be lost.")
    ] = Path("merlot-minion"),
    host: Host = "127.0.0.1",
    bind: Bind = None,
    http_port: HttpPort = 9514,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Name of the minion.", show_default="Minion_HOST_HTTP-PORT")
    ] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, max=64, help="Tasks to run at a time.")] = 1,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            callback=_one_size,
            help="Memory of all tasks together, such as 512m or 4g; beyond it they spill to disk.",
        ),
    ] = "1g",
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", help="Seconds that running tasks may take to stop.")
    ] = 20.0,
    spark_master: Annotated[
        str | None,
        typer.Option("--spark-master", help="Where tasks of `executor: spark` run.", show_default="local[2]"),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option("--spark-conf", metavar="KEY=VALUE", help="Setting of their Spark session; may be repeated."),
    ] = None,
    leave_spark: Annotated[
        bool, typer.Option("--leave-spark", help="Leave large buckets of `executor: spark` to other minions.")
    ] = False,
    only_task: Annotated[
        str | None, typer.Option("--only-task", metavar="ID", help="Run this task alone, and exit when it is done.")
    ] = None,
    log_level: LogLevel = "INFO",
    log_format: LogAs = LogFormat.LINE,
) -> None:
    """Run a minion: executes tasks that change segments, such as merges.

    SIGTERM drains it: running tasks stop at their next step, and another minion continues them.
    """
    files = files_for_zookeeper(certificates, is_wanted=zk_tls)
    config = MinionConfig(
        host=host,
        bind_host=bind,
        http_port=http_port,
        instance=instance,
        data_dir=data_dir,
        deep_store=deep_store,
        deep_store_prefixes=tuple(deep_store_prefix or ()),
        slots=slots,
        memory_bytes=parse_size(memory),
        drain_timeout_s=drain_timeout,
        spark=None if spark_master is None else SparkLauncher(master=spark_master, settings=_pairs(spark_conf or [])),
        leaves_spark=leave_spark,
        only_task=only_task,
        certificates=certificates,
    )

    async def run(metastore: Metastore, door: Door) -> None:
        role = MinionRole(metastore, config, door=door)

        async def start() -> str:
            await role.start()
            url = http_url(host, role.http_port, tls=certificates is not None)
            return f"minion waits for tasks, health at {url}/health"

        await run_until_signal(start, role.stop, None if only_task is None else role.until_over)

    run_role(RoleOptions("minion", zk, files, door_settings, log_level, log_format), run)


def _listed(text: str) -> tuple[str, ...]:
    return () if text == NOTHING else tuple(part.strip() for part in text.split(","))


def _folders(text: str) -> tuple[str, ...]:
    """Return absolute paths; the process may be started with relative ones."""
    return tuple(str(Path(folder).absolute()) for folder in _listed(text) if folder)


def _started_in() -> tuple[str, ...]:
    """Return the working directory; empty if that is /, which holds every file of the machine."""
    folder = Path.cwd()
    return () if folder == folder.parent else (str(folder),)


def _pairs(texts: list[str]) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in texts)


def _channel_to(certificates: Certificates | None, record: InstanceRecord) -> TcpChannel:
    if record.tls and certificates is None:
        raise UnavailableError(
            f"server speaks TLS, and this broker has no certificate server={record.id}; start the broker with "
            "--tls-cert, --tls-key and --tls-ca"
        )
    return TcpChannel(record.host, record.query_port, certificates=certificates if record.tls else None)

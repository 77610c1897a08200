"""`merlot broker`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.broker.settings import BrokerSettings
from merlot.cli.broker_tuning import of_broker
from merlot.cli.doors import DoorSettings, of_door
from merlot.cli.processes import run_until_signal
from merlot.cli.role_options import Bind, GrpcPort, Host, HttpPort, LogAs, LogLevel, WarmUp, ZooKeeper
from merlot.cli.roles import RoleOptions, run_role
from merlot.cli.tls import ZooKeeperTls, files_for_zookeeper, of_tls
from merlot.cli.tuning import takes
from merlot.cluster.records import InstanceRecord
from merlot.errors import UnavailableError
from merlot.metastore.protocol import Metastore
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.telemetry import LogFormat
from merlot.uris import http_url
from merlot.wire.client import TcpChannel


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


def _channel_to(certificates: Certificates | None, record: InstanceRecord) -> TcpChannel:
    if record.tls and certificates is None:
        raise UnavailableError(
            f"server speaks TLS, and this broker has no certificate server={record.id}; start the broker with "
            "--tls-cert, --tls-key and --tls-ca"
        )
    return TcpChannel(record.host, record.query_port, certificates=certificates if record.tls else None)

"""`merlot minion`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from merlot.cli.doors import DoorSettings, of_door
from merlot.cli.processes import run_until_signal
from merlot.cli.role_options import (
    Bind,
    Host,
    HttpPort,
    LogAs,
    LogLevel,
    StorePrefixes,
    ZooKeeper,
    deep_store_option,
)
from merlot.cli.roles import RoleOptions, run_role
from merlot.cli.sizes import parse_size
from merlot.cli.tls import ZooKeeperTls, files_for_zookeeper, of_tls
from merlot.cli.tuning import takes
from merlot.metastore.protocol import Metastore
from merlot.minion.role import MinionConfig, MinionRole
from merlot.minion.spark_merge import SparkLauncher
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.telemetry import LogFormat
from merlot.uris import http_url


def _one_size(value: str) -> str:
    parse_size(value)
    return value


@takes(certificates=of_tls, door_settings=of_door)
def minion(
    *,
    certificates: Certificates | None,
    door_settings: DoorSettings,
    zk: ZooKeeper,
    zk_tls: ZooKeeperTls = False,
    deep_store: Annotated[
        str | None, deep_store_option("Where segment files of tables that name no deep store are kept.")
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


def _pairs(texts: list[str]) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in texts)

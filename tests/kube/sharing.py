"""One operator for many tests: what it is told, and what each of them sees of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kube.controllers import Controllers
from tests.kube.operator_parts import Operator, settle_by, write_kubeconfig

STREAM_HOST = "kafka.shop.svc:9092"
"""Which streams of its Tables may name."""


class SharedOperator:
    """An operator of all namespaces that begin with its prefix (see `shared_operator`), as one of them has it."""

    def __init__(self, operator: Operator, namespace: str) -> None:
        self._operator, self._namespace = operator, namespace
        self._begin = len(operator.log)

    @property
    def log(self) -> str:
        """What it logged since the test began, without what is about other namespaces."""
        prefix = self._namespace.rpartition("-")[0]
        others = re.compile(rf"{prefix}-(?!{self._namespace.rpartition('-')[2]})[0-9a-f]")
        lines = self._operator.log[self._begin :].splitlines(keepends=True)
        return "".join(line for line in lines if not others.search(line))

    def settle(self, passes: int = 8) -> None:
        """Until `passes` passes over this namespace went by, after which nothing was written in it."""
        label = f'served="{self._namespace}"'

        def work() -> tuple[float, float]:
            metric = self._operator.metric
            return metric("merlot_test_passes_total", label), metric("merlot_test_writes_total", label)

        settle_by(work, passes, lambda: self.log)


def environment_of(folder: Path, url: str, token: str) -> dict[str, str]:
    """What every operator is told, with files in a folder."""
    return {
        "KUBECONFIG": str(write_kubeconfig(folder / "kubeconfig", url, token)),
        "MERLOT_DEEP_STORE": "s3://bucket/merlot",
        "MERLOT_RUNTIME_IMAGE": "merlot-runtime:1",
        "MERLOT_SPARK_IMAGE": "merlot-spark:1",
        "MERLOT_SPARK_DRIVER_ROLE": "ClusterRole/merlot-spark-driver",
        "MERLOT_LOG_FORMAT": "line",
    }


@contextmanager
def shared(server: Any, controllers: Controllers, folder: Path, prefix: str, metastore: str) -> Iterator[Operator]:
    """An operator of all namespaces that begin with a prefix."""
    environment = {
        **environment_of(folder, server.url, server.token),
        "MERLOT_METASTORE": metastore,
        "MERLOT_CONTROLLER_URL": controllers.url,
        "MERLOT_STREAM_HOSTS": STREAM_HOST,
        "MERLOT_DEEP_STORE_PREFIXES": "s3://lake",
    }
    with Operator(
        environment, folder / "operator.log", program="tests.kube.shared_operator", arguments=[prefix]
    ) as operator:
        yield operator

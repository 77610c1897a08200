"""The operator with short pauses, for all namespaces that begin with its argument: many tests share it, each with a
namespace of its own. It counts its passes and its writes by namespace."""

import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import Counter
from tests.kube import quick_operator

from merlot.telemetry import REGISTRY
from merlot_operator.kube.cache import Store
from merlot_operator.kube.client import Kube
from merlot_operator.kube.kinds import namespace_of
from merlot_operator.progress import OperatorProgress
from merlot_operator.reconcilers import loop

PASSES = Counter("merlot_test_passes", "Passes over objects of a namespace", ["served"], registry=REGISTRY)
WRITES = Counter("merlot_test_writes", "Requests that change something in it", ["served"], registry=REGISTRY)


def main() -> int:
    """Run it; returns the exit code."""
    _serve_only(sys.argv[1])
    loop.RECONCILES = {subject: _counted(reconcile) for subject, reconcile in loop.RECONCILES.items()}
    _count_writes()
    return quick_operator.main()


def _serve_only(prefix: str) -> None:
    """Tests with operators of their own have other namespaces, of which this one shall know nothing."""
    serves, put, keep = OperatorProgress.serves, Store.put, Store.keep
    OperatorProgress.serves = lambda self, namespace: namespace.startswith(prefix) and serves(self, namespace)  # type: ignore[method-assign]
    Store.put = lambda self, body: namespace_of(body).startswith(prefix) and put(self, body)  # type: ignore[method-assign]

    def keep_own(self: Store, body: dict[str, Any]) -> None:
        if namespace_of(body).startswith(prefix):
            keep(self, body)

    Store.keep = keep_own  # type: ignore[method-assign]


def _counted(reconcile: Callable[..., Awaitable[float | None]]) -> Callable[..., Awaitable[float | None]]:
    async def counted(context: Any, namespace: str, name: str) -> float | None:
        try:
            return await reconcile(context, namespace, name)
        finally:
            PASSES.labels(namespace).inc()

    return counted


def _count_writes() -> None:
    request = Kube._request

    async def counted(self: Kube, method: str, path: str, **more: Any) -> dict[str, Any]:
        if method != "GET":
            WRITES.labels(re.findall("/namespaces/([^/]+)", path)[0]).inc()
        return await request(self, method, path, **more)

    Kube._request = counted  # type: ignore[method-assign]

"""The operator, which dies without a word right after its Nth write: its arguments are `N [shared]`.

With `shared`, a pass over shared state counts as a write, whether it changed anything or not."""

import os
import sys
from typing import Any

from tests.kube import quick_operator

from merlot_operator.controllers import metastores
from merlot_operator.kube import client


def _is_progress(verb: str, path: str) -> bool:
    """Every life renews its Leases, and one that died of that would leave the rest to the next for ever."""
    return verb != "GET" and "/leases/" not in path


def main() -> int:
    """Run it; returns the exit code if it has nothing left to write."""
    left = int(sys.argv[1])

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os._exit(9)

    def dying(method: Any, is_write: Any) -> Any:
        async def call(self: Any, *arguments: Any, **options: Any) -> Any:
            answer = await method(self, *arguments, **options)
            if is_write(*arguments):
                count_down()
            return answer

        return call

    client.Kube._request = dying(client.Kube._request, _is_progress)  # type: ignore[method-assign]
    if "shared" in sys.argv:
        metastores.Metastores.call = dying(metastores.Metastores.call, lambda *_: True)  # type: ignore[method-assign]
    return quick_operator.main()

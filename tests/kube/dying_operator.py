"""The operator, which dies without a word right after its Nth write: `python dying_operator.py N [shared]`.

With `shared`, a pass over shared state counts as a write, whether it changed anything or not."""

import os
import sys
from typing import Any

from merlot_operator import kube, metastore
from merlot_operator.__main__ import main

_left = int(sys.argv[1])


def _count_down() -> None:
    global _left
    _left -= 1
    if _left <= 0:
        os._exit(9)


def _dying(method: Any, is_write: Any) -> Any:
    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        answer = await method(self, *arguments, **options)
        if is_write(*arguments):
            _count_down()
        return answer

    return call


kube.Kube._request = _dying(kube.Kube._request, lambda verb, *_: verb != "GET")  # type: ignore[method-assign]
if "shared" in sys.argv:
    metastore.Metastores.call = _dying(metastore.Metastores.call, lambda *_: True)  # type: ignore[method-assign]
sys.argv[1:] = []
raise SystemExit(main())

"""An operator that no longer reconciles is not ready, and ends to be started again, whatever of it hangs."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.kube.controllers import Controllers
from tests.kube.hanging_operator import PARTS
from tests.kube.operator_parts import PATIENCE_S, Api, Operator
from tests.kube.sharing import environment_of
from tests.kube.test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

LOOK_S = 0.1
NEVER_READY = {"passes", "passes in threads"}
"""What hangs before anybody asks whether it is ready: it may have been once."""


@dataclass(frozen=True)
class Watched:
    """An operator, and what it answered all its life."""

    operator: Operator
    seen: list[int] = field(default_factory=list)
    was_ready: threading.Event = field(default_factory=threading.Event)
    """Or has ended."""

    def watch(self) -> None:
        """Until it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.operator.exit_code() is None and time.monotonic() < deadline:
            self.seen.append(_ready(self.operator.port, "?seen" if 200 in self.seen else ""))
            if 200 in self.seen:
                self.was_ready.set()
            time.sleep(LOOK_S)
        self.was_ready.set()


@pytest.fixture(scope="module")
def watched(
    namespaces: Any, controllers: Controllers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Watched]]:
    """All of them hang and end side by side, since all that takes is time. Each has the machine to itself until it is
    ready: who does not get so far in time ends as well."""
    with ExitStack() as stack, ThreadPoolExecutor(len(PARTS)) as pool:
        found = {}
        for part in PARTS:
            api = stack.enter_context(namespaces("own-"))
            stack.enter_context(controllers.one(api.namespace))
            folder = tmp_path_factory.mktemp("hanging")
            api.create("tables", flights())
            found[part] = Watched(stack.enter_context(_hanging(part, api, controllers, folder)))
            pool.submit(found[part].watch)
            found[part].was_ready.wait(PATIENCE_S)
        pool.shutdown()
        yield found


def _hanging(part: str, api: Api, controllers: Controllers, folder: Path) -> Operator:
    environment = environment_of(folder, api.url, api.token) | {
        "MERLOT_NAMESPACE": api.namespace,
        "MERLOT_METASTORE": f"sqlite://{folder / 'meta.db'}",
        "MERLOT_CONTROLLER_URL": controllers.url,
    }
    return Operator(environment, folder / "operator.log", program="tests.kube.hanging_operator", arguments=[part])


@pytest.mark.parametrize("part", PARTS)
def test_an_operator_of_which_a_part_hangs_is_unready_and_then_ends(watched: Mapping[str, Watched], part: str) -> None:
    operator, seen = watched[part].operator, watched[part].seen
    assert operator.exit_code() == 1, operator.log[-4000:]
    assert "operator ends by force" in operator.log
    assert 200 in seen or part in NEVER_READY
    assert 200 not in seen[-3:], "it was ready until its end"


def _ready(port: int, query: str) -> int:
    """Status of `/readyz`; 0 if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz{query}", timeout=1) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0

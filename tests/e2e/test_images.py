"""The runtime image: its machine code serves whatever processor runs it, from a root file system that is read-only."""

import json

import pytest
from tests.e2e.e2e_cluster import Cluster, pod

WARM = """
import json, os, pathlib, time
from merlot.kernels import machine_code
def files(folder): return len(list(folder.resolve().rglob("*.nbc")))
shipped, own = machine_code.SHIPPED, pathlib.Path.home() / ".cache"
before, started = files(shipped), time.process_time()
from merlot.kernels.warm import warm
number = warm()
try:
    open("/opt/merlot/written", "w")
    is_writable = True
except OSError:
    is_writable = False
print(json.dumps({"before": before, "new": files(own), "kernels": number, "writable": is_writable,
                  "uid": os.getuid(), "cpu_s": round(time.process_time() - started, 1)}))
"""


GENERIC = pytest.param("generic", True, marks=pytest.mark.slow("compiles every kernel, for half a minute of CPU"))


@pytest.mark.parametrize(("processor", "is_compiled"), [("", False), GENERIC])
def test_a_start_compiles_nothing_but_for_a_processor_that_was_named(
    restricted: Cluster, processor: str, is_compiled: bool
) -> None:
    name = f"kernels-{processor or 'pinned'}"
    named = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""} if processor else {}
    restricted.apply(pod(name, restricted.images["runtime"], ["python", "-c", WARM], named))
    ended = lambda: restricted.get("pod", name)["status"].get("phase") in ("Succeeded", "Failed")  # noqa: E731
    restricted.await_true("it ended", ended)
    log = restricted.kubectl("logs", name, "--tail=20")
    found = json.loads(log.strip().splitlines()[-1])
    print(f"\n{name}: {found}")
    assert (found["uid"], found["writable"]) == (10001, False)
    assert found["before"] >= found["kernels"] > 0
    assert bool(found["new"]) == is_compiled
    restricted.kubectl("delete", "pod", name, "--wait=false")

"""No case of any file may wait for a compiler."""

from collections.abc import Iterator

import numba
import pytest

from merlot import telemetry
from merlot.kernels.warm import warm


@pytest.fixture(scope="session")
def _warmed() -> None:
    if not numba.config.DISABLE_JIT:
        warm()


@pytest.fixture(autouse=True)
def _compiles_nothing(_warmed: None) -> Iterator[None]:
    """What `merlot.kernels.warm` lists is all that queries, builds and merges call kernels with."""
    before = _compiled()
    yield
    assert _compiled() == before, "kernels were compiled: merlot.kernels.warm lacks their types"


def _compiled() -> dict[str, float]:
    found = telemetry.KERNEL_COMPILATIONS.collect()
    return {
        sample.labels["kernel"]: sample.value
        for metric in found
        for sample in metric.samples
        if sample.name.endswith("_total")
    }

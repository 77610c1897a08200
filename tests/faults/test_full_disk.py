"""A server's disk is full, for real."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes import can_mount, resize_disk, small_disk
from tests.support.sample import ORDERS, publish_orders, upload_orders
from tests.support.servers import TableDataBench

from merlot.cluster.segments.publish import publish
from merlot.server.tuning import FileTuning
from merlot.testing.patience import until

ROWS = 20_000
"""About 150 kB a segment."""

pytestmark = pytest.mark.skipif(not can_mount(), reason="mounting a small tmpfs needs root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "server", 1 << 20) as disk:
        yield disk


@pytest.mark.parametrize("spare_bytes", [FileTuning().spare_bytes, 0, -(1 << 40)], ids=["spare", "no spare", "blind"])
async def test_a_full_disk_is_said_and_what_is_loaded_stays_served(
    disk: Path, tmp_path: Path, spare_bytes: int
) -> None:
    """`blind`: no look at the free space before, so that the write itself fails half-way."""
    bench = TableDataBench(tmp_path)
    bench.files.tuning = FileTuning(spare_bytes=0)
    first = publish_orders(bench.metastore, bench.deep_store, [0], num_rows=ROWS)
    bench.assign(bench.me)
    manager = await bench.start_manager()
    await until(lambda: len(bench.report().loaded) == 1)
    filler = disk / "filler"
    # Less is left than either of the next two takes.
    filler.write_bytes(b"x" * (1_000_000 - first[0].size_bytes))
    bench.files.tuning = FileTuning(spare_bytes=spare_bytes)
    more = upload_orders(bench.deep_store, [1, 2], ROWS)
    publish(bench.metastore, ORDERS, more)
    bench.assign(bench.me)
    await until(lambda: len(bench.report().errors) == 2)
    assert all("no space left on the disk" in message for message in bench.report().errors.values())
    assert bench.report().loaded == {str(first[0].key)}
    assert {path.name for path in bench.path_of(str(first[0].key)).parent.iterdir()} == {f"{first[0].key}.mseg"}
    filler.unlink()
    resize_disk(disk, 64 << 20)
    await until(lambda: len(bench.report().loaded) == 3)
    assert bench.report().errors == {}
    assert manager.is_settled
    await bench.close()

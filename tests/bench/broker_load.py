"""A broker's cold start on a table of 10,000 segments over ZooKeeper: how long until it has routes and pruning, and how
much memory a segment takes then. Run by `python -m tests.bench.metastore`, each start in a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from merlot.broker.directory import Directory
from merlot.broker.scatter_gather.channels import Channels
from merlot.clock import SystemClock
from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import InstanceRecord, PartitionRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.segment.index import bloom
from merlot.spec.manifest import load
from merlot.values.types import TypeName
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

TABLE = TableName("events_OFFLINE")
SERVERS = tuple(InstanceRecord(id=InstanceId(f"Server_h_{n}"), role=Role.SERVER, host="h") for n in (1, 2))
NUM_FIELDS = 21
IDS_PER_SEGMENT = 800
"""Whose filter takes a kilobyte."""
HOUR_MS = 3_600_000


def manifest(*, with_blooms: bool) -> str:
    fields = "\n".join(f"      - {{name: column_{number}, type: INT}}" for number in range(NUM_FIELDS - 3))
    return f"""
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {{name: events}}
spec:
  timeColumn: at
  replication: 2
  indexing: {{sortedColumns: [at], bloom: [{"session" if with_blooms else ""}]}}
  partitioning: {{columns: {{user_id: {{functionName: Murmur, numPartitions: 64}}}}}}
  routing: {{segmentPruners: [empty, time, range, partition, bloom]}}
  schema:
    fields:
      - {{name: at, type: TIMESTAMP, role: dateTime}}
      - {{name: user_id, type: LONG}}
      - {{name: session, type: LONG}}
{fields}
"""


def record(number: int, *, with_blooms: bool) -> SegmentRecord:
    columns = ",".join(sorted(["at:TIMESTAMP", "user_id:LONG", "session:LONG"]))
    name, start = f"events_{number:05d}", 1_700_000_000_000 + number * HOUR_MS
    ids = np.arange(number * IDS_PER_SEGMENT, (number + 1) * IDS_PER_SEGMENT)
    filters = {"session": bloom.to_text(bloom.write(TypeName.LONG, ids, 0.01)[bloom.WORDS])} if with_blooms else {}
    return SegmentRecord(
        name=name,
        crc=3_000_000_000 + number,
        size_bytes=400_000,
        url=f"s3://bucket/deep/{TABLE}/{name}@{3_000_000_000 + number}.mseg",
        total_docs=5_000,
        start_time_ms=start,
        end_time_ms=start + HOUR_MS - 1,
        ranges={"at": (start, start + HOUR_MS - 1)},
        partitions={"user_id": PartitionRecord(function_name="Murmur", num_partitions=64, partitions=(number % 64,))},
        blooms=filters,
        columns=columns,
    )


def measure(hosts: str, num_segments: int, *, with_blooms: bool) -> dict[str, float]:
    """Milliseconds of a cold start and bytes per segment, the least of three starts."""
    chroot = f"{hosts}/{'blooms' if with_blooms else 'plain'}"
    metastore = ZooKeeperMetastore(chroot)
    put_table(metastore, load(manifest(with_blooms=with_blooms))[0])
    records = [record(number, with_blooms=with_blooms) for number in range(num_segments)]
    publish(metastore, TABLE, records, publish_id="all")
    for server in SERVERS:
        write_report(metastore, TABLE, server.id, [str(one.key) for one in records], {})
        register(metastore, server)
    command = [sys.executable, "-m", "tests.bench.broker_load", chroot, str(num_segments)]
    starts = []
    for _ in range(3):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        starts.append(json.loads(done.stdout))
    metastore.close()
    return {key: min(start[key] for start in starts) for key in starts[0]}


async def _start(metastore: Metastore, num_segments: int) -> dict[str, float]:
    channels = Channels(lambda _: LocalChannel(_answer_nothing))
    directory = Directory(metastore, channels, SystemClock())
    gc.collect()
    before, cpu_before, start = _resident_bytes(), time.process_time(), time.perf_counter()
    await directory.start()
    await directory.settle(60)
    elapsed_ms, cpu_ms = (time.perf_counter() - start) * 1000, (time.process_time() - cpu_before) * 1000
    served = directory.tables[TABLE]
    assert len(served.snapshot.segments) == num_segments
    assert served.pruning is not None
    gc.collect()
    taken = _resident_bytes() - before
    arrays = served.pruning.statistics.nbytes
    await directory.stop()
    await channels.close()
    return {
        "ms": elapsed_ms,
        "cpu_ms": cpu_ms,
        "bytes_per_segment": taken / num_segments,
        "pruning_bytes_per_segment": arrays / num_segments,
    }


async def _answer_nothing(request: ServerRequest) -> ServerResponse:
    return ServerResponse(missing=request.segments)


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def main() -> None:
    metastore = ZooKeeperMetastore(sys.argv[1])
    print(json.dumps(asyncio.run(_start(metastore, int(sys.argv[2])))))
    metastore.close()


if __name__ == "__main__":
    main()

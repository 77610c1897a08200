"""Transfer many segment files to and from the deep store, a few at a time. Every byte of a fetched file is verified,
and a file appears only when it is whole.

Calls block. A failure of one transfer ends the others at their next file. Finished files stay, and a repetition is
harmless.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.errors import CorruptionError, NotFoundError
from merlot.ids import TableName
from merlot.segment.build.request import BuiltSegment
from merlot.segment.immutable import ImmutableSegment
from merlot.store.deepstore import SUFFIX, DeepStore, patience_s
from merlot.store.retry import OutOfSpaceError

T = TypeVar("T")
R = TypeVar("R")

NUM_TRANSFERS = 4
"""Number of files under way at a time: enough to hide an object store's latency."""
LEAST_WAIT_S = 0.001
"""Wait for the first file below which transferring one file after another is fastest."""
SPARE_BYTES = 16 << 20
"""Bytes that stay free on the disk, so that the program sees a full disk before a write fails."""


def fetch_segments(
    store: DeepStore,
    records: Sequence[SegmentRecord],
    folder: Path,
    *,
    on_fetched: Callable[[SegmentRecord], None] = lambda _: None,
    least_wait_s: float = LEAST_WAIT_S,
) -> list[Path]:
    """Copy the segments' files to `folder`, verify every byte, and return the paths in order. A whole copy that is
    already there is not fetched again.

    Raise NotFoundError, CorruptionError if the deep store's copy is wrong, OutOfSpaceError or UnavailableError."""
    folder.mkdir(parents=True, exist_ok=True)

    def fetch(record: SegmentRecord) -> Path:
        path = folder / f"{record.key}{SUFFIX}"
        if not _is_whole(path, record):
            store.fetch(
                record.url,
                path,
                expected_size=record.size_bytes,
                verify=lambda copy: verify(copy, record),
                deadline=time.monotonic() + patience_s(record.size_bytes),
            )
        on_fetched(record)
        return path

    return _each(fetch, records, least_wait_s)


def upload_segments(
    store: DeepStore,
    built: Sequence[BuiltSegment],
    table: TableName,
    *,
    on_uploaded: Callable[[SegmentRecord], None] = lambda _: None,
) -> list[SegmentRecord]:
    """Put built segments where the table's files are, and return the records to publish, in order."""

    def put(segment: BuiltSegment) -> SegmentRecord:
        record = upload(store, segment, table)
        on_uploaded(record)
        return record

    return _each(put, built, LEAST_WAIT_S)


def verify(path: Path, record: SegmentRecord) -> None:
    """Read every byte of a file; raise CorruptionError if it is damaged or of another segment than the record's."""
    with ImmutableSegment.open(path, verify=True) as segment:
        if segment.key != record.key:
            raise CorruptionError(f"file is of another segment expected={record.key} got={segment.key}")


def check_room(folder: Path, needed_bytes: int) -> None:
    """Raise OutOfSpaceError if the folder's disk has less room than `needed_bytes` plus SPARE_BYTES."""
    folder.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes + SPARE_BYTES:
        raise OutOfSpaceError(
            f"no space left on the disk folder={folder} free={free_bytes} needed={needed_bytes + SPARE_BYTES}"
        )


def _is_whole(path: Path, record: SegmentRecord) -> bool:
    if not path.exists():
        return False
    try:
        verify(path, record)
    except (NotFoundError, CorruptionError):
        return False
    return True


def _each(act: Callable[[T], R], items: Sequence[T], least_wait_s: float) -> list[R]:
    """Return the results in order.

    The first item shows whether there is a latency to hide. Where there is none, threads only get in each other's way:
    31 small files of a local store took 25 ms instead of 12."""
    if not items:
        return []
    first, waited_s = _timed(act, items[0])
    rest = items[1:]
    if len(rest) < 2 or waited_s < least_wait_s:
        return [first, *(act(item) for item in rest)]
    with ThreadPoolExecutor(min(NUM_TRANSFERS, len(rest)), thread_name_prefix="merlot-transfer") as threads:
        futures = [threads.submit(act, item) for item in rest]
        wait(futures, return_when=FIRST_EXCEPTION)
        threads.shutdown(wait=True, cancel_futures=True)
        failed = next(
            (future for future in futures if future.done() and not future.cancelled() and future.exception()), None
        )
        if failed is not None:
            failed.result()
        return [first, *(future.result() for future in futures)]


def _timed(act: Callable[[T], R], item: T) -> tuple[R, float]:
    """Return the result, and the seconds that the call waited without using the processor."""
    started, worked = time.monotonic(), time.thread_time()
    result = act(item)
    return result, (time.monotonic() - started) - (time.thread_time() - worked)

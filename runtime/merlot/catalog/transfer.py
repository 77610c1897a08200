"""Many segment files to and from the deep store, a few at a time: each checked on its way in, none half there.

Calls block. A failure of one ends the others at their next file; what is done stays, and doing it again is harmless.
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
"""Files under way at a time: enough to hide an object store's latency."""
LEAST_WAIT_S = 0.001
"""Of one file: below it, one after another is fastest."""
SPARE_BYTES = 16 << 20
"""Left free on the disk, so that a full one is seen before it is hit."""


def fetch_segments(
    store: DeepStore,
    records: Sequence[SegmentRecord],
    folder: Path,
    *,
    on_fetched: Callable[[SegmentRecord], None] = lambda _: None,
) -> list[Path]:
    """Copies of the segments' files in `folder`, in order; every byte of them is checked. One that is there is kept.

    NotFoundError, CorruptionError (the deep store's copy is wrong), OutOfSpaceError, UnavailableError."""
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

    return _each(fetch, records)


def upload_segments(
    store: DeepStore,
    built: Sequence[BuiltSegment],
    table: TableName,
    *,
    on_uploaded: Callable[[SegmentRecord], None] = lambda _: None,
) -> list[SegmentRecord]:
    """Put built segments where the table's files are; the records to publish, in order."""

    def put(one: BuiltSegment) -> SegmentRecord:
        record = upload(store, one, table)
        on_uploaded(record)
        return record

    return _each(put, built)


def verify(path: Path, record: SegmentRecord) -> None:
    """Read every byte of a file; CorruptionError if it is damaged or of another segment than the record's."""
    with ImmutableSegment.open(path, verify=True) as segment:
        if segment.key != record.key:
            raise CorruptionError(f"file is of another segment expected={record.key} got={segment.key}")


def check_room(folder: Path, needed_bytes: int) -> None:
    """OutOfSpaceError if the disk of a folder has less room than that, and a little to spare."""
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


def _each(act: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """In order. The first one shows whether there is a latency to hide: where there is none, threads only get in each
    other's way, and 31 small files of a local store took 25 ms instead of 12."""
    if not items:
        return []
    first, waited_s = _timed(act, items[0])
    rest = items[1:]
    if len(rest) < 2 or waited_s < LEAST_WAIT_S:
        return [first, *(act(item) for item in rest)]
    with ThreadPoolExecutor(min(NUM_TRANSFERS, len(rest)), thread_name_prefix="merlot-transfer") as threads:
        futures = [threads.submit(act, item) for item in rest]
        wait(futures, return_when=FIRST_EXCEPTION)
        threads.shutdown(wait=True, cancel_futures=True)
        failed = next((one for one in futures if one.done() and not one.cancelled() and one.exception()), None)
        if failed is not None:
            failed.result()
        return [first, *(one.result() for one in futures)]


def _timed(act: Callable[[T], R], item: T) -> tuple[R, float]:
    """A result, and how long it was waited for without using the processor."""
    started, worked = time.monotonic(), time.thread_time()
    result = act(item)
    return result, (time.monotonic() - started) - (time.thread_time() - worked)

"""A table of a server follows its assignment, through corrupt files, full disks and restarts."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from tests.support.faults import Interrupted
from tests.support.forgery import put_together, taken_apart
from tests.support.sample import ORDERS, orders_manifest, publish_orders, upload_orders
from tests.support.servers import FULL_DISK, TableDataBench

from merlot.cluster.instances.liveness import register
from merlot.cluster.instances.reports import write_report
from merlot.cluster.manifests.tables import delete_table, put_table
from merlot.cluster.records import InstanceRecord, Role, SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.errors import CorruptionError, UnavailableError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.server import files, table_data_manager
from merlot.server.scrub import ScrubConfig, scrub
from merlot.server.tuning import FileTuning
from merlot.testing.patience import until


def keys_of(records: list[SegmentRecord]) -> set[str]:
    return {str(record.key) for record in records}


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


async def start_with(
    bench: TableDataBench, days: list[int]
) -> tuple[table_data_manager.TableDataManager, list[SegmentRecord]]:
    """Return a manager that has loaded and reported the segments of these days."""
    records = publish_orders(bench.metastore, bench.deep_store, days)
    bench.assign(bench.me)
    started = await bench.start_manager()
    await until(lambda: bench.report().loaded == keys_of(records))
    return started, records


async def test_assigned_segments_are_fetched_served_and_reported(bench: TableDataBench) -> None:
    started, records = await start_with(bench, [0, 1, 2])
    assert set(started.segments.keys) == keys_of(records)
    assert started.is_settled
    assert bench.report().errors == {}
    more = upload_orders(bench.deep_store, [3])
    publish(bench.metastore, ORDERS, more)
    bench.assign(bench.me)
    await until(lambda: bench.report().loaded == keys_of(records + more))


@pytest.mark.parametrize("silent_at", [0, 2])
async def test_a_table_whose_watches_could_not_be_set_at_once_is_followed(
    bench: TableDataBench, silent_at: int
) -> None:
    def fall_silent() -> None:
        raise UnavailableError("metastore is silent")

    records = publish_orders(bench.metastore, bench.deep_store, [0])
    bench.assign(bench.me)
    bench.metastore = cast(SqliteMetastore, Interrupted(bench.metastore, ("watch",), silent_at, fall_silent))
    await bench.start_manager()
    await until(lambda: bench.report().loaded == keys_of(records))
    more = upload_orders(bench.deep_store, [1])
    publish(bench.metastore, ORDERS, more)
    bench.assign(bench.me)
    await until(lambda: bench.report().loaded == keys_of(records + more))


async def test_a_restarted_server_reports_its_files_before_it_fetches_any(bench: TableDataBench) -> None:
    _, records = await start_with(bench, [0, 1])
    await bench.stop_managers()
    for record in records:
        bench.deep_store.delete(record.url)
    write_report(bench.metastore, ORDERS, bench.me, [], {})
    await bench.start_manager()
    assert bench.report().loaded == keys_of(records)


async def test_a_file_that_rotted_while_the_server_was_down_is_set_aside_and_fetched_again(
    bench: TableDataBench,
) -> None:
    _, records = await start_with(bench, [0, 1])
    await bench.stop_managers()
    flip_a_byte(bench.path_of(str(records[0].key)))
    started = await bench.start_manager()
    assert str(records[0].key) not in bench.report().loaded
    assert str(records[0].key) in bench.report().served, "a broker that starts now has to miss it"
    await until(lambda: bench.report().loaded == keys_of(records))
    assert bench.report().served == frozenset()
    assert len(list(bench.quarantine.iterdir())) == 1
    assert started.failures == {}


async def test_what_a_crash_of_the_machine_left_of_files_is_fetched_again(bench: TableDataBench) -> None:
    """Small files are not waited for: they may be torn, or empty, or have kept the name they were written under."""
    _, records = await start_with(bench, [0, 1, 2])
    await bench.stop_managers()
    empty, half, unnamed = (bench.path_of(str(record.key)) for record in records)
    empty.write_bytes(b"")
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    unnamed.rename(unnamed.with_name(f".{unnamed.name}.0.tmp"))
    started = await bench.start_manager()
    await until(lambda: bench.report().loaded == keys_of(records))
    assert started.failures == {}
    assert sorted(empty.parent.iterdir()) == sorted([empty, half, unnamed])


async def test_a_query_that_still_runs_reads_a_segment_whose_file_was_deleted_meanwhile(bench: TableDataBench) -> None:
    _, records = await start_with(bench, [0])
    await bench.stop_managers()
    started = await bench.start_manager(grace_s=0.0)
    acquired = started.segments.acquire([str(records[0].key)])
    assert not acquired.segments[0].is_open
    publish(bench.metastore, ORDERS, upload_orders(bench.deep_store, [0], revision=1))
    await until(lambda: not bench.path_of(str(records[0].key)).exists())
    assert acquired.segments[0].column("id") is not None
    started.segments.release(acquired)


async def test_a_file_that_rots_under_a_running_server_is_found_and_fetched_again(bench: TableDataBench) -> None:
    started, records = await start_with(bench, [0])
    key = str(records[0].key)
    flip_a_byte(bench.path_of(key))
    assert not await started.check(key)
    await until(lambda: key in started.segments)
    assert await started.check(key)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "other version", "other segment", "empty"])
async def test_a_corrupt_file_in_the_deep_store_is_reported_and_never_served(
    bench: TableDataBench, damage: str
) -> None:
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1])
    path = Path(records[0].url.removeprefix("file://"))
    sound = path.read_bytes()
    other = Path(records[1].url.removeprefix("file://")).read_bytes()
    versioned = bytearray(sound)
    versioned[4:8] = b"\x63\x63\x63\x63"
    damaged = {
        "truncated": sound[: len(sound) // 2],
        "flipped": bytes([*sound[:200], sound[200] ^ 4, *sound[201:]]),
        "other version": bytes(versioned),
        "other segment": other,
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    bench.assign(bench.me)
    started = await bench.start_manager()
    key = str(records[0].key)
    await until(lambda: bench.report().errors.keys() == {key} and bench.report().loaded == {str(records[1].key)})
    assert started.is_settled
    assert "Traceback" not in bench.report().errors[key]
    # Once the deep store is mended, the next try finds it.
    path.write_bytes(sound)
    await until(lambda: bench.report().loaded == keys_of(records))
    assert bench.report().errors == {}


async def test_a_file_larger_than_its_record_says_is_reported_and_leaves_no_copy(bench: TableDataBench) -> None:
    """Rows of the right segment and all: whoever publishes it could fill the disk by it."""
    (record,) = upload_orders(bench.deep_store, [0])
    Path(record.url.removeprefix("file://")).write_bytes(bytes(3 << 20))
    (large,) = upload_orders(bench.deep_store, [1])
    Path(large.url.removeprefix("file://")).write_bytes(bytes(8 << 20))
    put_table(bench.metastore, orders_manifest())
    publish(bench.metastore, ORDERS, [record, large.model_copy(update={"size_bytes": FileTuning().small_bytes + 1})])
    bench.assign(bench.me)
    await bench.start_manager()
    await until(lambda: len(bench.report().errors) == 2)
    assert all("larger than its record says" in error for error in bench.report().errors.values())
    left = [path for path in (bench.path_of(str(record.key)).parent).iterdir() if path.is_file()]
    assert left == []


async def test_a_file_that_lies_under_right_checksums_is_set_aside_once_read_and_never_served_again(
    bench: TableDataBench,
) -> None:
    """Small files are not looked into before a query reads them."""
    records = publish_orders(bench.metastore, bench.deep_store, [0, 1])
    path = Path(records[0].url.removeprefix("file://"))
    parts = taken_apart(path.read_bytes())
    number = parts.column("city")["buffers"]["dict.bytes"][0]
    parts.buffers[number] = b"Z" + parts.buffers[number][1:]
    path.write_bytes(put_together(parts))
    bench.assign(bench.me)
    started = await bench.start_manager()
    await until(lambda: bench.report().loaded == keys_of(records))
    lying = str(records[0].key)
    acquired = started.segments.acquire([lying])
    column = acquired.segments[0].column("city")
    assert column is not None
    with pytest.raises(CorruptionError, match="do not ascend"):
        _ = column.dictionary
    started.segments.release(acquired)
    started.suspect(keys_of(records))
    await until(lambda: bench.report().errors.keys() == {lying})
    assert set(started.segments.keys) == {str(records[1].key)} == bench.report().loaded
    assert len(list(bench.quarantine.iterdir())) == 1
    await bench.stop_managers()
    bench.files = files.LocalSegmentFiles(bench.quarantine.parent)
    await bench.start_manager()
    await until(lambda: bench.report().errors.keys() == {lying})
    assert bench.report().loaded == {str(records[1].key)}


@pytest.mark.parametrize("is_suspect", [False, True], ids=["scrub", "suspects"])
async def test_a_file_that_cannot_be_opened_keeps_no_other_file_from_being_checked(
    bench: TableDataBench, *, is_suspect: bool
) -> None:
    started, records = await start_with(bench, [0, 1])
    unreadable, rotten = list(started.segments.keys)
    bench.path_of(unreadable).unlink()
    bench.path_of(unreadable).symlink_to(bench.path_of(unreadable))
    flip_a_byte(bench.path_of(rotten))
    scrubbing = asyncio.create_task(scrub(lambda: [started], ScrubConfig(bytes_per_s=1 << 40, idle_s=0.01)))
    if is_suspect:
        scrubbing.cancel()
        started.suspect([unreadable, rotten])
    await until(lambda: bench.quarantine.exists() and len(list(bench.quarantine.iterdir())) == 1)
    await until(lambda: bench.report().loaded == keys_of(records))
    assert is_suspect or not scrubbing.done()
    scrubbing.cancel()


@pytest.mark.parametrize("small_bytes", [FileTuning().small_bytes, 0], ids=["read", "copied"])
async def test_a_file_that_takes_too_long_to_come_is_begun_anew(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    bench.files.tuning = FileTuning(small_bytes=small_bytes)
    records = publish_orders(bench.metastore, bench.deep_store, [0])
    with monkeypatch.context() as impatient:
        impatient.setattr(files, "patience_s", lambda size_bytes: -1.0)
        bench.assign(bench.me)
        await bench.start_manager()
        await until(lambda: "deadline passed" in bench.report().errors.get(str(records[0].key), ""))
    await until(lambda: bench.report().loaded == keys_of(records))


async def test_a_full_disk_is_reported_and_what_is_loaded_stays_served(bench: TableDataBench) -> None:
    _, records = await start_with(bench, [0])
    bench.files.tuning = FULL_DISK
    more = upload_orders(bench.deep_store, [1])
    publish(bench.metastore, ORDERS, more)
    bench.assign(bench.me)
    await until(lambda: "no space left" in bench.report().errors.get(str(more[0].key), ""))
    assert bench.report().loaded == keys_of(records)
    bench.files.tuning = FileTuning()
    await until(lambda: bench.report().loaded == keys_of(records + more))


async def test_a_replaced_version_is_served_through_its_grace_then_closed_and_deleted(bench: TableDataBench) -> None:
    started, records = await start_with(bench, [0])
    await bench.stop_managers()
    started = await bench.start_manager(grace_s=0.2)
    new = upload_orders(bench.deep_store, [0], revision=1)
    publish(bench.metastore, ORDERS, new)
    await until(lambda: bench.report().loaded == keys_of(records + new))
    await until(lambda: bench.report().loaded == keys_of(new))
    await until(lambda: not bench.path_of(str(records[0].key)).exists())
    assert set(started.segments.keys) == keys_of(new)


async def test_a_moved_segment_is_served_until_another_live_server_reports_it(bench: TableDataBench) -> None:
    _, records = await start_with(bench, [0])
    await bench.stop_managers()
    started = await bench.start_manager(grace_s=0.05)
    bench.assign(bench.other)
    with pytest.raises(TimeoutError):
        await until(lambda: not started.segments.keys, patience_s=0.4)
    write_report(bench.metastore, ORDERS, bench.other, keys_of(records), {})
    registration = register(bench.metastore, InstanceRecord(id=bench.other, role=Role.SERVER, host="other"))
    await until(lambda: not bench.report().loaded)
    await until(lambda: not started.segments.keys)
    registration.close()


async def test_files_of_segments_that_are_gone_are_deleted_at_the_start(bench: TableDataBench) -> None:
    _, records = await start_with(bench, [0, 1])
    await bench.stop_managers()
    publish(bench.metastore, ORDERS, [], replace=[records[0].name])
    unfinished = bench.path_of(str(records[0].key)).with_name(".half.tmp")
    unfinished.write_bytes(b"half")
    await bench.start_manager()
    assert [path.name for path in unfinished.parent.iterdir()] == [bench.path_of(str(records[1].key)).name]


async def test_a_new_column_is_known_after_the_table_is_applied(bench: TableDataBench) -> None:
    started, _ = await start_with(bench, [0])
    put_table(bench.metastore, orders_manifest(more_fields="      - {name: note, type: STRING}"))
    await until(lambda: started.state is not None and "note" in started.state.column_types)
    await until(lambda: bench.report().revision == 2)


async def test_a_dropped_table_ends_its_manager(bench: TableDataBench) -> None:
    started, records = await start_with(bench, [0])
    delete_table(bench.metastore, ORDERS)
    await started.forget()
    assert not bench.path_of(str(records[0].key)).exists()
    assert bench.report().loaded == frozenset()


async def test_a_silent_metastore_leaves_everything_as_it_was(
    bench: TableDataBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, records = await start_with(bench, [0])

    def fail(*_: object) -> None:
        raise UnavailableError("metastore is silent")

    with monkeypatch.context() as patched:
        patched.setattr(table_data_manager, "load", fail)
        started.wake()
        with pytest.raises(TimeoutError):
            await until(lambda: set(started.segments.keys) != keys_of(records), patience_s=0.1)
    started.wake()
    assert set(started.segments.keys) == keys_of(records)

"""One merge task, step by step: what it publishes, what it leaves, and what it does when its world has changed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.merges import ENTRY, LEVEL, MergeBench
from tests.support.sample import ORDERS, START_MS, upload_orders

from merlot.cluster.lineage import replacements
from merlot.cluster.manifests.rollups import put_rollup
from merlot.cluster.records import LineageState
from merlot.cluster.segments import lineage_rules
from merlot.cluster.segments.mutations import ForgetReplacement
from merlot.cluster.segments.publish import publish
from merlot.cluster.segments.republish import MergedBeforeError
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import TaskOutcome
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.errors import InvalidInputError
from merlot.minion.execution import Ending
from merlot.spec.manifest import load as load_manifests
from merlot.spec.tasks import MERGE_LEVEL, MERGE_TIME, ROUNDED_TO, MergeRollupTask, MergeType
from merlot.values.periods import DAY_MS


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[MergeBench]:
    bench = MergeBench(tmp_path)
    yield bench
    bench.close()


def test_outputs_take_the_place_of_inputs_and_nothing_is_left_behind(bench: MergeBench) -> None:
    bench.queue()
    assert bench.run() is Ending.DONE
    view = bench.view()
    (merged,) = view.visible.values()
    assert merged.custom_map[MERGE_LEVEL] == LEVEL
    assert MERGE_TIME in merged.custom_map
    assert merged.total_docs == view.total_docs == 400
    assert view.lineage[ENTRY].state is LineageState.COMPLETED
    assert bench.visible_rows() == bench.expected_rows()
    assert bench.queued() == []
    assert queue.progress(bench.inner, queue.MERGE_ROLLUP, "t1") is None
    assert list((bench.folder / "Minion_1").iterdir()) == []


def test_the_history_tells_what_a_task_did(bench: MergeBench) -> None:
    bench.queue()
    bench.run()
    (ended,) = queue.history(bench.inner, queue.MERGE_ROLLUP, ORDERS).tasks
    assert (ended.outcome, ended.segments_before, ended.segments_after) == (TaskOutcome.SUCCEEDED, 4, 1)
    assert (ended.rows_before, ended.rows_after, ended.attempts, ended.owner) == (400, 400, 1, "Minion_1")
    assert ended.bytes_before > ended.bytes_after > 0


def test_a_task_whose_input_was_replaced_is_dropped(bench: MergeBench) -> None:
    bench.queue()
    publish(bench.inner, ORDERS, upload_orders(bench.deep_store, [0], revision=1))
    bench.serve()
    assert bench.run() is Ending.CANCELLED
    assert bench.queued() == []
    (ended,) = queue.history(bench.inner, queue.MERGE_ROLLUP, ORDERS).tasks
    assert "input was replaced or removed meanwhile" in ended.error


def test_a_cancelled_task_takes_back_what_it_has_begun(bench: MergeBench) -> None:
    bench.queue()

    def cancel(step: str) -> None:
        found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, "t1")
        if step == "output uploaded" and found is not None:
            queue.cancel(bench.inner, found)
            raise InterruptedError("as if the minion had died here")

    bench.run(reached=cancel)
    assert replacements.list_entries(bench.inner, ORDERS)[0].state is LineageState.IN_PROGRESS
    assert bench.run() is Ending.CANCELLED
    assert replacements.list_entries(bench.inner, ORDERS)[0].state is LineageState.REVERTED
    assert bench.queued() == []
    assert bench.clean() == 1
    assert len(bench.deep_store.list(ORDERS)) == 4
    assert bench.visible_rows() == bench.expected_rows()


WEEKLY = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders}
spec: {table: orders, levels: [{name: weekly, bucketTimePeriod: 4d, bufferTimePeriod: 0d}]}
"""


def put_manifest(bench: MergeBench, text: str) -> None:
    (manifest,) = load_manifests(text)
    assert isinstance(manifest, MergeRollupTask)
    put_rollup(bench.inner, manifest)


@pytest.mark.parametrize("at", ["before", "outputs put"])
def test_a_task_that_its_manifest_wants_no_more_is_dropped_though_nobody_cancels_it(at: str, bench: MergeBench) -> None:
    put_manifest(bench, WEEKLY)
    bench.queue()

    def change(step: str) -> None:
        if step == at:
            put_manifest(bench, WEEKLY.replace("bufferTimePeriod: 0d", "bufferTimePeriod: 0d, mergeType: dedup"))

    change("before")
    assert bench.run(reached=change) is Ending.CANCELLED
    assert len(bench.view().visible) == 4
    put_manifest(bench, WEEKLY)
    bench.queue()
    assert bench.run() is Ending.DONE


def test_a_table_without_room_for_another_replacement_has_a_task_wait_not_fail_for_good(
    bench: MergeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.queue()
    bench.tuning = replace(bench.tuning, max_outages=3)
    with monkeypatch.context() as patch:
        patch.setattr(lineage_rules, "MAX_ENTRIES", 0)
        for _ in range(2 * queue.MAX_ATTEMPTS):
            assert bench.run() is Ending.FAILED
    found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, "t1")
    assert found is not None
    assert "too many replacements are kept, wait" in found.record.last_error
    assert bench.run() is Ending.DONE


def test_pushing_what_was_merged_once_more_adds_nothing_after_the_inputs_are_gone(bench: MergeBench) -> None:
    bench.queue()
    bench.run()
    mutate(bench.inner, ORDERS, lambda _: [ForgetReplacement(ENTRY)])
    assert len(bench.view().segments) == 1
    again = publish(bench.inner, ORDERS, upload_orders(bench.deep_store, bench.days))
    assert (again.published, len(again.unchanged)) == ((), 4)
    with pytest.raises(MergedBeforeError, match="rows would count twice"):
        publish(bench.inner, ORDERS, upload_orders(bench.deep_store, [0], revision=1))
    assert bench.visible_rows() == bench.expected_rows()


def test_a_task_that_was_reverted_can_be_done_again(bench: MergeBench) -> None:
    task = bench.queue()
    bench.run()
    replacements.revert_replacement(bench.inner, ORDERS, ENTRY)
    assert len(bench.view().visible) == 4
    bench.inner.create(f"/TASKS/{task.kind}/{task.id}", task.to_bytes())
    assert bench.run() is Ending.DONE
    assert len(bench.view().visible) == 1
    assert bench.visible_rows() == bench.expected_rows()


SHARDS = {"num_shards": 3}


def leftovers(bench: MergeBench) -> list[str]:
    """Files of the shuffle."""
    return list(bench.deep_store.list_below(ORDERS, SHUFFLE_FOLDER))


def shuffle(bench: MergeBench) -> list[str]:
    """Run the task that cuts a large bucket; the shards' tasks."""
    bench.queue(**SHARDS)
    assert bench.run() is Ending.DONE
    assert len(leftovers(bench)) == 3
    return sorted(bench.queued())


def test_a_shard_that_fails_for_good_can_be_tried_again_though_the_others_are_done(bench: MergeBench) -> None:
    *others, last = shuffle(bench)
    for task_id in others:
        assert bench.run(task_id) is Ending.DONE

    def break_off(step: str) -> None:
        if step == "shard done":
            raise InvalidInputError("as if it could not be done")

    assert bench.run(last, reached=break_off) is Ending.POISONED
    found = queue.find_task(bench.inner, queue.MERGE_ROLLUP, last)
    assert found is not None
    queue.retry(bench.inner, found)
    assert bench.run(last) is Ending.DONE
    assert bench.visible_rows() == bench.expected_rows()
    assert len(bench.view().visible) == 3
    assert bench.queued() == leftovers(bench) == []


def test_shards_of_an_input_that_was_replaced_leave_nothing(bench: MergeBench) -> None:
    first, *others = shuffle(bench)
    assert bench.run(first) is Ending.DONE
    publish(bench.inner, ORDERS, upload_orders(bench.deep_store, [0], revision=1))
    bench.serve()
    for task_id in others:
        assert bench.run(task_id) is Ending.CANCELLED
    assert bench.queued() == leftovers(bench) == []
    bench.clean()
    named = {record.url for record in bench.view().segments.values()}
    assert [url for url in bench.deep_store.list(ORDERS) if url not in named and "merged" in url] == []


@pytest.mark.parametrize("num_shards", [1, 2])
def test_outputs_with_rounded_times_keep_how_late_their_rows_were(num_shards: int, bench: MergeBench) -> None:
    ends = [record.end_time_ms for record in bench.records if record.end_time_ms is not None]
    bench.queue(merge_type=MergeType.ROLLUP, round_period="1d", num_shards=num_shards)
    shards = [f"t1-{shard}of{num_shards}" for shard in range(num_shards)] if num_shards > 1 else []
    for task_id in ["t1", *shards]:
        assert bench.run(task_id) is Ending.DONE
    outputs = list(bench.view().visible.values())
    assert len(outputs) == num_shards
    for record in outputs:
        assert record.end_time_ms == START_MS + 3 * DAY_MS
        assert record.newest_ms == max(ends)
        assert record.custom_map[ROUNDED_TO] == "1d"

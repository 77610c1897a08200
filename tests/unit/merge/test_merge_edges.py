"""What is odd about inputs, plans and values."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.time_formats import DAY_MS
from tests.unit.merge.merge_tables import METRICS, TIMES, built, merge, partitioned, plan_of, read_rows, summed

from merlot.errors import InvalidInputError
from merlot.merge.plan import MergeMode
from merlot.merge.shuffle import shuffle
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import SomeDocs
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values import periods
from merlot.values.types import TypeName

PLAIN = IndexingSpec()


def schema_of(*fields: FieldSpec) -> TableSchema:
    return TableSchema(fields=(TIMES[0], *fields))


def dimension(name: str, type_name: TypeName, **more: Any) -> FieldSpec:
    return FieldSpec(name=name, type=type_name, **more)


def test_a_segment_whose_column_has_another_type_is_named(tmp_path: Path) -> None:
    before, now = schema_of(dimension("who", TypeName.STRING)), schema_of(dimension("who", TypeName.LONG))
    path = built(tmp_path, "in_0", before, {"at": [0], "who": ["a"]}, PLAIN).path
    with pytest.raises(InvalidInputError, match=r"column=who segment=in_0@[0-9]+ old=STRING new=LONG"):
        merge(plan_of(now), [path], tmp_path)


def test_only_dimensions_are_erased_and_segments_have_room(tmp_path: Path) -> None:
    schema = schema_of(*METRICS)
    for name in ("ints", "at", "absent"):
        with pytest.raises(InvalidInputError, match=f"only a dimension can be erased table=t column={name}"):
            merge(plan_of(schema, erased=frozenset({name})), [], tmp_path)
    with pytest.raises(InvalidInputError, match="needs room for a row"):
        merge(plan_of(schema, max_records_per_segment=0), [], tmp_path)


def test_rows_cannot_be_sorted_by_lists(tmp_path: Path) -> None:
    schema = schema_of(dimension("tags", TypeName.INT, multi_value=True))
    path = built(tmp_path, "in_0", schema, {"at": [0, 1], "tags": [[1], [2]]}, PLAIN).path
    with pytest.raises(InvalidInputError, match="cannot be sorted by this column"):
        merge(plan_of(schema, indexing=IndexingSpec(sorted_columns=("tags",))), [path], tmp_path)


def test_both_zeros_are_sorted_as_a_fresh_build_sorts_them(tmp_path: Path) -> None:
    schema = schema_of(dimension("ratio", TypeName.DOUBLE))
    indexing = IndexingSpec(sorted_columns=("ratio",))
    cells = {"at": [0, 1, 2, 3], "ratio": [0.0, -0.0, 0.0, -0.0]}
    halves = [{name: column[start : start + 2] for name, column in cells.items()} for start in (0, 2)]
    paths = [built(tmp_path, f"in_{place}", schema, half, indexing).path for place, half in enumerate(halves)]
    fresh = built(tmp_path, "fresh", schema, cells, indexing)
    (merged,) = merge(plan_of(schema, indexing=indexing), paths, tmp_path)
    assert merged.metadata.crc == fresh.metadata.crc
    (folded,) = merge(
        plan_of(schema, indexing=indexing, merge_type=MergeMode.ROLLUP, round_period=periods.parse("1s")),
        paths,
        tmp_path,
    )
    assert read_rows(folded, schema) == [(0, (0.0, 1.0))]


def test_lists_are_equal_only_in_the_same_order(tmp_path: Path) -> None:
    schema = schema_of(dimension("tags", TypeName.STRING, multi_value=True))
    cells = {"at": [0] * 6, "tags": [["a", "b"], ["b", "a"], ["a", "b"], [], ["a"], []]}
    path = built(tmp_path, "in_0", schema, cells, PLAIN).path
    (output,) = merge(plan_of(schema, merge_type=MergeMode.DEDUP), [path], tmp_path)
    assert read_rows(output, schema) == [(0, ()), (0, ("a",)), (0, ("a", "b")), (0, ("b", "a"))]


def test_values_that_the_partition_function_refuses_stay_apart(tmp_path: Path) -> None:
    schema = schema_of(dimension("who", TypeName.STRING))
    columns = {"who": {"functionName": "Modulo", "numPartitions": 2}}
    partitioning = PartitioningSpec.model_validate({"columns": columns})
    cells = {"at": [0, 1, 2, 3], "who": ["1", "x", "2", "3"]}
    path = built(tmp_path, "in_0", schema, cells, PLAIN, partitioning=partitioning).path
    outputs = merge(plan_of(schema, partitioning=partitioning), [path], tmp_path)
    assert [[row[1] for row in read_rows(segment, schema)] for segment in outputs] == [["x"], ["2"], ["1", "3"]]
    assert list(outputs[0].unpartitioned) == ["who"]


@pytest.mark.parametrize("function", ["Murmur", "Murmur3"])
def test_partitions_of_numbers_and_text_are_those_that_the_builder_sees(function: str, tmp_path: Path) -> None:
    schema = schema_of(dimension("who", TypeName.STRING), dimension("number", TypeName.LONG))
    functions = {name: {"functionName": function, "numPartitions": 3} for name in ("who", "number")}
    partitioning = PartitioningSpec.model_validate({"columns": functions})
    cells = {"at": [0] * 40, "who": [f"w{place}" for place in range(40)], "number": list(range(-20, 20))}
    path = built(tmp_path, "in_0", schema, cells, PLAIN).path
    outputs = merge(plan_of(schema, partitioning=partitioning), [path], tmp_path)
    seen = [tuple(info.partitions for _, info in sorted(one.metadata.partitions.items())) for one in outputs]
    assert all(len(partitions) == 1 for pair in seen for partitions in pair)
    assert len(set(seen)) == len(seen)
    assert sum((Counter(read_rows(one, schema)) for one in outputs), Counter()).total() == 40


def test_shards_of_a_concatenation_are_even_and_may_be_empty(tmp_path: Path) -> None:
    schema = schema_of(dimension("who", TypeName.STRING))
    path = built(tmp_path, "in_0", schema, {"at": [0, 1, 2], "who": ["a", "b", "c"]}, PLAIN).path
    shards = shuffle(plan_of(schema), [path], tmp_path, 5, lambda *_: None, lambda: False)
    assert sorted(shard.metadata.num_docs for shard in shards) == [0, 0, 1, 1, 1]
    rows = [row for shard in shards for row in read_rows(shard, schema)]
    assert [row[1] for row in rows] == ["a", "b", "c"]
    assert merge(plan_of(schema), [shard.path for shard in shards if not shard.metadata.num_docs], tmp_path) == []
    with pytest.raises(InvalidInputError, match="at least one shard"):
        shuffle(plan_of(schema), [path], tmp_path, 0, lambda *_: None, lambda: False)


def test_erased_dimensions_are_null_and_rows_that_differed_by_them_meet(tmp_path: Path) -> None:
    schema = schema_of(dimension("who", TypeName.STRING), dimension("tags", TypeName.INT, multi_value=True), METRICS[0])
    cells = {"at": [0, 0, 0], "who": ["a", "b", "b"], "tags": [[1], [2], []], "ints": [1, 2, None]}
    path = built(tmp_path, "in_0", schema, cells, PLAIN).path
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, erased=frozenset({"who", "tags"}))
    (output,) = merge(plan, [path], tmp_path)
    assert read_rows(output, schema) == [(0, None, None, 3)]
    kept = plan_of(schema, erased=frozenset({"who"}))
    (same,) = merge(kept, [path], tmp_path)
    assert [row[1:] for row in read_rows(same, schema)] == [(None, (1,), 1), (None, (2,), 2), (None, (), None)]


def test_least_and_greatest_text_fold_too(tmp_path: Path) -> None:
    schema = schema_of(FieldSpec(name="note", type=TypeName.STRING, role=FieldRole.METRIC))
    path = built(tmp_path, "in_0", schema, {"at": [0, 0, 1], "note": ["b", "a", None]}, PLAIN).path
    for function, expected in (("min", "a"), ("MAX", "b")):
        plan = plan_of(schema, merge_type=MergeMode.ROLLUP, aggregations={"note": summed(function)})
        (output,) = merge(plan, [path], tmp_path)
        assert read_rows(output, schema) == [(0, expected), (1, None)]


@pytest.mark.parametrize("merge_type", [MergeMode.ROLLUP, MergeMode.DEDUP])
@pytest.mark.parametrize("enforce", ["repartition", "assert"])
def test_equal_rows_meet_whatever_partitions_their_segments_claim(
    merge_type: MergeMode, enforce: str, tmp_path: Path
) -> None:
    schema = schema_of(dimension("who", TypeName.STRING))
    declared = partitioned("who", 4, enforce)
    claims = {"none": None, "one": declared, "mixed": declared, "other": partitioned("who", 7)}
    paths = []
    for name, claim in claims.items():
        cells = {"at": [0, 0, 0], "who": ["a", "b", "c"]} if name == "mixed" else {"at": [0], "who": ["a"]}
        paths.append(built(tmp_path, name, schema, cells, PLAIN, partitioning=claim).path)
    outputs = merge(plan_of(schema, merge_type=merge_type, partitioning=declared), paths, tmp_path)
    assert sorted(row for one in outputs for row in read_rows(one, schema)) == [(0, "a"), (0, "b"), (0, "c")]
    assert all(len(one.metadata.partitions["who"].partitions) == 1 for one in outputs)


@pytest.mark.parametrize("merge_type", list(MergeMode))
def test_rounded_times_are_of_the_partition_of_what_they_became(merge_type: MergeMode, tmp_path: Path) -> None:
    schema = schema_of(METRICS[0])
    partitioning = partitioned("at", 8)
    paths = [
        built(tmp_path, f"in_{hour}", schema, {"at": [hour * 3_600_000], "ints": [1]}, PLAIN, partitioning=partitioning)
        for hour in range(12)
    ]
    plan = plan_of(
        schema,
        merge_type=merge_type,
        partitioning=partitioning,
        round_period=periods.parse("1d"),
        windows=((0, DAY_MS),),
    )
    (output,) = merge(plan, [one.path for one in paths], tmp_path)
    rows = {MergeMode.CONCAT: [(0, 1)] * 12, MergeMode.ROLLUP: [(0, 12)], MergeMode.DEDUP: [(0, 1)]}
    assert read_rows(output, schema) == rows[merge_type]
    assert len(output.metadata.partitions["at"].partitions) == 1


def test_zeros_of_either_sign_are_one_key_of_one_partition(tmp_path: Path) -> None:
    schema = schema_of(dimension("ratio", TypeName.DOUBLE), METRICS[0])
    cells = {"at": [0, 0], "ratio": [0.0, -0.0], "ints": [1, 2]}
    path = built(tmp_path, "in_0", schema, cells, PLAIN).path
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, partitioning=partitioned("ratio", 8))
    (output,) = merge(plan, [path], tmp_path)
    assert read_rows(output, schema) == [(0, (0.0, 1.0), 3)]


def test_what_the_type_of_a_time_cannot_hold_is_not_rounded(tmp_path: Path) -> None:
    for type_name, least in ((TypeName.INT, -(2**31)), (TypeName.LONG, -(2**63) + 5)):
        time = FieldSpec(name="at", type=type_name, role=FieldRole.DATE_TIME, format="EPOCH|MILLISECONDS")
        schema = TableSchema(fields=(time,))
        path = built(tmp_path, "in_0", schema, {"at": [least, 90_000_000]}, PLAIN).path
        for period, later in (("1d", 86_400_000), ("1mo", 0)):
            (output,) = merge(plan_of(schema, round_period=periods.parse(period)), [path], tmp_path)
            assert read_rows(output, schema) == [(least,), (later,)]


def test_docs_that_are_not_valid_do_not_come_out_of_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of(dimension("who", TypeName.STRING))
    cells = {"at": [0, 1, 2, 3], "who": ["a", "b", None, "d"]}
    paths = [built(tmp_path, f"in_{number}", schema, cells, PLAIN).path for number in range(2)]
    valid = SomeDocs(words_of(np.array([True, False, True, False])))
    monkeypatch.setattr(ImmutableSegment, "valid_docs", valid)
    (tmp_path / "out").mkdir()
    segments = merge(plan_of(schema, indexing=PLAIN, windows=[(0, DAY_MS)]), paths, tmp_path / "out")
    found = [row for segment in segments for row in read_rows(segment, schema)]
    assert sorted(found, key=str) == sorted([(0, "a"), (0, "a"), (2, None), (2, None)], key=str)

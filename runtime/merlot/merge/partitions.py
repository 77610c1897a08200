"""Split rows by partition: an output should hold rows of one partition, since brokers prune by it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.merge.order import with_one_zero
from merlot.merge.plan import MergeMode, MergePlan
from merlot.merge.source import InputPart, MergeSource, Selection
from merlot.segment.build.partitions import quick_partitions, texts
from merlot.segment.concat import Values
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionEnforcement, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import FieldSpec

_MIXED = -1
_MOST_CODES = 1 << 63


def split(plan: MergePlan, source: MergeSource, selection: Selection) -> list[Selection]:
    """Return the rows of each partition, one after another.

    Rows that become one row must be in one part: for rollup and dedup the partition of each distinct value is computed,
    whatever footers say, and lists are not divided. For concat a footer that names a partition is trusted; otherwise
    partitions are computed from values, unless the table's source is trusted to partition: then rows that it mixed stay
    together, apart from the others."""
    if plan.partitioning is None or set(plan.partitioning.columns) & plan.erased:
        return [selection]
    parts_by_key: dict[tuple[int, ...], list[InputPart]] = {}
    for part in selection:
        for key, rows in _by_partition(plan, source, part, plan.partitioning).items():
            parts_by_key.setdefault(key, []).append(rows)
    return [parts_by_key[key] for key in sorted(parts_by_key)]


def _by_partition(
    plan: MergePlan, source: MergeSource, part: InputPart, partitioning: PartitioningSpec
) -> Mapping[tuple[int, ...], InputPart]:
    names = sorted(partitioning.columns)
    is_by_value = plan.merge_type is not MergeMode.CONCAT
    footer_partitions = [_MIXED if is_by_value else _one_partition(plan, part, name) for name in names]
    if _MIXED not in footer_partitions or (partitioning.enforce is PartitionEnforcement.ASSERT and not is_by_value):
        return {tuple(footer_partitions): part}
    columns = [
        (np.array([number]), None) if number != _MIXED else _computed(plan, source, part, name)
        for name, number in zip(names, footer_partitions, strict=True)
    ]
    codes, space = np.zeros(part.num_rows, np.uint64), 1
    for numbers, of_rows in columns:
        if space * len(numbers) > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.uint64)
            space = part.num_rows
        codes *= np.uint64(len(numbers))
        codes += np.uint64(0) if of_rows is None else of_rows.astype(np.uint64)
        space *= len(numbers)
    if space == 1:
        return {tuple(int(numbers[0]) for numbers, _ in columns): part}
    order = np.argsort(codes.astype(np.min_scalar_type(space)), kind="stable").astype(np.uint32)
    edges = np.flatnonzero(np.diff(codes[order], prepend=codes[order[0]] + np.uint64(1)))
    parts = {}
    for rows in np.split(order, edges[1:]):
        first = int(rows[0])
        key = tuple(int(numbers[0 if of_rows is None else of_rows[first]]) for numbers, of_rows in columns)
        parts[key] = part.sub(rows)
    return parts


def _one_partition(plan: MergePlan, part: InputPart, name: str) -> int:
    """Return the partition that the footer gives for all rows, if it used the same function on the values to be
    written; else `_MIXED`."""
    info = part.segment.metadata.partitions.get(name)
    is_rounded = name == plan.time_column and plan.round_period is not None
    if info is None or len(info.partitions) != 1 or is_rounded:
        return _MIXED
    assert plan.partitioning is not None
    function = plan.partitioning.columns[name]
    said = (info.function_name, info.num_partitions, info.function_config)
    if said != (function.function_name, function.num_partitions, dict(function.function_config)):
        return _MIXED
    return info.partitions[0]


def _computed(
    plan: MergePlan, source: MergeSource, part: InputPart, name: str
) -> tuple[NDArray[np.int64], NDArray[np.intp] | None]:
    """Return the partitions that occur, ascending, and the position of each row's partition among them; no positions if
    there is only one partition."""
    field = plan.schema.field(name)
    assert field is not None, "a manifest names existing columns"
    if field.multi_value:
        return np.array([_MIXED]), None
    assert plan.partitioning is not None
    function = plan.partitioning.columns[name]
    # Equal zeros have one partition, whatever their sign.
    column = with_one_zero(source.column(field, [part])).compact().coded()
    assert column.ids is not None
    partitions = quick_partitions(field.type, function, column.values)
    numbers, places = np.unique(
        _one_by_one(field, function, column.values) if partitions is None else partitions, return_inverse=True
    )
    return numbers, None if len(numbers) == 1 else places[column.ids]


def _one_by_one(field: FieldSpec, function: PartitionFunctionSpec, values: Values) -> NDArray[np.int64]:
    """Compute partitions one by one. Rows whose partition the function cannot compute stay together, apart from the
    others."""
    try:
        partition_of = partition_functions.get(function)
    except InvalidInputError:
        return np.full(len(values), _MIXED, np.int64)
    partitions = []
    for text in texts(field.type, values):
        try:
            partitions.append(partition_of(text))
        except InvalidInputError:
            partitions.append(_MIXED)
    return np.array(partitions, np.int64)

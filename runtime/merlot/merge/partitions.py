"""Rows by partition: an output should hold rows of one, as brokers prune by it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.merge.columns import Values
from merlot.merge.plan import MergePlan
from merlot.merge.source import Part, Selection, Source
from merlot.segment.build.partitions import murmur_partitions, texts
from merlot.spec import partition_functions
from merlot.spec.indexing import PartitionEnforcement, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import FieldSpec

_MIXED = -1


def split(plan: MergePlan, source: Source, selection: Selection) -> list[Selection]:
    """The rows of each partition, one after another.

    What an input's footer says is taken; else each distinct value is asked for its partition, unless the source of the
    table is trusted to partition: then what it mixed stays together, apart from what it did not."""
    if plan.partitioning is None or set(plan.partitioning.columns) & plan.erased:
        return [selection]
    found: dict[tuple[int, ...], list[Part]] = {}
    for part in selection:
        for key, rows in _by_partition(plan, source, part, plan.partitioning).items():
            found.setdefault(key, []).append(rows)
    return [found[key] for key in sorted(found)]


def _by_partition(
    plan: MergePlan, source: Source, part: Part, partitioning: PartitioningSpec
) -> Mapping[tuple[int, ...], Part]:
    names = sorted(partitioning.columns)
    known = [_one_partition(part, name, partitioning.columns[name]) for name in names]
    if _MIXED not in known or partitioning.enforce is PartitionEnforcement.ASSERT:
        return {tuple(known): part}
    columns = [
        np.full(part.num_rows, number) if number != _MIXED else _computed(plan, source, part, name)
        for name, number in zip(names, known, strict=True)
    ]
    keys, row_keys = np.unique(np.stack(columns), axis=1, return_inverse=True)
    order = np.argsort(row_keys.ravel(), kind="stable").astype(np.uint32)
    bounds = np.searchsorted(row_keys.ravel()[order], np.arange(keys.shape[1] + 1))
    return {
        tuple(map(int, keys[:, place])): part.sub(order[bounds[place] : bounds[place + 1]])
        for place in range(keys.shape[1])
    }


def _one_partition(part: Part, name: str, function: PartitionFunctionSpec) -> int:
    """What the footer says of all rows, if it is by the same function."""
    info = part.segment.metadata.partitions.get(name)
    if info is None or len(info.partitions) != 1:
        return _MIXED
    said = (info.function_name, info.num_partitions, info.function_config)
    if said != (function.function_name, function.num_partitions, dict(function.function_config)):
        return _MIXED
    return info.partitions[0]


def _computed(plan: MergePlan, source: Source, part: Part, name: str) -> NDArray[np.int64]:
    field = plan.schema.field(name)
    assert field is not None, "a manifest names existing columns"
    if field.multi_value:
        return np.full(part.num_rows, _MIXED)
    assert plan.partitioning is not None
    function = plan.partitioning.columns[name]
    column = source.column(field, [part]).coded()
    assert column.ids is not None
    fast = murmur_partitions(field.type, function, column.values)
    return (_one_by_one(field, function, column.values) if fast is None else fast)[column.ids]


def _one_by_one(field: FieldSpec, function: PartitionFunctionSpec, values: Values) -> NDArray[np.int64]:
    """Rows whose partition the function does not tell stay together, apart from the others."""
    try:
        partition_of = partition_functions.get(function)
    except InvalidInputError:
        return np.full(len(values), _MIXED, np.int64)
    found = []
    for text in texts(field.type, values):
        try:
            found.append(partition_of(text))
        except InvalidInputError:
            found.append(_MIXED)
    return np.array(found, np.int64)

"""Fold the values of a metric in each group into one value.

Nulls are skipped, and a group of only nulls is null; COUNT alone adds the default of a null. Sums of whole numbers are
exact and must fit the metric's type at the end; sums of BIG_DECIMAL are exact; sums of floats are compensated, so that
the order of rows hardly matters. A query may count a null as the metric's default: `beaten_by_default` finds the
minima and maxima that would differ then.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.aggregates.extremes import ExtremeState
from merlot.aggregates.function import Known
from merlot.aggregates.sketches import MERGES, Serialized, SketchError, merge_sketches
from merlot.aggregates.sums import FloatSum, IntegerSum, rounded, sum_texts
from merlot.errors import InvalidInputError
from merlot.merge.columns import Array, MergeColumn, fixed_dtype
from merlot.merge.plan import MergePlan, MetricAggregation
from merlot.segment.concat import Values
from merlot.spec.schema import FieldSpec
from merlot.tree.types import DOUBLE
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly, plain_text
from merlot.vectors.groups import Groups

_WIDER: Final = {TypeName.INT: "LONG", TypeName.LONG: "BIG_DECIMAL", TypeName.FLOAT: "DOUBLE"}
_NUMBERS: Final = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL)


class SumOverflowError(InvalidInputError):
    """A sum does not fit the type of its metric."""


def check(plan: MergePlan) -> None:
    """Raise InvalidInputError if a metric cannot be aggregated as planned."""
    for field in plan.schema.fields:
        if plan.folds(field):
            _fold_of(field, aggregation_of(plan, field))


def aggregation_of(plan: MergePlan, field: FieldSpec) -> MetricAggregation:
    """Return the plan's aggregation of a metric; SUM by default."""
    return plan.aggregations.get(field.name, MetricAggregation())


def fold(column: MergeColumn, target: FieldSpec, how: MetricAggregation, groups: Groups) -> MergeColumn:
    """Return a value per group, of the type of `target`; raise SumOverflowError, SketchError."""
    return _fold_of(target, how)(column, target, groups)


def is_extreme(how: MetricAggregation) -> bool:
    """Return whether the aggregation is MIN or MAX."""
    return how.function.upper() in ("MIN", "MAX")


def beaten_by_default(folded: MergeColumn, how: MetricAggregation) -> NDArray[np.bool_]:
    """Mark the groups whose minimum or maximum would differ if the default were among their values."""
    is_min, default, values = how.function.upper() == "MIN", folded.field.default_value, folded.values
    if isinstance(values, np.ndarray):
        # NaN gives way to any number.
        beaten = ~(values <= default) if is_min else ~(values >= default)
    elif isinstance(default, Decimal):
        encoded = values.dictionary_encode()
        numbers = [Decimal(text) for text in encoded.dictionary.to_pylist()]
        entries = np.array([default < number if is_min else default > number for number in numbers], np.bool_)
        beaten = entries[encoded.indices.to_numpy()]
    else:
        compare = pc.greater if is_min else pc.less
        beaten = compare(values, pa.scalar(default, values.type)).to_numpy(zero_copy_only=False)
    return beaten if folded.nulls is None else beaten & ~folded.nulls


def is_sum(how: MetricAggregation) -> bool:
    """Return whether a result may need a wider type than its values."""
    return how.function.upper() in ("SUM", "COUNT")


Fold = Callable[[MergeColumn, FieldSpec, Groups], MergeColumn]


def _fold_of(field: FieldSpec, how: MetricAggregation) -> Fold:
    name = how.function.upper()
    if name in MERGES:
        if field.type is not TypeName.BYTES:
            text = f"{how.function} merges serialized sketches, which a BYTES metric holds"
            raise InvalidInputError(f"{text} column={field.name} type={field.type}")
        return partial(_sketch, name, how.parameters)
    function = FOLDS.get(name)
    if function is None:
        names = ", ".join((*FOLDS, *MERGES))
        raise InvalidInputError(f"unknown aggregation column={field.name} function={how.function}; one of {names}")
    if is_sum(how) and field.type not in _NUMBERS:
        raise InvalidInputError(f"{field.type} cannot be summed column={field.name}; make the column a dimension")
    return function


def _sum(column: MergeColumn, target: FieldSpec, groups: Groups) -> MergeColumn:
    values, of_rows, is_null = _valid(column, groups)
    sums: Values
    if column.field.type is TypeName.BIG_DECIMAL:
        sums = _decimal_sums(values, of_rows, len(groups), target)
    elif column.field.type in (TypeName.FLOAT, TypeName.DOUBLE):
        sums = _fitting_float(target, _float_sums(values, of_rows, len(groups)))
    else:
        sums = _integer_sums(values, of_rows, len(groups), target)
    return _result(target, sums, is_null)


def _count(column: MergeColumn, target: FieldSpec, groups: Groups) -> MergeColumn:
    """Count a row as its value, and a null as its default."""
    return _sum(_without_nulls(column), target, groups)


def _minimum(column: MergeColumn, target: FieldSpec, groups: Groups) -> MergeColumn:
    return _extreme(column, target, groups, is_min=True)


def _maximum(column: MergeColumn, target: FieldSpec, groups: Groups) -> MergeColumn:
    return _extreme(column, target, groups, is_min=False)


def _sketch(
    name: str, parameters: Mapping[str, str], column: MergeColumn, target: FieldSpec, groups: Groups
) -> MergeColumn:
    given = Serialized(
        values=column.values, ids=column.ids, nulls=column.nulls, of_rows=groups.of_rows, num_groups=len(groups)
    )
    try:
        merged = merge_sketches(given, name, parameters)
    except SketchError as error:
        raise error.found_in(column=column.field.name) from None
    if column.nulls is None or not column.nulls.any():
        return _result(target, merged, None)
    is_null = np.ones(len(groups), np.bool_)
    is_null[groups.of_rows[~column.nulls]] = False
    return _result(target, merged, is_null if is_null.any() else None)


FOLDS: Final[Mapping[str, Fold]] = {"SUM": _sum, "MIN": _minimum, "MAX": _maximum, "COUNT": _count}
"""Aggregations of metrics, by name."""


def _extreme(column: MergeColumn, target: FieldSpec, groups: Groups, *, is_min: bool) -> MergeColumn:
    """Compare dictionary ids, if there are any: they are in the order of the values."""
    if column.ids is None and not isinstance(column.values, np.ndarray):
        column = column.coded()
    flat, of_rows, is_null = _valid_flat(column, column.values if column.ids is None else column.ids, groups)
    state = ExtremeState(len(groups), is_min=is_min, is_integer=flat.dtype.kind != "f")
    state.add([flat], of_rows, len(flat))
    best = state.best()
    if is_null is not None:
        best[is_null] = 0
    if column.ids is None:
        return _result(target, best.astype(fixed_dtype(target)), is_null)
    values = column.values
    if len(values) == 0:
        return _result(target, values, is_null)
    chosen = values[best] if isinstance(values, np.ndarray) else values.take(pa.array(best))
    return _result(target, chosen, is_null)


def _without_nulls(column: MergeColumn) -> MergeColumn:
    return MergeColumn(field=column.field, num_rows=column.num_rows, values=column.values, ids=column.ids)


def _valid(column: MergeColumn, groups: Groups) -> tuple[Any, NDArray[np.uint32], NDArray[np.bool_] | None]:
    """Return the values that are not null, their groups, and the groups that have none."""
    return _valid_flat(column, column.rows.plain(), groups)


def _valid_flat(
    column: MergeColumn, flat: Values, groups: Groups
) -> tuple[Any, NDArray[np.uint32], NDArray[np.bool_] | None]:
    if column.nulls is None or not column.nulls.any():
        return flat, groups.of_rows, None
    is_valid = ~column.nulls
    of_rows = groups.of_rows[is_valid]
    is_null = np.ones(len(groups), np.bool_)
    is_null[of_rows] = False
    values = flat[is_valid] if isinstance(flat, np.ndarray) else flat.filter(pa.array(is_valid))
    return values, of_rows, is_null if is_null.any() else None


def _result(target: FieldSpec, values: Values, is_null: NDArray[np.bool_] | None) -> MergeColumn:
    """Return a column of results; null results hold the default value."""
    if is_null is not None:
        default = target.default_value
        if isinstance(values, np.ndarray):
            values[is_null] = default
        else:
            text = plain_text(default) if target.type is TypeName.BIG_DECIMAL else default  # type: ignore[arg-type]
            values = pc.if_else(pa.array(is_null), pa.scalar(text, values.type), values)
    return MergeColumn(field=target, num_rows=len(values), values=values, nulls=is_null)


def _integer_sums(values: Array, of_rows: NDArray[np.uint32], num_groups: int, target: FieldSpec) -> Values:
    bounds = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    total = IntegerSum(num_groups, Known(bounds))
    total.add([values], of_rows, len(values))
    sums = total.narrow()
    if sums is not None:
        return _fitting(target, sums)
    highs, lows = total.halves(np.arange(num_groups))
    if not num_groups or (highs.min() >= -(1 << 31) and highs.max() < 1 << 31):
        return _fitting(target, (highs << 32) + lows)
    if target.type is TypeName.BIG_DECIMAL:
        return pa.array([str((high << 32) + low) for high, low in zip(highs.tolist(), lows.tolist(), strict=True)])
    raise _overflow(target)


def _fitting(target: FieldSpec, sums: NDArray[np.int64]) -> Values:
    dtype = fixed_dtype(target)
    if dtype is None:
        return pa.array(sums).cast(pa.string())
    limits = np.iinfo(dtype)
    if len(sums) and (sums.min() < limits.min or sums.max() > limits.max):
        raise _overflow(target)
    return sums.astype(dtype)


def _fitting_float(target: FieldSpec, sums: NDArray[np.float64]) -> Values:
    """Check that a sum that DOUBLE holds does not become infinite in FLOAT."""
    if target.type is TypeName.FLOAT and (np.abs(sums[np.isfinite(sums)]) > np.finfo(np.float32).max).any():
        raise _overflow(target)
    return sums.astype(fixed_dtype(target))


def _overflow(target: FieldSpec) -> SumOverflowError:
    wider = _WIDER[target.type]
    return SumOverflowError(
        f"a sum does not fit {target.type} column={target.name}; widen the column to {wider} in the table's schema, "
        "or aggregate it by MIN or MAX"
    )


def _float_sums(values: Array, of_rows: NDArray[np.uint32], num_groups: int) -> NDArray[np.float64]:
    total = FloatSum(num_groups)
    total.add([values], of_rows, len(values))
    return rounded(DOUBLE, total.columns(np.arange(num_groups)))


def _decimal_sums(values: Any, of_rows: NDArray[np.uint32], num_groups: int, target: FieldSpec) -> Values:
    totals, scale = sum_texts(values if len(values) else pa.array([], pa.string()), of_rows, num_groups)
    if target.type is TypeName.BIG_DECIMAL:
        with exactly():  # str() of an integer refuses more than 4,300 digits
            return pa.array([plain_text(Decimal(total).scaleb(-scale)) for total in totals], pa.string())
    if any(not -(1 << 63) <= total < 1 << 63 for total in totals):
        raise _overflow(target)
    return _fitting(target, np.array(totals, np.int64))

"""JSON paths over a column at once: a kernel finds the values, and Python reads only distinct values, and the texts
that the kernel leaves.

Documents mostly differ from row to row even where the values in them do not. So the values that a path finds are made
distinct, not the documents. Texts that the kernel is not sure of (`kernels.json_paths`), and all texts of some paths,
are read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions import json_filter
from merlot.functions.by_value import by_value
from merlot.functions.json_filter import JsonFilter
from merlot.functions.json_path import ABSENT, JsonPath
from merlot.kernels import json_paths, json_scan
from merlot.tree.types import JSON, SqlType
from merlot.values.types import TypeName
from merlot.vectors.json_values import JsonValues
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import DTYPES, Attempt, Failure, Vector, failed

Convert = Callable[[Any], Any]
"""Function from what a path finds, or ABSENT, to the result; a row whose result is None fails."""


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def read_json(text: str) -> Any:
    """Return the value of a text, or ABSENT if it is no JSON."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return ABSENT


def values_at(texts: pa.Array, steps: Sequence[str | int]) -> tuple[JsonValues, NDArray[np.int64]]:
    """Return the values at the path of keys and list positions in each text, and the ascending rows of which the kernel
    is unsure."""
    offsets, data = text_buffers(texts)
    names = [step.encode() if isinstance(step, str) else b"" for step in steps]
    places = np.array([json_paths.NAME if isinstance(step, str) else step for step in steps], np.int64)
    values = JsonValues(
        data, np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int32), np.zeros(len(texts), np.uint8)
    )
    status = np.zeros(len(texts), np.uint8)
    joined, starts = np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)], dtype=np.int64)
    json_paths.find_at(data, offsets, joined, starts, places, values.begins, values.lengths, values.kinds, status)
    return values, np.flatnonzero(status)


def at_path(
    type_: SqlType, texts: Vector, path: JsonPath, convert: Convert, failure: str = "", *, is_cast: bool = False
) -> Attempt:
    """Return what a path finds in each text, converted.

    is_cast: True if values are converted as CAST does it, so that values of the result's type need no Python."""
    steps, rest = path.split()
    if texts.is_constant or not steps or not (path.is_definite or type_.is_array):
        return by_value(type_, [texts], lambda text: convert(path.value(read_json(text))), failure)
    values, unsure = values_at(texts.data, steps)
    sure = _converted(type_, values, convert, failure) if is_cast and not rest.steps else None
    if sure is None:
        raw = Vector(JSON, values.raw())
        sure = by_value(type_, [raw], lambda text: convert(rest.value(read_json(text))), failure)
    if not len(unsure):
        return sure
    others = Vector(texts.type, texts.data.take(pa.array(unsure)))
    return _with(sure, unsure, by_value(type_, [others], lambda text: convert(path.value(read_json(text))), failure))


def _with(sure: Attempt, rows: NDArray[np.int64], others: Attempt) -> Attempt:
    """Return `sure` with the values and failures of `others` in some rows."""
    failures = np.zeros(len(sure.data), np.bool_) if sure.failure is None else sure.failure.rows.copy()
    failures[rows] = False if others.failure is None else others.failure.rows
    reason = next((attempt.failure.reason for attempt in (sure, others) if attempt.failure is not None), "")
    if isinstance(sure.data, np.ndarray):
        data = sure.data.copy()
        data[rows] = others.data
    else:
        order = np.arange(len(sure.data))
        order[rows] = len(sure.data) + np.arange(len(rows))
        data = pa.concat_arrays([sure.data, others.data]).take(pa.array(order))
    return Attempt(data, failed(failures, reason))


def _converted(type_: SqlType, json_values: JsonValues, convert: Convert, failure: str) -> Attempt | None:
    """Return the values in the type, if all are written as its values are; else None."""
    values = _values(type_, json_values)
    if values is None:
        return None
    nothing, instead = json_values.nothing, convert(ABSENT)
    if instead is not None and nothing.any():
        values = pc.fill_null(values, instead) if isinstance(values, pa.Array) else np.where(nothing, instead, values)
    elif isinstance(values, pa.Array):
        values = pc.fill_null(values, "")
    data = values.astype(DTYPES[type_.base], copy=False) if isinstance(values, np.ndarray) else values
    lost: Failure | None = failed(nothing, failure) if instead is None else None
    return Attempt(data, lost)


def _values(type_: SqlType, json_values: JsonValues) -> Any:
    """Return the values in the type, with 0 or null where there is none; None if only Python can convert them."""
    match type_.base:
        case _ if type_.is_array:
            return None
        case TypeName.STRING:
            is_text = (
                json_values.is_written_once or np.isin(json_values.kinds, (json_scan.ABSENT, json_scan.ESCAPED)).all()
            )
            return json_values.texts() if is_text else None
        case TypeName.INT | TypeName.LONG:
            return _whole(json_values, type_.base)
        case TypeName.DOUBLE | TypeName.FLOAT:
            return _doubles(json_values, type_.base)
    return None


def _whole(json_values: JsonValues, base: TypeName) -> NDArray[np.int64] | None:
    numbers, bounds = json_values.whole(), np.iinfo(DTYPES[base])
    if numbers is None or numbers.min(initial=0) < bounds.min or numbers.max(initial=0) > bounds.max:
        return None
    return numbers


def _doubles(json_values: JsonValues, base: TypeName) -> NDArray[Any] | None:
    numbers = json_values.doubles()
    if numbers is None:
        return None
    # Python reads -0 as a whole number, which has no sign.
    numbers[(numbers == 0) & (json_values.lengths == 2)] = 0.0
    with np.errstate(over="ignore"):
        return numbers.astype(DTYPES[base], copy=False)


# JSON_MATCH


def matches(wanted: JsonFilter, texts: pa.Array) -> NDArray[np.bool_] | None:
    """Return which texts match a filter; None if its paths go through lists, whose elements Python tells apart."""
    unsure: list[NDArray[np.int64]] = []
    mask: NDArray[np.bool_] | None = _mask(wanted.condition, texts, unsure)
    if mask is None:
        return None
    mask ^= wanted.negate
    for row in np.unique(np.concatenate(unsure)).tolist():
        mask[row] = json_filter.holds(wanted, texts[row].as_py())
    return mask


def _mask(condition: json_filter.Condition, texts: pa.Array, unsure: list[NDArray[np.int64]]) -> Any:
    """Return the mask of the texts for which a condition holds, and add the rows of which the kernel is unsure to
    `unsure`. Return None if the paths go through lists."""
    if isinstance(condition, json_filter.JsonAnd | json_filter.JsonOr):
        masks = [_mask(part, texts, unsure) for part in condition.parts]
        if any(mask is None for mask in masks):
            return None
        return (np.logical_and if isinstance(condition, json_filter.JsonAnd) else np.logical_or).reduce(masks)
    names = [step for step in condition.path if isinstance(step, str)]
    if len(names) < len(condition.path):
        return None
    values, rows = values_at(texts, names)
    unsure.append(rows)
    mask = ~values.nothing & (values.kinds != json_scan.NESTED)
    if not isinstance(condition, json_filter.Exists):
        scalars = np.flatnonzero(mask)
        encoded = values.at(scalars).raw().dictionary_encode()
        verdicts = [json_filter.fits(condition, json_filter.loaded(text)) for text in encoded.dictionary.to_pylist()]
        mask[scalars] = np.array(verdicts, np.bool_)[encoded.indices.to_numpy()]
    return mask

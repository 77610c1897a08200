"""What holds for every registered aggregate, whatever it computes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.scalar_forms import ValueStatistics
from merlot.aggregates.sketches import SketchError
from merlot.aggregates.tuple_images import image
from merlot.tree.names import canonical_key
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import DTYPES

SLT = Path(__file__).parents[2] / "sql"
NUM_GROUPS = 3
TYPES = (
    TypeName.INT,
    TypeName.LONG,
    TypeName.FLOAT,
    TypeName.DOUBLE,
    TypeName.BIG_DECIMAL,
    TypeName.BOOLEAN,
    TypeName.TIMESTAMP,
    TypeName.STRING,
)


def tuple_sketch(number):
    hashes = np.arange(number, dtype=np.uint64) * np.uint64(1 << 54) + np.uint64(1)
    return image(1 << 60 if number > 25 else (1 << 63) - 1, hashes, np.arange(number) - 4)


def ultraloglog(number):
    """Of the bit after p of so many first registers, of two sizes."""
    p = 5 + number % 2
    return bytes([p, *[4 * p] * number]).ljust(1 + (1 << p), b"\0")


STORED: dict[str, Callable[[int], bytes]] = {
    **dict.fromkeys(
        [
            "distinctcounttuplesketch",
            "distinctcountrawintegersumtuplesketch",
            "sumvaluesintegersumtuplesketch",
            "avgvalueintegersumtuplesketch",
        ],
        tuple_sketch,
    ),
    "distinctcountull": ultraloglog,
}
"""What those take that take stored states alone: one, by a number."""


def calls_of(function):
    """With each type it takes, with and without null handling, and its other arguments if they may be left out."""
    has_optional = any(one.is_optional and not one.is_constant for one in function.parameters)
    least = [True, False] if has_optional else [False]
    types = (TypeName.BYTES,) if function.name in STORED else TYPES
    calls = [
        call_of(function, base, nulls=nulls, is_least=is_least)
        for base, nulls, is_least in product(types, (False, True), least)
    ]
    return [call for call in calls if call is not None]


def call_of(function, base, *, nulls, is_least=False):
    types, constants = [], []
    for parameter in function.parameters:
        if is_least and parameter.is_optional and not parameter.is_constant:
            continue
        if parameter.is_constant:
            constants.append(CONSTANTS[function.name, parameter.name])
        elif base in parameter.takes:
            types.append(SqlType(base))
        elif not types:
            return None
        else:
            types.append(SqlType(next(known for known in TYPES if known in parameter.takes)))
    if function.variant(types) != function.name:
        return None
    result = function.result(types, constants)
    return AggregateCall(types=tuple(types), constants=tuple(constants), result=result, nulls=nulls)


each_function = pytest.mark.parametrize("function", registry.FUNCTIONS, ids=lambda function: function.name)
DIGESTS = ["tdigest", "rawtdigest"]
EXACT_COUNTS = {"count", "distinctcount", "segmentpartitioneddistinctcount"}
EXACT_COUNTS |= {"distinctcountoffheap", "distinctcountsmarthll", "distinctcounthllplus"}
"""To them, bytes are values."""
KLLS = ["kll", "rawkll"]
CONSTANTS: dict[tuple[str, str], object] = {
    ("distinctcounthll", "log2m"): 6,
    **{(f"distinctcounthllplus{lists}", "p"): 14 for lists in ("", "mv")},
    **{(f"distinctcounthllplus{lists}", "sp"): 32 for lists in ("", "mv")},
    **{(f"distinctcountrawhllplus{lists}", "p"): 6 for lists in ("", "mv")},
    **{(f"distinctcountrawhllplus{lists}", "sp"): 0 for lists in ("", "mv")},
    ("distinctcountull", "p"): 12,
    ("distinctcountrawull", "p"): 5,
    ("distinctcountrawhll", "log2m"): 4,
    ("distinctcounthllmv", "log2m"): 6,
    ("distinctcountrawhllmv", "log2m"): 4,
    ("mode", "reducer"): "AVG",
    **{
        (f"percentile{form}{lists}", "percentile"): 40
        for form, lists in product([*DIGESTS, *KLLS, "", "est"], ("", "mv"))
    },
    **{(f"percentile{form}{lists}", "compression"): 1000 for form, lists in product(DIGESTS, ("", "mv"))},
    **{(f"percentile{form}{lists}", "k"): 400 for form, lists in product(KLLS, ("", "mv"))},
    **{(f"distinctcount{raw}thetasketch", "settings"): "nominalEntries=32" for raw in ("", "raw")},
    **{(name, "settings"): "nominalEntries=16" for name in STORED if "tuple" in name},
    **{(f"distinctcount{raw}cpcsketch", "settings"): 12 for raw in ("", "raw")},
    ("percentilesmarttdigest", "percentile"): 40,
    ("percentilesmarttdigest", "settings"): "threshold=10",
    **{(f"distinctcount{form}", "settings"): "threshold=10" for form in ("offheap", "smarthll")},
    ("arrayagg", "type"): "ANY",
    ("arrayagg", "distinct"): False,
    ("listagg", "separator"): "; ",
    ("listagg", "distinct"): False,
    ("histogram", "lower"): -40.0,
    ("histogram", "upper"): 40,
    ("histogram", "bins"): 16,
    **{(f"expr{form}", part): value for form in ("min", "max") for part, value in (("measures", 1), ("place", 0))},
    ("funnelcount", "steps"): 3,
    **{
        (f"funnel{form}", part): value
        for form in ("maxstep", "matchstep", "completecount", "stepdurationstats")
        for part, value in (("window", 1 << 40), ("steps", 3), ("settings", "STRICT_INCREASE"))
    },
    ("funnelstepdurationstats", "settings"): "durationFunctions=AVG,COUNT,MEDIAN",
    ("idset", "settings"): "sizeThresholdInBytes=1000",
    ("sumprecision", "precision"): 30,
    ("sumprecision", "scale"): 2,
    ("firstwithtime", "type"): "ANY",
    ("lastwithtime", "type"): "ANY",
}


def values_of(base, number, random_):
    match base:
        case TypeName.BIG_DECIMAL:
            data = np.empty(number, object)
            data[:] = [Decimal(random_.randrange(-(10**20), 10**20)) / 1000 for _ in range(number)]
            return data
        case TypeName.STRING:
            return pa.array([random_.choice("abcdefg") * random_.randrange(4) for _ in range(number)], pa.string())
        case TypeName.BOOLEAN:
            return np.array([random_.random() < 0.5 for _ in range(number)])
        case TypeName.LONG | TypeName.TIMESTAMP:
            return np.array([random_.randrange(-(2**60), 2**60) for _ in range(number)], np.int64)
        case TypeName.INT:
            return np.array([random_.randrange(-50, 50) for _ in range(number)], np.int32)
    return np.array([random_.randrange(-4000, 4000) / 8 for _ in range(number)], DTYPES[base])


def rows_of(function, call, number, seed):
    random_ = random.Random(seed)
    groups = np.array([random_.randrange(NUM_GROUPS) for _ in range(number)], np.uint32)
    if function.name in STORED:
        cells = [STORED[function.name](random_.randrange(30)) for _ in range(number)]
        return [pa.array(cells, pa.binary())], groups
    return [values_of(type_.base, number, random_) for type_ in call.types], groups


def part(values, groups, start, stop):
    sliced = [each[start:stop] if isinstance(each, np.ndarray) else each.slice(start, stop - start) for each in values]
    return sliced, groups[start:stop]


def state_of(function, call, values, groups):
    state = function.start(call, NUM_GROUPS)
    if len(groups):
        state.add(values, groups, len(groups))
    return state.columns(np.arange(NUM_GROUPS))


def merged(function, call, *states):
    rows = [pa.concat_arrays(columns) for columns in zip(*states, strict=True)]
    groups = np.tile(np.arange(NUM_GROUPS, dtype=np.uint32), len(states))
    return function.merge(call, rows, groups, NUM_GROUPS)


def answers(function, call, columns):
    return function.finish(call, columns).to_arrow(NUM_GROUPS).to_pylist()


def plain(columns):
    """States as Python's values; a list is a set of distinct ones."""
    return [
        [sorted(one, key=str) if isinstance(one, list) else one for one in column.to_pylist()] for column in columns
    ]


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        if isinstance(one, float) and isinstance(other, float):
            is_same = one == other or (math.isnan(one) and math.isnan(other))
            assert is_same or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-14), (left, right)
        else:
            assert one == other, (left, right)


@each_function
def test_columns_of_a_state_have_the_declared_types(function):
    for call in calls_of(function):
        columns = state_of(function, call, *rows_of(function, call, 40, 1))
        assert [column.type for column in columns] == [field.type for field in function.fields(call)]
        assert [column.type for column in function.identity(call)] == [field.type for field in function.fields(call)]
        assert len({field.suffix for field in function.fields(call)}) == len(columns)


@each_function
def test_merging_the_identity_changes_nothing(function):
    for call in calls_of(function):
        known = state_of(function, call, *rows_of(function, call, 40, 2))
        nothing = [pa.concat_arrays([column] * NUM_GROUPS) for column in function.identity(call)]
        for both in (merged(function, call, nothing, known), merged(function, call, known, nothing, nothing)):
            assert plain(both) == plain(known)
        assert_same(answers(function, call, merged(function, call, nothing, nothing)), answers(function, call, nothing))


@each_function
def test_states_merge_in_any_order(function):
    for call, seed in product(calls_of(function), range(2)):
        seeds = range(10 * seed, 10 * seed + 3)
        one, two, three = (state_of(function, call, *rows_of(function, call, 30, each)) for each in seeds)
        left = merged(function, call, merged(function, call, one, two), three)
        right = merged(function, call, one, merged(function, call, two, three))
        at_once = merged(function, call, three, one, two)
        assert_same(answers(function, call, left), answers(function, call, right))
        assert_same(answers(function, call, left), answers(function, call, at_once))


@each_function
def test_rows_split_into_parts_answer_as_the_whole(function):
    for call, seed in product(calls_of(function), range(2)):
        values, groups = rows_of(function, call, 60, 100 + seed)
        whole = state_of(function, call, values, groups)
        ends = (0, 7, 7, 41, 60)
        parts = [state_of(function, call, *part(values, groups, start, stop)) for start, stop in pairwise(ends)]
        assert_same(answers(function, call, merged(function, call, *parts)), answers(function, call, whole))


@each_function
@pytest.mark.parametrize("base", [TypeName.FLOAT, TypeName.DOUBLE])
def test_signs_of_zeros_do_not_depend_on_the_order_of_rows(function, base):
    calls = [call for call in calls_of(function) if call.types[0].base is base]
    for call, cut in product(calls, (0, 1)):
        others = [values_of(type_.base, 1, random.Random(3)) for type_ in call.types[1:]]
        found = []
        for zeros in ([0.0, -0.0], [-0.0, 0.0]):
            values = [np.array(zeros, DTYPES[base]), *(np.repeat(other, 2) for other in others)]
            groups = np.zeros(2, np.uint32)
            parts = [state_of(function, call, *part(values, groups, *ends)) for ends in ((0, cut), (cut, 2))]
            found.append(str(answers(function, call, merged(function, call, *parts))))
        assert found[0] == found[1]


@each_function
def test_a_single_group_answers_as_one_among_several(function):
    for call in calls_of(function):
        values, groups = rows_of(function, call, 50, 7)
        alone = function.start(call, 1)
        alone.add(values, None, len(groups))
        together = function.start(call, 2)
        together.add(values, np.ones(len(groups), np.uint32), len(groups))
        chosen = together.columns(np.array([1]))
        assert_same(
            function.finish(call, alone.columns(np.array([0]))).to_arrow(1).to_pylist(),
            function.finish(call, chosen).to_arrow(1).to_pylist(),
        )


@each_function
def test_no_groups_have_no_answers(function):
    for call in calls_of(function):
        none = [pa.array([], field.type) for field in function.fields(call)]
        assert len(function.finish(call, none).to_arrow(0)) == 0


@each_function
def test_states_of_the_same_fields_finish_in_either_mode(function):
    """Stages finish states that were taken in without null handling as with it (`Aggregation.tells_nothing`)."""
    for call in calls_of(function):
        without, with_nulls = replace(call, nulls=False), replace(call, nulls=True)
        if function.fields(without) == function.fields(with_nulls):
            values, groups = part(*rows_of(function, call, 40, 9), 0, 5)
            here, there = (state_of(function, one, values, groups) for one in (without, with_nulls))
            assert_same(answers(function, with_nulls, here), answers(function, with_nulls, there))


@each_function
def test_groups_that_come_later_start_from_nothing(function):
    for call in calls_of(function):
        values, groups = rows_of(function, call, 50, 8)
        state = function.start(call, 1)
        state.grow(NUM_GROUPS)
        state.add(values, groups, len(groups))
        state.grow(NUM_GROUPS + 2)
        grown = state.columns(np.arange(NUM_GROUPS + 2))
        assert_same(
            function.finish(call, [column.slice(0, NUM_GROUPS) for column in grown]).to_arrow(NUM_GROUPS).to_pylist(),
            answers(function, call, state_of(function, call, values, groups)),
        )
        last = [column.slice(NUM_GROUPS + 1, 1) for column in grown]
        assert plain(last) == plain(function.identity(call))


@cache
def names_called_in_sql_cases():
    texts = [path.read_text() for path in SLT.glob("*.slt")]
    return {canonical_key(name) for text in texts for name in re.findall(r"\b(\w+)\(", text)}


@each_function
def test_each_name_is_found_and_has_a_case_against_duckdb_or_its_rows(function):
    names = (function.name, *function.aliases)
    assert all(registry.find(name.upper()) is function for name in names)
    assert set(names) <= names_called_in_sql_cases()


def test_names_are_canonical_and_belong_to_one_aggregate():
    names = [name for function in registry.FUNCTIONS for name in (function.name, *function.aliases)]
    assert len(names) == len(set(names))
    assert all(name == canonical_key(name) for name in names)


@each_function
def test_states_come_back_from_their_bytes(function):
    """Stored states are of doubles: others are as near as a double is."""
    if not function.has_bytes:
        of_values = function.name.removesuffix("mv")
        assert TypeName.BYTES not in function.parameters[0].takes or of_values in EXACT_COUNTS
        return
    for call in calls_of(function):
        values, groups = rows_of(function, call, 50, 9)
        groups = np.minimum(groups, NUM_GROUPS - 2)
        whole = state_of(function, call, values, groups)
        cells = function.to_bytes(call, whole)
        assert [len(cell) > 0 for cell in cells.to_pylist()] == [True] * (NUM_GROUPS - 1) + [False]
        of_bytes = AggregateCall(
            types=(SqlType(TypeName.BYTES),), constants=call.constants, result=call.result, nulls=call.nulls
        )
        again = state_of(function, of_bytes, [cells], np.arange(NUM_GROUPS, dtype=np.uint32))
        assert_same(answers(function, of_bytes, again), answers(function, call, whole))
        assert function.to_bytes(of_bytes, again) == cells


@each_function
def test_bytes_that_are_no_states_are_refused(function):
    if function.has_bytes:
        call = AggregateCall(types=(SqlType(TypeName.BYTES),), result=function.result((), ()))
        with pytest.raises(SketchError, match="bytes are no"):
            state_of(function, call, [pa.array([b"", b"abc"])], np.zeros(2, np.uint32))


@each_function
def test_a_row_of_plain_numbers_is_the_same_row(function):
    form = function.scalar_form
    for call in calls_of(function):
        if form is None or call.nulls or call.types[0].base not in (TypeName.INT, TypeName.LONG, TypeName.DOUBLE):
            continue
        is_whole = call.types[0].base is not TypeName.DOUBLE
        if form.wants_extremes and not is_whole:
            continue
        (values,), _ = rows_of(function, call, 40, 12)
        state = function.start(call, 1)
        state.add([values], None, len(values))
        general = state.columns(np.zeros(1, np.int64))
        tally = tally_of(values.tolist(), is_whole=is_whole)
        plain_state = form.state(tally, is_whole=is_whole)
        assert plain_state == [column[0].as_py() for column in general]
        answer = form.answer([[value] for value in plain_state], is_whole=is_whole)
        assert answer == function.finish(call, general).data[0]
        nothing = [column.to_pylist() for column in function.identity(call)]
        finished = function.finish(call, function.identity(call)).data[0]
        for none in (nothing, [[] for _ in nothing]):
            assert form.answer(none, is_whole=is_whole) == finished


def tally_of(values, *, is_whole):
    if is_whole:
        return ValueStatistics(len(values), sum(values), low=min(values), high=max(values))
    return ValueStatistics(len(values), floats=(sum(values), 0.0))


def test_digests_of_many_values_stay_near_however_they_are_merged():
    function = registry.named("percentiletdigest")
    call = AggregateCall(types=(SqlType(TypeName.INT),), constants=(50,), result=SqlType(TypeName.DOUBLE))
    ranges = np.array_split(np.arange(3000, dtype=np.int32), 11)
    parts = [np.concatenate(ranges[start::2]) for start in range(2)]
    states = [state_of(function, call, [part], np.zeros(len(part), np.uint32)) for part in parts]
    united = merged(function, call, *states)
    assert abs(answers(function, call, united)[0] - 1500) < 3
    cell = function.to_bytes(call, united)[0].as_py()
    (number,) = np.frombuffer(cell[28:32], ">i4")
    assert number < 100
    assert len(united[0][0].as_py()) > len(cell)
    of_bytes = AggregateCall(types=(SqlType(TypeName.BYTES),), constants=(50,), result=SqlType(TypeName.DOUBLE))
    again = state_of(function, of_bytes, [pa.array([cell])], np.zeros(1, np.uint32))
    assert function.to_bytes(of_bytes, again)[0].as_py() == cell

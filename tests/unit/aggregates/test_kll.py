"""KLL images: sound ones go to the library, others never do."""

import base64
import random

import numpy as np
import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateCall
from merlot.aggregates.kll import KllState
from merlot.aggregates.kll_images import checked, is_sound
from merlot.aggregates.sketches import SketchError
from merlot.tree.types import BYTES
from merlot.vectors.errors import QueryArithmeticError


def image_of(number: int, k: int = 200) -> bytes:
    sketch = kll_doubles_sketch(k)
    sketch.update(np.random.default_rng(number).random(number))
    return sketch.serialize()


@pytest.mark.parametrize("k", [8, 200, 4_000])
@pytest.mark.parametrize("number", [0, 1, 2, 7, 200, 201, 5_000, 300_000])
def test_every_image_of_the_library_is_sound(number, k):
    assert is_sound(image_of(number, k))


def test_images_of_sketches_that_were_merged_are_sound():
    small, large = kll_doubles_sketch(8), kll_doubles_sketch(400)
    small.update(np.arange(10_000.0))
    large.update(np.arange(70_000.0))
    large.merge(small)
    assert is_sound(large.serialize())


def test_what_is_flipped_is_refused_or_harmless():
    chance = random.Random(5)
    sound = [image_of(number, k) for number in (1, 2, 40, 900, 20_000) for k in (8, 200)]
    refused = 0
    for _ in range(4_000):
        image = bytearray(chance.choice(sound))
        for _ in range(chance.randrange(1, 3)):
            image[chance.randrange(chance.choice([min(len(image), 30), len(image)]))] = chance.randrange(256)
        if not is_sound(bytes(image)):
            refused += 1
            continue
        sketch = kll_doubles_sketch.deserialize(bytes(image))
        other = kll_doubles_sketch(200)
        other.merge(sketch)
        assert sketch.n == other.n
    assert refused > 2_000


def test_bytes_that_are_no_sketch_name_their_row():
    with pytest.raises(SketchError, match="no serialized KLL sketch of doubles row=1"):
        checked(pa.array([image_of(5), b"\x00" * 40]))


def test_values_of_few_rows_are_exact_after_merging_by_group():
    values = np.random.default_rng(2).random(150)
    groups = (np.arange(150) % 3).astype(np.uint32)
    merged = KllState(3, 200)
    for start in range(0, 150, 40):
        part = KllState(3, 200)
        cut = slice(start, start + 40)
        part.add([values[cut]], groups[cut], len(values[cut]))
        merged.merge(part.columns(np.arange(3)), np.arange(3, dtype=np.uint32))
    images = merged.columns(np.arange(3))[0].to_pylist()
    for group, image in enumerate(images):
        kept = np.sort(values[groups == group])
        assert kll_doubles_sketch.deserialize(image).get_quantile(0.5, inclusive=True) == kept[24]


@pytest.mark.parametrize(
    ("name", "nulls", "nothing"),
    [
        ("percentilekll", False, np.nan),
        ("percentilekll", True, None),
        ("percentilerawkll", False, base64.b64encode(image_of(0)).decode()),
        ("percentilerawkll", True, None),
    ],
)
def test_stored_sketches_without_values_answer_as_no_sketches(name, nulls, nothing):
    function = registry.named(name)
    call = AggregateCall(types=(BYTES,), constants=(50,), result=function.result((), ()), nulls=nulls)
    state = function.start(call, 2)
    state.add([pa.array([image_of(0), image_of(0, 8), image_of(0), image_of(1)])], np.array([0, 0, 1, 1], np.uint32), 4)
    without_values, with_value = function.finish(call, state.columns(np.arange(2))).to_arrow(2).to_pylist()
    np.testing.assert_equal(without_values, nothing)
    alone = function.start(call, 1)
    alone.add([pa.array([image_of(1)])], None, 1)
    assert [with_value] == function.finish(call, alone.columns(np.arange(1))).to_arrow(1).to_pylist()


def test_nan_is_an_error_of_the_query():
    with pytest.raises(QueryArithmeticError, match="no NaN"):
        KllState(1, 200).add([np.array([np.nan])], None, 1)

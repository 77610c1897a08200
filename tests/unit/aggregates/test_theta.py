"""Theta sketches beside those of the library, and images that are no sketches."""

import random

import numpy as np
import pyarrow as pa
import pytest
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch

from merlot.aggregates.sketches import SketchError
from merlot.aggregates.theta import ThetaState, estimates, hashes_of
from merlot.aggregates.theta_images import Sketches, empty_image, images, read_images
from merlot.values.types import TypeName

TEXTS = ["", "a", "abcdefgh", "abcdefghi", "a" * 16, "x" * 17, "é" * 20, "q" * 31, "z" * 32]
DOUBLES = [1.5, -0.0, 0.0, float("nan"), float("inf"), 3.0]


def of_library(values, log2k: int):
    """What a union makes of the values' sketch: cut down to the nominal entries."""
    sketch, union = update_theta_sketch(log2k), theta_union(log2k)
    for value in values:
        sketch.update(value)
    union.update(sketch)
    return union.get_result()


def state_of(values: np.ndarray, entries: int) -> pa.Array:
    state = ThetaState(TypeName.LONG, 1, entries)
    state.add([values], None, len(values))
    return state.columns(np.zeros(1, np.int64))[0]


@pytest.mark.parametrize(("type_", "values"), [(TypeName.STRING, TEXTS), (TypeName.DOUBLE, DOUBLES)])
def test_hashes_are_those_of_the_library(type_, values):
    given = pa.array(values) if type_ is TypeName.STRING else np.array(values)
    ours = {number for number in hashes_of(type_, given).tolist() if number}
    assert ours == set(of_library(values, 12))


@pytest.mark.parametrize("entries", [32, 1024])
@pytest.mark.parametrize("number", [1, 2, 31, 32, 33, 1_000, 30_000])
def test_hashes_and_estimate_are_those_of_the_library(entries, number):
    (image,) = state_of(np.arange(number), entries).to_pylist()
    theirs = of_library(range(number), entries.bit_length() - 1)
    read = compact_theta_sketch.deserialize(image)
    assert list(read) == list(theirs)
    assert read.get_estimate() == theirs.get_estimate()
    assert estimates(pa.array([image]))[0] == round(theirs.get_estimate())


def test_a_union_is_the_sketch_of_all_values_however_they_are_cut():
    chance = np.random.default_rng(3)
    values, groups = chance.integers(0, 5_000, 40_000), chance.integers(0, 5, 40_000).astype(np.uint32)
    whole = ThetaState(TypeName.LONG, 5, 64)
    whole.add([values], groups, len(values))
    merged = ThetaState(TypeName.LONG, 1, 64)
    for start in range(0, len(values), 7_001):
        part = ThetaState(TypeName.LONG, 5, 64)
        cut = slice(start, start + 7_001)
        part.add([values[cut]], groups[cut], len(values[cut]))
        merged.grow(5)
        merged.merge(part.columns(np.arange(5)), np.arange(5, dtype=np.uint32))
    assert merged.columns(np.arange(5)) == whole.columns(np.arange(5))


def test_the_library_s_own_images_are_read_and_an_absent_one_is_nothing():
    theirs = [of_library(range(number), 5).serialize() for number in (0, 1, 2, 500)]
    given = read_images(pa.array([*theirs, b"", None], pa.binary()))
    assert given.counts().tolist() == [0, 1, 2, 32, 0, 0]
    assert given.present.tolist() == [True, True, True, True, False, False]
    assert empty_image() == theirs[0]


def test_a_table_of_java_s_updatable_sketch_is_read_without_its_zeros():
    hashes = np.sort(hashes_of(TypeName.LONG, np.arange(3)))
    head = bytes([3 | 3 << 6, 3, 2, 5, 3, 0, 0xCC, 0x93]) + (3).to_bytes(4, "little") + b"\0\0\x80\x3f"
    theta = ((1 << 63) - 1).to_bytes(8, "little")
    table = np.zeros(8, "<u8")
    table[[1, 4, 7]] = hashes
    given = read_images(pa.array([head + theta + table.tobytes()]))
    assert given.hashes.tolist() == hashes.tolist()


def test_what_is_read_is_written_again_to_the_byte():
    given = state_of(np.arange(5_000), 64)
    read = read_images(given)
    assert images(Sketches(read.thetas, read.bounds, read.hashes, read.present)) == given


def test_bytes_that_are_no_sketch_are_an_error_and_nothing_else():
    chance = random.Random(11)
    sound = [state_of(np.arange(number), 32).to_pylist()[0] for number in (1, 2, 30, 500)]
    refused = 0
    for _ in range(3_000):
        image = bytearray(chance.choice(sound))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(min(len(image), 32))
            image[place] = chance.randrange(256)
        if chance.random() < 0.3:
            del image[chance.randrange(len(image)) :]
        try:
            estimates(pa.array([bytes(image)]))
        except SketchError:
            refused += 1
    assert 1_000 < refused < 3_000


@pytest.mark.parametrize(
    ("place", "byte", "problem"),
    [(1, 1, "serial version 3"), (6, 0, "another seed"), (2, 10, "no serialized theta"), (8, 9, "no serialized theta")],
)
def test_a_sketch_of_another_kind_is_refused(place, byte, problem):
    image = bytearray(state_of(np.arange(20), 32).to_pylist()[0])
    image[place] = byte
    with pytest.raises(SketchError, match=problem):
        read_images(pa.array([bytes(image)]))

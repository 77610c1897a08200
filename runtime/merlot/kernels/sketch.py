"""Merging of serialized sketches of many rows into one per group: HyperLogLog registers, t-digest centroids.

Bytes are one buffer; `starts` says where each entry begins. `members` are entries; those of group g are at [bounds[g],
bounds[g + 1]), in the order of rows. Results are written big-endian, one group after another, at `out_starts`. A kernel
that meets an entry that does not fit returns its position among the members, else -1.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
REGISTER_BITS = 5
REGISTERS_PER_WORD = 6
HLL_HEADER = 8
VERBOSE_HEADER = 32
SMALL_HEADER = 30
VERBOSE = 1
_NONE = -1


@kernel
def rows_by_group(of_rows: NDArray[np.uint32], ends: Places, rows: Places) -> None:
    """Write row numbers ordered by group, then by row. ends[g]: where group g starts, and afterwards where it ends."""
    for row in range(len(of_rows)):
        group = of_rows[row]
        rows[ends[group]] = row
        ends[group] += 1


@kernel
def union_registers(
    data: Bytes, starts: Places, lengths: Places, members: Places, bounds: Places, out: Bytes, out_starts: Places
) -> int:
    """Write each register's maximum, packed as clearspring's RegisterSet does; entries of a group have one log2m."""
    for group in range(len(bounds) - 1):
        if bounds[group] == bounds[group + 1]:
            continue
        first = members[bounds[group]]
        length, target = lengths[first], out_starts[group]
        for place in range(length):
            out[target + place] = data[starts[first] + place]
        for number in range(bounds[group] + 1, bounds[group + 1]):
            entry = members[number]
            # log2m is below 256, so its last byte is enough.
            if lengths[entry] != length or data[starts[entry] + 3] != data[starts[first] + 3]:
                return number
            for place in range(HLL_HEADER, length, 4):
                _union_word(data, starts[entry] + place, out, target + place)
    return _NONE


@kernel
def _union_word(data: Bytes, source: int, out: Bytes, target: int) -> None:
    ours, theirs, union = 0, 0, 0
    for place in range(4):
        ours = (ours << 8) | int(out[target + place])
        theirs = (theirs << 8) | int(data[source + place])
    if ours == theirs:
        return
    for register in range(REGISTERS_PER_WORD):
        mask = 0x1F << (REGISTER_BITS * register)
        union |= max(ours & mask, theirs & mask)
    for place in range(4):
        out[target + place] = (union >> (24 - 8 * place)) & 0xFF


@kernel
def merge_centroids(
    data: Bytes,
    starts: Places,
    lengths: Places,
    members: Places,
    bounds: Places,
    compression: float,
    out: Bytes,
    out_starts: Places,
) -> int:
    """Merge the centroids of each group into a t-digest, by the scale function K_2 of com.tdunning's MergingDigest 3.3.

    A group of one entry keeps its bytes. `out_starts[0]` is given, the others are written. `out` has room for a verbose
    digest of all centroids of each group."""
    for group in range(len(bounds) - 1):
        target = out_starts[group]
        first, last = bounds[group], bounds[group + 1]
        if last - first == 1:
            entry = members[first]
            out[target : target + lengths[entry]] = data[starts[entry] : starts[entry] + lengths[entry]]
            out_starts[group + 1] = target + lengths[entry]
        elif last > first:
            size, unfit = _merge_group(data, starts, members[first:last], compression, out, target)
            if unfit != _NONE:
                place: int = first + unfit
                return place
            out_starts[group + 1] = target + size
        else:
            out_starts[group + 1] = target
    return _NONE


@kernel
def _merge_group(
    data: Bytes, starts: Places, members: Places, compression: float, out: Bytes, target: int
) -> tuple[int, int]:
    """Return the number of bytes written, and the position of a malformed member or -1."""
    total = 0
    for entry in members:
        total += count_centroids(data, starts[entry])
    bits = np.zeros(2 * total + 2, np.uint64)
    numbers = bits.view(np.float64)
    least, greatest = np.inf, -np.inf
    number = 0
    for place in range(len(members)):
        start = starts[members[place]]
        bits[2 * total] = _read_word(data, start + 4, 8)
        bits[2 * total + 1] = _read_word(data, start + 12, 8)
        least, greatest = min(least, numbers[2 * total]), max(greatest, numbers[2 * total + 1])
        count = count_centroids(data, start)
        _read_centroids(data, start, count, numbers, bits, number, total)
        for centroid in range(number, number + count):
            if not (0 < numbers[centroid] < np.inf) or not (-np.inf < numbers[total + centroid] < np.inf):
                return 0, place
        number += count
    num_centroids = _merge_sorted(numbers[:total], numbers[total : 2 * total], compression)
    _write_word(np.uint64(VERBOSE), out, target, 4)
    scratch = np.empty(3, np.float64)
    scratch[0], scratch[1], scratch[2] = least, greatest, compression
    header = scratch.view(np.uint64)
    for place in range(3):
        _write_word(header[place], out, target + 4 + 8 * place, 8)
    _write_word(np.uint64(num_centroids), out, target + 28, 4)
    for centroid in range(num_centroids):
        _write_word(bits[centroid], out, target + VERBOSE_HEADER + 16 * centroid, 8)
        _write_word(bits[total + centroid], out, target + VERBOSE_HEADER + 16 * centroid + 8, 8)
    return VERBOSE_HEADER + 16 * num_centroids, _NONE


@kernel
def count_centroids(data: Bytes, start: int) -> int:
    """Return the number of centroids of a digest in either encoding."""
    if data[start + 3] == VERBOSE:
        return int(_read_word(data, start + 28, 4))
    return int(_read_word(data, start + 28, 2))


@kernel
def _read_centroids(
    data: Bytes, start: int, count: int, numbers: NDArray[np.float64], bits: Any, number: int, total: int
) -> None:
    """Read weights to [number:], means to [total + number:]."""
    if data[start + 3] == VERBOSE:
        for index in range(count):
            at = start + VERBOSE_HEADER + 16 * index
            bits[number + index] = _read_word(data, at, 8)
            bits[total + number + index] = _read_word(data, at + 8, 8)
        return
    halves = np.empty(2 * count, np.uint32)
    for index in range(2 * count):
        halves[index] = np.uint32(_read_word(data, start + SMALL_HEADER + 4 * index, 4))
    floats = halves.view(np.float32)
    for index in range(count):
        numbers[number + index] = floats[2 * index]
        numbers[total + number + index] = floats[2 * index + 1]


@kernel
def _merge_sorted(weights: NDArray[np.float64], means: NDArray[np.float64], compression: float) -> int:
    """Merge the centroids in one pass in the order of their means; the first and the last are never merged."""
    count = len(weights)
    if count == 0:
        return 0
    order = _stable_order(means)
    old_means, old_weights = np.empty(count), np.empty(count)
    for place in range(count):
        old_means[place], old_weights[place] = means[order[place]], weights[order[place]]
    whole = 0.0
    for weight in weights:
        whole += weight
    normalizer = compression / (4.0 * math.log(whole / compression) + 24.0)
    before, last = 0.0, 0
    means[0], weights[0] = old_means[0], old_weights[0]
    for centroid in range(1, count):
        proposed = weights[last] + old_weights[centroid]
        low, high = before / whole, (before + proposed) / whole
        limit = whole * min(low * (1.0 - low) / normalizer, high * (1.0 - high) / normalizer)
        if proposed <= limit and centroid not in (1, count - 1):
            weights[last] += old_weights[centroid]
            means[last] += (old_means[centroid] - means[last]) * old_weights[centroid] / weights[last]
        else:
            before += weights[last]
            last += 1
            means[last], weights[last] = old_means[centroid], old_weights[centroid]
    return last + 1


@kernel
def _stable_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the positions of finite values in ascending order, stable: a bottom-up merge sort.

    numba takes 6 s to compile its np.argsort."""
    count, width = len(values), 1
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    for place in range(count):
        order[place] = place
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for place in range(low, high):
                if right == high or (left < middle and values[order[left]] <= values[order[right]]):
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@kernel
def _read_word(data: Bytes, start: int, width: int) -> Any:
    word = np.uint64(0)
    for place in range(width):
        word = (word << np.uint64(8)) | np.uint64(data[start + place])
    return word


@kernel
def _write_word(word: Any, out: Bytes, start: int, width: int) -> None:
    for place in range(width):
        out[start + place] = np.uint8((word >> np.uint64(8 * (width - 1 - place))) & np.uint64(0xFF))


@kernel
def quantiles(data: Bytes, starts: Places, share: float, scratch: Any, out: NDArray[np.float64]) -> None:
    """Write the quantile `share` of each digest, as MergingDigest 3.3 interpolates it; NaN for an empty digest.

    Entry g is at [starts[g], starts[g + 1]), in either encoding. scratch u64, two for each centroid of the largest
    digest and two more, written; out (G,) f64, written. A centroid of one value is that value, so digests of few values
    are exact."""
    numbers = scratch.view(np.float64)
    for entry in range(len(starts) - 1):
        start = starts[entry]
        count: Any = np.int64(0)
        if starts[entry + 1] > start:
            count = np.int64(count_centroids(data, start))
        if count == 0:
            out[entry] = np.nan
            continue
        _read_centroids(data, start, count, numbers, scratch, 0, count)
        scratch[2 * count] = _read_word(data, start + 4, 8)
        scratch[2 * count + 1] = _read_word(data, start + 12, 8)
        weights, means = numbers[:count], numbers[count : 2 * count]
        out[entry] = _quantile(weights, means, numbers[2 * count], numbers[2 * count + 1], share)


@kernel
def _quantile(
    weights: NDArray[np.float64], means: NDArray[np.float64], least: float, greatest: float, share: float
) -> float:
    count = len(weights)
    if count == 1:
        return float(means[0])
    whole = 0.0
    for weight in weights:
        whole += weight
    index = share * whole
    first, last = weights[0], weights[count - 1]
    if index < 1.0:
        return least
    if first > 1.0 and index < first / 2.0:
        return float(least + (index - 1.0) / (first / 2.0 - 1.0) * (means[0] - least))
    if index > whole - 1.0:
        return greatest
    if last > 1.0 and whole - index <= last / 2.0:
        return float(greatest - (whole - index - 1.0) / (last / 2.0 - 1.0) * (greatest - means[count - 1]))
    before = first / 2.0
    for centroid in range(count - 1):
        step = (weights[centroid] + weights[centroid + 1]) / 2.0
        if before + step > index:
            left, right = index - before, before + step - index
            # A single value covers the range up to the middle between it and its neighbour.
            if weights[centroid] == 1.0:
                if left < 0.5:
                    return float(means[centroid])
                left -= 0.5
            if weights[centroid + 1] == 1.0:
                if right <= 0.5:
                    return float(means[centroid + 1])
                right -= 0.5
            mixed = (means[centroid] * right + means[centroid + 1] * left) / (left + right)
            return float(min(max(mixed, means[centroid]), means[centroid + 1]))
        before += step
    return greatest

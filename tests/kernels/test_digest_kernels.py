"""Quantiles of t-digests beside numpy's: exact of single values, near of merged ones."""

import struct

import numpy as np
import pytest

from merlot.kernels import sketch

RANDOM = np.random.default_rng(3)


def digest(weights, means, least, greatest, *, is_small=False):
    if is_small:
        head = struct.pack(">idd", 2, least, greatest) + struct.pack(">ffh", 100, 0, len(means))
        return head + b"".join(struct.pack(">ff", *pair) for pair in zip(weights, means, strict=True))
    head = struct.pack(">idddi", 1, least, greatest, 100, len(means))
    return head + b"".join(struct.pack(">dd", *pair) for pair in zip(weights, means, strict=True))


def quantiles(digests, share):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in digests])]).astype(np.int64)
    out = np.empty(len(digests))
    scratch = np.empty(max(map(len, digests), default=0) // 4 + 2, np.uint64)
    sketch.quantiles(np.frombuffer(b"".join(digests) + b"\0", np.uint8), starts, share, scratch, out)
    return out


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 10, 31])
def test_values_by_themselves_have_the_quantile_at_their_place(number, is_small):
    values = np.sort(RANDOM.integers(0, 1000, number) / 8)
    one = digest(np.ones(number), values, values[0], values[-1], is_small=is_small)
    for share in (0.0, 0.05, 0.3, 0.5, 0.77, 0.99):
        assert quantiles([one, b"", one], share)[[0, 2]].tolist() == [values[int(share * number)]] * 2
    assert quantiles([one], 1.0) == [values[-1]]


def test_nothing_has_no_quantile():
    empty = digest([], [], np.inf, -np.inf)
    assert np.isnan(quantiles([b"", empty], 0.5)).all()


def test_between_centroids_of_many_values_lies_a_line():
    one = digest([1, 10, 10, 1], [0.0, 10.0, 20.0, 30.0], 0.0, 30.0)
    assert quantiles([one], 11 / 22) == pytest.approx(15.0)
    assert quantiles([one], 6 / 22) == pytest.approx(10.0)
    assert quantiles([one], 16 / 22) == pytest.approx(20.0)
    shares = [quantiles([one], share)[0] for share in np.linspace(0, 1, 200)]
    assert np.all(np.diff(shares) >= 0)


def test_ends_of_many_values_reach_from_the_least_to_the_greatest():
    one = digest([10, 10], [5.0, 15.0], 0.0, 20.0)
    assert quantiles([one], 0.0) == [0.0]
    assert quantiles([one], 1.0) == [20.0]
    assert 0.0 < quantiles([one], 0.15)[0] < 5.0
    assert 15.0 < quantiles([one], 0.85)[0] < 20.0

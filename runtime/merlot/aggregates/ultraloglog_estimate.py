"""Estimate the number of distinct values of an UltraLogLog by the optimal FGRA estimator, hash4j's default.

It is from Ertl, "UltraLogLog: a practical and more space-efficient alternative to HyperLogLog for approximate distinct
counting" (VLDB 2024).

A register r of a sketch of 2^p contributes eta[r mod 4] 2^(-tau (r div 4 - p + 2)). The estimate is the sum of these,
to the power of -1 / tau, times a factor. The four least and the four greatest register values do not distinguish counts
beyond their range. They contribute their expected value instead: sigma, psi and phi of the paper.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_ETA: Final = np.array([4.663135422063788, 2.1378502137958524, 2.781144650979996, 0.9824082545153715])
_TAU: Final = 0.8194911375910897
_VARIANCE: Final = 0.6118931496978437
"""Square of the relative error, times the number of registers m."""
_STEP: Final = 2.0**-_TAU
_ETA_X: Final = _ETA[0] - _ETA[1] - _ETA[2] + _ETA[3]
_KINDS: Final = 256
_SATURATED: Final = 252
"""Least register value with bit 63."""
_LONG_MAX: Final = np.iinfo(np.int64).max


def counts_of(registers: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return, for each of (N, 2^p) sketches, the number of registers with each value, (N, 256)."""
    cells = registers + _KINDS * np.arange(len(registers), dtype=np.int64)[:, np.newaxis]
    return np.bincount(cells.ravel(), minlength=_KINDS * len(registers)).reshape(-1, _KINDS)


def estimates(counts: NDArray[np.int64], p: int) -> Numbers:
    """Return the estimates of sketches of one p. counts: number of registers with each value, (N, 256)."""
    size = float(1 << p)
    least = 4 * p + 4
    values = np.arange(least, _SATURATED)
    weights = _ETA[values & 3] * _STEP ** (values // 4 - p + 2)
    total = counts[:, least:_SATURATED] @ weights
    total += _of_the_least(counts[:, [0, 4 * p - 4, 4 * p, 4 * p + 2]].astype(np.float64), size)
    total += _of_the_greatest(counts[:, _SATURATED:].astype(np.float64), size) * _STEP ** (65 - p)
    factor = size ** (1 + 1 / _TAU) / (1 + (1 + _TAU) / 2 * _VARIANCE / size)
    with np.errstate(divide="ignore"):
        result: Numbers = factor * total ** (-1 / _TAU)
    return result


def rounded(estimate: Numbers) -> NDArray[np.int64]:
    """Round half up, to at most the greatest LONG, as Java's Math.round does. From 2**52 on the result may be higher
    by 1."""
    is_large = estimate >= float(_LONG_MAX)
    whole: NDArray[np.int64] = np.floor(np.where(is_large, 0, estimate) + 0.5).astype(np.int64)
    return np.where(is_large, _LONG_MAX, whole)


def _of_the_least(counts: Numbers, size: float) -> Numbers:
    """Return the contribution of the least registers: empty, with bit p - 1, with bit p, and with both bits. counts:
    their numbers."""
    none, lone, second, both = counts.T
    alpha = size + 3 * (none + lone + second + both)
    beta = size - none - lone
    gamma = 4 * none + 2 * lone + 3 * second + both
    z = ((np.sqrt(beta * beta + 4 * alpha * gamma) - beta) / (2 * alpha)) ** 4
    with np.errstate(invalid="ignore"):
        of_none = np.where(none > 0, none * _sigma(z), 0)
    total: Numbers = of_none + lone * _STEP * _ETA_X * _psi(z, z * z)
    total += second * _STEP**2 * (z * (_ETA[0] - _ETA[1]) + _ETA[1])
    total += both * _STEP**2 * (z * (_ETA[2] - _ETA[3]) + _ETA[3])
    return total


def _of_the_greatest(counts: Numbers, size: float) -> Numbers:
    """Return the contribution of registers with bit 63, times 2^(tau (65 - p)). counts: their numbers by the bits
    below."""
    number = counts.sum(axis=1)
    alpha = size + 3 * number
    beta = number + counts[:, 2] + counts[:, 3]
    gamma = size + 2 * counts[:, 0] + counts[:, 2] - counts[:, 3]
    z = np.sqrt((np.sqrt(beta * beta + 4 * alpha * gamma) - beta) / (2 * alpha))
    root = np.sqrt(z)
    total = _phi(root, z) * number + z * (1 + root) * (counts @ _ETA)
    total += root * _STEP * (counts[:, 0] + counts[:, 1]) * (z * (_ETA[0] - _ETA[2]) + _ETA[2])
    total += root * _STEP * (counts[:, 2] + counts[:, 3]) * (z * (_ETA[1] - _ETA[3]) + _ETA[3])
    result: Numbers = np.where(number > 0, total / ((1 + root) * (1 + z)), 0)
    return result


def _psi(z: Numbers, square: Numbers) -> Numbers:
    """Return the paper's psi, divided by eta_x."""
    rest = (_ETA[3] * _ETA[0] - _ETA[1] * _ETA[2]) / _ETA_X**2
    result: Numbers = (z + (_ETA[2] - _ETA[3]) / _ETA_X) * (square + (_ETA[1] - _ETA[3]) / _ETA_X) + rest
    return result


def _sigma(z: Numbers) -> Numbers:
    """Return the paper's sigma: a series, summed until it no longer grows; infinite at 1."""
    power, scale = z, _ETA_X
    total = np.zeros(len(z))
    while True:
        square = power * power
        more = total + scale * (power - square) * _psi(square, square * square)
        if not (more > total).any():
            break
        total, power, scale = more, square, scale / _STEP
    result: Numbers = np.where(z >= 1, np.inf, np.where(z > 0, total / np.where(z > 0, z, 1), _ETA[3]))
    return result


def _phi(z: Numbers, square: Numbers) -> Numbers:
    """Return the paper's phi: a series of roots, summed until it no longer grows."""
    root = np.sqrt(z)
    scale: Any = _ETA_X * _STEP**2 / (2 - _STEP) / (1 + root)
    before = _psi(z, square)
    total = 2 * root * before * scale
    power = z
    while True:
        power, root = root, np.sqrt(root)
        after = _psi(power, power * power)
        scale = scale * _STEP / (1 + root)
        more = total + root * (2 * after - (power + root) * before) * scale
        if not (more > total).any():
            break
        total, before = more, after
    result: Numbers = np.where(z >= 1, _ETA[0] * _STEP**2 / (2 - _STEP), np.where(z > 0, total, 0))
    return result

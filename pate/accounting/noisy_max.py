"""RDP of report-noisy-max with Gaussian noise: four bounds, proved in docs/noisy_max.md, and their minimum.

n scores, each of which moves by at most s between neighbours (any signs), get independent N(0, sigma^2) noise and the
index of the largest is released. `candidates` is n and `ratio` is s / sigma. Every function takes an array of orders
alpha > 1 (or one order) and returns an array, one value per order. Bounds 1 and 2 hold for the index alone; bounds 3
and 4 hold for the index together with the winning noisy score.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtri_exp

from pate.errors import require

Floats = NDArray[np.float64]

MARGIN = 1 + 1e-9  # The quadratures below are accurate to 1e-12; this keeps them upper bounds all the same.
FAR = 1e4  # Beyond alpha * ratio = FAR bound 4 saves less than one part in 1e8 on bound 3.
LOUD = 1e100  # Above this ratio a bound is inf, below its inverse bound 3 serves: no square over- or underflows.
EDGE = 10.0  # Ends of the normal line, in standard deviations: less than 1e-16 of any integral lies outside.
DEPTH = 40.0  # A window holds what is within exp(-DEPTH) of the peak.


def union(alpha: ArrayLike, candidates: int, ratio: float) -> Floats:
    """Bound 1: shift the winner by 2s, then a union over the candidates; for the index alone.

    Guarantee: D_alpha <= 2 ratio^2 alpha + log(n) / (alpha - 1).
    Zhu & Wang 2022, Theorem 8 and Corollary 9 with shift 2s; docs/noisy_max.md, Theorem 1.

    >>> union([2.0, 8.0], candidates=39, ratio=0.02).round(4)
    array([3.6652, 0.5298])
    """
    order = _checked(alpha, candidates, ratio)
    return 2 * ratio * ratio * order + math.log(candidates) / (order - 1)


def disjoint_events(alpha: ArrayLike, candidates: int, ratio: float) -> Floats:
    """Bound 2: as bound 1, but only one candidate can win; for the index alone.

    Guarantee: D_alpha <= log E[exp((alpha - 1)(2 ratio R + 2 ratio^2))] / (alpha - 1), R the largest of n standard
    normals. Never above bound 1, and finite as alpha falls to 1. docs/noisy_max.md, Theorem 2.

    >>> disjoint_events([2.0, 8.0], candidates=39, ratio=0.02).round(4)
    array([0.087 , 0.0881])
    """
    order = _checked(alpha, candidates, ratio)
    if ratio == 0 or ratio > LOUD:
        return np.full_like(order, math.inf if ratio else 0.0)
    # The expectation is exp(2 alpha (alpha - 1) ratio^2) times n P(Z + start beats n - 1 other normals).
    gain = _log_head_start(2 * (order - 1) * ratio, candidates)
    return 2 * ratio * ratio * order + gain / (order - 1)


def gap_vector(alpha: ArrayLike, squared_sensitivity_ratio: float) -> Floats:
    """Bound 3: the choice is post-processing of the whole noisy score vector, winner's value included.

    Guarantee: D_alpha <= alpha Delta^2 / (2 sigma^2); the argument is Delta^2 / sigma^2 = n ratio^2 where all n scores
    move by s. The Gaussian mechanism; docs/noisy_max.md, Theorem 3.

    >>> gap_vector([2.0, 8.0], 39 * 0.02**2)
    array([0.0156, 0.0624])
    """
    require(squared_sensitivity_ratio >= 0, "squared_sensitivity_ratio", ">= 0", squared_sensitivity_ratio)
    return _orders(alpha) * squared_sensitivity_ratio / 2


def jensen(alpha: ArrayLike, candidates: int, ratio: float) -> Floats:
    """Bound 4: a Jensen gap of -log Phi under a tilted law; holds for the index and the winning noisy score.

    Guarantee: D_alpha <= log E[exp(alpha (alpha - 1) ratio^2 / 2 * (1 + (n - 1) kappa(Y - alpha ratio)))] / (alpha - 1)
    with Y the largest of n - 1 standard normals (that is Phi^-1(exp(-X / (n - 1))), X ~ Exp(1)) and
    kappa = (-log Phi)''. Never above bound 3; docs/noisy_max.md, Theorem 4.

    >>> jensen([2.0, 8.0], candidates=39, ratio=0.02).round(6)
    array([0.002153, 0.009993])
    """
    order = _checked(alpha, candidates, ratio)
    result = gap_vector(order, candidates * ratio * ratio)
    near = order * ratio < FAR
    if candidates == 1 or ratio < 1 / LOUD or not near.any():
        return result
    order = order[near]
    unit = order * (order - 1) * ratio * ratio / 2
    excess = _log_mean_excess(unit * (candidates - 1), order * ratio, candidates - 1)
    bound = MARGIN * (unit + np.logaddexp(0, excess)) / (order - 1)
    result[near] = np.minimum(result[near], bound)
    return result


def valid_minimum(alpha: ArrayLike, candidates: int, ratio: float, value_released: bool = False) -> Floats:
    """The pointwise minimum of the bounds that hold: all four, or 3 and 4 if the winning noisy score is released too.

    Guarantee: D_alpha(M(u + t) || M(u)) <= this for every u and every |t_j| <= s. Nondecreasing in alpha, candidates
    and ratio; 0 for one candidate (nothing is chosen) unless its value is released. docs/noisy_max.md, Corollary 5.

    >>> valid_minimum([2.0, 1000.0], candidates=39, ratio=0.02).round(6)
    array([0.002153, 0.803667])
    """
    order = _checked(alpha, candidates, ratio)
    if value_released:
        return jensen(order, candidates, ratio)
    if candidates == 1 or ratio == 0 or ratio > LOUD:
        return np.full_like(order, math.inf if ratio and candidates > 1 else 0.0)
    best = np.minimum(union(order, candidates, ratio), gap_vector(order, candidates * ratio * ratio))
    worth = _jensen_floor(order, candidates, ratio) < best
    best[worth] = np.minimum(best[worth], jensen(order[worth], candidates, ratio))
    middle = ndtri_exp(-math.log(2) / candidates)  # The median of R; its mean is larger.
    worth = np.maximum(2 * ratio * ratio * order, 2 * ratio * (ratio + middle)) < best
    best[worth] = np.minimum(best[worth], disjoint_events(order[worth], candidates, ratio))
    return best


def _orders(alpha: ArrayLike) -> Floats:
    """The orders as an array of floats, each > 1."""
    order = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    require(bool(np.all((order > 1) & np.isfinite(order))), "alpha", "> 1 and finite", alpha)
    return order


def _checked(alpha: ArrayLike, candidates: int, ratio: float) -> Floats:
    """The orders, after the other two arguments."""
    require(candidates >= 1, "candidates", ">= 1", candidates)
    require(ratio >= 0, "ratio", ">= 0", ratio)
    return _orders(alpha)


def _kappa(x: Floats) -> Floats:
    """(-log Phi)''(x) = r (x + r) with r = phi / Phi: falls from 1 to 0."""
    hazard = math.sqrt(2 / math.pi) / erfcx(-x / math.sqrt(2))
    far = 1 / np.square(np.minimum(x, -100.0))  # There x + r cancels; the series errs by less than 1e-13.
    series = 1 - far * (1 - far * (6 - far * 50))
    return np.where(x > -100, hazard * (x + hazard), series)


def _log_mean_excess(strength: Floats, distance: Floats, others: int) -> Floats:
    """log E[exp(strength kappa(Y - distance)) - 1], Y the largest of `others` normals.

    The integrand is positive and has one peak (docs/noisy_max.md, Numerics), so windows close in on it safely; the last
    one is summed by the trapezoidal rule, which converges faster than any power of its step.
    """
    low, high = np.full_like(distance, -EDGE), np.full_like(distance, EDGE)
    for points in (32,) * (1 + round(math.log10(others)) // 2) + (128,):
        step = (high - low) / (points - 1)
        y = low[:, None] + step[:, None] * np.arange(points)
        power = strength[:, None] * _kappa(y - distance[:, None])
        with np.errstate(divide="ignore"):
            height = power + np.log(-np.expm1(-power)) - y**2 / 2 + (others - 1) * log_ndtr(y)
        peak = height.max(axis=1)
        inside = height > peak[:, None] - DEPTH
        first, last = inside.argmax(axis=1), points - 1 - inside[:, ::-1].argmax(axis=1)
        low, high = low + step * (first - 1), low + step * (last + 1)
    total = np.exp(height - peak[:, None]).sum(axis=1) * step * others / math.sqrt(2 * math.pi)
    return np.asarray(peak + np.log(total))


def _jensen_floor(order: Floats, candidates: int, ratio: float) -> Floats:
    """A cheap lower estimate of bound 4, from the half of Y below its median."""
    middle = ndtri_exp(-math.log(2) / (candidates - 1))
    mass = order * ratio * ratio / 2 * (1 + (candidates - 1) * _kappa(middle - order * ratio))
    return np.maximum(mass - math.log(2) / (order - 1), order * ratio * ratio / 2)


def _log_head_start(start: Floats, candidates: int) -> Floats:
    """log(n P(Z + start beats n - 1 other normals)) = log E[exp(start R - start^2 / 2)], R the largest of n normals."""
    scale = math.sqrt(2 * math.log(candidates) + 1)
    ahead = scale + EDGE  # Then it wins but for 1e-16, and log(n) is the value.
    x = np.arange(-EDGE, ahead + EDGE, 0.25 / scale)
    weight = np.exp((candidates - 1) * log_ndtr(x) - x**2 / 2)
    weight /= weight.sum()
    near = np.minimum(start, ahead)[..., None]
    gain = np.log1p(np.expm1(near * (x - near / 2)) @ weight)
    return np.where(start < ahead, np.minimum(MARGIN * gain, math.log(candidates)), math.log(candidates))

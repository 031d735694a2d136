"""Tries to disprove the claims: exact divergences by quadrature, a search for the worst pair, lower bounds on epsilon.

Nothing here uses a bound of `pate.accounting`, so what it finds can be held against them. Scores are n numbers, a
neighbour's scores are scores + shift, and report-noisy-max adds independent N(0, sigma^2) to each.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaincinv, erfcx, log_ndtr, logsumexp

from pate.errors import require

Floats = NDArray[np.float64]

CELLS = 2**20  # Of the grid on which privacy losses are convolved.
SLACK = 1e-12  # Of delta, for rounding and for what a cyclic convolution folds over.


@dataclass(frozen=True)
class Pair:
    """Two neighbouring score vectors, scores and scores + shift, and D_alpha(M(scores + shift) || M(scores))."""

    scores: Floats
    shift: Floats
    divergence: float


def noisy_max_probabilities(scores: ArrayLike, sigma: float) -> Floats:
    """The probability that each candidate wins.

    Guarantee: p_i = integral of phi(x - u_i) prod_{j != i} Phi(x - u_j) dx with u = scores / sigma, to a relative error
    of 1e-11 however small p_i is (the trapezoidal rule on a log-concave integrand).

    >>> noisy_max_probabilities([0.0, 0.0, 5.0], sigma=5.0).round(6)
    array([0.183149, 0.183149, 0.633702])
    """
    return np.exp(_log_winning(_standard(scores, sigma)))


def noisy_max_divergence(scores: ArrayLike, shift: ArrayLike, sigma: float, alpha: float) -> float:
    """D_alpha(M(scores + shift) || M(scores)) where M releases the winning index; exact, by quadrature.

    The other direction is the call with (scores + shift, -shift).

    >>> round(noisy_max_divergence([0.0, 0.0], [1.0, -1.0], sigma=50.0, alpha=2.0) * 50**2 / 2, 3)  # above 1/2
    0.636
    """
    u, t = _pair(scores, shift, sigma, alpha)
    return _renyi(_log_winning(u + t), _log_winning(u), alpha)


def noisy_max_value_divergence(scores: ArrayLike, shift: ArrayLike, sigma: float, alpha: float) -> float:
    """D_alpha(M(scores + shift) || M(scores)) where M releases the winning index and its noisy score; exact.

    >>> round(noisy_max_value_divergence([0.0], [1.0], sigma=50.0, alpha=2.0) * 50**2 / 2, 3)  # one Gaussian: 1/2
    0.5
    """
    u, t = _pair(scores, shift, sigma, alpha)
    x = _line(np.concatenate([u, u + t, u + alpha * t]), len(u) * (1 + alpha * np.abs(t).max()))
    return _renyi(_log_density(u + t, x).ravel(), _log_density(u, x).ravel(), alpha)


def worst_noisy_max(
    candidates: int, sigma: float, alpha: float, sensitivity: float, rng: np.random.Generator, restarts: int = 8
) -> Pair:
    """The pair with the largest index divergence that a search finds: a lower bound on the RDP of report-noisy-max.

    First all pairs in which k equal candidates rise and the others, equal too, fall; then local ascent (L-BFGS-B with
    exact gradients) over all scores and all shifts in [-sensitivity, sensitivity]^n, from the best of those and from
    `restarts` random starts.

    >>> found = worst_noisy_max(2, 50.0, 2.0, 1.0, np.random.default_rng(0), restarts=1)
    >>> found.shift, round(found.divergence * 50**2 / 2, 3)
    (array([ 1., -1.]), 0.637)
    """
    require(candidates >= 2, "candidates", ">= 2", candidates)
    require(restarts >= 0, "restarts", ">= 0", restarts)
    ratio = sensitivity / sigma
    reach = 8 + 2 * alpha * ratio
    search = {"method": "L-BFGS-B", "bounds": [(-reach, reach)] * candidates + [(-1.0, 1.0)] * candidates}
    starts = _two_groups(candidates, ratio, alpha)[:2]
    for _ in range(restarts):
        scores = rng.normal(size=candidates) * rng.uniform(0, 2)
        starts.append(np.concatenate([scores, rng.choice([-1.0, 1.0], size=candidates)]))
    found = [minimize(_ascent, z, (ratio, alpha), jac=True, options={"maxiter": 60}, **search) for z in starts]
    u, t = np.split(min(found, key=lambda end: float(end.fun)).x, 2)
    scores, shift = u * sigma, t * sensitivity
    return Pair(scores, shift, noisy_max_divergence(scores, shift, sigma, alpha))


def epsilon_lower_bound(p: ArrayLike, q: ArrayLike, queries: int, delta: float) -> float:
    """A lower bound on every epsilon for which P^queries and Q^queries are (epsilon, delta)-close, P and Q finite.

    Guarantee: P^N(S) > e^epsilon Q^N(S) + delta for some S and every smaller epsilon. Losses log(p/q) are rounded down
    to a grid that holds the smallest and the largest one, then convolved exactly by FFT, so that pairs with two
    different losses are not rounded at all. One direction: call it with (q, p) for the other.

    >>> round(epsilon_lower_bound([0.75, 0.25], [0.25, 0.75], queries=1, delta=0.0), 4)  # log 3
    1.0986
    """
    p, q = _distribution(p, "p"), _distribution(q, "q")
    require(len(p) == len(q), "q", f"of length {len(p)}", len(q))
    require(queries >= 1, "queries", ">= 1", queries)
    require(0 <= delta < 1, "delta", "in [0, 1)", delta)
    certain = -math.expm1(queries * math.log1p(-min(p[q == 0].sum(), 1 - 1e-16)))
    if certain > delta + SLACK:
        return math.inf
    both = (p > 0) & (q > 0)
    loss, mass = _composed_loss(np.log(p[both] / q[both]), p[both], queries)
    return _epsilon(loss, mass, delta - certain + SLACK)


def empirical_epsilon(
    hits_p: ArrayLike, hits_q: ArrayLike, trials: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """A lower bound on the epsilon of a black box that was run `trials` times on each of two neighbours.

    `hits_p[e]` and `hits_q[e]` count how often event e happened. Guarantee: epsilon >= this with probability at least
    `confidence`, by Clopper-Pearson intervals for every event in both directions (Bonferroni).

    >>> round(empirical_epsilon([900], [300], trials=1000), 3)
    0.966
    """
    p, q = np.atleast_1d(hits_p).astype(np.float64), np.atleast_1d(hits_q).astype(np.float64)
    require(p.shape == q.shape, "hits_q", f"of shape {p.shape}", q.shape)
    require(bool(np.all((p >= 0) & (q >= 0) & (p <= trials) & (q <= trials))), "hits", "in 0..trials", trials)
    require(0 <= delta < 1, "delta", "in [0, 1)", delta)
    require(0 < confidence < 1, "confidence", "in (0, 1)", confidence)
    error = (1 - confidence) / (4 * p.size)
    gains = [
        (_proportion_low(a, trials, error) - delta) / _proportion_high(b, trials, error) for a, b in ((p, q), (q, p))
    ]
    return math.log(max(1.0, float(np.max(gains))))


def _standard(scores: ArrayLike, sigma: float) -> Floats:
    """The scores in units of the noise."""
    u = np.asarray(scores, dtype=np.float64)
    require(sigma > 0, "sigma", "> 0", sigma)
    require(u.ndim == 1 and u.size > 0 and bool(np.isfinite(u).all()), "scores", "a vector of finite numbers", scores)
    return u / sigma


def _pair(scores: ArrayLike, shift: ArrayLike, sigma: float, alpha: float) -> tuple[Floats, Floats]:
    """Scores and shift in units of the noise."""
    u, t = _standard(scores, sigma), _standard(shift, sigma)
    require(u.shape == t.shape, "shift", f"of length {len(u)}", len(t))
    require(alpha > 1, "alpha", "> 1", alpha)
    return u, t


def _line(centres: Floats, curvature: float) -> Floats:
    """Equally spaced values of the largest noisy score; the step resolves any peak of width 1 / sqrt(curvature)."""
    reach = 10 + math.sqrt(2 * math.log(curvature + 1))
    step = min(0.1, 0.5 / math.sqrt(curvature))
    return np.arange(centres.min() - reach, centres.max() + reach, step)


def _log_density(u: Floats, x: Floats, counts: ArrayLike = 1.0) -> Floats:
    """log of f_u(i, x) times the step: candidate i wins with value x; rows are candidates, or groups of equal ones."""
    each, counts = log_ndtr(x - u[:, None]), np.broadcast_to(counts, u.shape)
    density = counts @ each - each - (x - u[:, None]) ** 2 / 2 + np.log(counts)[:, None]
    return np.asarray(density - logsumexp(density))


def _log_winning(u: Floats, counts: ArrayLike = 1.0) -> Floats:
    """log of the probability that each candidate, or each group of equal ones, wins."""
    x = _line(u, float(np.sum(np.broadcast_to(counts, u.shape))))
    return np.asarray(logsumexp(_log_density(u, x, counts), axis=1))


def _renyi(log_p: Floats, log_q: Floats, alpha: float) -> float:
    """D_alpha(P || Q) of two finite distributions, to full relative precision also where they nearly agree."""
    ratio = log_p - log_q
    total = float(logsumexp(log_q + alpha * ratio))
    if total > 0.01:
        return total / (alpha - 1)
    # sum q ((p/q)^alpha - 1 - alpha (p/q - 1)) has the same value, less 1, and its terms are all >= 0.
    p, q, small = np.exp(log_p), np.exp(log_q), np.abs(alpha * ratio) < 1
    close = np.where(small, ratio, 0.0)
    near = q * (np.expm1(alpha * close) - alpha * np.expm1(close))
    wide = np.exp(log_q + alpha * ratio) - q - alpha * (p - q)
    return math.log1p(float(np.where(small, near, wide).sum())) / (alpha - 1)


def _two_groups(n: int, ratio: float, alpha: float) -> list[Floats]:
    """Pairs (scores / sigma, shift / sensitivity, side by side) of k risers against n - k fallers; worst first."""
    found = []
    heights = np.concatenate([np.linspace(-3, 5, 33), -alpha * ratio * np.linspace(0.25, 2.5, 10)])
    for k in sorted({min(n - 1, 2**i) for i in range(n.bit_length())} | {n // 2, (n + 1) // 2}):
        counts, shift = np.array([k, n - k]), np.array([1.0, -1.0])
        for height in heights:
            u = np.array([height, 0.0])
            value = _renyi(_log_winning(u + ratio * shift, counts), _log_winning(u, counts), alpha)
            found.append((value, np.repeat(np.concatenate([u, shift]), np.tile(counts, 2))))
    return [z for _, z in sorted(found, key=lambda pair: -pair[0])]


def _ascent(z: Floats, ratio: float, alpha: float) -> tuple[float, Floats]:
    """Minus D_alpha / ratio^2 and its gradient in (scores / sigma, shift / sensitivity)."""
    u, t = np.split(z, 2)
    (log_p, slope_p), (log_q, slope_q) = _log_winning_slopes(u + ratio * t), _log_winning_slopes(u)
    value = _renyi(log_p, log_q, alpha)
    share = np.exp(alpha * log_p - (alpha - 1) * (log_q + value))  # Of each candidate in the sum; adds up to 1.
    pull = alpha / (alpha - 1) * share @ slope_p
    return -value / ratio**2, -np.concatenate([pull - share @ slope_q, ratio * pull]) / ratio**2


def _log_winning_slopes(u: Floats) -> tuple[Floats, Floats]:
    """log p_i and d log p_i / d u_j, for j != i minus the mean of phi / Phi at x - u_j given that i wins with x."""
    x = _line(u, len(u))
    density = _log_density(u, x)
    log_p = logsumexp(density, axis=1)
    hazard = math.sqrt(2 / math.pi) / erfcx((u[:, None] - x) / math.sqrt(2))
    slope = -np.exp(density - log_p[:, None]) @ hazard.T
    np.fill_diagonal(slope, 0.0)
    return log_p, slope - np.diag(slope.sum(axis=1))


def _distribution(values: ArrayLike, name: str) -> Floats:
    """A finite distribution as an array."""
    p = np.asarray(values, dtype=np.float64)
    ok = p.ndim == 1 and bool(np.all(p >= 0)) and abs(p.sum() - 1) < 1e-9
    require(ok, name, "a vector of probabilities that sum to 1", values)
    return p


def _composed_loss(loss: Floats, mass: Floats, queries: int) -> tuple[Floats, Floats]:
    """Values (ascending) and masses under P^queries of the summed loss, each loss rounded down to a grid."""
    low, spread = loss.min(), np.ptp(loss)
    if spread * queries < 1e-12:
        return np.array([queries * low]), np.array([mass.sum() ** queries])
    mean = mass @ (loss - low)
    # Bernstein: the sum is further than this from its mean with probability below 1e-15.
    tail, variance = spread * 35.3 / 3, mass @ (loss - low - mean) ** 2
    reach = min(tail + math.sqrt(tail**2 + 2 * queries * variance * 35.3), queries * spread) + spread
    step = spread / max(1, math.floor(spread / (2 * reach / CELLS)))
    cell = np.floor((loss - low) / step * (1 + 1e-14)).astype(np.int64)
    single = np.bincount(cell, weights=mass, minlength=CELLS)
    power = np.fft.irfft(np.fft.rfft(single) ** queries, CELLS)
    start = math.floor(queries * mean / step) - CELLS // 2
    return queries * low + step * np.arange(start, start + CELLS), np.roll(power, -(start % CELLS))


def _epsilon(loss: Floats, mass: Floats, delta: float) -> float:
    """The epsilon >= 0 with E[(1 - e^(epsilon - loss))_+] = delta, 0 if there is none; losses ascend."""
    keep = loss > 0
    loss, mass = loss[keep], np.maximum(mass[keep], 0.0)
    above = np.cumsum(mass[::-1])[::-1]
    tilted = np.cumsum((mass * np.exp(-loss))[::-1])[::-1]
    spare = above - np.exp(loss) * tilted > delta  # delta(loss) still too large: epsilon lies above this loss.
    at = int(np.flatnonzero(spare)[-1]) + 1 if spare.any() else 0
    if at >= len(loss) or above[at] <= delta:
        return 0.0
    return max(0.0, math.log((above[at] - delta) / tilted[at]))


def _proportion_low(hits: Floats, trials: int, error: float) -> Floats:
    """Clopper-Pearson lower limit of a proportion."""
    return np.where(hits > 0, betaincinv(np.maximum(hits, 1), trials - hits + 1, error), 0.0)


def _proportion_high(hits: Floats, trials: int, error: float) -> Floats:
    """Clopper-Pearson upper limit of a proportion."""
    return np.where(hits < trials, betaincinv(hits + 1, np.maximum(trials - hits, 1), 1 - error), 1.0)

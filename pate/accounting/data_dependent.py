"""What answers cost given the votes at hand: less than the worst case where teachers agree, and itself private.

Every function bounds D_alpha(M(x) || M(x')) and D_alpha(M(x') || M(x)) for the data set x at hand and every neighbour
x'; `theorem_6`, which is here as its authors print it, bounds the first only. The answers are those of a vote with
Gaussian noise, so M(x) and M(x') are one and the same randomised function of a draw from N(0, 1) and from N(ratio, 1),
where ratio = L2 sensitivity / sigma (a smaller shift is such a function of a larger one).

A price that depends on the votes tells about them. It has its own type, `PrivateCost`, which neither ledger nor
statement takes; `pate.accounting.smooth_sensitivity` makes something of it that may be released.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from pate.accounting import conversion as convert
from pate.accounting import curves
from pate.accounting.cost import Neighbours
from pate.errors import SettingError, require

Floats = NDArray[np.float64]

ROUNDING = 4e-15  # Relative error of one term; added wherever terms cancel, so that bounds are never too small.


def threshold_vote(alpha: ArrayLike, margin: ArrayLike, ratio: float) -> Floats:
    """One yes/no question, answered yes if count + N(0, sigma^2) > threshold: exact, whatever the neighbour.

    Guarantee: the largest of D_alpha(p || p') and D_alpha(p' || p) for p = Phi(margin) and p' = Phi(margin +- ratio),
    D_alpha(p || p') = log(p^alpha p'^(1-alpha) + (1-p)^alpha (1-p')^(1-alpha)) / (alpha - 1), where margin =
    (count - threshold) / sigma and ratio = 1 / sigma.

    A neighbour's count lies within 1 of this one, so its margin lies between margin - ratio and margin + ratio. The
    Rényi divergence is quasi-convex in either argument (van Erven & Harremoës 2014, Theorem 13) and 0 at p = p': it
    grows as p' moves away from p, and the ends are the worst. Never above alpha ratio^2 / 2 (data processing).

    >>> threshold_vote(8.0, [0.0, 3.0], ratio=0.01).round(7)
    array([2.545e-04, 6.400e-06])
    >>> float(curves.gaussian(np.array(8.0), 0.01).round(7))
    0.0004
    """
    order, here = _orders(alpha), np.abs(np.asarray(margin, dtype=np.float64))
    require(ratio >= 0, "ratio", ">= 0", ratio)
    bound = np.zeros(np.broadcast_shapes(order.shape, here.shape))
    for there in (here + ratio, here - ratio):
        bound = np.maximum(bound, np.maximum(_two_answers(order, here, there), _two_answers(order, there, here)))
    return np.asarray(np.minimum(bound, curves.gaussian(order, ratio)), dtype=np.float64)


def likely_answer(alpha: ArrayLike, log_q: ArrayLike, ratio: float) -> Floats:
    """Any vote with Gaussian noise, any number of answers, one of which comes out with probability at least 1 - q.

    Guarantee: with r = ratio, z = Phi^-1(1 - q), w = Phi^-1(1 - q/2), the larger over e in {alpha, 1 - alpha} of
    log(1 + max psi(Phi(z +- r)/Phi(z)) + U + L + |psi(l(w)) - psi(l(-w))| q/2) / (alpha - 1), and never more than
    alpha r^2/2. Here psi(u) = u^e - 1 - e (u - 1) >= 0, l(x) = exp(r x - r^2/2), and U, L are E[psi(l(X)); X > w],
    E[psi(l(X)); X < -w] for a normal X. It sharpens Papernot et al. 2018, Theorem 6, and is never above it one way.

    Proof. Let P = M(x), Q = M(x'), i the likely answer and q = 1 - P_i; f(X) the probability of any other answer given
    the draw X ~ N(0, 1) behind P; l = dN(r, 1)/dN(0, 1). The divergence is log(sum_j P_j (Q_j/P_j)^e) / (alpha - 1),
    with e = 1 - alpha for (P || Q) and e = alpha for (Q || P).
    1. a (b/a)^e is convex and homogeneous, so by Jensen the terms j != i sum to at most E[f l^e]. With R = Q_i/P_i,
       (1-q) R + E[f l] = 1, so the whole sum is at most 1 + (1-q) psi(R) + E[f psi(l)].
    2. By Neyman and Pearson Phi(-z-r) <= E[f l] <= Phi(-z+r), so R lies between Phi(z-r)/Phi(z) and Phi(z+r)/Phi(z).
       psi is convex, hence largest at an end. The range only widens with q, since phi/Phi decreases.
    3. psi(l(x)) falls until x = r/2 and rises from there. So among all f with E[f] = q, E[f psi(l)] is largest for two
       tails of masses s and q - s. Its slope in s is the difference of psi(l) at their edges, which falls with s
       while each edge is on its own side of r/2: if z >= r/2. A concave function lies below its tangent at s = q/2,
       and that is largest at s = 0 or s = q. Since psi >= 0 the result covers every smaller q too.
    If z < r/2 (q above about one half) no answer is likely, and alpha r^2/2 is returned.

    >>> likely_answer([2.0, 20.0], np.log(1e-4), ratio=0.05).round(6)
    array([5.0e-06, 2.6e-04])
    >>> curves.gaussian(np.array([2.0, 20.0]), 0.05)
    array([0.0025, 0.025 ])
    """
    order, log_q = _orders(alpha), np.minimum(np.asarray(log_q, dtype=np.float64), 0.0)
    require(ratio >= 0, "ratio", ">= 0", ratio)
    with np.errstate(over="ignore", invalid="ignore"):
        excess = np.maximum(_one_way(order, log_q, ratio), _one_way(1 - order, log_q, ratio))
        bound = np.log1p(excess) / (order - 1)
    likely = ndtri_exp(log_q) <= -ratio / 2
    general = curves.gaussian(order, ratio)  # fmin: where numbers overflow there is no better bound.
    return np.asarray(np.where(likely, np.fmin(bound, general), general), dtype=np.float64)


def theorem_6(alpha: ArrayLike, log_q: float, ratio: float) -> Floats:
    """Papernot et al. 2018, Theorem 6 with Proposition 10's mu_1, mu_2, as printed: for D_alpha(M(x) || M(x')) only.

    log((1-q) A^(alpha-1) + q B^(alpha-1)) / (alpha-1) with A = (1-q) / (1 - (q e^eps2)^(1 - 1/mu2)),
    B = e^eps1 / q^(1/(mu1-1)), mu2 = sqrt(2 log(1/q)) / ratio, mu1 = mu2 + 1, eps_i = mu_i ratio^2/2; where a condition
    fails, alpha ratio^2/2.

    Proof. By Hölder an event of probability q under M(x) has at most (q e^eps2)^(1 - 1/mu2) under M(x'), which gives A,
    and E[(P/Q)^(alpha-1); the event] <= q B^(alpha-1) for alpha <= mu1. To hold for every smaller q as well the sum
    must increase with q. Its slope is at least A^(alpha-1) ((alpha-1)/(mu1-1) + (mu1-alpha)/(mu1-1) - 1) = 0 while
    (1 - 1/mu2) (q e^eps2)^(1 - 1/mu2) / q >= mu1/(mu1-1) (their Lemma 9) and A <= B. All conditions are checked.
    The other direction can be larger: `likely_answer` is the one to charge.

    >>> theorem_6([2.0, 20.0], np.log(1e-4), ratio=0.05).round(6)
    array([4.80e-05, 3.35e-04])
    """
    order, unit = _orders(alpha), ratio * ratio / 2
    general = curves.gaussian(order, ratio)
    mu = float(np.sqrt(-log_q / unit)) if unit > 0 and log_q < 0 else 1.0
    if mu <= 1 or log_q + mu * unit >= 0:
        return general
    leak = (log_q + mu * unit) * (1 - 1 / mu)
    log_a = np.log1p(-np.exp(log_q)) - np.log1p(-np.exp(leak))
    log_b = (mu + 1) * unit - log_q / mu
    if np.log1p(-1 / mu) + leak - log_q < np.log1p(1 / mu) or log_a > log_b:
        return general
    total = np.logaddexp(np.log1p(-np.exp(log_q)) + (order - 1) * log_a, log_q + (order - 1) * log_b)
    return np.where(order <= mu + 1, np.minimum(total / (order - 1), general), general)


class _Private:
    """A number that depends on the votes: it does not print, serialise or mix with what may be released."""

    def __repr__(self) -> str:
        return f"<PRIVATE {type(self).__name__}: depends on the votes, not for release>"

    def to_json(self) -> NoReturn:
        """Refuses: what depends on the votes is not written where others read."""
        raise SettingError("a cost that is written down", "free of the votes (sanitise it first)", self)


class PrivateEpsilon(_Private):
    """An epsilon that depends on the votes; `value` holds it, for private eyes. No number itself, and no dataclass, so
    that neither arithmetic nor what turns settings into JSON opens it.

    >>> PrivateEpsilon(1.5)
    <PRIVATE PrivateEpsilon: depends on the votes, not for release>
    """

    def __init__(self, value: float) -> None:
        self.value = value


@dataclass(frozen=True, repr=False, eq=False)
class PrivateCost(_Private):
    """What fixed queries cost on the votes at hand: D_alpha <= curve for this data set and every neighbour, both ways.

    Not a guarantee for other data sets, and private itself: it adds to its own kind only, ledger and statement refuse
    it. Queries must be chosen beforehand; then the curves of their answers add (Mironov 2017, Proposition 1).

    Attributes:
        curve: divergence bound on `pate.accounting.conversion.ORDERS`.
        neighbours: the relation that it is about.

    >>> cost = PrivateCost(0.01 * convert.ORDERS, "teacher_changed")
    >>> cost
    <PRIVATE PrivateCost: depends on the votes, not for release>
    >>> round((cost + cost).epsilon(1e-6).value, 3)
    0.9
    """

    curve: Floats
    neighbours: Neighbours

    def __add__(self, other: "PrivateCost") -> "PrivateCost":
        if not isinstance(other, PrivateCost):
            return self.__radd__(other)
        require(self.neighbours == other.neighbours, "neighbours", "the same in costs that are added", other.neighbours)
        return PrivateCost(self.curve + other.curve, self.neighbours)

    def __radd__(self, other: Any) -> NoReturn:
        raise SettingError("a cost that is added, charged or stated", "free of the votes (sanitise it first)", self)

    def epsilon(self, delta: float, conversion: convert.Conversion = "tight") -> PrivateEpsilon:
        """Epsilon at delta for this data set against its neighbours, as a private value."""
        require(0 < delta < 1, "delta", "in (0, 1)", delta)
        require(conversion in ("tight", "published"), "conversion", "one of tight, published", conversion)
        rule = convert.tight_epsilon if conversion == "tight" else convert.published_epsilon
        return PrivateEpsilon(rule(self.curve, delta))


def _orders(alpha: ArrayLike) -> Floats:
    order = np.asarray(alpha, dtype=np.float64)
    require(bool(np.all(order > 1)), "alpha", "> 1", alpha)
    return order


def _two_answers(order: Floats, here: Floats, there: Floats) -> Floats:
    """D_alpha between yes with probability Phi(here) and yes with probability Phi(there), rounded up."""
    logs, parts, small = [], [], np.bool_(True)
    for sign in (1.0, -1.0):
        one, other = log_ndtr(sign * here), log_ndtr(sign * there)
        gain = (order - 1) * (one - other - ROUNDING * (one + other))
        part = np.exp(one) * np.expm1(np.minimum(gain, 1.0))
        parts.append(part + ROUNDING * (1 - one) * np.abs(part))
        logs.append(one - ROUNDING * one + gain)
        small = small & (np.abs(gain) < 1)
    # Small divergences are sums that cancel, so they are computed around 1; large ones in logarithms.
    rest = np.log1p(np.exp(-np.abs(logs[0] - logs[1])))
    high = np.maximum(*logs)
    by_logs = high + rest + ROUNDING * (np.abs(high) + rest)
    around = np.log1p(np.maximum(parts[0] + parts[1], 0.0))
    return np.asarray(np.where(small, around, by_logs) / (order - 1), dtype=np.float64)


def _one_way(power: Floats, log_q: Floats, ratio: float) -> Floats:
    """What `likely_answer` adds to 1 for the exponent e = power."""
    edge, z = -ndtri_exp(log_q - np.log(2.0)), -ndtri_exp(log_q)
    stay = np.maximum(*(_psi(power, log_ndtr(z + step) - log_ndtr(z)) for step in (ratio, -ratio)))
    tails = _tail(power, ratio, edge) + _tail(power, -ratio, edge)  # A lower tail is the upper one of -ratio.
    shift = ratio * ratio / 2
    slope = _psi(power, ratio * edge - shift) - _psi(power, -ratio * edge - shift)
    return np.asarray(stay + tails + np.abs(slope) * np.exp(log_q) / 2, dtype=np.float64)


def _psi(power: Floats, log_u: Floats) -> Floats:
    """u^e - 1 - e (u - 1), rounded up."""
    first, second = np.expm1(power * log_u), power * np.expm1(log_u)
    slack = ROUNDING * (1 + np.abs(power * log_u)) * (np.abs(first) + np.abs(second))
    return np.asarray(first - second + slack, dtype=np.float64)


def _tail(power: Floats, ratio: float, edge: Floats) -> Floats:
    """E[psi(exp(ratio X - ratio^2/2)); X > edge] for a normal X, rounded up."""
    growth, tail = power * (power - 1) * (ratio * ratio / 2), log_ndtr(power * ratio - edge)
    moment, log_mass = np.exp(growth + tail), log_ndtr(-edge)
    mass, mean = (1 - power) * np.exp(log_mass), power * np.exp(log_ndtr(ratio - edge))
    slack = moment * (1 + np.abs(growth) + np.abs(tail)) + (np.abs(mass) + np.abs(mean)) * (1 + np.abs(log_mass))
    return np.asarray(moment - mass - mean + ROUNDING * slack, dtype=np.float64)

"""Composition theorems for mechanisms with a pure epsilon, one function per theorem.

Each takes the failure probability that may be spent on composing; the mechanisms' own delta_t are added outside, as
everywhere. An (epsilon, delta_t)-DP mechanism is, but for probability delta_t, an epsilon-DP one, so the same theorems
hold for it (Kairouz, Oh & Viswanath 2015, Theorem 3.5; Bun & Steinke 2016, Lemma 8.2).
"""

from collections.abc import Iterable
from functools import lru_cache
from math import ceil, e, exp, expm1, inf, lgamma, log, log1p, sqrt, tanh

import numpy as np
from numpy.typing import NDArray

from pate.accounting.events import BoundedRange, Event
from pate.errors import require

Floats = NDArray[np.float64]
Repeated = tuple[tuple[float, int], ...]  # (epsilon, how often)

NEGLIGIBLE = 40.0  # outcomes left out of a sum weigh less than exp(-40) of delta together
MOST = 10**5  # `best` looks no further for the optimum, whose time grows with the root of the count


def basic(epsilons: Iterable[float]) -> float:
    """sum epsilon_i, at no failure probability (Durfee & Rogers 2019, Theorem 3, first term).

    >>> basic([0.5, 0.25])
    0.75
    """
    return _basic(_each_once(epsilons))


def advanced(epsilons: Iterable[float], delta: float) -> float:
    """Any epsilon_i-DP mechanisms, adaptively chosen (Kairouz, Oh & Viswanath 2015, Theorem 3.5).

    The least of sum epsilon_i, M + sqrt(2 V log(e + sqrt(V)/delta)) and M + sqrt(2 V log(1/delta)), where
    M = sum epsilon_i tanh(epsilon_i/2) and V = sum epsilon_i^2. The last two hold because the loss L exceeds M + t with
    probability at most exp(-t^2/(2V)), and delta is at most E[1 - exp(M + t - L)]+ <= exp(-t^2/(2V)) / (1 + t/V).

    >>> round(advanced([0.1] * 100, 1e-6), 3)
    5.756
    """
    _check_delta(delta)
    return _advanced(_each_once(epsilons), delta)


def bounded_range(eta: float, count: int, delta: float) -> float:
    """Mechanisms whose privacy loss spans at most eta, adaptively chosen (Durfee & Rogers 2019, Lemma 4.4).

    For t of them the least of t eta, t eta tanh(eta/2) + eta sqrt(2 t log(1/delta)) and
    t eta^2/2 + eta sqrt(t log(1/delta)/2); with eta = epsilon and t = k this is the epsilon' of their Theorem 1.

    >>> round(bounded_range(0.1, 100, 1e-6), 3)
    3.128
    """
    _check_delta(delta)
    return _bounded_range(_repeated(eta, count, "eta"), delta)


def optimal_homogeneous(epsilon: float, count: int, delta: float) -> float:
    """The smallest epsilon' that holds for any `count` epsilon-DP mechanisms, adaptively chosen.

    Kairouz, Oh & Viswanath 2015, Theorem 3.3: t randomised responses are the worst, and for them delta is the sum over
    l < (t - epsilon'/epsilon)/2 of C(t, l) (e^((t-l) epsilon) - e^(epsilon' + l epsilon)) / (1 + e^epsilon)^t. Durfee &
    Rogers 2019, Lemma 4.5, gives it at epsilon' = (t - 2i) epsilon; here it is solved in between too.

    >>> round(optimal_homogeneous(0.1, 100, 1e-6), 3)
    4.775
    """
    _check_delta(delta)
    repeated = _repeated(epsilon, count, "epsilon")
    if delta == 0 or epsilon == inf or _basic(repeated) == 0:
        return _basic(repeated)
    return _optimal(float(epsilon), int(count), float(delta))


def best(counted: Iterable[tuple[Event, int]], delta: float) -> float:
    """The least epsilon of the theorems above that hold for these events; inf where one has no pure epsilon.

    `bounded_range` is asked if every event is a `BoundedRange`, and otherwise `optimal_homogeneous` if all epsilons are
    equal, `advanced` always. (For bounded ranges the optimum over all epsilon-DP mechanisms is never the least.)

    >>> from pate.accounting.events import BoundedRange, Gaussian, Pure
    >>> round(best([(Pure(0.1), 100)], 1e-6), 3), round(best([(BoundedRange(0.1), 100)], 1e-6), 3)
    (4.775, 3.128)
    >>> best([(Gaussian(0.1), 1)], 1e-6)
    inf
    """
    _check_delta(delta)
    pairs = [(event, count) for event, count in counted if count and event.pure_epsilon]
    repeated = tuple((float(event.pure_epsilon), count) for event, count in pairs)
    least = _basic(repeated)
    if least in (0, inf) or delta == 0:
        return least
    if all(isinstance(event, BoundedRange) for event, _ in pairs):
        return min(_bounded_range(repeated, delta), _advanced(repeated, delta))
    total, equal = sum(count for _, count in repeated), len({epsilon for epsilon, _ in repeated}) == 1
    if equal and total <= MOST:
        return min(least, _optimal(repeated[0][0], total, delta))
    return _advanced(repeated, delta)


def _basic(repeated: Repeated) -> float:
    return float(sum(count * epsilon for epsilon, count in repeated if count))


def _moments(repeated: Repeated) -> tuple[float, float]:
    """M = sum epsilon tanh(epsilon/2), which bounds the mean of the privacy loss, and V = sum epsilon^2."""
    mean = sum(count * epsilon * tanh(epsilon / 2) for epsilon, count in repeated if count)
    return float(mean), float(sum(count * epsilon * epsilon for epsilon, count in repeated if count))


def _advanced(repeated: Repeated, delta: float) -> float:
    least = _basic(repeated)
    if delta == 0 or least in (0, inf):
        return least
    mean, squares = _moments(repeated)
    tail = min(log(e + sqrt(squares) / delta), log(1 / delta))
    return min(least, mean + sqrt(2 * squares * tail))


def _bounded_range(repeated: Repeated, delta: float) -> float:
    least = _basic(repeated)
    if delta == 0 or least in (0, inf):
        return least
    mean, squares = _moments(repeated)
    spread = sqrt(squares * log(1 / delta) / 2)
    return min(least, mean + 2 * spread, squares / 2 + spread)


@lru_cache(maxsize=4096)
def _optimal(epsilon: float, count: int, delta: float) -> float:
    """epsilon' between the two possible losses (t - 2l) epsilon that enclose it, where l of t responses are flipped."""
    likely, reach = count / (1 + exp(min(epsilon, 700.0))), sqrt(count * (NEGLIGIBLE - log(delta)) / 2)
    first, last = max(0, ceil(likely - reach)), min((count - 1) // 2, int(likely + reach))
    weights = _flips(epsilon, count, first, last)
    # E(l), delta at the loss (t - 2l) epsilon, obeys E(l+1) = r E(l) + (1 - r) (weights up to l), r = e^(-2 epsilon).
    failures = _scan(np.cumsum(weights) * -expm1(-2 * epsilon), exp(-2 * epsilon))
    i = int(failures.searchsorted(delta))
    if i == len(failures):
        return 0.0
    below, above = ((count - 2 * (first + j)) * epsilon for j in (i + 1, i))
    subtracted = float(weights[: i + 1] @ np.exp(-2 * epsilon * np.arange(i, -1, -1)))
    change = ((float(failures[i - 1]) if i else 0.0) - delta) / subtracted
    return max(0.0, below, above + log1p(change) if change > -1 else 0.0)


def _flips(epsilon: float, count: int, first: int, last: int) -> Floats:
    """Binomial probabilities of first..last flipped responses, each flipped with probability 1/(1 + e^epsilon)."""
    flipped = np.arange(first, last + 1, dtype=np.float64)
    logs = np.log((count - flipped + 1) / np.maximum(flipped, 1)) - epsilon
    ways = lgamma(count + 1) - lgamma(first + 1) - lgamma(count - first + 1)
    logs[0] = ways - first * epsilon - count * log1p(exp(-epsilon))
    return np.asarray(np.exp(np.cumsum(logs)), dtype=np.float64)


def _scan(values: Floats, ratio: float) -> Floats:
    """y with y[i] = ratio y[i-1] + values[i], by doubling: a handful of passes, and no cancellation."""
    shift = 1
    while shift < len(values) and ratio > 0:
        values[shift:] += ratio * values[:-shift]
        ratio, shift = ratio * ratio, 2 * shift
    return values


def _each_once(epsilons: Iterable[float]) -> Repeated:
    return tuple(pair for epsilon in epsilons for pair in _repeated(epsilon, 1, "epsilon"))


def _repeated(epsilon: float, count: int, name: str) -> Repeated:
    number = isinstance(epsilon, (int, float, np.number)) and not isinstance(epsilon, bool)
    require(bool(number and epsilon >= 0), name, "a number >= 0", epsilon)
    whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    require(bool(whole and count >= 0), "count", "a whole number >= 0", count)
    return ((float(epsilon), int(count)),)


def _check_delta(delta: float) -> None:
    number = isinstance(delta, (int, float, np.number)) and not isinstance(delta, bool)
    require(bool(number and 0 <= delta < 1), "delta", "in [0, 1)", delta)

"""Composition theorems for mechanisms with a pure epsilon, one function per theorem.

Each takes the failure probability that may be spent on composing; the mechanisms' own delta_t are added outside, as
everywhere. An (epsilon_i, delta_i)-DP mechanism is, but for probability delta_i, an epsilon_i-DP one, so nothing else
changes for it (Kairouz, Oh & Viswanath 2015, Theorem 3.5; Bun & Steinke 2016, Lemma 8.2).
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from math import ceil, exp, inf, log, log1p, sqrt, tanh

import numpy as np
from scipy.special import gammaln

from pate.accounting.events import BoundedRange, Event
from pate.errors import require

Repeated = tuple[tuple[float, int], ...]  # (epsilon, how often)
NEGLIGIBLE = 46.0  # outcomes left out weigh less than exp(-46) = 1e-20 of delta
MOST = 10**7  # up to how many mechanisms `best` looks for the optimum, whose time grows with their root


def basic(epsilons: Iterable[float]) -> float:
    """sum epsilon_i (Dwork, McSherry, Nissim & Smith 2006).

    >>> basic([0.5, 0.25])
    0.75
    """
    return _basic(tuple((_checked_epsilon(epsilon), 1) for epsilon in epsilons))


def advanced(epsilons: Iterable[float], delta: float) -> float:
    """Any epsilon_i-DP mechanisms, adaptively chosen (Kairouz, Oh & Viswanath 2015, Theorem 3.5).

    The least of E = sum epsilon_i, M + sqrt(2 V log(e + sqrt(V)/delta)) and M + sqrt(2 V log(1/delta)), where
    V = sum epsilon_i^2 and M = sum epsilon_i tanh(epsilon_i/2) bounds the mean of the privacy loss.

    >>> round(advanced([0.1] * 100, 1e-6), 3)
    5.756
    """
    _check_delta(delta)
    return _advanced(tuple((_checked_epsilon(epsilon), 1) for epsilon in epsilons), delta)


def bounded_range(eta: float, count: int, delta: float) -> float:
    """Mechanisms whose privacy loss lies in an interval of length eta (Durfee & Rogers 2019, Lemma 4.4).

    The least of t eta, t eta tanh(eta/2) + eta sqrt(2 t log(1/delta)) and t eta^2/2 + eta sqrt(t log(1/delta)/2) for
    t mechanisms, adaptively chosen.

    >>> round(bounded_range(0.1, 100, 1e-6), 3)
    3.128
    """
    _check_delta(delta)
    return _bounded_range(((_checked_epsilon(eta), _checked_count(count)),), delta)


def optimal_homogeneous(epsilon: float, count: int, delta: float) -> float:
    """The smallest epsilon' that holds for any `count` epsilon-DP mechanisms, adaptively chosen.

    Kairouz, Oh & Viswanath 2015, Theorem 3.3; Lemma 4.5 of Durfee & Rogers 2019 is its value at epsilon' = (t - 2i)
    epsilon, and this solves it in between too: delta = sum over l < (t - epsilon'/epsilon)/2 of
    C(t, l) (e^((t-l) epsilon) - e^(epsilon' + l epsilon)) / (1 + e^epsilon)^t, exact for t randomised responses.

    >>> round(optimal_homogeneous(0.1, 100, 1e-6), 3)
    5.218
    """
    _check_delta(delta)
    epsilon, count = _checked_epsilon(epsilon), _checked_count(count)
    if count == 0 or epsilon == 0 or epsilon == inf or delta == 0:
        return _basic(((epsilon, count),))
    return _optimal(epsilon, count, float(delta))


@lru_cache(maxsize=4096)
def _optimal(epsilon: float, count: int, delta: float) -> float:
    """Solves for epsilon' between the two of the losses (t - 2l) epsilon that enclose it."""
    likely, reach = count / (1 + exp(epsilon)), sqrt(count * (NEGLIGIBLE - log(delta)) / 2)
    flipped = np.arange(max(0, ceil(likely - reach)), min((count - 1) // 2, int(likely + reach)) + 1)
    ways = gammaln(count + 1.0) - gammaln(flipped + 1.0) - gammaln(count - flipped + 1.0)
    weight = np.exp(ways - flipped * epsilon - count * log1p(exp(-epsilon)))
    losses = np.append((count - 2.0 * flipped) * epsilon, 0.0)

    def failure(i: int) -> float:
        """delta at epsilon' = losses[i]: what outcomes with a larger loss exceed it by."""
        return float(weight[:i] @ -np.expm1(losses[i] - losses[:i]))

    i = bisect_left(range(len(losses)), delta, key=failure)
    if i == len(losses):
        return 0.0
    below = float(weight[:i] @ np.exp(losses[i] - losses[:i]))
    return float(losses[i]) + log1p((failure(i) - delta) / below)

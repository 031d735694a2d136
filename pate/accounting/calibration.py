"""Given an epsilon, the noise that spends it."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.optimize import brentq

from pate.accounting.conversion import Conversion
from pate.accounting.cost import Neighbours
from pate.errors import SettingError, require

if TYPE_CHECKING:
    from pate.mechanisms.base import Mechanism

M = TypeVar("M", bound="Mechanism")
SPEND_AT_LEAST = 0.9995  # of the epsilon asked for; promised are 99.9 %


def calibrate(
    mechanism: type[M],
    *,
    epsilon: float,
    delta: float,
    queries: int,
    neighbours: Neighbours = "teacher_changed",
    conversion: Conversion = "tight",
    **fixed: Any,
) -> M:
    """The mechanism whose `queries` queries spend at most epsilon at delta, and at least 99.9 % of it.

    Args:
        mechanism: a class of `pate.mechanisms`.
        fixed: its settings other than noise, e.g. num_labels, tau, k; for mechanisms with several noises also
            split, the share of the budget for the first of them.

    >>> from pate.mechanisms import NoisyCounts
    >>> m = calibrate(NoisyCounts, epsilon=2.0, delta=1e-6, queries=600, num_labels=40)
    >>> round(m.sigma, 1), m.cost(600).epsilon(1e-6) <= 2.0
    (369.0, True)
    """
    require(np.isfinite(epsilon) and epsilon > 0, "epsilon", "> 0 and finite", epsilon)
    require(0 < delta < 1, "delta", "in (0, 1)", delta)
    require(isinstance(queries, (int, np.integer)) and queries >= 1, "queries", "a whole number >= 1", queries)

    def at(log_rho: float) -> M:
        rho = float(np.exp(log_rho))
        return mechanism.at_rho(rho, neighbours=neighbours, queries=queries, delta=delta, **fixed)

    def spent(log_rho: float) -> float:
        return at(log_rho).cost(queries).epsilon(delta, conversion) / epsilon

    return at(_solve(spent, float(np.log(_first_guess(epsilon, delta) / queries))))


def _first_guess(epsilon: float, delta: float) -> float:
    """rho of zCDP that is worth about epsilon at delta."""
    spread = np.log(1 / delta)
    return float((np.sqrt(spread + epsilon) - np.sqrt(spread)) ** 2)


def _solve(spent: Any, guess: float) -> float:
    """log rho with SPEND_AT_LEAST <= spent <= 1; spent increases with log rho."""
    low, high = guess - 1.0, guess + 1.0
    while spent(low) > 1:
        low -= 2.0
        if low < guess - 60:
            raise SettingError("epsilon", "reachable: even very large noise costs more", spent(low))
    while spent(high) < 1:
        high += 2.0
        if high > guess + 60:
            raise SettingError("epsilon", "reachable: even very small noise costs less", spent(high))
    target = (1 + SPEND_AT_LEAST) / 2
    root = float(brentq(lambda x: spent(x) - target, low, high, xtol=1e-12, rtol=1e-10))
    return root

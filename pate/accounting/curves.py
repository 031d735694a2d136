"""Rényi curves, one function per theorem: orders alpha > 1 in, divergence bound out.

Ends have values: no signal costs 0, no noise costs inf.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gaussian(alpha: Floats, ratio: float) -> Floats:
    """Gaussian mechanism: alpha ratio^2 / 2, ratio = L2 sensitivity / sigma (Mironov 2017, Corollary 3).

    >>> float(gaussian(np.array([2.0]), 0.5)[0])
    0.25
    """
    return np.asarray(alpha * (0.5 * ratio * ratio), dtype=np.float64)


def laplace(alpha: Floats, ratio: float) -> Floats:
    """Laplace mechanism, ratio = L1 sensitivity / scale (Mironov 2017, Proposition 6).

    log[ a/(2a-1) e^((a-1) ratio) + (a-1)/(2a-1) e^(-a ratio) ] / (a-1), a = alpha.

    >>> bool(laplace(np.array([1e6]), 1.0)[0] <= 1.0)
    True
    """
    if ratio == 0 or np.isinf(ratio):
        return np.full_like(alpha, ratio)
    first = np.log(alpha / (2 * alpha - 1)) + (alpha - 1) * ratio
    second = np.log((alpha - 1) / (2 * alpha - 1)) - alpha * ratio
    by_logs = np.logaddexp(first, second) / (alpha - 1)
    # Near ratio 0 the two logarithms cancel; with w = (a-1)/(2a-1) the same sum is 1 + (tiny, computed directly).
    weight = (alpha - 1) / (2 * alpha - 1)
    small = np.minimum(alpha * ratio, 1.0)
    tiny = (1 - weight) * np.expm1(small * (alpha - 1) / alpha) + weight * np.expm1(-small)
    direct = np.log1p(tiny) / (alpha - 1)
    return np.asarray(np.minimum(np.where(alpha * ratio < 1.0, direct, by_logs), ratio), dtype=np.float64)


def pure(alpha: Floats, epsilon: float) -> Floats:
    """Any epsilon-DP mechanism: log[ cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2) ] / (alpha - 1).

    Exact for randomised response; equals log[(sinh(alpha e) - sinh((alpha-1) e)) / sinh(e)] / (alpha-1) of
    Bun & Steinke 2016, Proposition 3.3.

    >>> bool(pure(np.array([2.0]), 0.1)[0] <= 0.5 * 2 * 0.1**2)
    True
    """
    if epsilon == 0 or np.isinf(epsilon):
        return np.full_like(alpha, epsilon)
    curve = (_log_cosh((alpha - 0.5) * epsilon) - _log_cosh(np.asarray(0.5 * epsilon))) / (alpha - 1)
    return np.asarray(np.minimum(curve, epsilon), dtype=np.float64)


def bounded_range(alpha: Floats, eta: float) -> Floats:
    """Exponential mechanism of range eta: min(alpha eta^2 / 8, pure eta-DP curve).

    Zhu & Wang, Proposition 7; the first term is Cesar & Rogers 2021, Lemma 17.

    >>> float(bounded_range(np.array([2.0]), 0.1)[0])
    0.0025000000000000005
    """
    return np.asarray(np.minimum(alpha * (eta * eta / 8), pure(alpha, eta)), dtype=np.float64)


def _log_cosh(x: Floats) -> Floats:
    """log cosh without cancellation at 0 or overflow far out."""
    x = np.abs(x)
    near = np.log1p(2 * np.sinh(np.minimum(x, 1.0) / 2) ** 2)
    far = x - np.log(2.0) + np.log1p(np.exp(-2 * x))
    return np.asarray(np.where(x < 1.0, near, far), dtype=np.float64)

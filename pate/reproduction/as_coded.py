"""TS and LD as the TS authors' code does them: NOT valid for the privacy they claim, kept to understand their tables.

Where the code and the papers part (https://github.com/ricardocarvalhods/diff-priv-top-k-stability):
    * TS tests the gap below position i + 1 and then answers i items, so the items that it answers may be unstable.
    * LD's private k-bar is drawn among k..5k - 1, prefers *high* thresholds to low ones, and takes them from the count
      at k-bar instead of the one after it. The threshold uses the whole delta, half of which pays for composition.
    * P counts the item at rank k + 1 as one of the true top k.
Differences too small to see are left out: their delta_q and epsilon come from searches in steps of 1 % and 1e-4, and
their distance at a tie is 0 where ours is -1.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from pate.accounting import composition
from pate.mechanisms import TopStable
from pate.mechanisms.base import Bools
from pate.noise import FloatNoise

Ints = NDArray[np.int64]


def top_stable(values: Ints, k: int, epsilon: float, delta: float, source: FloatNoise) -> Bools:
    """(N, W) answers to N rows of descending counts, k-bar = k."""
    width = values.shape[1]
    mechanism = TopStable(width, k, epsilon, delta, neighbours="teacher_added", offset="published")
    sizes = mechanism.stable_sizes(values[:, 1 : k + 2], source)
    return np.arange(width) < sizes[:, None]


def limited_domain(values: Ints, k: int, epsilon: float, delta: float, source: FloatNoise) -> Bools:
    """(N, W) answers to N rows of descending counts, k-bar up to 5k - 1."""
    each = label_epsilon(epsilon, delta / 2, k + 1)
    k_bar = np.arange(k, 5 * k)
    thresholds = values[:, k_bar - 1] + np.log(k_bar / (delta / 2)) / each
    chosen = k_bar[np.argmax(thresholds + source.gumbel(1 / each, thresholds.shape), axis=1)]
    bottom = values[np.arange(len(values)), chosen] + 1 + np.log(chosen / delta) / each
    drawn = source.gumbel(1 / each, values.shape)
    noisy = np.where(np.arange(values.shape[1]) < chosen[:, None], values + drawn, -math.inf)
    passed = noisy > (bottom + source.gumbel(1 / each, bottom.shape))[:, None]
    order = np.argsort(np.argsort(-noisy, axis=1), axis=1)
    return np.asarray(passed & (order < k))


def label_epsilon(epsilon: float, delta: float, rounds: int) -> float:
    """What each of some rounds may spend if they are epsilon at delta together (Durfee & Rogers 2019, Theorem 1).

    >>> round(label_epsilon(1.0, 1e-6, 50), 4)
    0.0504
    """
    return float(brentq(lambda each: composition.bounded_range(each, rounds, delta) - epsilon, 0.0, epsilon))

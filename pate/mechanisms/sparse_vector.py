"""The sparse vector technique: many noisy tests against one noisy threshold, paying only for one kind of outcome.

One run with threshold noise Lap(1/e1) and test noise Lap(2/e2), over queries that each move by at most 1, is
(e1 + e2)-DP up to and including its first ⊤, however many ⊥ come before it. Between neighbours, shift the threshold's
noise by 1 (factor exp(e1)): then every ⊥ is at least as likely as before, and the margin of the ⊤ has shrunk by at most
2 (factor exp(e2)). With ⊤ and ⊥ exchanged the proof is the same. This is Lyu, Su & Li 2017, Theorem 2, the correct one
among the published variants: the threshold is noisy, every test has fresh noise, which grows with the number of ⊤
allowed, and no noisy value is released.

Slips in Carvalho et al. 2020 that concern this module:
    * Algorithm 2 scales the threshold's noise by the cut-off c too: valid, but c times what Theorem 2.8 needs.
    * p1 = 0.37 is said to be the optimum of Lyu et al.; for c = 1 that is 1 / (1 + 2^(2/3)) = 0.387.
    * Lemma 3.1 bounds two of its three integrals loosely and leaves out c = 1; the exact probability is as short.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import exprel

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Pure
from pate.errors import require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Mechanism,
    check_common,
    check_probability,
    check_scale,
    check_whole,
)
from pate.mechanisms.stability import Offset
from pate.noise import Noise


@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """Plain SVT: the labels whose noisy count is above a noisy threshold, in label order, at most `cutoff` of them.

    Guarantee per query: epsilon-DP, whatever K is (Lyu, Su & Li 2017, Theorem 2; Carvalho et al., Theorem 2.8), with
    threshold noise Lap(1 / (p1 epsilon)) and test noise Lap(m cutoff / ((1 - p1) epsilon)). m = 2 in general
    (teacher_changed). m = 1 for monotone queries, which counts are when a ballot is added: if they grow, the threshold
    shifts by 1 and no margin shrinks by more than 1; if they fall, nothing shifts and none shrinks by more than 1.

    Attributes:
        num_labels: K, the number of tests; any K numbers that move by at most 1 (and for teacher_added all one way).
        threshold: the public count to pass, e.g. half of the teachers.
        cutoff: c, the labels a query may get; later ones are not tested.
        p1: the threshold's share of epsilon; 1 / (1 + (m c)^(2/3)) by default, which is best for a comparison.

    >>> m = AboveThreshold(num_labels=4, threshold=50, epsilon=1.0, cutoff=2)
    >>> m.release(np.array([[90, 10, 95, 99]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, True, False]]
    >>> m.cost().epsilon(1e-6) <= 1.0
    True
    """

    theorem: ClassVar[str] = (
        "sparse vector: Lyu, Su & Li 2017, Theorem 2 and monotone queries; Carvalho et al. 2020, Theorem 2.8"
    )
    whole_counts: ClassVar[bool] = False
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon",)

    num_labels: int
    threshold: float
    epsilon: float
    cutoff: int = 1
    neighbours: Neighbours = "teacher_changed"
    p1: float | None = None

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours)
        check_scale("epsilon", self.epsilon)
        check_whole("cutoff", self.cutoff, 1, self.num_labels)
        number = isinstance(self.threshold, (int, float, np.number)) and bool(np.isfinite(self.threshold))
        require(number and not isinstance(self.threshold, bool), "threshold", "a finite number", self.threshold)
        if self.p1 is not None:
            check_probability("p1", self.p1)

    @property
    def reach(self) -> int:
        """m c: how far all reported tests can move together, beside the threshold's own shift."""
        return self.cutoff * (1 if self.neighbours == "teacher_added" else 2)

    @property
    def share(self) -> float:
        """The threshold's share of epsilon."""
        return float(1 / (1 + self.reach ** (2 / 3))) if self.p1 is None else self.p1

    @property
    def threshold_scale(self) -> float:
        """Scale of the threshold's Laplace noise, drawn once per query."""
        return 1 / (self.share * self.epsilon)

    @property
    def test_scale(self) -> float:
        """Scale of each test's Laplace noise."""
        return self.reach / ((1 - self.share) * self.epsilon)

    def cost(self, queries: int = 1) -> PrivacyCost:
        """Pure epsilon per query."""
        return PrivacyCost.of(Pure(self.epsilon), neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        return cls(epsilon=math.sqrt(2 * rho), neighbours=neighbours, **fixed)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        level = self.threshold + noise.laplace(self.threshold_scale, (len(counts), 1))
        above = np.asarray(counts, dtype=np.float64) + noise.laplace(self.test_scale, counts.shape) > level
        labels = above & (np.cumsum(above, axis=1) <= self.cutoff)
        return labels, np.ones(len(counts), dtype=np.bool_), None


@dataclass(frozen=True)
class SharedTest:
    """Tests of stability that share a noisy threshold: distance + Lap(2/e2) > level + Lap(1/e1).

    Guarantee: a run that ends at the first outcome paid for is epsilon-DP (e1 = p1 epsilon, e2 = (1 - p1) epsilon), and
    a test whose distance is at most 0 passes with probability at most delta_t: the level solves
    P[Lap(2/e2) - Lap(1/e1) > level] = delta_t (Carvalho et al., Lemma 3.1).

    Attributes:
        epsilon: of one run.
        delta_t: how often an answer that a neighbour could change passes a test.
        p1: the threshold's share of epsilon; 0.37 makes the level about as low as it gets.
        offset: `exact` solves for the probability itself; `published` for the larger bound of Lemma 3.1.

    >>> round(SharedTest(1.0, 1e-6).level, 2), round(SharedTest(1.0, 1e-6, offset="published").level, 2)
    (45.56, 45.79)
    """

    epsilon: float
    delta_t: float
    p1: float = 0.37
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_scale("epsilon", self.epsilon)
        check_probability("delta", self.delta_t)
        check_probability("p1", self.p1)
        require(self.offset in ("exact", "published"), "offset", "one of exact, published", self.offset)

    @property
    def threshold_scale(self) -> float:
        """Scale of the threshold's Laplace noise, drawn once per run."""
        return 1 / (self.p1 * self.epsilon)

    @property
    def test_scale(self) -> float:
        """Scale of each test's Laplace noise: 2 because distances can grow and shrink."""
        return 2 / ((1 - self.p1) * self.epsilon)

    @cached_property
    def level(self) -> float:
        """The threshold before noise, log(1/delta_q) / (e2/2) in the paper's words."""
        return _log_offset(self.delta_t, 2 * self.p1 / (1 - self.p1), self.offset) * self.test_scale


def failure_probability(distance: float, ratio: float, offset: Offset = "exact") -> float:
    """P[Lap(1) - Lap(1/ratio) > distance] for distance >= 0, or its bound in Lemma 3.1.

    With L = distance, c = ratio and E = (e^(-cL) - e^(-L)) / (1 - c), which is L e^(-L) at c = 1: exactly
    e^(-L)/2 + E / (2 (1 + c)), and e^(-L)/2 + e^(-cL)/4 + E/4 in the paper (there L = log(1/delta_q)).

    >>> round(failure_probability(5.0, 1.0), 6), round(failure_probability(5.0, 1.0, "published"), 6)
    (0.011791, 0.013476)
    """
    # exprel(-x) = (1 - e^-x)/x, so neither c = 1 nor large L cancels.
    mixed = distance * math.exp(-min(ratio, 1.0) * distance) * float(exprel(-abs(1 - ratio) * distance))
    own = math.exp(-distance) / 2
    if offset == "published":
        return own + math.exp(-ratio * distance) / 4 + mixed / 4
    return own + mixed / (2 * (1 + ratio))


@lru_cache(maxsize=1024)
def _log_offset(delta_t: float, ratio: float, offset: Offset) -> float:
    """log(1/delta_q): the least distance >= 0 whose failure probability is at most delta_t."""

    def excess(distance: float) -> float:
        return math.log(max(failure_probability(distance, ratio, offset), 5e-324)) - math.log(delta_t)

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13)) * (1 + 1e-12)

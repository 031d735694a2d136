"""Ranking items by pairwise comparisons, privately (Qiao, Su & Zhang 2021, section 3): a random walk to the winners.

`wins[i, j]` says how often item i beat item j. The walk steps from i to j with probability (share of their comparisons
that j won) / d and else stays; items are ranked by where it spends its time, its stationary distribution pi.

Neighbours: one comparison has another outcome. Who met whom, and how often, is public and does not change.

The paper bounds the sensitivity of pi by 2 / (d L (1 - rho)), where rho bounds the ergodicity coefficient tau of the
walk, and *assumes* such a rho ("rho-constrained", Definition 3.4). But tau depends on the outcomes, which are private:
computing rho from them, or refusing data whose tau is larger, leaks; and unless every pair has met, there are outcomes
with tau = 1 (two items that never met win everything), so no rho < 1 could be known beforehand. Here rho is a public
setting that the walk obeys *for all outcomes*: with probability 1 - keep it jumps to an item chosen uniformly, which
multiplies tau by keep, and keep = min(1, rho / tau*), where tau* is the largest tau that any outcomes on the public
graph can have: 1 - 1/d if every pair has met (rows i and j share y_ij/d in column j and y_ji/d in column i), else 1. So
the paper's walk is left as it is where it provably obeys rho, and mixed as little as rho needs where it does not.

Sensitivity, with r = min(rho, tau*). Let pi, pi' belong to neighbours P, P' and D = pi' - pi. Then D = D P + pi' (P' -
P). D sums to 0, so |D P|_1 <= r |D|_1. P' - P is +-keep / (d L) (e_j - e_i) in rows i and j and 0 elsewhere, so the
second term is at most 2 keep / (d L) long. Hence |D|_1 <= 2 keep / (d L (1 - r)), where the paper stops (with keep = 1),
and since D sums to 0 no entry is larger than half of that: keep / (d L (1 - r)), which is what `tight` means.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from pate.accounting import PrivacyCost
from pate.errors import require
from pate.mechanisms.base import check_probability
from pate.mechanisms.oneshot import OneshotLaplace, best_first
from pate.noise import Noise, as_noise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bound = Literal["tight", "published"]


@dataclass(frozen=True)
class Ranking:
    """What a private ranking releases.

    Attributes:
        items: (k,) the chosen items: the best first if `ordered`, else by index.
        ordered: False where the charge pays for the set only (Theorem 2.2).
        cost: its price; `teacher_changed` reads: one comparison has another outcome.
        seeded: True if the noise can be repeated, which makes the ranking not private.
        noise: where the noise came from, for statements.
    """

    items: Ints
    ordered: bool
    cost: PrivacyCost
    seeded: bool
    noise: str


@dataclass(frozen=True)
class Walk:
    """The random walk's public side: who met whom how often, and what keeps the walk's sensitivity small.

    Guarantee: for all outcomes of these comparisons the walk's ergodicity coefficient is at most r = min(rho, tau*), and
    one outcome moves no entry of its stationary distribution by more than `sensitivity` = keep / (d L (1 - r)), or the
    paper's 2 / (d L (1 - r)) if published (Qiao, Su & Zhang 2021, Lemma 3.3 and Theorem 3.5; proof above).

    Attributes:
        totals: (n, n) comparisons of each pair.
        rho: bound on the ergodicity coefficient; None for the paper's walk as it is, with whatever coefficient.
        d: normalisation, at least the largest number of opponents that an item has, which is the default.

    >>> walk = Walk(np.array([[0, 8, 8], [8, 0, 8], [8, 8, 0]]), rho=0.4)
    >>> round(walk.keep, 3), round(walk.sensitivity(), 4)
    (0.8, 0.0833)
    """

    totals: Ints
    rho: float | None = None
    d: float | None = None

    def __post_init__(self) -> None:
        require(bool(self._met.any()), "comparisons", "at least one", 0)
        if self.rho is not None:
            check_probability("rho", self.rho)
        if self.d is not None:
            rule = f"finite and >= {self._degree}, the most opponents that an item has"
            require(bool(self._degree <= self.d < np.inf), "d", rule, self.d)

    @cached_property
    def _met(self) -> NDArray[np.bool_]:
        return np.asarray(self.totals > 0)

    @property
    def _degree(self) -> int:
        return int(self._met.sum(axis=1).max())

    @property
    def normalisation(self) -> float:
        """d."""
        return float(self._degree if self.d is None else self.d)

    @property
    def worst(self) -> float:
        """tau*: the largest ergodicity coefficient that any outcomes give the walk without jumps."""
        every_pair = int(self._met.sum()) == self._met.size - len(self._met)
        return 1 - 1 / self.normalisation if every_pair else 1.0

    @property
    def bound(self) -> float:
        """r: what the walk's ergodicity coefficient never exceeds."""
        return self.worst if self.rho is None else min(self.rho, self.worst)

    @property
    def keep(self) -> float:
        """How often the walk does not jump."""
        return 1.0 if self.bound == self.worst else self.bound / self.worst

    def sensitivity(self, bound: Bound = "tight") -> float:
        """By how much one outcome can move any entry of the stationary distribution; inf without a bound below 1."""
        require(bound in ("tight", "published"), "bound", "one of tight, published", bound)
        fewest = int(self.totals[self._met].min())
        if self.bound >= 1:
            return float(np.inf)
        published = 2 / (self.normalisation * fewest * (1 - self.bound))
        return published * self.keep / 2 if bound == "tight" else published

    def matrix(self, wins: Ints) -> Floats:
        """(n, n) transition probabilities (equation 3.2, then the jumps). Private, as outcomes are."""
        lost = wins.T / np.maximum(self.totals, 1)
        steps = lost / self.normalisation
        np.fill_diagonal(steps, 1 - steps.sum(axis=1))
        return np.asarray(self.keep * np.maximum(steps, 0.0) + (1 - self.keep) / len(steps), dtype=np.float64)


def ergodicity_coefficient(transitions: Floats) -> float:
    """tau = max |v P|_1 over v with |v|_1 = 1 and sum 0: half the largest L1 distance between rows (Definition 3.1).

    Private where outcomes are.

    >>> ergodicity_coefficient(np.array([[0.5, 0.5], [0.25, 0.75]]))
    0.25
    """
    return float(pdist(transitions, "cityblock").max(initial=0.0) / 2)


def stationary_distribution(transitions: Floats) -> Floats:
    """pi with pi P = pi and sum 1. Refused if there are several.

    >>> stationary_distribution(np.array([[0.5, 0.5], [0.25, 0.75]])).round(4).tolist()
    [0.3333, 0.6667]
    """
    size = len(transitions)
    count, group = connected_components(transitions > 0, directed=True, connection="strong")
    leaves = {int(group[i]) for i, j in zip(*np.nonzero(transitions), strict=True) if group[i] != group[j]}
    require(count - len(leaves) == 1, "comparisons", "such that one group of items ends up on top", count - len(leaves))
    # pi (I - P + J) = 1/n for the matrix J of entries 1/n, and that system has one solution where pi is unique.
    system = np.eye(size) - transitions + 1 / size
    solved = np.maximum(np.linalg.solve(system.T, np.full(size, 1 / size)), 0.0)
    return np.asarray(solved / solved.sum(), dtype=np.float64)


def spectral_ranking(comparisons: Any, d: float | None = None) -> Ints:
    """All items, the best first, as the spectral method ranks them (Algorithm 2). NOT private: for evaluation.

    >>> spectral_ranking([[0, 9, 7], [1, 0, 2], [3, 8, 0]]).tolist()
    [0, 2, 1]
    """
    wins = _checked(comparisons)
    scores = stationary_distribution(Walk(wins + wins.T, None, d).matrix(wins))
    return best_first(scores[None], len(scores))[0]


def private_spectral_ranking(
    comparisons: Any,
    k: int,
    epsilon: float,
    delta: float | None = None,
    rng: Noise | np.random.Generator | None = None,
    *,
    rho: float = 0.5,
    d: float | None = None,
    bound: Bound = "tight",
) -> Ranking:
    """The k best items by pairwise comparisons (Qiao, Su & Zhang 2021, Algorithm 3).

    Guarantee: epsilon-DP, or (epsilon, delta)-DP with a delta, if one comparison has another outcome: the oneshot Laplace
    mechanism (Theorems 2.1 and 2.2) on the stationary distribution, whose entries move by at most
    s = keep / (d L (1 - rho)) <= 2 / (d L (1 - rho)) (Theorem 3.5) for all outcomes, see `Walk`. The price depends on
    public numbers only: it is that of `OneshotLaplace(num_labels=n, k=k, epsilon=epsilon, delta=delta)`.

    Args:
        comparisons: (n, n) whole numbers, [i, j] = how often i beat j. Totals of pairs may differ; L is the smallest
            of a pair that met.
        k: how many items to release, in order where the price covers it.
        delta: None for pure privacy; else epsilon <= 0.2 and delta <= 0.05.
        rng: a `pate.noise` source or a numpy generator; None draws from the operating system.
        rho: public bound on the walk's ergodicity coefficient, in (0, 1). Small: little noise, and the ranking leans on
            direct wins; large: more noise, and whom the losers beat counts for more.
        d: normalisation, the largest number of opponents by default.
        bound: `tight`, or `published` for the paper's sensitivity, at least twice as large.

    >>> wins = np.array([[0, 90, 95], [10, 0, 80], [5, 20, 0]]) * 100
    >>> private_spectral_ranking(wins, k=2, epsilon=1.0, rng=np.random.default_rng(0)).items.tolist()
    [0, 1]
    """
    wins, noise = _checked(comparisons), as_noise(rng)
    require(not noise.exact, "rng", "continuous noise: the scores are no whole numbers", noise.description)
    walk = Walk(wins + wins.T, rho, d)
    reach = walk.sensitivity(bound)
    mechanism = OneshotLaplace(num_labels=len(wins), k=k, epsilon=epsilon, delta=delta, sensitivity=reach)
    scores = stationary_distribution(walk.matrix(wins))
    items = best_first((scores + noise.laplace(mechanism.scale, scores.shape))[None], k)[0]
    ordered = mechanism.covers_order
    return Ranking(items if ordered else np.sort(items), ordered, mechanism.cost(1), noise.seeded, noise.description)


def _checked(comparisons: Any) -> Ints:
    wins = np.asarray(comparisons)
    square = wins.ndim == 2 and wins.shape[0] == wins.shape[1] >= 2
    require(square, "comparisons", "a square array of two items or more", wins.shape)
    require(wins.dtype.kind in "iuf", "comparisons", "numbers", str(wins.dtype))
    whole = bool(np.isfinite(wins).all()) and bool((wins == np.floor(wins)).all())
    require(whole and bool((wins >= 0).all()), "comparisons", "whole numbers >= 0", "something else")
    require(not wins.diagonal().any(), "comparisons", "between different items: 0 on the diagonal", "a win over itself")
    return np.asarray(wins, dtype=np.int64)

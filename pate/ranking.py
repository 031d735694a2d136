"""Ranking items by pairwise comparisons, privately (Qiao, Su & Zhang 2021, section 3): a random walk to the winners.

`comparisons[i, j]` says how often item i beat item j. The walk steps from i to j with probability (share of their
comparisons that j won) / d and else stays; items are ranked by pi, the walk's stationary distribution.

Neighbours: one comparison has another outcome. Who met whom, and how often, is public and does not change.

**The ergodicity coefficient.** The paper bounds what one outcome does to pi by 2 / (d L (1 - rho)), where rho bounds
the walk's ergodicity coefficient tau, and assumes that there is such a rho (Definition 3.4). But tau depends on
outcomes, which are private: taking rho from them, or refusing those whose tau is larger, leaks. Nor can it be known:
unless every pair has met, some outcomes have tau = 1 (two items that never met both win everything). So rho is a public
setting here, and the walk obeys it for *all* outcomes: with probability 1 - keep it jumps to any item, which multiplies
tau by keep = min(1, rho / tau*). tau* is the largest tau of any outcomes on the public graph: 1 - 1/d if every pair has
met (rows i and j have y_ij/d in common in column j, y_ji/d in column i, and these sum to 1/d), else 1. Hence tau <= r =
min(rho, tau*), and where the paper's walk provably obeys rho, it is left as it is.

**The sensitivity.** Let pi and pi' belong to neighbours P and P', and D = pi' - pi. Then D = D P + pi' (P' - P), where
|D P|_1 <= r |D|_1, since D sums to 0, and P' - P is +-keep (e_j - e_i) / (d L) in rows i and j and 0 elsewhere, so that
|pi' (P' - P)|_1 <= 2 keep / (d L). Hence |D|_1 <= 2 keep / (d L (1 - r)): `l1_sensitivity`. The paper uses it (with
keep = 1) as a bound on every single entry, `sensitivity`, and then protects k entries. But it holds for all entries
together: Laplace noise of that size over epsilon makes the *whole* distribution epsilon-DP, with less noise than
choosing k items needs for any k. This is what `private_spectral_ranking` does unless Algorithm 3 is asked for.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from pate.accounting import PrivacyCost
from pate.accounting.events import Laplace
from pate.errors import require
from pate.mechanisms.base import check_probability, check_scale, check_whole
from pate.mechanisms.oneshot import OneshotLaplace, best_first
from pate.noise import Noise, as_noise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Method = Literal["whole", "oneshot"]


@dataclass(frozen=True)
class Ranking:
    """What a private ranking releases.

    Attributes:
        items: (k,) the chosen items: the best first if `ordered`, else by index.
        ordered: False where the price covers the set only (Theorem 2.2).
        scores: (n,) the noisy stationary distribution where the price covers it, else None.
        cost: the price; its `teacher_changed` reads: one comparison has another outcome.
        seeded: True if the noise can be repeated, which makes the ranking not private.
        noise: where the noise came from, for statements.
    """

    items: Ints
    ordered: bool
    scores: Floats | None
    cost: PrivacyCost
    seeded: bool
    noise: str


@dataclass(frozen=True)
class Walk:
    """The random walk's public side: who met whom how often, and by how much one outcome can move its result.

    Guarantee: for all outcomes of these comparisons, the ergodicity coefficient is at most r = min(rho, tau*), and
    another outcome of one comparison moves the stationary distribution by at most 2 keep / (d L (1 - r)) in L1 (proof
    above), so every entry by at most 2 / (d L (1 - r)) (Qiao, Su & Zhang 2021, Lemma 3.3 and Theorem 3.5).

    Attributes:
        totals: (n, n) comparisons of each pair; L is the smallest of a pair that met.
        rho: bound on the ergodicity coefficient; None for the walk without jumps, whatever its coefficient.
        d: normalisation, at least the largest number of opponents that an item has, which is the default.

    >>> walk = Walk(np.array([[0, 8, 8], [8, 0, 8], [8, 8, 0]]), rho=0.4)
    >>> round(walk.keep, 3), round(walk.l1_sensitivity, 4), round(walk.sensitivity, 4)
    (0.8, 0.1667, 0.2083)
    """

    totals: Ints
    rho: float | None = None
    d: float | None = None

    def __post_init__(self) -> None:
        require(bool(self._met.any()), "comparisons", "at least one", 0)
        if self.rho is not None:
            check_probability("rho", self.rho)
        if self.d is not None:
            most = int(self._met.sum(axis=1).max())
            require(bool(most <= self.d < np.inf), "d", f"finite and >= {most}, the most opponents of an item", self.d)

    @cached_property
    def _met(self) -> NDArray[np.bool_]:
        return np.asarray(self.totals > 0)

    @property
    def normalisation(self) -> float:
        """d."""
        return float(self._met.sum(axis=1).max() if self.d is None else self.d)

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

    @property
    def sensitivity(self) -> float:
        """The paper's bound on a change of any entry, 2 / (d L (1 - r)); inf if r = 1."""
        fewest = int(self.totals[self._met].min())
        return 2 / (self.normalisation * fewest * (1 - self.bound)) if self.bound < 1 else float(np.inf)

    @property
    def l1_sensitivity(self) -> float:
        """The bound on the sum of all entries' changes, 2 keep / (d L (1 - r)); inf if r = 1."""
        return self.keep * self.sensitivity

    def matrix(self, wins: Ints) -> Floats:
        """(n, n) transition probabilities: equation 3.2, then the jumps. Private, as outcomes are."""
        steps = wins.T / np.maximum(self.totals, 1) / self.normalisation
        np.fill_diagonal(steps, np.maximum(1 - steps.sum(axis=1), 0.0))
        return np.asarray(self.keep * steps + (1 - self.keep) / len(steps), dtype=np.float64)


def ergodicity_coefficient(transitions: Floats) -> float:
    """tau = max |v P|_1 over v with |v|_1 = 1 and sum 0: half the largest L1 distance between rows (Definition 3.1).

    Private where outcomes are. It is 0 if all rows are equal, so P has rank 1, and at most 1.

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
    groups, group = connected_components(transitions > 0, directed=True, connection="strong")
    source, target = (group[index] for index in np.nonzero(transitions))
    final = groups - len(np.unique(source[source != target]))
    require(final == 1, "comparisons", "such that the walk ends in one group of items", f"{final} groups")
    # pi (I - P + J) = 1/n, where all entries of J are 1/n, has no other solution if pi is unique.
    solved = np.linalg.solve((np.eye(size) - transitions + 1 / size).T, np.full(size, 1 / size))
    solved = np.maximum(solved, 0.0)
    return np.asarray(solved / solved.sum(), dtype=np.float64)


def spectral_ranking(comparisons: Any, d: float | None = None) -> Ints:
    """All items, the best first, by the spectral method (Algorithm 2). NOT private: for evaluation.

    >>> spectral_ranking([[0, 9, 7], [1, 0, 2], [3, 8, 0]]).tolist()
    [0, 2, 1]
    """
    wins = _checked(comparisons)
    scores = stationary_distribution(Walk(wins + wins.T, None, d).matrix(wins))
    return np.asarray(best_first(scores[None], len(scores))[0])


def private_spectral_ranking(
    comparisons: Any,
    k: int,
    epsilon: float,
    delta: float | None = None,
    rng: Noise | np.random.Generator | None = None,
    *,
    rho: float = 0.7,
    d: float | None = None,
    method: Method | None = None,
) -> Ranking:
    """The k best items by pairwise comparisons, if one comparison may have had another outcome.

    Guarantee: epsilon-DP, by Lap(2 keep / (d L (1 - r) epsilon)) noise on the whole stationary distribution (`whole`,
    proof above); or Qiao, Su & Zhang 2021, Algorithm 3 (`oneshot`): (epsilon, delta)-DP by Lap(lambda) noise, lambda =
    8 s sqrt(k log(n/delta)) / epsilon and s = 2 / (d L (1 - r)) (Theorem 3.5), or epsilon-DP with lambda = 2 k s /
    epsilon. Both hold for all outcomes, see `Walk`. The price depends on epsilon, delta, k and n only.

    Args:
        comparisons: (n, n) whole numbers, [i, j] = how often i beat j; pairs may have met more or less often, or never.
        k: how many items to release, in order where the price covers it.
        epsilon: what the ranking spends.
        delta: for `oneshot` only, with its range: epsilon <= 0.2 and delta <= 0.05.
        rng: a `pate.noise` source or a numpy generator; None draws from the operating system.
        rho: public bound on the walk's ergodicity coefficient, in (0, 1). Small: little noise, and direct wins decide;
            large: more noise, and it counts for more whom the losers beat.
        d: normalisation, the largest number of opponents by default.
        method: `whole` by default, `oneshot` if there is a delta.

    >>> wins = np.array([[0, 900, 950], [100, 0, 800], [50, 200, 0]])
    >>> ranking = private_spectral_ranking(wins, k=2, epsilon=1.0, rng=np.random.default_rng(0))
    >>> ranking.items.tolist(), ranking.cost.pure_epsilon
    ([0, 1], 1.0)
    """
    wins, noise = _checked(comparisons), as_noise(rng)
    require(not noise.exact, "rng", "continuous noise: the scores are no whole numbers", noise.description)
    walk = Walk(wins + wins.T, rho, d)
    method = method or ("whole" if delta is None else "oneshot")
    scale, cost, ordered = _price(walk, k, epsilon, delta, method)
    scores = stationary_distribution(walk.matrix(wins))
    noisy = scores + noise.laplace(scale, scores.shape)
    items = best_first(noisy[None], k)[0]
    shown = (items if ordered else np.sort(items)), ordered, (noisy if method == "whole" else None)
    return Ranking(*shown, cost, noise.seeded, noise.description)


def _price(walk: Walk, k: int, epsilon: float, delta: float | None, method: Method) -> tuple[float, PrivacyCost, bool]:
    """The noise's scale, its price, and whether that covers the order."""
    size = len(walk.totals)
    require(method in ("whole", "oneshot"), "method", "one of whole, oneshot", method)
    if method == "oneshot":
        chooser = OneshotLaplace(num_labels=size, k=k, epsilon=epsilon, delta=delta, sensitivity=walk.sensitivity)
        return chooser.scale, chooser.cost(1), chooser.covers_order
    require(delta is None, "delta", "None unless the method is oneshot", delta)
    check_whole("k", k, 1, size)
    check_scale("epsilon", epsilon)
    return walk.l1_sensitivity / epsilon, PrivacyCost.of(Laplace(epsilon), neighbours="teacher_changed"), True


def _checked(comparisons: Any) -> Ints:
    wins = np.asarray(comparisons)
    square = wins.ndim == 2 and wins.shape[0] == wins.shape[1] >= 2
    require(square, "comparisons", "a square array of two items or more", wins.shape)
    require(wins.dtype.kind in "iuf", "comparisons", "numbers", str(wins.dtype))
    whole = bool(np.isfinite(wins).all()) and bool((wins == np.floor(wins)).all())
    require(whole and bool((wins >= 0).all()), "comparisons", "whole numbers >= 0", "something else")
    require(not wins.diagonal().any(), "comparisons", "between different items: 0 on the diagonal", "a win over itself")
    return np.asarray(wins, dtype=np.int64)

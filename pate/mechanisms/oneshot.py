"""Top-k by one draw of Laplace noise (Qiao, Su & Zhang 2021, Algorithm 1).

The paper's neighbours move every score by at most s, either way (its section 2). Counts do so with s = 1 under both of
our relations. Under `teacher_added` they move within [0, s] or within [-s, 0]; a shift common to all scores changes no
choice, so for choosing they move within [-s/2, s/2], and both theorems hold with s/2 in place of s: `choice_reach`.

Pure privacy, for the k best *in their noisy order* (Theorem 2.1 is about their set). Let x give a certain ordered
answer under noise g, and let x' be a neighbour. Change the noise of every i inside the answer to g_i + x_i - x'_i + s,
and none outside. Then every noisy score inside is s higher than it was and every one outside at most s higher, so x'
gives the same answer; k draws moved by between 0 and 2s, so densities changed by at most exp(2 k s / lambda). Equal
noisy scores, as exact whole-number noise makes them, do no harm, since every single comparison is kept with its ties.
(Whole numbers and s/2: if all counts rise, the draws above move by between 0 and s; if all fall, leave out the + s.)

Where the paper is too generous: Algorithm 1 also returns the k scores with fresh Lap(lambda) noise, as if that were
included in Theorem 2.1. It is not: k values that move by s each cost k s / lambda more, 3 epsilon / 2 in all, and this
is reached (k = 1, the winner far behind). Lemma 4.1, behind Theorem 2.2, is about sets only. So values have their own
share of epsilon here, and order is released where the argument above is what is charged.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Event, Laplace, Pure
from pate.errors import SettingError, require
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
from pate.mechanisms.order import Ints, top_sets
from pate.mechanisms.peeling import count_range
from pate.noise import Noise, as_noise

MOST_EPSILON, MOST_DELTA = 0.2, 0.05  # Theorem 2.2 is proved up to here


@dataclass(frozen=True)
class Ranked:
    """The k best in their noisy order.

    Attributes:
        positions: (N, k) labels, the best first.
        seeded: True if the noise can be repeated, which makes the answer not private.
        noise: where the noise came from, for statements.
    """

    positions: Ints
    seeded: bool
    noise: str


@dataclass(frozen=True, kw_only=True)
class OneshotLaplace(Mechanism):
    """The k largest of counts + Lap(lambda) noise, drawn once.

    Guarantee per query: epsilon-DP with lambda = 2 k r / epsilon (Qiao, Su & Zhang 2021, Theorem 2.1); with a delta,
    (epsilon, delta)-DP with lambda = 8 r sqrt(k log(K/delta)) / epsilon, for epsilon <= 0.2, delta <= 0.05 and K >= 2
    (Theorem 2.2). r = s under teacher_changed and s/2 under teacher_added. Where k <= 16 log(K/delta), the second
    lambda is larger than Theorem 2.1 needs: then that is charged, 2 k r / lambda <= epsilon and no delta.

    Attributes:
        num_labels: K, the paper's m.
        epsilon: what one query spends in all.
        delta: None for pure privacy.
        sensitivity: s, by which one neighbour can move any count.
        values: release the k counts too, with fresh Lap(k s / ((1 - split) epsilon)) noise, as scores; the scores of
            labels that were not chosen are 0.
        split: the choice's share of epsilon if values are released. Under teacher_changed 2/3 draws both noises at
            one scale, as Algorithm 1 does.

    >>> m = OneshotLaplace(num_labels=4, k=2, epsilon=0.5)
    >>> m.scale, m.cost(1).pure_epsilon
    (8.0, 0.5)
    >>> m.release(np.array([[90, 10, 80, 12]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, True, False]]
    """

    theorem: ClassVar[str] = "oneshot Laplace: Qiao, Su & Zhang 2021, Theorem 2.1, and 2.2 where delta is given"
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    num_labels: int
    k: int
    epsilon: float
    delta: float | None = None
    sensitivity: float = 1.0
    values: bool = False
    split: float = 2 / 3
    neighbours: Neighbours = "teacher_changed"
    exact: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=1 if self.delta is None else 2)
        check_whole("k", self.k, 1, self.num_labels)
        check_scale("epsilon", self.epsilon)
        check_scale("sensitivity", self.sensitivity)
        require(bool(np.isfinite(self.sensitivity)), "sensitivity", "finite", self.sensitivity)
        check_probability("split", self.split)
        if self.delta is not None:
            check_probability("delta", self.delta)
            source = "where a delta is given (Qiao et al. 2021, Theorem 2.2)"
            require(self.epsilon <= MOST_EPSILON, "epsilon", f"<= {MOST_EPSILON} {source}", self.epsilon)
            require(self.delta <= MOST_DELTA, "delta", f"<= {MOST_DELTA} (Qiao et al. 2021, Theorem 2.2)", self.delta)
        self._allow(self.exact)

    @property
    def choice_epsilon(self) -> float:
        """What of epsilon is for choosing the labels."""
        return self.epsilon * self.split if self.values else self.epsilon

    @property
    def choice_reach(self) -> float:
        """r: how far one neighbour can move any count, up to a shift common to all."""
        return self.sensitivity * count_range(self.neighbours) / 2

    @property
    def scale(self) -> float:
        """lambda, the scale of the noise that chooses."""
        if self.delta is None:
            return 2 * self.k * self.choice_reach / self.choice_epsilon
        spread = math.sqrt(self.k * math.log(self.num_labels / self.delta))
        return 8 * self.choice_reach * spread / self.choice_epsilon

    @property
    def value_scale(self) -> float:
        """The scale of the noise on released values."""
        return self.k * self.sensitivity / ((1 - self.split) * self.epsilon)

    @property
    def charged(self) -> tuple[float, float]:
        """(epsilon, delta) of the choice, by the theorem that asks for less at the scale that is drawn."""
        if self.delta is None:
            return self.choice_epsilon, 0.0
        pure = 2 * self.k * self.choice_reach / self.scale
        return (pure, 0.0) if pure <= self.choice_epsilon else (self.choice_epsilon, self.delta)

    @property
    def covers_order(self) -> bool:
        """True if the charge pays for the order of the k labels as well as for their set."""
        return self.charged[1] == 0

    def cost(self, queries: int = 1) -> PrivacyCost:
        """The choice as `charged`; for values k further events, one per count, epsilon together."""
        epsilon, delta = self.charged
        ratio = self.sensitivity / self.value_scale
        value: Event = Pure(ratio) if self.exact else Laplace(ratio)
        events = [value] * (self.k if self.values else 0)
        return PrivacyCost.of(Pure(epsilon), *events, delta=delta, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold delta_share, the queries' share of delta for Theorem 2.2; without it privacy is pure."""
        share, epsilon = fixed.pop("delta_share", None), math.sqrt(2 * rho)
        if share is None:
            return cls(epsilon=epsilon, neighbours=neighbours, **fixed)
        check_probability("delta_share", share)
        failure = share * delta / max(queries, 1)
        most = cls(epsilon=min(epsilon, MOST_EPSILON), delta=failure, neighbours=neighbours, **fixed)
        if epsilon > 20 * MOST_EPSILON:  # a search may look a little beyond the end and turn back
            reach = most.cost(queries).epsilon(delta)
            rule = (
                f"<= {MOST_EPSILON**2 / 2:.3g} with a delta: Theorem 2.2 of Qiao et al. 2021 ends at epsilon "
                f"{MOST_EPSILON} a query, so queries={queries} can spend at most {reach:.4g} at delta {delta:g}"
            )
            raise SettingError("rho", rule, rho)
        return most

    def fixed(self) -> dict[str, Any]:
        return super().fixed() | {"delta_share": None if self.delta is None else 0.5}

    def ranked(self, counts: Counts, rng: Noise | np.random.Generator | None = None) -> Ranked:
        """The k labels of each query in their noisy order, at the price of `release`: each call is a query of its own.

        Refused where Theorem 2.2 is what is charged: it covers sets, not orders.

        >>> m = OneshotLaplace(num_labels=4, k=2, epsilon=1.0)
        >>> m.ranked(np.array([[80, 10, 120, 12]]), np.random.default_rng(0)).positions.tolist()
        [[2, 0]]
        """
        require(self.covers_order, "delta", "None for the order: Theorem 2.2 covers the set of labels only", self.delta)
        noise = as_noise(rng, self.exact)
        positions = best_first(self._noisy(self._checked(counts), noise), self.k)
        return Ranked(positions, noise.seeded, noise.description)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        labels = best_set(self._noisy(counts, noise), self.k)
        answered = np.ones(len(counts), dtype=np.bool_)
        if not self.values:
            return labels, answered, None
        scores = np.zeros(counts.shape)
        scores[labels] = np.asarray(counts)[labels] + noise.laplace(self.value_scale, (len(counts) * self.k,))
        return labels, answered, scores

    def _noisy(self, counts: Counts, noise: Noise) -> Floats:
        self._allow(noise.exact)
        return np.asarray(counts, dtype=np.float64) + noise.laplace(self.scale, counts.shape)

    def _allow(self, exact: bool) -> None:
        rule = "false where Theorem 2.2 is charged, which is proved for continuous noise"
        require(not exact or self.covers_order, "exact", rule, exact)


def best_set(scores: Floats, k: int) -> Bools:
    """(N, K) membership of each row's k largest scores, the lower index first among equals.

    >>> best_set(np.array([[1.0, 3.0, 2.0, 3.0]]), 1).tolist()
    [[False, True, False, False]]
    """
    width = scores.shape[1]
    if k == width:
        return np.ones(scores.shape, dtype=np.bool_)
    following = np.partition(scores, width - k - 1, axis=1)[:, width - k - 1]
    return top_sets(scores, np.full(len(scores), k), following)


def best_first(scores: Floats, k: int) -> Ints:
    """(N, k) positions of each row's k largest scores, the largest first, the lower index first among equals.

    >>> best_first(np.array([[1.0, 3.0, 2.0, 3.0]]), 3).tolist()
    [[1, 3, 2]]
    """
    positions = np.nonzero(best_set(scores, k))[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, positions, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(positions, order, axis=1), dtype=np.int64)

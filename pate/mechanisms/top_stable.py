"""Releasing exact answers that are stable: one answer, or the largest stable top set (Carvalho et al. 2020).

A query's answer f comes with a distance to instability d such that, for neighbours D and D',
    (1) |d(D) - d(D')| <= 1, and (2) f(D) != f(D') only if d(D) <= 0 and d(D') <= 0.
Why that is enough, for every mechanism here and in `online`: fix D and D'. Call a test bad if it passes a query with
f(D) != f(D'). Let M~ be the mechanism that in a bad test says "passed" instead of f. Its other answers are the same on
D and D' (or drawn by an exponential mechanism that is paid for), so M~ costs what noisy comparisons of 1-Lipschitz
distances cost. M and M~ say the same unless a test is bad, which by (2) happens with probability at most delta, so
    P[M(D) in O] <= delta + P[M~(D) in O, none bad] <= delta + delta' + e^eps P[M~(D') in O, none bad]
                 <= delta + delta' + e^eps P[M(D') in O]
with (eps, delta') from the curve: delta is added once, and deltas compose by addition.

The paper analyses one user added or removed (Definition 2.1), whose ballot is any 0/1 vector: `teacher_added`, where a
gap moves by at most s = 1. When a ballot is replaced (`teacher_changed`), s = 2. If the top-i sets of neighbours
differ, some label a leaves and some b enters: h_a - h_b is at least the gap in D, at most 0 in D', and moves by at most
s; so both gaps are at most s. Hence (gap - 1) // s, a number of ballots that can move without changing the set, has
properties (1) and (2). At s = 1 it is the paper's gap - 1.

Slips in the paper that concern this module:
    * Definition 2.6: the distance is the largest k (max, not argmax) for which f is k-stable.
    * gap - 1 is -1 at a tie, so "both distances are 0" in the proof of Theorem 3.2 should be "at most 0", and its
      equal probabilities are only both at most delta_max. The theorem stands.
    * Theorem 2.7 spends twice what it needs: Lap(1/epsilon) exceeds log(1/delta)/epsilon with probability delta/2.
    * Theorem 4.1 asks for 3/2 < c < 2, that is p1 > 3/7: it does not cover the recommended p1 = 0.37 (c = 1.17).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import BoundedRange, Laplace, Pure
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
    gap_sensitivity,
)
from pate.mechanisms.order import largest, top_sets
from pate.mechanisms.sparse_vector import SharedTest
from pate.mechanisms.stability import Offset
from pate.noise import Noise


class StableQuery(Protocol):
    """A question about counts whose answers know how stable they are: properties (1) and (2) of this module."""

    def check(self, num_labels: int) -> None:
        """Refuse a number of labels that the question does not fit."""

    def answers(self, counts: Counts, neighbours: Neighbours) -> tuple[Bools, Floats]:
        """(N, K) label sets and (N,) distances to instability."""


@dataclass(frozen=True)
class TopSet:
    """The k labels with the largest counts; distance (gap - 1) // s, s = 1 (teacher_added) or 2 (teacher_changed).

    >>> TopSet(k=1).answers(np.array([[9, 2, 3]]), "teacher_changed")
    (array([[ True, False, False]]), array([2.]))
    """

    k: int

    def __post_init__(self) -> None:
        check_whole("k", self.k)

    def check(self, num_labels: int) -> None:
        check_whole("k", self.k, 1, num_labels - 1)

    def answers(self, counts: Counts, neighbours: Neighbours) -> tuple[Bools, Floats]:
        counts = np.asarray(counts)
        values = largest(counts, self.k + 1)
        labels = top_sets(counts, np.full(len(counts), self.k), values[:, self.k])
        return labels, _distances(values[:, self.k - 1 :], neighbours)[:, 0]


@dataclass(frozen=True)
class Majority:
    """The labels that more than half of the teachers gave; distance = min over labels of |h - T//2 - 1/2| - 1/2.

    A label flips when its count passes between T//2 and T//2 + 1, which takes one ballot more than its term. One ballot
    moves every count by at most 1, so the smallest term moves by at most 1 and is 0 on both sides of a flip: (1) and
    (2), for both neighbour relations. If an added teacher is counted in T too, h - T//2 still moves by at most 1.

    Attributes:
        num_teachers: T, which is public; taken from the tally where it is not given.

    >>> Majority(num_teachers=10).answers(np.array([[9, 1, 3]]), "teacher_changed")
    (array([[ True, False, False]]), array([2.]))
    """

    num_teachers: int | None = None

    def __post_init__(self) -> None:
        if self.num_teachers is not None:
            check_whole("num_teachers", self.num_teachers)

    def check(self, num_labels: int) -> None:
        """Any number of labels will do."""

    def answers(self, counts: Counts, neighbours: Neighbours) -> tuple[Bools, Floats]:
        teachers: int | None = self.num_teachers or getattr(counts, "num_teachers", None)
        if teachers is None:
            raise SettingError("num_teachers", "given, unless the counts are a tally that knows it", None)
        margins = np.asarray(counts, dtype=np.float64) - (teachers // 2 + 0.5)
        return margins > 0, np.abs(margins).min(axis=1) - 0.5


@dataclass(frozen=True)
class StableAnswer(Mechanism):
    """A_stab: the exact answer to a query if its distance to instability plus Lap(1/epsilon) is large, else nothing.

    Guarantee per query: (epsilon, delta)-DP (Carvalho et al., Algorithm 1 and Theorem 2.7, from Smith & Thakurta 2013):
    the noisy distance is a Laplace mechanism, and a distance of at most 0 passes with probability at most delta.
    Charged as delta-approximate Rényi DP with the Laplace curve, which composes better than epsilon does.

    Attributes:
        query: `Majority` (default) or `TopSet`; anything with properties (1) and (2) of this module.
        offset: `exact` has the threshold log(1/(2 delta))/epsilon; `published` the paper's log(1/delta)/epsilon.

    >>> m = StableAnswer(num_labels=3, epsilon=1.0, delta=1e-6, query=Majority(num_teachers=100))
    >>> m.release(np.array([[95, 3, 2], [95, 50, 2]]), np.random.default_rng(0)).answered.tolist()
    [True, False]
    >>> m.cost().epsilon(1e-6)
    1.0
    """

    theorem: ClassVar[str] = "A_stab: Carvalho et al. 2020, Theorem 2.7 (Smith & Thakurta 2013)"
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    num_labels: int
    epsilon: float
    delta: float
    neighbours: Neighbours = "teacher_changed"
    query: StableQuery = field(default_factory=Majority)
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours)
        check_scale("epsilon", self.epsilon)
        check_probability("delta", self.delta)
        require(self.offset in ("exact", "published"), "offset", "one of exact, published", self.offset)
        self.query.check(self.num_labels)

    @property
    def level(self) -> float:
        """The threshold that a noisy distance has to pass."""
        failure = self.delta * (2 if self.offset == "exact" else 1)
        return max(0.0, -math.log(failure)) / self.epsilon

    def cost(self, queries: int = 1) -> PrivacyCost:
        """One Laplace event and delta per query."""
        return PrivacyCost.of(Laplace(self.epsilon), delta=self.delta, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold delta_share, the tests' share of delta."""
        share = fixed.pop("delta_share", 0.5)
        check_probability("delta_share", share)
        failure = share * delta / max(queries, 1)
        return cls(epsilon=math.sqrt(2 * rho), delta=failure, neighbours=neighbours, **fixed)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        labels, distances = self.query.answers(counts, self.neighbours)
        answered = distances + noise.laplace(1 / self.epsilon, distances.shape) > self.level
        return labels & answered[:, None], answered, None


@dataclass(frozen=True)
class TopStable(Mechanism):
    """TS: the top-i set for the largest i <= max_k that a noisy test finds stable, cut to k labels; or nothing.

    Guarantee per query: (epsilon, delta)-DP, or (epsilon + em_epsilon, delta) with em, for any K and k (Carvalho et
    al., Algorithm 3 and Theorem 3.2), both neighbour relations by the distance (gap - 1) // s. The gap below position
    i, h(i) - h(i+1), is tested for i = max_k, ..., 1 in one sparse-vector run that ends at the first success, so
    epsilon is paid once. Each of the max_k tests is bad with probability at most delta / max_k.

    If i > k, k of the i labels are kept: at random for nothing, or by the exponential mechanism (`em`), k rounds of
    range em_epsilon / k each, on the counts inside the set just found. Order and counts are not released.

    Attributes:
        num_labels: K, which is public: the catalogue, not only the labels that occur.
        max_k: k-bar, the largest set tested; k by default. Only the max_k + 1 largest counts are looked at.
        p1: the threshold's share of epsilon.
        em_epsilon: price of the exponential mechanism; epsilon by default.
        offset: how the threshold follows from delta, see `SharedTest`.

    >>> m = TopStable(num_labels=5, k=3, epsilon=1.0, delta=1e-6)
    >>> m.release(np.array([[990, 985, 20, 18, 10]]), np.random.default_rng(0)).labels.tolist()
    [[True, True, False, False, False]]
    >>> m.cost().epsilon(1e-6)
    1.0
    """

    theorem: ClassVar[str] = "top stable: Carvalho et al. 2020, Algorithm 3 and Theorem 3.2"
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta", "em_epsilon")

    num_labels: int
    k: int
    epsilon: float
    delta: float
    neighbours: Neighbours = "teacher_changed"
    max_k: int | None = None
    p1: float = 0.37
    em: bool = False
    em_epsilon: float | None = None
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=2)
        check_whole("k", self.k, 1, self.num_labels - 1)
        if self.max_k is not None:
            check_whole("max_k", self.max_k, self.k, self.num_labels - 1)
        check_probability("delta", self.delta)
        _ = self.test
        require(self.em or self.em_epsilon is None, "em_epsilon", "None unless em", self.em_epsilon)
        require(not self.em or self.positions > self.k, "max_k", "> k for em to choose among", self.max_k)
        if self.em_epsilon is not None:
            check_scale("em_epsilon", self.em_epsilon)

    @property
    def positions(self) -> int:
        """k-bar: how many set sizes are tested."""
        return self.k if self.max_k is None else self.max_k

    @cached_property
    def test(self) -> SharedTest:
        """The tests' noise and threshold; delta_q is solved from delta / k-bar."""
        return SharedTest(self.epsilon, self.delta / self.positions, self.p1, self.offset)

    @property
    def em_range(self) -> float:
        """eta of one round of the exponential mechanism."""
        return (self.epsilon if self.em_epsilon is None else self.em_epsilon) / self.k

    def cost(self, queries: int = 1) -> PrivacyCost:
        """(epsilon, delta) per query, and k bounded-range events for em."""
        rounds = [BoundedRange(self.em_range)] * (self.k if self.em else 0)
        return PrivacyCost.of(Pure(self.epsilon), *rounds, delta=self.delta, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold split (the tests' share of rho if em) and delta_share (the tests' share of delta)."""
        split, share = fixed.pop("split", 0.5), fixed.pop("delta_share", 0.5)
        check_probability("split", split)
        check_probability("delta_share", share)
        if fixed.get("em"):  # k rounds of range eta are k eta^2 / 8 of zCDP
            fixed["em_epsilon"] = math.sqrt(8 * fixed["k"] * (1 - split) * rho)
            rho = split * rho
        failure = share * delta / max(queries, 1)
        return cls(epsilon=math.sqrt(2 * rho), delta=failure, neighbours=neighbours, **fixed)

    def stable_sizes(self, values: Counts, noise: Noise) -> NDArray[np.int64]:
        """The first i of k-bar, ..., 1 whose test passes, for each row of descending counts; 0 where none does."""
        distances = _distances(values, self.neighbours)
        levels = self.test.level + noise.laplace(self.test.threshold_scale, (len(values), 1))
        passed = distances + noise.laplace(self.test.test_scale, distances.shape) > levels
        return np.asarray((passed * np.arange(1, self.positions + 1)).max(axis=1), dtype=np.int64)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        counts = np.asarray(counts)
        values = largest(counts, self.positions + 1)
        sizes = self.stable_sizes(values, noise)
        rows = np.flatnonzero(sizes)
        labels = np.zeros(counts.shape, dtype=np.bool_)
        labels[rows] = top_sets(counts[rows], sizes[rows], values[rows, sizes[rows]])
        for row in np.flatnonzero(sizes > self.k):
            inside = np.flatnonzero(labels[row])
            labels[row, inside[self._surplus(counts[row, inside], noise)]] = False
        return labels, sizes > 0, None

    def _surplus(self, counts: Counts, noise: Noise) -> NDArray[np.int64]:
        """Which of a stable set's labels to leave out: Gumbel noise on the counts (em), or on nothing (random)."""
        scale = gap_sensitivity(self.neighbours) / self.em_range if self.em else 1.0
        scores = noise.gumbel(scale, counts.shape) + (counts if self.em else 0.0)
        return np.asarray(np.argsort(-scores, kind="stable")[self.k :], dtype=np.int64)


def _distances(values: Counts, neighbours: Neighbours) -> Floats:
    """(N, m) distances to instability of the top sets that m + 1 descending counts separate."""
    gaps = np.asarray(values[:, :-1] - values[:, 1:], dtype=np.float64)
    return (gaps - 1) // gap_sensitivity(neighbours)

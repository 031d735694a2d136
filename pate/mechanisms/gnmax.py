"""The hard-label PATE baselines: the noisy winner among K classes, and K separate noisy yes/no votes.

Only answers are released, no counts, so both also know what they cost on the votes at hand (`private_cost`).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from pate.accounting.conversion import ORDERS
from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.data_dependent import PrivateCost, likely_answer, threshold_vote
from pate.accounting.events import gaussian_event
from pate.errors import require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Tally,
    check_whole,
    gap_sensitivity,
)
from pate.mechanisms.counts import GaussianNoise
from pate.mechanisms.order import largest, members
from pate.noise import Noise

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class GaussianVotes(GaussianNoise):
    """Hard answers from counts + N(0, sigma^2), with a price for the worst votes and one for the votes at hand.

    For the second, a `statistic` of each question, a whole number 0..T, decides the price and moves by at most `reach`
    between neighbours; T, the number of seats, is public, and a teacher that is not there votes for nothing.
    """

    @property
    @abstractmethod
    def ratio(self) -> float:
        """What one neighbour can move in one question's counts, in L2 and in units of sigma."""

    @property
    @abstractmethod
    def questions(self) -> int:
        """How many separate answers, each with its own noise, a query consists of."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """By how much one neighbour can move a question's statistic."""

    @abstractmethod
    def statistic(self, counts: Counts) -> Ints:
        """One whole number 0..T for each question."""

    @abstractmethod
    def prices(self, alpha: float, num_teachers: int) -> Floats:
        """(T+1,) divergence bound at one order for each value of the statistic."""

    @abstractmethod
    def private_cost(self, counts: Counts) -> PrivateCost:
        """What answering these counts costs on these counts."""

    def cost(self, queries: int = 1) -> PrivacyCost:
        """alpha ratio^2 / 2 for each question of each query."""
        event = gaussian_event(self.ratio, self.exact)
        return PrivacyCost.of(*[event] * self.questions, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        unit = cls(sigma=1.0, neighbours=neighbours, **fixed)
        sigma = unit.ratio * float(np.sqrt(unit.questions / (2 * rho)))
        return cls(sigma=sigma, neighbours=neighbours, **fixed)

    def teachers(self, counts: Counts) -> int:
        """T, from the settings or the tally."""
        known = self.num_teachers or getattr(counts, "num_teachers", None)
        require(known is not None, "num_teachers", "given where the counts do not come from tally", known)
        return int(known)  # type: ignore[arg-type]

    def _continuous(self) -> None:
        """The formulas of data-dependent prices are those of normal noise."""
        require(not self.exact, "exact", "false for data-dependent accounting", self.exact)


@dataclass(frozen=True, kw_only=True)
class GNMax(GaussianVotes):
    """PATE for one label: every teacher votes for one of K classes, the noisy winner is the answer.

    Guarantee per query: RDP alpha / sigma^2 (teacher_changed: two counts move by 1) or alpha / (2 sigma^2)
    (teacher_added), exactly sqrt(2)/sigma- or 1/sigma-Gaussian-DP, as post-processing of the noisy counts.

    Attributes:
        num_labels: K, at least 2.
        sigma: standard deviation of the noise on each count, in votes.
        neighbours: what is protected.
        num_teachers: T, public; taken from the tally where it is not given.
        exact: discrete Gaussian noise, safe from floating-point attacks; the same curve.

    >>> m = GNMax(num_labels=10, sigma=40.0)
    >>> round(m.cost(1000).epsilon(1e-5), 3)
    5.378
    >>> counts = np.array([[200, 30, 20, 0, 0, 0, 0, 0, 0, 0]])
    >>> int(m.release(counts, np.random.default_rng(0)).labels.argmax())
    0
    """

    theorem: ClassVar[str] = (
        "noisy counts of one-class ballots: Mironov 2017, Corollary 3 (GNMax of Papernot et al. 2018)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("num_labels", self.num_labels, 2)

    @property
    def ratio(self) -> float:
        return float(np.sqrt(2.0 if self.neighbours == "teacher_changed" else 1.0)) / self.sigma

    @property
    def questions(self) -> int:
        return 1

    @property
    def reach(self) -> int:
        return gap_sensitivity(self.neighbours)

    def tally(self, votes: Bools) -> Tally:
        """(T, N, K) ballots of exactly one vote each to (N, K) counts."""
        votes = self._checked_votes(votes)
        each = votes.sum(axis=2)
        require(bool((each == 1).all()), "votes", "exactly one class in every ballot", np.unique(each).tolist())
        return super().tally(votes)

    def statistic(self, counts: Counts) -> Ints:
        """The gap between the two largest counts."""
        two = largest(np.asarray(self._checked(counts)), 2).astype(np.int64)
        return np.asarray(two[:, 0] - two[:, 1], dtype=np.int64)

    def log_q(self, counts: Counts) -> Floats:
        """(N,) bound on the log-probability that the winner is not the largest count: sum of Phi(-gap/(sqrt(2) sigma)).

        Papernot et al. 2018, Proposition 7: a union over the classes; two noises differ by N(0, 2 sigma^2).

        >>> GNMax(num_labels=3, sigma=10.0).log_q(np.array([[50, 10, 0]])).round(2)
        array([-5.97])
        """
        counts = np.asarray(self._checked(counts), dtype=np.float64)
        gaps = np.sort(counts.max(axis=1, keepdims=True) - counts, axis=1)[:, 1:]
        return np.asarray(logsumexp(log_ndtr(gaps / (-np.sqrt(2) * self.sigma)), axis=1), dtype=np.float64)

    def prices(self, alpha: float, num_teachers: int) -> Floats:
        """`likely_answer` with q = (K-1) Phi(-gap/(sqrt(2) sigma)), the worst for a gap of the two largest counts."""
        self._continuous()
        tails = log_ndtr(np.arange(num_teachers + 1) / (-np.sqrt(2) * self.sigma))
        return likely_answer(alpha, np.log(self.num_labels - 1.0) + tails, self.ratio)

    def private_cost(self, counts: Counts) -> PrivateCost:
        """What answering these counts costs on these counts: `likely_answer` with q by `log_q`, summed over queries.

        >>> m = GNMax(num_labels=10, sigma=40.0)
        >>> agreed = np.array([[240, 10, 0, 0, 0, 0, 0, 0, 0, 0]] * 1000)
        >>> round(m.private_cost(agreed).epsilon(1e-5).value, 3), round(m.cost(1000).epsilon(1e-5), 3)
        (0.44, 5.378)
        """
        self._continuous()
        curve = np.zeros_like(ORDERS)
        for value, times in zip(*np.unique(self.log_q(counts), return_counts=True), strict=True):
            curve += times * likely_answer(ORDERS, value, self.ratio)
        return PrivateCost(curve, self.neighbours)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        teachers = getattr(counts, "num_teachers", None)
        if teachers is not None:  # The price rests on one vote a teacher.
            votes = np.asarray(counts).sum(axis=1)
            require(bool((votes == teachers).all()), "counts", "one vote from each teacher", np.unique(votes).tolist())
        scores = np.asarray(counts, dtype=np.float64) + noise.gaussian(self.sigma, counts.shape)
        winners = scores.argmax(axis=1)[:, None].astype(np.int64)
        return members(winners, self.num_labels), np.ones(len(counts), dtype=np.bool_), None


@dataclass(frozen=True, kw_only=True)
class BinaryVotes(GaussianVotes):
    """PATE for many labels, each a yes/no question of its own: yes if count + N(0, sigma^2) > T/2; answers only.

    Guarantee per query: RDP alpha K / (2 sigma^2) for both neighbour relations, as for `NoisyCounts`. On votes that
    agree it costs far less, which `private_cost` says and `pate.accounting.smooth_sensitivity` can make public.

    Attributes:
        num_labels: K.
        sigma: standard deviation of the noise on each count, in votes.
        neighbours: what is protected.
        num_teachers: T, public, for the threshold T/2; taken from the tally where it is not given.
        exact: discrete Gaussian noise, safe from floating-point attacks; the same curve.

    >>> m = BinaryVotes(num_labels=3, sigma=20.0, num_teachers=100)
    >>> m.release(np.array([[98, 2, 1]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, False]]
    >>> round(m.cost(100).epsilon(1e-5), 3)
    4.011
    """

    theorem: ClassVar[str] = "Gaussian mechanism for each of K counts: Mironov 2017, Corollary 3; sensitivity 1 each"

    @property
    def ratio(self) -> float:
        return 1 / self.sigma

    @property
    def questions(self) -> int:
        return self.num_labels

    @property
    def reach(self) -> int:
        return 1

    def statistic(self, counts: Counts) -> Ints:
        """Every label's count."""
        return np.asarray(self._checked(counts)).astype(np.int64).ravel()

    def prices(self, alpha: float, num_teachers: int) -> Floats:
        """`threshold_vote` at each count 0..T: exact."""
        self._continuous()
        margins = (np.arange(num_teachers + 1) - num_teachers / 2) / self.sigma
        return threshold_vote(alpha, margins, self.ratio)

    def private_cost(self, counts: Counts) -> PrivateCost:
        """What answering these counts costs on these counts: `threshold_vote`, exact for each label, summed.

        >>> m = BinaryVotes(num_labels=3, sigma=20.0, num_teachers=200)
        >>> agreed = np.array([[190, 10, 5]] * 100)
        >>> round(m.private_cost(agreed).epsilon(1e-5).value, 3), round(m.cost(100).epsilon(1e-5), 3)
        (0.275, 4.011)
        """
        self._continuous()
        away = np.abs(self.statistic(counts) - self.teachers(counts) / 2)
        curve = np.zeros_like(ORDERS)
        for value, times in zip(*np.unique(away, return_counts=True), strict=True):
            curve += times * threshold_vote(ORDERS, value / self.sigma, self.ratio)
        return PrivateCost(curve, self.neighbours)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        threshold = self.teachers(counts) / 2
        scores = np.asarray(counts, dtype=np.float64) + noise.gaussian(self.sigma, counts.shape)
        return scores > threshold, np.ones(len(counts), dtype=np.bool_), None

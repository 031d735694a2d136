"""The PATE baselines: Gaussian noise on the vote counts themselves."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import gaussian_event
from pate.errors import require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Mechanism,
    Tally,
    check_common,
    check_scale,
    check_whole,
)
from pate.noise import Noise


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Mechanism):
    """What all vote mechanisms with N(0, sigma^2) on the counts are set by."""

    num_labels: int
    sigma: float
    neighbours: Neighbours = "teacher_changed"
    num_teachers: int | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours)
        check_scale("sigma", self.sigma)
        if self.num_teachers is not None:
            check_whole("num_teachers", self.num_teachers)


@dataclass(frozen=True, kw_only=True)
class GaussianCounts(GaussianNoise):
    """Noisy counts, thresholded at half of the teachers; labels are post-processing of the scores."""

    soft: bool = True

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """L2 distance by which one neighbour can move a query's counts."""

    @property
    def score_sd(self) -> float:
        return self.sigma

    def cost(self, queries: int = 1) -> PrivacyCost:
        """alpha sensitivity^2 / (2 sigma^2) per query."""
        event = gaussian_event(self.sensitivity / self.sigma, self.exact)
        return PrivacyCost.of(event, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        unit = cls(sigma=1.0, neighbours=neighbours, **fixed)
        return cls(sigma=unit.sensitivity / float(np.sqrt(2 * rho)), neighbours=neighbours, **fixed)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        scores = np.asarray(counts, dtype=np.float64) + noise.gaussian(self.sigma, counts.shape)
        labels = scores > self._threshold(counts, scores)
        return labels, np.ones(len(counts), dtype=np.bool_), scores if self.soft else None

    def _threshold(self, counts: Counts, scores: Floats) -> float:
        """Half of the teachers; for a plain histogram without teachers, half of the largest noisy count."""
        teachers = self.num_teachers or getattr(counts, "num_teachers", None)
        if teachers is not None:
            return float(teachers) / 2
        return float(scores.max()) / 2 if scores.size else 0.0


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(GaussianCounts):
    """PATE for many labels: N(0, sigma^2) on all K counts.

    Guarantee per query: RDP alpha K / (2 sigma^2) for both neighbour relations, exactly sqrt(K)/sigma-Gaussian-DP.
    Scores are released with the labels at no further cost.

    Attributes:
        num_labels: K.
        sigma: standard deviation of the noise, in votes.
        neighbours: what is protected.
        num_teachers: T, for the threshold T/2; taken from the tally where it is not given.
        soft: release the noisy counts too.
        exact: discrete Gaussian noise, safe from floating-point attacks; the same curve.

    >>> NoisyCounts(num_labels=40, sigma=150.0).cost(600).epsilon(1e-6)  # doctest: +ELLIPSIS
    5.41...
    """

    theorem: ClassVar[str] = "Gaussian mechanism: Mironov 2017, Corollary 3; L2 sensitivity sqrt(K)"

    @property
    def sensitivity(self) -> float:
        return float(np.sqrt(self.num_labels))


@dataclass(frozen=True, kw_only=True)
class TauBallots(GaussianCounts):
    """PATE-tau: each ballot is scaled to at most tau votes in all, then noise N(0, sigma^2) on all K counts.

    Guarantee per query: RDP alpha D / (2 sigma^2) with D = min(tau, K) (teacher_added) or min(2 tau, K)
    (teacher_changed): a ballot of m > tau votes keeps tau/m of each, so its squared length is tau^2/m < tau.
    Two ballots differ most when they are disjoint, and no entry moves by more than 1.

    Attributes:
        tau: the votes a ballot may spend, chosen without looking at the data.
        charge: `l2`, the sensitivity above; `tau_squared`, the looser tau^2 charged by earlier code.

    >>> round(TauBallots(num_labels=40, tau=5, sigma=50.0).cost(600).epsilon(1e-6), 3)
    8.637
    """

    theorem: ClassVar[str] = "Gaussian mechanism: Mironov 2017, Corollary 3; L2 sensitivity of ballots scaled to tau"
    whole_counts: ClassVar[bool] = False

    tau: float
    charge: Literal["l2", "tau_squared"] = "l2"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("tau", self.tau)
        require(not self.exact, "exact", "false for scaled ballots, which are not whole numbers", self.exact)
        require(self.charge in ("l2", "tau_squared"), "charge", "one of l2, tau_squared", self.charge)

    @property
    def sensitivity(self) -> float:
        reach = self.tau if self.neighbours == "teacher_added" else 2 * self.tau
        squared = min(reach, float(self.num_labels))
        return float(np.sqrt(squared if self.charge == "l2" else max(squared, self.tau**2)))

    def tally(self, votes: Bools) -> Tally:
        """(T, N, K) ballots, each scaled by min(1, tau / its votes), to (N, K) counts."""
        votes = self._checked_votes(votes)
        spent = np.maximum(votes.sum(axis=2), 1)
        weights = np.minimum(1.0, self.tau / spent)
        counts = np.zeros(votes.shape[1:])
        for ballot, weight in zip(votes, weights, strict=True):
            counts += ballot * weight[:, None]
        return Tally(counts, len(votes))

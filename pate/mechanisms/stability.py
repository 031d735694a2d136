"""Releasing a top-k set without noise if a noisy test says that it is stable (Zhu & Wang, Algorithms 4 and 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from scipy.special import ndtri

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Event, Laplace, Pure, gaussian_event
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
    gap_sensitivity,
)
from pate.mechanisms.order import largest, top_sets
from pate.noise import Noise

Offset = Literal["exact", "published"]


class StabilityTest(Protocol):
    """Passes a gap that is surely larger than what one neighbour can close, except with probability delta_t."""

    @property
    def delta_t(self) -> float:
        """How often a gap that could close passes."""

    def event(self, sensitivity: float, exact: bool = False) -> Event:
        """The price of one test, beside delta_t."""

    def passes(self, gaps: Floats, sensitivity: float, noise: Noise) -> Bools:
        """One fresh test per gap."""


@dataclass(frozen=True)
class GaussianTest:
    """max(s, gap) + N(0, sigma^2) - sigma z > s (Algorithm 4; s is the gap's sensitivity).

    Guarantee: delta_t-approximate RDP alpha s^2 / (2 sigma^2) (Corollary 19). If the top-k sets of two neighbours
    differ, both gaps are at most s, so each passes with probability at most P(N(0,1) > z) <= delta_t.

    Attributes:
        offset: `exact` has z = Phi^-1(1 - delta_t); `published` the paper's larger sqrt(2 log(1/delta_t)).

    >>> round(GaussianTest(sigma=60.0, delta_t=1e-9).z, 2), round(GaussianTest(60.0, 1e-9, "published").z, 2)
    (6.0, 6.44)
    """

    sigma: float
    delta_t: float
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_scale("sigma", self.sigma)
        check_probability("delta_t", self.delta_t)
        require(self.offset in ("exact", "published"), "offset", "one of exact, published", self.offset)

    @property
    def z(self) -> float:
        """The offset in standard deviations."""
        if self.offset == "exact":
            return -float(ndtri(self.delta_t))
        return float(np.sqrt(2 * np.log(1 / self.delta_t)))

    def event(self, sensitivity: float, exact: bool = False) -> Event:
        return gaussian_event(sensitivity / self.sigma, exact)

    def passes(self, gaps: Floats, sensitivity: float, noise: Noise) -> Bools:
        estimate = np.maximum(gaps, sensitivity) + noise.gaussian(self.sigma, gaps.shape)
        offset = self.sigma * self.z
        # A discrete Gaussian exceeds a whole number m with at most the probability that a normal exceeds m
        # (Canonne, Kamath & Steinke 2020, Proposition 25), so rounding the offset up keeps delta_t.
        return np.asarray(estimate - (np.ceil(offset) if noise.exact else offset) > sensitivity)


@dataclass(frozen=True)
class LaplaceTest:
    """gap + Lap(s/epsilon) - offset > s (Algorithm 5; s is the gap's sensitivity).

    Guarantee: (epsilon, delta_t)-DP, and delta_t-approximate Rényi DP with the Laplace mechanism's curve.

    Attributes:
        offset: `exact` is the Laplace quantile (s/epsilon) log(1/(2 delta_t)); `published` has log(1/delta_t).

    >>> LaplaceTest(epsilon=0.1, delta_t=1e-6).event(1)
    Laplace(ratio=0.1)
    """

    epsilon: float
    delta_t: float
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_scale("epsilon", self.epsilon)
        check_probability("delta_t", self.delta_t)
        require(self.offset in ("exact", "published"), "offset", "one of exact, published", self.offset)

    def event(self, sensitivity: float, exact: bool = False) -> Event:
        return Pure(self.epsilon) if exact else Laplace(self.epsilon)

    def passes(self, gaps: Floats, sensitivity: float, noise: Noise) -> Bools:
        scale = sensitivity / self.epsilon
        # P(discrete Laplace >= m) <= exp(-m / scale) without the continuous one's factor 1/2.
        failure = self.delta_t * (2 if self.offset == "exact" and not noise.exact else 1)
        offset = max(0.0, scale * float(np.log(1 / failure)))
        return np.asarray(gaps + noise.laplace(scale, gaps.shape) - offset > sensitivity)


@dataclass(frozen=True)
class StableSet(Mechanism):
    """The top-k set for a given k, noiselessly, if the test finds it stable; else nothing.

    Guarantee per query: that of the test, at the gap's sensitivity (Zhu & Wang, Lemma 18).

    >>> m = StableSet(num_labels=3, k=1, test=GaussianTest(sigma=2.0, delta_t=1e-6))
    >>> m.release(np.array([[90, 10, 20]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, False]]
    """

    theorem: ClassVar[str] = "propose-test-release: Zhu & Wang, Lemma 18 and Corollary 19"
    noise_fields: ClassVar[tuple[str, ...]] = ("test",)

    num_labels: int
    k: int
    test: StabilityTest
    neighbours: Neighbours = "teacher_changed"
    exact: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=2)
        check_whole("k", self.k, 1, self.num_labels - 1)

    def cost(self, queries: int = 1) -> PrivacyCost:
        event = self.test.event(gap_sensitivity(self.neighbours), self.exact)
        return PrivacyCost.of(event, delta=self.test.delta_t, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        share = fixed.pop("delta_share", 0.5)
        sigma = gap_sensitivity(neighbours) / float(np.sqrt(2 * rho))
        test = GaussianTest(sigma, share * delta / max(queries, 1))
        return cls(test=test, neighbours=neighbours, **fixed)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        values = largest(counts, self.k + 1)
        k = np.full(len(counts), self.k)
        labels, answered = release_if_stable(counts, k, values, self.test, gap_sensitivity(self.neighbours), noise)
        return labels, answered, None


def release_if_stable(
    counts: Counts, k: Any, values: Counts, test: StabilityTest, sensitivity: float, noise: Noise
) -> tuple[Bools, Bools]:
    """Each row's top-k set where its gap passes the test, else an empty row; values are sorted counts, descending."""
    rows = np.arange(len(counts))
    following = np.asarray(values[rows, k])
    gaps = np.asarray(values[rows, k - 1] - following, dtype=np.float64)
    answered = test.passes(gaps, sensitivity, noise)
    labels = np.zeros(counts.shape, dtype=np.bool_)
    found = np.flatnonzero(answered)
    labels[found] = top_sets(np.asarray(counts)[found], k[found], following[found])
    return labels, answered

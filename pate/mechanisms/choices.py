"""Choosing k by a noisy largest gap: the noise, its price, and the argmax (Zhu & Wang, Algorithm 1)."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from pate.accounting import noisy_max
from pate.accounting.events import BoundedRange, Event, NoisyMax
from pate.mechanisms.base import Floats, check_scale
from pate.noise import Indices, Noise


class Choice(Protocol):
    """Noise for report-noisy-max over scores that each move by at most a given sensitivity."""

    def event(self, candidates: int, sensitivity: float) -> Event:
        """The price of one choice."""

    def pick(self, scores: Floats, noise: Noise) -> Indices:
        """(N,) position of each row's largest noisy score."""

    @classmethod
    def at_rho(cls, rho: float, candidates: int, sensitivity: float) -> Self:
        """The choice that costs about rho of zCDP."""


@dataclass(frozen=True)
class GumbelChoice:
    """Gumbel noise: the exponential mechanism.

    Guarantee: bounded range eta = 2 s / scale for scores that move by at most s, hence eta-DP and RDP
    min(alpha eta^2/8, pure eta-DP curve) (Zhu & Wang, Proposition 7).

    >>> GumbelChoice(scale=39.0).event(39, 1)
    BoundedRange(eta=0.05128205128205128)
    """

    scale: float

    def __post_init__(self) -> None:
        check_scale("scale", self.scale)

    def event(self, candidates: int, sensitivity: float) -> Event:
        return BoundedRange(0.0 if candidates == 1 else 2 * sensitivity / self.scale)

    def pick(self, scores: Floats, noise: Noise) -> Indices:
        return noise.gumbel_top(scores, 1, self.scale)[:, 0]

    @classmethod
    def at_rho(cls, rho: float, candidates: int, sensitivity: float) -> Self:
        return cls(scale=sensitivity / float(np.sqrt(2 * rho)))


@dataclass(frozen=True)
class GaussianChoice:
    """Gaussian noise: RNM-Gaussian.

    Guarantee: the pointwise minimum of four valid bounds (docs/noisy_max.md), of which our own is the smallest in
    ordinary use. The published Corollary 9 is one of them; the charge behind the paper's headline figure is not,
    because it is too small. The bounds are proved for continuous noise, so there is no exact form.

    >>> GaussianChoice(sigma=50.0).event(39, 1)
    NoisyMax(candidates=39, ratio=0.02)
    """

    sigma: float

    def __post_init__(self) -> None:
        check_scale("sigma", self.sigma)

    def event(self, candidates: int, sensitivity: float) -> Event:
        return NoisyMax(candidates, sensitivity / self.sigma)

    def pick(self, scores: Floats, noise: Noise) -> Indices:
        return np.asarray((scores + noise.gaussian(self.sigma, scores.shape)).argmax(axis=1), dtype=np.int64)

    @classmethod
    def at_rho(cls, rho: float, candidates: int, sensitivity: float) -> Self:
        """Solves c s^2 / sigma^2 = rho with c the slope of the curve where noise is large."""
        small = 1e-3
        slope = float(noisy_max.valid_minimum(np.array([2.0]), max(candidates, 2), small)[0]) / (2 * small**2)
        return cls(sigma=sensitivity * float(np.sqrt(slope / rho)))

"""StableTopK: choose k by a noisy largest gap, then release the top-k set if it is stable (Zhu & Wang, Algorithm 2)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting import conversion as convert
from pate.accounting.cost import Neighbours, PrivacyCost
from pate.errors import SettingError, require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Mechanism,
    check_common,
    check_probability,
    check_whole,
    gap_sensitivity,
)
from pate.mechanisms.choices import Choice, GaussianChoice, GumbelChoice
from pate.mechanisms.order import largest
from pate.mechanisms.stability import GaussianTest, StabilityTest, release_if_stable
from pate.noise import Noise

CHOICES: dict[str, type[Choice]] = {"gumbel": GumbelChoice, "gaussian": GaussianChoice}


@dataclass(frozen=True)
class PublishedFigure:
    """An epsilon as a paper prints it. It is NOT a guarantee, does not add to costs and enters no statement."""

    rho: float
    delta: float

    def epsilon(self, delta: float, conversion: convert.Conversion = "published") -> float:
        """The printed figure: the curve alpha rho, converted at what delta_t leaves of delta."""
        require(self.delta < delta < 1, "delta", f"in ({self.delta:.6g}, 1)", delta)
        left = delta - self.delta
        if conversion == "exact":
            return convert.gaussian_epsilon(float(np.sqrt(2 * self.rho)), left)
        rule = convert.tight_epsilon if conversion == "tight" else convert.published_epsilon
        orders = 1 + np.logspace(-2, 5, 100_000)
        return rule(orders * self.rho, left, orders)

    def __str__(self) -> str:
        return f"as published, not a guarantee (RDP {self.rho:.6g} alpha)"


@dataclass(frozen=True)
class StableTopK(Mechanism):
    """Label each query with its top-k set, k chosen where the noisy gap is largest, or answer nothing.

    Guarantee per query: delta_t-approximate RDP, the choice's curve plus the test's alpha s^2 / (2 sigma^2), where a
    gap moves by at most s = 1 (teacher_added) or 2 (teacher_changed). The choice is among the gaps 1..max_k.

    Attributes:
        choose: `GumbelChoice` or `GaussianChoice`.
        sigma: standard deviation of the stability test's noise (`GaussianTest`).
        delta_t: failure probability of one test; the queries' sum counts against delta.
        test: a whole test instead of sigma and delta_t, e.g. `LaplaceTest`.
        regulariser: public r(1), ..., r(max_k), added to the gaps before the noise.
        max_k: largest k considered (k-bar); K - 1 by default. Small for unknown or huge label spaces.
        exact: exact discrete sampling, safe from floating-point attacks; not with `GaussianChoice`.

    >>> m = StableTopK(num_labels=40, choose=GaussianChoice(sigma=50), sigma=60, delta_t=1e-9)
    >>> round(m.cost(queries=600).epsilon(delta=1e-6), 2)
    15.95
    >>> m = StableTopK(num_labels=4, choose=GumbelChoice(scale=1.0), sigma=1.0, delta_t=1e-6)
    >>> m.release(np.array([[90, 10, 80, 12]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, True, False]]
    """

    theorem: ClassVar[str] = "Zhu & Wang, Algorithm 2 and Lemma 18; Gaussian choice by docs/noisy_max.md"
    noise_fields: ClassVar[tuple[str, ...]] = ("choose", "sigma", "delta_t", "test")

    num_labels: int
    choose: Choice
    sigma: float | None = None
    delta_t: float = 1e-9
    neighbours: Neighbours = "teacher_changed"
    test: StabilityTest | None = None
    regulariser: tuple[float, ...] | None = None
    max_k: int | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=2)
        if self.max_k is not None:
            check_whole("max_k", self.max_k, 1, self.num_labels - 1)
        gaussian = isinstance(self.choose, GaussianChoice)
        require(
            not (self.exact and gaussian), "exact", "false with GaussianChoice; GumbelChoice can be exact", self.exact
        )
        if (self.sigma is None) == (self.test is None):
            raise SettingError("sigma", "given, unless a test is given instead", self.sigma)
        check_probability("delta_t", self.delta_t)
        _ = self.stability
        if self.regulariser is not None:
            object.__setattr__(self, "regulariser", tuple(float(value) for value in self.regulariser))
            fits = len(self.regulariser) == self.candidates and np.isfinite(self.regulariser).all()
            require(bool(fits), "regulariser", f"{self.candidates} finite numbers", self.regulariser)

    @property
    def candidates(self) -> int:
        """How many values of k are in the running."""
        return self.num_labels - 1 if self.max_k is None else self.max_k

    @cached_property
    def stability(self) -> StabilityTest:
        """The test that decides whether the set is released."""
        return self.test or GaussianTest(self.sigma, self.delta_t)  # type: ignore[arg-type]

    def cost(self, queries: int = 1) -> PrivacyCost:
        reach = gap_sensitivity(self.neighbours)
        choice, test = self.choose.event(self.candidates, reach), self.stability.event(reach, self.exact)
        return PrivacyCost.of(choice, test, delta=self.stability.delta_t, neighbours=self.neighbours) * queries

    def as_published(self, queries: int = 1) -> PublishedFigure:
        """What the paper's headline figure charges: alpha/(2 sigma1^2) + alpha/(2 sigma^2). Too small to be true.

        >>> m = StableTopK(num_labels=40, choose=GaussianChoice(sigma=50), sigma=60, delta_t=1e-9)
        >>> round(m.as_published(600).epsilon(1e-6), 3)
        3.665
        """
        if not isinstance(self.choose, GaussianChoice) or not isinstance(self.stability, GaussianTest):
            raise SettingError("choose and test", "Gaussian for a published figure to exist", self.choose)
        rho = 0.5 / self.choose.sigma**2 + 0.5 / self.stability.sigma**2
        return PublishedFigure(queries * rho, queries * self.stability.delta_t)

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold choose ("gumbel", "gaussian" or a class), split (the choice's share of rho) and
        delta_share (the tests' share of delta). The test gets more: it needs a gap of z = 6 of its deviations."""
        choose, split = fixed.pop("choose", "gumbel"), fixed.pop("split", 0.35)
        share = fixed.pop("delta_share", 0.5)
        for name, value in (("split", split), ("delta_share", share)):
            require(0 < value < 1, name, "in (0, 1)", value)
        maker = CHOICES[choose] if isinstance(choose, str) and choose in CHOICES else choose
        require(isinstance(maker, type), "choose", "gumbel, gaussian or a class of choices", choose)
        reach = gap_sensitivity(neighbours)
        candidates = fixed.get("max_k") or fixed["num_labels"] - 1
        choice = maker.at_rho(split * rho, candidates, reach)
        sigma = reach / float(np.sqrt(2 * (1 - split) * rho))
        return cls(choose=choice, sigma=sigma, delta_t=share * delta / queries, neighbours=neighbours, **fixed)

    def fixed(self) -> dict[str, Any]:
        return super().fixed() | {"choose": type(self.choose)}

    def chosen_k(self, values: Counts, noise: Noise) -> NDArray[np.int64]:
        """k for each row of descending counts (Algorithm 1)."""
        gaps = np.asarray(values[:, :-1] - values[:, 1:], dtype=np.float64)
        if self.candidates == 1:
            return np.ones(len(gaps), dtype=np.int64)
        if self.regulariser is not None:
            gaps += np.asarray(self.regulariser)
        return self.choose.pick(gaps, noise) + 1

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        values = largest(np.asarray(counts), self.candidates + 1)
        k = self.chosen_k(values, noise)
        reach = gap_sensitivity(self.neighbours)
        labels, answered = release_if_stable(counts, k, values, self.stability, reach, noise)
        return labels, answered, None

"""StableTopK for a given k: use a large gap near k if there is one, the exponential mechanism for the rest."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Concentrated
from pate.errors import require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Mechanism,
    check_common,
    check_scale,
    check_whole,
    gap_sensitivity,
)
from pate.mechanisms.choices import Choice
from pate.mechanisms.order import largest, members
from pate.mechanisms.peeling import count_range
from pate.mechanisms.stability import release_if_stable
from pate.mechanisms.stable_topk import StableTopK
from pate.noise import Noise, top_positions


@dataclass(frozen=True, kw_only=True)
class FixedTopK(Mechanism):
    """Exactly k labels: a stable set of about k, then peeling inside it or outside it (Zhu & Wang, Algorithm 3).

    Guarantee per query: delta_t-approximate RDP, the curve of `StableTopK` plus alpha rho of exponential mechanism,
    whichever branch is taken: the stable set is too large (choose k inside it), too small (choose the rest outside it),
    just right (nothing to choose), or bottom (choose k among all). m rounds share rho, each of bounded range
    sqrt(8 rho / m) (Theorem 12; the printed number of rounds k~ - k outside the set is a slip for k - k~).

    Attributes:
        rho: zCDP of the exponential mechanism.
        pull: lambda, how strongly the choice of k~ is drawn to k: the public regulariser is -pull |j - k|.

    >>> from pate.mechanisms import GumbelChoice
    >>> m = FixedTopK(num_labels=4, k=2, choose=GumbelChoice(1.0), sigma=1.0, delta_t=1e-6, rho=2.0)
    >>> m.release(np.array([[90, 10, 80, 12]]), np.random.default_rng(0)).labels.tolist()
    [[True, False, True, False]]
    """

    theorem: ClassVar[str] = "Zhu & Wang, Algorithm 3 and Theorem 12"
    noise_fields: ClassVar[tuple[str, ...]] = ("choose", "sigma", "delta_t", "rho")

    num_labels: int
    k: int
    choose: Choice
    sigma: float
    rho: float
    delta_t: float = 1e-9
    pull: float = 0.0
    max_k: int | None = None
    neighbours: Neighbours = "teacher_changed"

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=2)
        check_whole("k", self.k, 1, self.num_labels - 1)
        require(np.isfinite(self.pull) and self.pull >= 0, "pull", "finite and >= 0", self.pull)
        check_scale("rho", self.rho)
        _ = self.stable

    @cached_property
    def stable(self) -> StableTopK:
        """The first half: Algorithm 2 with a regulariser that prefers k."""
        candidates = self.num_labels - 1 if self.max_k is None else self.max_k
        regulariser = tuple(-self.pull * abs(j - self.k) for j in range(1, candidates + 1)) if self.pull else None
        return StableTopK(
            num_labels=self.num_labels,
            choose=self.choose,
            sigma=self.sigma,
            delta_t=self.delta_t,
            neighbours=self.neighbours,
            regulariser=regulariser,
            max_k=self.max_k,
        )

    def cost(self, queries: int = 1) -> PrivacyCost:
        rest = PrivacyCost.of(Concentrated(self.rho), neighbours=self.neighbours)
        return (self.stable.cost(1) + rest) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold em_split, the exponential mechanism's share of rho, and what `StableTopK.at_rho` takes."""
        share = fixed.pop("em_split", 0.5)
        require(0 < share < 1, "em_split", "in (0, 1)", share)
        own = {name: fixed.pop(name) for name in ("k", "pull") if name in fixed}
        first = (1 - share) * rho
        stable = StableTopK.at_rho(first, neighbours=neighbours, queries=queries, delta=delta, **fixed)
        noise = {"choose": stable.choose, "sigma": stable.sigma, "delta_t": stable.delta_t, "rho": share * rho}
        return cls(num_labels=stable.num_labels, max_k=stable.max_k, neighbours=neighbours, **noise, **own)

    def fixed(self) -> dict[str, Any]:
        return super().fixed() | {"choose": type(self.choose)}

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        values = largest(np.asarray(counts), self.stable.candidates + 1)
        near_k = self.stable.chosen_k(values, noise)
        reach = gap_sensitivity(self.neighbours)
        sets, stable = release_if_stable(counts, near_k, values, self.stable.stability, reach, noise)
        scales = self._scales(near_k, stable)
        noisy = np.asarray(counts, dtype=np.float64) + scales[:, None] * noise.gumbel(1.0, counts.shape)
        noisy[sets & (stable & (near_k <= self.k))[:, None]] = np.inf
        noisy[~sets & (stable & (near_k > self.k))[:, None]] = -np.inf
        return members(top_positions(noisy, self.k), self.num_labels), np.ones(len(counts), dtype=np.bool_), None

    def _scales(self, near_k: NDArray[np.int64], stable: Bools) -> Floats:
        """Gumbel scale of each row: m rounds share rho, each of range sqrt(8 rho / m)."""
        rounds = np.where(stable & (near_k <= self.k), self.k - near_k, self.k)
        return np.asarray(count_range(self.neighbours) / np.sqrt(8 * self.rho / np.maximum(rounds, 1)))

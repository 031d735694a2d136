"""Slow, literal transcriptions of the papers' pseudocode, one query at a time, with the noise given from outside."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from pate.noise import FloatNoise, seeded


@dataclass
class Recorded:
    """A source of noise that keeps every draw, so that a reference can be fed the same ones."""

    source: FloatNoise = field(default_factory=lambda: seeded(0))
    draws: list[np.ndarray] = field(default_factory=list)
    seeded: bool = True
    exact: bool = False
    description: str = "recorded"

    def _keep(self, draw: Callable[[float, tuple[int, ...]], np.ndarray], scale: float, shape: tuple[int, ...]):
        self.draws.append(draw(scale, shape))
        return self.draws[-1].copy()

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._keep(self.source.gaussian, scale, shape)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._keep(self.source.laplace, scale, shape)

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._keep(self.source.gumbel, scale, shape)

    def gumbel_top(self, scores: np.ndarray, k: int, scale: float) -> np.ndarray:
        noisy = scores + self.gumbel(scale, scores.shape)
        return np.argsort(-noisy, axis=1, kind="stable")[:, :k]


def ranked(histogram: list[float]) -> list[int]:
    """Candidates from the largest count to the smallest; the lower index first among equals."""
    return sorted(range(len(histogram)), key=lambda j: (-histogram[j], j))


def large_gap(histogram: list[float], regulariser: list[float], noise: list[float]) -> int:
    """Zhu & Wang, Algorithm 1: the k whose noisy, regularised gap is largest."""
    order = ranked(histogram)
    best, best_score = 0, -math.inf
    for j in range(1, len(regulariser) + 1):
        gap = histogram[order[j - 1]] - histogram[order[j]]
        score = gap + (noise[j - 1] if len(regulariser) > 1 else 0.0) + regulariser[j - 1]
        if score > best_score:
            best, best_score = j, score
    return best


def gaussian_lower_bound(
    gap: float, reach: float, sigma: float, delta_t: float, noise: float, published: bool
) -> float:
    """Zhu & Wang, Algorithm 4, line 4."""
    z = math.sqrt(2 * math.log(1 / delta_t)) if published else norm.isf(delta_t)
    return max(reach, gap) + noise - sigma * z


def laplace_lower_bound(
    gap: float, reach: float, epsilon: float, delta_t: float, noise: float, published: bool
) -> float:
    """Zhu & Wang, Algorithm 5, line 4."""
    tail = math.log(1 / delta_t) if published else math.log(1 / (2 * delta_t))
    return gap + noise - reach * tail / epsilon


def stable_set(histogram: list[float], k: int, reach: float, bound: Callable[[float], float]) -> set[int] | None:
    """Propose-test-release for one k: the top-k set, or None for bottom."""
    order = ranked(histogram)
    gap = histogram[order[k - 1]] - histogram[order[k]]
    return set(order[:k]) if bound(gap) > reach else None


def top_by_noise(candidates: list[int], histogram: list[float], noise: list[float], scale: float, k: int) -> set[int]:
    """The exponential mechanism by peeling: again and again the best of what is left, under the same Gumbel draws."""
    left, chosen = list(candidates), set()
    for _ in range(k):
        winner = max(left, key=lambda j: histogram[j] + scale * noise[j])
        chosen.add(winner)
        left.remove(winner)
    return chosen


def fixed_k(
    histogram: list[float], k: int, near_k: int, stable: set[int] | None, rho: float, spread: int, noise: list[float]
) -> set[int]:
    """Zhu & Wang, Algorithm 3 from line 5 on; `noise` is standard Gumbel."""
    everything = list(range(len(histogram)))
    scale = lambda rounds: spread / math.sqrt(8 * rho / rounds)  # noqa: E731
    if stable is None:
        return top_by_noise(everything, histogram, noise, scale(k), k)
    if near_k == k:
        return stable
    if near_k > k:
        return top_by_noise(sorted(stable), histogram, noise, scale(k), k)
    outside = [j for j in everything if j not in stable]
    return stable | top_by_noise(outside, histogram, noise, scale(k - near_k), k - near_k)


def tau_counts(votes: np.ndarray, tau: float) -> np.ndarray:
    """Zhu et al.'s tau approximation: a ballot of more than tau votes is averaged down to tau votes in all."""
    teachers, queries, labels = votes.shape
    counts = np.zeros((queries, labels))
    for query in range(queries):
        for teacher in range(teachers):
            cast = sum(bool(vote) for vote in votes[teacher, query])
            for label in range(labels):
                if votes[teacher, query, label]:
                    counts[query, label] += tau / cast if cast > tau else 1.0
    return counts

"""Carvalho et al. 2020, slowly: the pseudocode with the noise as an argument, and exact probabilities."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pate.noise import Noise, seeded

BOTTOM = None


class Tape:
    """A source of noise that remembers what it gave."""

    seeded, exact, description = True, False, "taped"

    def __init__(self, seed: int) -> None:
        self.source: Noise = seeded(seed)
        self.draws: list[tuple[str, float, np.ndarray]] = []

    def _give(self, kind: str, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        draw = getattr(self.source, kind)(scale, shape)
        self.draws.append((kind, scale, draw))
        return draw

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._give("gaussian", scale, shape)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._give("laplace", scale, shape)

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        return self._give("gumbel", scale, shape)


@st.composite
def histograms(draw: st.DrawFn) -> np.ndarray:
    """A few histograms, with ties, all-zero rows and two labels among them."""
    labels = draw(st.integers(2, 7))
    top = draw(st.sampled_from([0, 1, 2, 5, 60]))
    rows = draw(st.lists(st.lists(st.integers(0, top), min_size=labels, max_size=labels), min_size=1, max_size=12))
    return np.array(rows)


def z_score(hits: np.ndarray, chance: float) -> float:
    """How many standard errors the hits are from their chance."""
    return abs(hits.mean() - chance) / math.sqrt(chance * (1 - chance) / len(hits))


# --- the paper's pseudocode ---------------------------------------------------------------------------------------


def lemma_3_1(delta_q: float, c: float) -> float:
    """The printed bound on P[Lap(1/a) > log(1/delta_q)/a + Lap(1/b)], c = b/a."""
    return (2 * delta_q**c + delta_q - c * (delta_q**c + 2 * delta_q)) / (4 * (1 - c))


def largest_delta_q(limit: float, c: float) -> float:
    """Line 2 of Algorithm 3, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(600):
        middle = (low + high) / 2
        low, high = (middle, high) if lemma_3_1(middle, c) <= limit else (low, middle)
    return low


def ranking(histogram: Sequence[int]) -> list[int]:
    """Labels from the largest count to the smallest; ties by index."""
    return sorted(range(len(histogram)), key=lambda label: (-histogram[label], label))


def a_stab(distance: float, answer: Any, threshold: float, noise: float) -> Any:
    """Algorithm 1."""
    if distance + noise > threshold:
        return answer
    return BOTTOM


def svt(
    queries: Sequence[float], threshold: float, threshold_noise: float, noises: Sequence[float], c: int
) -> list[bool]:
    """Algorithm 2, with the noise of Lyu et al."""
    noisy_threshold, output, counter = threshold + threshold_noise, [], 0
    for query, noise in zip(queries, noises, strict=True):
        above = query + noise >= noisy_threshold
        output.append(above)
        if above:
            counter = counter + 1
        if counter >= c:
            break
    return output


def surely_unmoved(gap: int, reach: int) -> int:
    """How many ballots, each closing the gap by at most `reach`, surely leave it open; -1 at a tie."""
    ballots = -1
    while gap - reach * (ballots + 1) > 0:
        ballots += 1
    return ballots


def top_stable(
    histogram: Sequence[int], k: int, k_bar: int, threshold: float, reach: int,
    threshold_noise: float, noises: dict[int, float], order: Any,
) -> set[int] | None:  # fmt: skip
    """Algorithm 3 from line 3 on. `noises` by position, 1-based; `order` ranks the labels of a set larger than k."""
    index, noisy_threshold = ranking(histogram), threshold + threshold_noise
    for i in range(k_bar, 0, -1):
        f_i = set(index[:i])
        q_i = surely_unmoved(histogram[index[i - 1]] - histogram[index[i]], reach)
        out = a_stab(q_i, f_i, noisy_threshold, noises[i])
        if out is BOTTOM:
            continue
        return set(order(sorted(f_i))[:k]) if i > k else f_i
    return BOTTOM


def online(
    stream: Iterable[tuple[float, Any]], cutoff: int, pays: str, threshold: float,
    threshold_noises: Sequence[float], noises: Sequence[float],
) -> list[Any]:  # fmt: skip
    """Section 5: stable answers until `cutoff` outcomes of the kind that is paid for; then bottoms."""
    output, paid = [], 0
    for (distance, answer), noise in zip(stream, noises, strict=True):
        if paid >= cutoff:
            output.append(BOTTOM)
            continue
        out = a_stab(distance, answer, threshold + threshold_noises[paid], noise)
        output.append(out)
        if (out is BOTTOM) == (pays == "unstable"):
            paid = paid + 1
    return output


def majority(counts: Sequence[int], teachers: int) -> frozenset[int]:
    return frozenset(label for label, count in enumerate(counts) if count > teachers / 2)


def majority_distance(counts: Sequence[int], teachers: int) -> int:
    """Definition 2.6, by trying: the largest m such that no m ballots change the set."""
    for m in range(1, 2 * teachers + 2):
        for moves in product((-m, 0, m), repeat=len(counts)):
            if majority([c + d for c, d in zip(counts, moves, strict=True)], teachers) != majority(counts, teachers):
                return m - 1
    raise AssertionError("counts further than twice the teachers")


# --- exact probabilities ------------------------------------------------------------------------------------------


class Comparisons:
    """Chances of records of one run: tests distance + Lap > level + (one common Lap), integrated over the latter."""

    def __init__(self, level: float, threshold_scale: float, test_scale: float, low: int, high: int) -> None:
        kinks = [0.0] + [d - level for d in range(low, high + 1)]
        reach = 45 * max(threshold_scale, test_scale)
        ends = np.unique(
            np.concatenate([kinks, np.arange(min(kinks) - reach, max(kinks) + reach, min(test_scale, 2.0))])
        )
        node, weight = np.polynomial.legendre.leggauss(12)
        half, middle = np.diff(ends)[:, None] / 2, (ends[1:] + ends[:-1])[:, None] / 2
        z = (middle + half * node).ravel()
        self.weights = (half * weight).ravel() * np.exp(-np.abs(z) / threshold_scale) / (2 * threshold_scale)
        margin = (np.arange(low, high + 1)[:, None] - level - z) / test_scale
        tail = np.exp(-np.abs(margin)) / 2
        self.low, self.passes = low, np.where(margin > 0, 1 - tail, tail)
        self.fails = np.where(margin > 0, tail, 1 - tail)

    def chance(self, passed: Sequence[int], failed: Sequence[int]) -> float:
        """That exactly these distances pass and those fail, in one run."""
        product_ = self.weights
        for d in passed:
            product_ = product_ * self.passes[d - self.low]
        for d in failed:
            product_ = product_ * self.fails[d - self.low]
        return float(product_.sum())


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> np.ndarray:
    """sum over outcomes of (p - e^epsilon q)+, over the last axis."""
    return np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=-1)


def moves(width: int, neighbours: str) -> list[tuple[int, ...]]:
    """By what one neighbour can move that many counts: added or removed, or anything."""
    if neighbours == "teacher_changed":
        return list(product((-1, 0, 1), repeat=width))
    up = list(product((0, 1), repeat=width))
    return up + [tuple(-d for d in move) for move in up]


def kept_of_set(counts: Sequence[int], k: int, scale: float | None) -> dict[tuple[int, ...], float]:
    """Chances of each k-subset of positions: peeling by the exponential mechanism, or uniform."""
    size = len(counts)
    if scale is None:
        return {kept: 1 / math.comb(size, k) for kept in combinations(range(size), k)}
    weights, result = [math.exp((c - max(counts)) / scale) for c in counts], {}

    def peel(kept: tuple[int, ...], chance: float) -> None:
        if len(kept) == k:
            result[tuple(sorted(kept))] = result.get(tuple(sorted(kept)), 0.0) + chance
            return
        left = [i for i in range(size) if i not in kept]
        for i in left:
            peel((*kept, i), chance * weights[i] / sum(weights[j] for j in left))

    peel((), 1.0)
    return result

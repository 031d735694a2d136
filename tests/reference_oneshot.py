"""Qiao, Su & Zhang 2021, slowly: the pseudocode one number at a time, and exact probabilities by quadrature."""

import math
from itertools import combinations, permutations

import numpy as np
from scipy.special import gammaln, xlogy

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def smallest(scores: list[float], k: int, noise: list[float]) -> list[int]:
    """Algorithm 1, lines 1 to 5, with the order of line 4: the k smallest noisy scores, smallest first."""
    noisy = []
    for i in range(len(scores)):
        noisy.append(scores[i] + noise[i])
    order = sorted(range(len(scores)), key=lambda i: (noisy[i], i))
    return order[:k]


def largest(counts: list[float], k: int, noise: list[float]) -> list[int]:
    """The same for the largest: everything with the other sign."""
    return smallest([-count for count in counts], k, [-draw for draw in noise])


def with_values(counts: list[float], chosen: list[int], fresh: list[float]) -> dict[int, float]:
    """Algorithm 1, line 5: the chosen counts, each with a new draw, in the order of their indices."""
    return {i: counts[i] + draw for i, draw in zip(sorted(chosen), fresh, strict=True)}


def transitions(wins: list[list[int]], d: float, keep: float = 1.0) -> list[list[float]]:
    """Equation 3.2 from wins[i][j] = how often i beat j; then the walk jumps with probability 1 - keep."""
    m = len(wins)
    matrix = [[0.0] * m for _ in range(m)]
    for i in range(m):
        for j in range(m):
            met = wins[i][j] + wins[j][i]
            if i != j and met > 0:
                matrix[i][j] = wins[j][i] / met / d
        matrix[i][i] = 1.0 - sum(matrix[i])
    return [[keep * value + (1 - keep) / m for value in row] for row in matrix]


def stationary(matrix: list[list[float]], steps: int = 3000) -> list[float]:
    """Algorithm 2, line 2, by walking for a long time (lazily, so that no walk is periodic)."""
    m = len(matrix)
    place = [1 / m] * m
    for _ in range(steps):
        moved = [sum(place[i] * matrix[i][j] for i in range(m)) for j in range(m)]
        place = [(before + after) / 2 for before, after in zip(place, moved, strict=True)]
    return place


def cdf(z: np.ndarray) -> np.ndarray:
    """Of the standard Laplace distribution, exact in both tails (cdf(-z) is the upper one)."""
    tail = 0.5 * np.exp(-np.abs(z))
    return np.where(z < 0, tail, 1 - tail)


def integral(values, kinks: np.ndarray, reach: float = 40.0, step: float = 2.0) -> float:
    """Of a function with kinks at these places that falls off beyond them like exp(-|t|), by Gauss-Legendre pieces."""
    edges = np.unique(np.concatenate([kinks, np.arange(kinks.min() - reach, kinks.max() + reach, step)]))
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    points = middle[:, None] + half[:, None] * NODES
    return float((values(points) * WEIGHTS * half[:, None]).sum())


def set_probability(scores: np.ndarray, chosen: tuple[int, ...]) -> float:
    """P(these are the largest of scores + standard Laplace noise): one of them is the last, at t."""
    chosen_scores, rest = scores[list(chosen)], np.delete(scores, list(chosen))

    def density(t: np.ndarray) -> np.ndarray:
        above = cdf(chosen_scores - t[..., None])
        below = cdf(t[..., None] - rest).prod(-1)
        last = 0.5 * np.exp(-np.abs(t[..., None] - chosen_scores)) / above
        return last.sum(-1) * above.prod(-1) * below

    return integral(density, scores)


def order_probability(scores: np.ndarray, first: int, second: int) -> float:
    """P(first and second are the two largest, in this order): second is at t."""
    rest = np.delete(scores, [first, second])

    def density(t: np.ndarray) -> np.ndarray:
        at = 0.5 * np.exp(-np.abs(t - scores[second]))
        return at * cdf(scores[first] - t) * cdf(t[..., None] - rest).prod(-1)

    return integral(density, scores)


def answers(scores: np.ndarray, k: int, ordered: bool) -> np.ndarray:
    """Probabilities of all answers, always in the same order of answers."""
    labels = range(len(scores))
    if ordered and k == 2:
        return np.array([order_probability(scores, *pair) for pair in permutations(labels, 2)])
    return np.array([set_probability(scores, chosen) for chosen in combinations(labels, k)])


def chosen_from_first(sizes: tuple[int, int], levels: tuple[float, float], k: int) -> np.ndarray:
    """P(r of the k largest are of the first of two groups of equal scores), r = 0..k, under standard Laplace noise."""
    (a, b), (x, y) = sizes, levels
    r = np.arange(k + 1.0)

    def ways(size: int, taken: np.ndarray) -> np.ndarray:
        inside = (taken >= 0) & (taken <= size)
        taken = np.clip(taken, 0, size)
        logs = gammaln(size + 1) - gammaln(taken + 1) - gammaln(size - taken + 1)
        return np.where(inside, logs, -np.inf)

    def density(t: np.ndarray) -> np.ndarray:
        t = t[..., None]
        up_x, up_y = cdf(x - t), cdf(y - t)
        total = 0.0
        for last_x in (True, False):  # from which group the last of the k comes
            level, size = (x, a) if last_x else (y, b)
            taken_x, taken_y = r - last_x, k - r - (not last_x)
            left_x, left_y = a - last_x, b - (not last_x)
            logs = ways(left_x, taken_x) + ways(left_y, taken_y) + np.log(max(size, 1) / 2) - np.abs(t - level)
            logs = logs + xlogy(np.clip(taken_x, 0, None), up_x) + xlogy(np.clip(taken_y, 0, None), up_y)
            logs = logs + xlogy(np.clip(left_x - taken_x, 0, None), cdf(t - x))
            logs = logs + xlogy(np.clip(left_y - taken_y, 0, None), cdf(t - y))
            total = total + np.exp(logs) * (size > 0)
        return total

    edges = np.unique([x, y, *np.arange(min(x, y) - 20, max(x, y) + 20, 0.2)])
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    points = middle[:, None] + half[:, None] * NODES
    return (density(points) * (WEIGHTS * half[:, None])[..., None]).sum((0, 1))


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """The delta that the pair of distributions needs at epsilon."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())

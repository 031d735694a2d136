"""Durfee & Rogers 2019, slowly: the pseudocode on one histogram, the noise given, and exact answer probabilities."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy.integrate import cumulative_trapezoid

Outcome = tuple[int, ...]
BOTTOM = -1


def by_count(histogram: list[int]) -> list[int]:
    """Labels from the largest count to the smallest; the lower label first among equals."""
    return sorted(range(len(histogram)), key=lambda label: (-histogram[label], label))


def gumbel_offset(failure: float) -> float:
    """How many scales above its competitors bottom lies in Algorithm 1."""
    return math.log(1 / failure)


def laplace_offset(failure: float) -> float:
    """The same for Laplace noise, by bisection of (2 + t) exp(-t) / 4 = failure."""
    low, high = 0.0, 1000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (2 + middle) * math.exp(-middle) / 4 > failure else (low, middle)
    return high


def bottom_count(
    histogram: list[int], k_bar: int, delta: float, votes: int, reach: int, scale: float, offset: Callable[..., float]
) -> float:
    """Algorithm 1, line 2; `votes` is Delta, `reach` and `scale` are 1 and 1/epsilon as printed."""
    ranked = by_count(histogram)
    changing = min(votes, k_bar, len(histogram) - k_bar)
    return histogram[ranked[k_bar]] + reach + scale * offset(delta / changing)


def limited_domain(
    histogram: list[int], k: int, k_bar: int, bottom: float, noise: list[float], bottom_noise: float
) -> Outcome:
    """Algorithm 1, lines 3 to 7: labels in noisy order, then BOTTOM unless there are k."""
    noisy = {label: histogram[label] + z for label, z in zip(by_count(histogram)[:k_bar], noise, strict=True)}
    answer: list[int] = []
    for label in sorted(noisy, key=lambda label: (-noisy[label], label)):
        if len(answer) == k:
            return tuple(answer)
        if noisy[label] <= bottom + bottom_noise:
            break
        answer.append(label)
    return tuple(answer) if len(answer) == k else (*answer, BOTTOM)


def private_k_bar(thresholds: dict[int, float], noise: list[float]) -> int:
    """The k-bar whose threshold is lowest after noise is taken off it."""
    noisy = {k_bar: threshold - z for (k_bar, threshold), z in zip(thresholds.items(), noise, strict=True)}
    return min(noisy, key=lambda k_bar: noisy[k_bar])


def pay_what_you_get(queries: list, k_star: int, ell_star: int, answer: Callable[..., Outcome]) -> list[Outcome]:
    """Algorithm 2 on (histogram, k, k_bar) queries; `answer` runs Algorithm 1. What does not fit is passed by."""
    answers = []
    for query in queries:
        if k_star > 0 and ell_star > 0 and query[1] <= k_star:
            answers.append(answer(*query))
            k_star, ell_star = k_star - len(answers[-1]), ell_star - 1
    return answers


def outcomes(domain: list[int], k: int) -> list[Outcome]:
    """Everything that Algorithm 1 can answer."""
    shorter = [(*o, BOTTOM) for j in range(min(k, len(domain) + 1)) for o in itertools.permutations(domain, j)]
    return shorter + list(itertools.permutations(domain, k))


def gumbel_distribution(histogram: list[int], k: int, k_bar: int, bottom: float, scale: float) -> dict[Outcome, float]:
    """Exact: each round picks a label or bottom with odds exp(count / scale)."""
    domain = by_count(histogram)[:k_bar]
    found = {}
    for outcome in outcomes(domain, k):
        left = {label: math.exp((histogram[label] - bottom) / scale) for label in domain} | {BOTTOM: 1.0}
        chance = 1.0
        for label in outcome:
            chance *= left[label] / sum(left.values())
            del left[label]
        found[outcome] = chance
    return found


def laplace_distribution(
    histogram: list[int], k: int, k_bar: int, bottom: float, scale: float, steps: int = 20_001
) -> dict[Outcome, float]:
    """By quadrature: the answered labels lie in order above whatever is not answered."""
    domain = by_count(histogram)[:k_bar]
    centres = {label: float(histogram[label]) for label in domain} | {BOTTOM: bottom}
    x = np.linspace(min(centres.values()) - 30 * scale, max(centres.values()) + 30 * scale, steps)
    tails = {label: np.exp(-np.abs(x - centre) / scale) / 2 for label, centre in centres.items()}
    below = {label: np.where(x < centre, tails[label], 1 - tails[label]) for label, centre in centres.items()}
    found = {}
    for outcome in outcomes(domain, k):
        chance = np.ones_like(x)
        for label in centres.keys() - set(outcome):
            chance = chance * below[label]
        for label in reversed(outcome):
            chance = cumulative_trapezoid(chance * tails[label] / scale, x, initial=0.0)
        found[outcome] = float(chance[-1])
    return found


def excess(first: dict, second: dict, epsilon: float) -> float:
    """The smallest delta for which `first` is within (epsilon, delta) of `second`."""
    return sum(max(0.0, chance - math.exp(epsilon) * second.get(outcome, 0.0)) for outcome, chance in first.items())


def neighbours_of(histogram: list[int], relation: str, votes: int) -> list[list[int]]:
    """Every histogram one ballot of at most `votes` votes away."""
    ballots = [b for b in itertools.product((0, 1), repeat=len(histogram)) if sum(b) <= votes]
    if relation == "teacher_added":
        moves = {tuple(sign * vote for vote in ballot) for ballot in ballots for sign in (1, -1)}
    else:
        moves = {tuple(b - a for a, b in zip(*pair, strict=True)) for pair in itertools.product(ballots, repeat=2)}
    moved = ([count + step for count, step in zip(histogram, move, strict=True)] for move in sorted(moves))
    return [counts for counts in moved if min(counts) >= 0]


def pairs(labels: int, most: int, relation: str, votes: int):
    """Every histogram of small counts with each of its neighbours."""
    for histogram in itertools.product(range(most + 1), repeat=labels):
        for other in neighbours_of(list(histogram), relation, votes):
            yield list(histogram), other


def histograms(labels: int, teachers: int, rows: int = 300) -> np.ndarray:
    """Random ones, many with ties, all-zero and unanimous rows included."""
    rng = np.random.default_rng(labels * 1000 + teachers)
    counts = rng.integers(0, teachers + 1, (rows, labels))
    counts[::3] = rng.integers(0, 2, (len(counts[::3]), labels)) * teachers
    counts[0], counts[1] = 0, teachers
    return counts


def chance_to_pass(noise: str, scales: float) -> float:
    """That a count so many scales above bottom passes it."""
    return 1 / (1 + math.exp(-scales)) if noise == "gumbel" else 1 - (2 + scales) * math.exp(-scales) / 4

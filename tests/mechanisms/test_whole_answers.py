"""StableTopK as a whole: exact answer probabilities on small neighbours against what the accountant claims.

The released answer is a set or bottom. Its law is computed without sampling (choice of k by quadrature or softmax, test
by the normal or Laplace tail), for every pair of small neighbouring histograms, and the hockey-stick divergence at the
claimed epsilon must not pass delta.
"""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from pate.accounting import PrivacyCost
from pate.accounting.events import BoundedRange
from pate.audit import noisy_max_probabilities
from pate.mechanisms import GaussianChoice, GaussianTest, GumbelChoice, LaplaceTest, StableTopK
from pate.mechanisms.base import gap_sensitivity

MOVES = {"teacher_added": (0, 1), "teacher_changed": (-1, 0, 1)}
DELTA_T = 0.05


def choice_law(m: StableTopK, gaps: np.ndarray) -> np.ndarray:
    scores = gaps + (np.zeros(len(gaps)) if m.regulariser is None else np.array(m.regulariser))
    if len(gaps) == 1:
        return np.ones(1)
    if isinstance(m.choose, GaussianChoice):
        return noisy_max_probabilities(scores, m.choose.sigma)
    weights = np.exp((scores - scores.max()) / m.choose.scale)
    return weights / weights.sum()


def passing(m: StableTopK, gaps: np.ndarray) -> np.ndarray:
    reach, test = gap_sensitivity(m.neighbours), m.stability
    if isinstance(test, GaussianTest):
        return norm.sf((reach + test.sigma * test.z - np.maximum(gaps, reach)) / test.sigma)
    scale = reach / test.epsilon
    return laplace.sf(reach + scale * np.log(1 / (2 * test.delta_t)) - gaps, scale=scale)


def law(m: StableTopK, histogram: tuple[int, ...]) -> dict:
    """Probability of every answer: a frozenset of labels, or None for bottom."""
    order = sorted(range(len(histogram)), key=lambda j: (-histogram[j], j))
    values = np.array([histogram[j] for j in order], dtype=float)
    gaps = (values[:-1] - values[1:])[: m.candidates]
    answered = choice_law(m, gaps) * passing(m, gaps)
    answers = {frozenset(order[: k + 1]): float(p) for k, p in enumerate(answered)}
    return answers | {None: 1 - float(answered.sum())}


def hockey_stick(p: dict, q: dict, epsilon: float) -> float:
    return sum(max(0.0, mass - np.exp(epsilon) * q.get(answer, 0.0)) for answer, mass in p.items())


def neighbours_of(labels: int, top: int, relation: str):
    for histogram in product(range(top + 1), repeat=labels):
        for move in product(MOVES[relation], repeat=labels):
            moved = tuple(np.add(histogram, move).tolist())
            if min(moved) >= 0 and moved != histogram:
                yield histogram, moved


def worst_excess(m: StableTopK, cost: PrivacyCost, relation: str, labels: int = 3, top: int = 4) -> float:
    """The largest amount by which some pair's delta passes the claimed one; negative if none does."""
    deltas = cost.delta + np.array([1e-3, 1e-2, 0.1])
    claims = [(cost.epsilon(delta), delta) for delta in deltas]
    laws: dict = {}
    worst = -np.inf
    for pair in neighbours_of(labels, top, relation):
        p, q = (laws.setdefault(histogram, law(m, histogram)) for histogram in pair)
        for epsilon, delta in claims:
            worst = max(worst, hockey_stick(p, q, epsilon) - delta, hockey_stick(q, p, epsilon) - delta)
    return worst


SETTINGS = {
    "gumbel": {"choose": GumbelChoice(1.5), "test": GaussianTest(1.0, DELTA_T)},
    "gaussian": {"choose": GaussianChoice(1.5), "test": GaussianTest(1.0, DELTA_T)},
    "laplace test": {"choose": GumbelChoice(1.5), "test": LaplaceTest(1.0, DELTA_T)},
    "regularised": {"choose": GumbelChoice(0.7), "test": GaussianTest(0.6, DELTA_T), "regulariser": (1.0, -0.5)},
    "one candidate": {"choose": GumbelChoice(1.5), "test": GaussianTest(1.0, DELTA_T), "max_k": 1},
}


@pytest.mark.parametrize("relation", MOVES)
@pytest.mark.parametrize("name", SETTINGS)
def test_no_pair_of_neighbours_passes_the_claim(name, relation):
    m = StableTopK(num_labels=3, neighbours=relation, **SETTINGS[name])
    assert worst_excess(m, m.cost(1), relation) <= 1e-12


def test_the_law_is_that_of_the_mechanism():
    m = StableTopK(num_labels=3, **SETTINGS["gumbel"])
    draws, expected = 20_000, law(m, (9, 2, 6))
    answer = m.release(np.tile([9, 2, 6], (draws, 1)), np.random.default_rng(0))
    seen: dict = {}
    for row, ok in zip(answer.labels, answer.answered, strict=True):
        key = frozenset(np.flatnonzero(row).tolist()) if ok else None
        seen[key] = seen.get(key, 0) + 1
    for key, probability in expected.items():
        spread = np.sqrt(draws * probability * (1 - probability)) + 1e-9
        assert abs(seen.get(key, 0) - draws * probability) < 5 * spread + 1


def test_a_test_that_ignores_changed_ballots_is_caught():
    """Threshold and noise for one added ballot do not protect a changed one: gaps move by 2, sets cross at gap 2."""
    m = StableTopK(num_labels=3, neighbours="teacher_added", **SETTINGS["gumbel"])
    assert worst_excess(m, m.cost(1), "teacher_changed") > 1e-3


def test_half_the_noise_is_caught():
    honest = StableTopK(num_labels=3, **SETTINGS["gumbel"])
    cheat = StableTopK(num_labels=3, choose=GumbelChoice(0.5), test=GaussianTest(0.3, DELTA_T))
    assert worst_excess(cheat, honest.cost(1), "teacher_changed") > 1e-3


@pytest.mark.parametrize("eta", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("size", [2, 3, 10, 40])
def test_exponential_mechanisms_stay_below_the_bounded_range_curve(eta, size):
    rng, alpha = np.random.default_rng(size), np.array([1.1, 2.0, 8.0, 64.0])
    curve, closest = BoundedRange(eta).rdp(alpha), 0.0
    for trial in range(300):
        scores = rng.normal(0, rng.choice([0.1, 1, 5]), size)
        moves = rng.uniform(0, eta, size) if trial % 3 else eta * (rng.random(size) < rng.random())
        p, q = (logs - logsumexp(logs) for logs in (scores, scores + moves))
        for one, other in ((p, q), (q, p)):
            exact = logsumexp(alpha[:, None] * one + (1 - alpha[:, None]) * other, axis=1) / (alpha - 1)
            assert (exact <= curve * (1 + 1e-9)).all()
            closest = max(closest, float((exact / curve).max()))
    assert closest > 0.5  # the pairs come close, so the test can fail

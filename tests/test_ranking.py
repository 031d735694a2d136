"""Spectral ranking: the paper's walk, its ergodicity coefficient and sensitivity for all outcomes, the noise."""

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
import reference_oneshot as slow
from reference import Recorded

from pate.accounting.events import Laplace, Pure
from pate.errors import SettingError
from pate.noise import ExactNoise, seeded
from pate.ranking import (
    Walk,
    ergodicity_coefficient,
    private_spectral_ranking,
    spectral_ranking,
    stationary_distribution,
)

PATH = [(0, 1), (1, 2), (2, 3)]  # items in a row, each compared with the next
RHOS = (0.05, 0.5, 0.9, 0.999)


def outcomes(pairs: list[tuple[int, int]], totals: list[int], won: list[int]) -> np.ndarray:
    """Wins from how many of a pair's comparisons its first item won."""
    size = 1 + max(map(max, pairs))
    wins = np.zeros((size, size), dtype=np.int64)
    for (i, j), total, first in zip(pairs, totals, won, strict=True):
        wins[i, j], wins[j, i] = first, total - first
    return wins


def random_wins(rng: np.random.Generator, items: int, meet: float, most: int) -> np.ndarray:
    """Random graph, totals and outcomes; a third of the pairs one-sided; at least one pair has met."""
    pairs = [pair for pair in combinations(range(items), 2) if rng.random() < meet] or [(0, items - 1)]
    pairs += [(0, items - 1)] * ((0, items - 1) not in pairs)
    totals = rng.integers(1, most + 1, len(pairs))
    won = np.where(rng.random(len(pairs)) < 1 / 3, totals * rng.integers(0, 2, len(pairs)), rng.integers(0, totals + 1))
    return outcomes(pairs, totals.tolist(), won.tolist())


def changed(wins: np.ndarray) -> list[np.ndarray]:
    """All neighbours: one comparison has another outcome."""
    found = []
    for i, j in zip(*np.nonzero(wins), strict=True):
        other = wins.copy()
        other[i, j] -= 1
        other[j, i] += 1
        found.append(other)
    return found


def all_outcomes(pairs: list[tuple[int, int]], total: int) -> list[np.ndarray]:
    """Every possible result of this many comparisons of each pair."""
    return [outcomes(pairs, [total] * len(pairs), won) for won in product(range(total + 1), repeat=len(pairs))]


# --- the walk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [None, 0.3, 0.9])
def test_walk_and_stationary_distribution_follow_the_paper(rho):
    rng = np.random.default_rng(1)
    for _ in range(40):
        wins = random_wins(rng, int(rng.integers(2, 6)), 1.0 if rho is None else 0.6, 9)
        wins += (wins + wins.T > 0) * (rho is None)  # everyone wins sometimes, so that the walk has one end
        walk = Walk(wins + wins.T, rho, d=None if rng.random() < 0.5 else 7.5)
        expected = slow.transitions(wins.tolist(), walk.normalisation, walk.keep)
        assert walk.matrix(wins) == pytest.approx(np.array(expected), abs=1e-12)
        assert stationary_distribution(walk.matrix(wins)) == pytest.approx(slow.stationary(expected), abs=1e-7)


def test_stationary_distribution_is_the_strength_where_shares_are_true():
    strength = np.array([5, 3, 1, 1])
    wins = strength[:, None] * np.where(np.eye(4), 0, 840 // (strength[:, None] + strength))
    assert stationary_distribution(Walk(wins + wins.T).matrix(wins)) == pytest.approx(strength / 10, abs=1e-12)
    assert spectral_ranking(wins).tolist() == [0, 1, 2, 3]
    assert spectral_ranking(wins[::-1, ::-1]).tolist() == [3, 2, 0, 1]


def test_items_that_only_lose_get_nothing_and_one_that_only_wins_gets_all():
    wins = outcomes([(0, 1), (1, 2), (0, 2)], [4, 4, 4], [4, 2, 4])
    assert stationary_distribution(Walk(wins + wins.T).matrix(wins)) == pytest.approx([1, 0, 0])


@pytest.mark.parametrize("won", [[1, 1], [3, 0]])
def test_ranking_without_noise_is_refused_where_the_walk_has_two_ends(won):
    apart = outcomes([(0, 1), (2, 3)], [3, 3], won)
    both_win = outcomes([(0, 1), (1, 2)], [3, 3], [3, 0])
    for wins in (apart, both_win):
        with pytest.raises(
            SettingError, match="comparisons must be such that the walk ends in one group of items, got"
        ):
            spectral_ranking(wins)


# --- the ergodicity coefficient -----------------------------------------------------------------------------------


def test_ergodicity_coefficient_is_the_supremum_of_its_definition():
    rng = np.random.default_rng(2)
    for size in (2, 3, 6):
        matrix = rng.dirichlet(np.full(size, 0.5), size)
        tau = ergodicity_coefficient(matrix)
        directions = rng.normal(size=(4000, size))
        directions -= directions.mean(axis=1, keepdims=True)
        directions /= np.abs(directions).sum(axis=1, keepdims=True)
        corners = [(np.eye(size)[i] - np.eye(size)[j]) / 2 for i, j in permutations(range(size), 2)]
        assert np.abs(directions @ matrix).sum(axis=1).max() <= tau + 1e-12
        assert np.abs(np.array(corners) @ matrix).sum(axis=1).max() == pytest.approx(tau)
    assert ergodicity_coefficient(np.full((4, 4), 0.25)) == 0 and ergodicity_coefficient(np.eye(4)) == 1


@pytest.mark.parametrize("items", [2, 3, 4])
@pytest.mark.parametrize("stretch", [1.0, 1.7])
def test_worst_coefficient_is_reached_when_all_have_met(items, stretch):
    pairs = list(combinations(range(items), 2))
    d = (items - 1) * stretch
    taus = []
    for wins in all_outcomes(pairs, 1 if items == 4 else 4):
        taus.append(ergodicity_coefficient(Walk(wins + wins.T, None, d).matrix(wins)))
    assert max(taus) == pytest.approx(1 - 1 / d) == pytest.approx(Walk(wins + wins.T, None, d).worst)


def test_no_bound_can_be_assumed_where_some_never_met():
    wins = all_outcomes(PATH, 1)
    assert max(ergodicity_coefficient(Walk(w + w.T).matrix(w)) for w in wins) == 1 == Walk(wins[0] + wins[0].T).worst
    assert Walk(wins[0] + wins[0].T).sensitivity == math.inf


@pytest.mark.parametrize("rho", RHOS)
def test_walk_obeys_rho_for_all_outcomes(rho):
    rng = np.random.default_rng(3)
    wins = [w for pairs in (PATH, list(combinations(range(3), 2))) for w in all_outcomes(pairs, 2)]
    wins += [random_wins(rng, int(rng.integers(2, 9)), float(rng.choice([0.3, 1.0])), 9) for _ in range(1000)]
    for w in wins:
        walk = Walk(w + w.T, rho)
        assert ergodicity_coefficient(walk.matrix(w)) <= walk.bound + 1e-12 <= rho + 2e-12
        assert walk.matrix(w).sum(axis=1) == pytest.approx(np.ones(len(w)))


def test_walk_is_left_alone_where_it_obeys_anyway():
    wins = outcomes(list(combinations(range(4), 2)), [5] * 6, [1, 2, 3, 4, 5, 0])
    assert Walk(wins + wins.T, rho=0.67).keep == 1 > Walk(wins + wins.T, rho=0.66).keep
    assert np.array_equal(Walk(wins + wins.T, rho=0.67).matrix(wins), Walk(wins + wins.T).matrix(wins))


# --- the sensitivity ----------------------------------------------------------------------------------------------


def used_share(wins: np.ndarray, rho: float, d: float | None = None) -> float:
    """How much of the promised L1 distance the worst neighbour moves the stationary distribution by."""
    walk = Walk(wins + wins.T, rho, d)
    here = stationary_distribution(walk.matrix(wins))
    moved = [np.abs(stationary_distribution(walk.matrix(other)) - here) for other in changed(wins)]
    worst = max(change.sum() for change in moved)
    assert max(change.max() for change in moved) <= worst / 2 + 1e-12 <= walk.sensitivity
    return worst / walk.l1_sensitivity


@pytest.mark.parametrize("rho", RHOS)
def test_sensitivity_holds_for_random_neighbours(rho):
    rng = np.random.default_rng(4)
    for _ in range(250):
        wins = random_wins(rng, int(rng.integers(2, 8)), float(rng.choice([0.3, 1.0])), int(rng.choice([1, 3, 50])))
        most = int((wins + wins.T > 0).sum(axis=1).max())
        assert used_share(wins, rho, None if rng.random() < 0.5 else most * rng.uniform(1, 3)) <= 1 + 1e-9


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("pairs", [PATH, [(0, 1)], [(0, 1), (0, 2), (0, 3)], list(combinations(range(3), 2))], ids=str)
def test_sensitivity_holds_for_all_neighbours(pairs, rho):
    assert max(used_share(wins, rho) for wins in all_outcomes(pairs, 2)) <= 1 + 1e-9


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("d", [None, 30.0, 1e4])
def test_sensitivity_is_reached(rho, d):
    """By two items, with and without jumps, so no smaller bound holds; a third that meets nobody takes a part."""
    two = outcomes([(0, 1)], [50], [20])
    assert used_share(two, rho, d) == pytest.approx(1, rel=1e-6)
    assert 0.6 < used_share(np.pad(two, (0, 1)), rho, 1e4) < 1


def test_sensitivity_is_the_papers_formula():
    wins = outcomes([(0, 1), (0, 2), (0, 3)], [7, 9, 8], [1, 2, 3])
    walk = Walk(wins + wins.T, rho=0.6, d=5.0)
    assert walk.sensitivity == pytest.approx(2 / (5 * 7 * (1 - 0.6)))
    assert walk.l1_sensitivity == pytest.approx(0.6 * walk.sensitivity)


# --- the release --------------------------------------------------------------------------------------------------

WAYS = [
    {"method": None, "delta": None},
    {"method": "oneshot", "delta": None},
    {"method": None, "delta": 0.01},
]


def scale_of(walk: Walk, k: int, epsilon: float, method: str | None, delta: float | None) -> float:
    """The noise's scale, written out."""
    s = 2 / (walk.normalisation * walk.totals[walk.totals > 0].min() * (1 - walk.bound))
    if delta is not None:
        return 8 * s * math.sqrt(k * math.log(len(walk.totals) / delta)) / epsilon
    return 2 * k * s / epsilon if method == "oneshot" else s * walk.keep / epsilon


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_same_noise_in_same_ranking_out(way):
    rng = np.random.default_rng(5)
    for _ in range(25):
        wins = random_wins(rng, int(rng.integers(2, 6)), 0.6, 30)
        k, source = int(rng.integers(1, len(wins) + 1)), Recorded()
        got = private_spectral_ranking(wins, k, 0.2, way["delta"], source, rho=0.8, method=way["method"])
        walk = Walk(wins + wins.T, 0.8)
        scores = slow.stationary(slow.transitions(wins.tolist(), walk.normalisation, walk.keep))
        assert got.items.tolist() == slow.largest(scores, k, source.draws[0].tolist())
        assert got.ordered and got.seeded
        noisy = np.array(scores) + source.draws[0]
        assert got.scores == pytest.approx(noisy) if way == WAYS[0] else got.scores is None


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_noise_has_the_right_scale_and_no_other(way):
    pairs = list(combinations(range(30), 2))[::2]
    wins, source = outcomes(pairs, [10] * len(pairs), [4] * len(pairs)), Recorded()
    for _ in range(200):
        private_spectral_ranking(wins, 3, 0.2, way["delta"], source, method=way["method"])
    size = np.abs(np.concatenate(source.draws))
    right = scale_of(Walk(wins + wins.T, 0.7), 3, 0.2, **way)
    z = lambda scale: abs(size.mean() - scale) / (scale / math.sqrt(size.size))  # noqa: E731
    assert z(right) < 4 and z(right * 2 / 3) > 8 and z(right * 3 / 2) > 8


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("pairs", [PATH[:1], PATH[:2], list(combinations(range(3), 2))], ids=str)
def test_ranking_is_private(pairs, way, k):
    """The exact probability of every ordered answer, for all outcomes of two comparisons a pair and all neighbours."""
    epsilon, worst = 0.2, 0.0
    for wins in all_outcomes(pairs, 2):
        walk = Walk(wins + wins.T, 0.7)
        scale = scale_of(walk, k, epsilon, **way)
        p, *others = (
            slow.answers(stationary_distribution(walk.matrix(w)) / scale, k, True) for w in [wins, *changed(wins)]
        )
        worst = max(worst, *(np.abs(np.log(p / q)).max() for q in others))
    assert 0 < worst <= epsilon


def test_whole_distribution_needs_less_noise_than_any_choice():
    rng = np.random.default_rng(6)
    for _ in range(20):
        wins = random_wins(rng, 6, 0.6, 30)
        walk = Walk(wins + wins.T, 0.9)
        whole, pure, approximate = (
            scale_of(walk, 1, 0.2, method, delta) for method, delta in ((None, None), ("oneshot", None), (None, 0.05))
        )
        assert whole < pure and whole < approximate


def test_price_is_public_and_the_order_is_kept_back_where_only_the_set_is_paid_for():
    small = outcomes(PATH, [5, 6, 7], [1, 2, 3])
    assert private_spectral_ranking(small, 2, 0.7).cost.counted == ((Laplace(0.7), 1),)
    assert private_spectral_ranking(small, 2, 0.7, method="oneshot").cost.counted == ((Pure(0.7), 1),)
    items = 400
    pairs = [(i, i + 1) for i in range(items - 1)]
    large = outcomes(pairs, [5] * len(pairs), [2] * len(pairs))
    got = private_spectral_ranking(large, 300, 0.1, 1e-4, seeded(0))
    assert not got.ordered and got.items.tolist() == sorted(got.items.tolist()) and got.scores is None
    assert got.cost.counted == ((Pure(0.1), 1),) and got.cost.delta == 1e-4
    assert got.cost.neighbours == "teacher_changed" and not private_spectral_ranking(small, 1, 0.5).seeded


def test_no_outcome_is_refused():
    """A refusal would say something about outcomes: only shapes and totals may decide."""
    for pairs in (PATH, [(0, 1), (2, 3)], list(combinations(range(3), 2))):
        for wins in all_outcomes(pairs, 2):
            assert len(private_spectral_ranking(wins, 2, 1.0, rng=seeded(0)).items) == 2


def test_much_data_gives_the_ranking_without_noise():
    rng = np.random.default_rng(7)
    strength = np.exp(np.linspace(2, 0, 12))
    share = strength[:, None] / (strength[:, None] + strength)
    pairs = list(combinations(range(12), 2))
    wins = outcomes(pairs, [10**6] * len(pairs), [int(rng.binomial(10**6, share[pair])) for pair in pairs])
    assert private_spectral_ranking(wins, 12, 1.0, rng=seeded(1)).items.tolist() == spectral_ranking(wins).tolist()
    assert private_spectral_ranking(wins, 3, 0.2, 1e-6, seeded(1)).items.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("wins", "sentence"),
    [
        (np.zeros((3, 2)), "comparisons must be a square array"),
        (np.zeros((1, 1)), "comparisons must be a square array of two items or more"),
        (np.zeros((3, 3)), "comparisons must be at least one"),
        (np.array([[0, -1], [1, 0]]), "comparisons must be whole numbers >= 0"),
        (np.array([[0, 0.5], [1, 0]]), "comparisons must be whole numbers >= 0"),
        (np.array([[0, np.nan], [1, 0]]), "comparisons must be whole numbers >= 0"),
        (np.array([[1, 2], [1, 0]]), "comparisons must be between different items"),
        (np.array([["a", "b"], ["c", "d"]]), "comparisons must be numbers"),
    ],
)
def test_bad_comparisons_are_refused(wins, sentence):
    for rank in (spectral_ranking, lambda w: private_spectral_ranking(w, 1, 1.0)):
        with pytest.raises(SettingError, match=sentence):
            rank(wins)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 0}, "k must be"),
        ({"k": 4}, "k must be a whole number >= 1 and <= 3, got 4"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": 0.3, "delta": 1e-6}, r"epsilon must be <= 0.2 .*Theorem 2.2"),
        ({"epsilon": 0.1, "delta": 0.06}, r"delta must be <= 0.05 .*Theorem 2.2"),
        ({"delta": 1e-6, "method": "whole"}, "delta must be None unless the method is oneshot"),
        ({"method": "gaussian"}, "method must be one of whole, oneshot"),
        ({"rho": 1.0}, r"rho must be in \(0, 1\)"),
        ({"d": 1.5}, "d must be finite and >= 2, the most opponents of an item, got 1.5"),
        ({"rng": ExactNoise()}, "rng must be continuous noise"),
        ({"rng": 7}, "rng must be a pate.noise source"),
    ],
)
def test_bad_settings_are_refused(change, sentence):
    wins = outcomes([(0, 1), (1, 2)], [4, 4], [1, 2])
    with pytest.raises(SettingError, match=sentence):
        private_spectral_ranking(wins, **{"k": 1, "epsilon": 1.0} | change)

"""Hard-label votes, one noisy winner or many yes/no questions: answers, worst price, price on the votes at hand."""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

from pate.accounting.conversion import ORDERS
from pate.accounting.data_dependent import likely_answer, threshold_vote
from pate.errors import SettingError
from pate.mechanisms.base import Tally
from pate.mechanisms.counts import NoisyCounts
from pate.mechanisms.gnmax import BinaryVotes, GNMax
from pate.noise import seeded

RELATIONS = ("teacher_added", "teacher_changed")
ALPHAS = np.array([1.1, 2.0, 5.0, 20.0, 80.0])


def winners(counts: np.ndarray, sigma: float) -> np.ndarray:
    """(K,) probability of each class to win, by the trapezoidal rule."""
    v = np.arange(-14.0, 14.0, 0.02)
    return np.array(
        [
            np.exp(-(v**2) / 2 + sum(log_ndtr(v + (mine - other) / sigma) for other in np.delete(counts, i))).sum()
            for i, mine in enumerate(counts)
        ]
    ) * (0.02 / np.sqrt(2 * np.pi))


def divergence(p: np.ndarray, q: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return logsumexp(np.log(p) + (alpha[:, None] - 1) * np.log(p / q), axis=1) / (alpha - 1)


def neighbours_of(counts: np.ndarray, relation: str) -> list[np.ndarray]:
    unit = np.eye(len(counts), dtype=int)
    if relation == "teacher_added":
        moved = [counts + step for step in (*unit, *-unit)]
    else:
        moved = [counts + to - away for to in unit for away in unit if (to != away).any()]
    return [other for other in moved if other.min() >= 0]


def test_every_teacher_votes_for_exactly_one_class():
    m, votes = GNMax(num_labels=3, sigma=1.0), np.eye(3, dtype=bool)[[0, 0, 2, 1]][:, None, :]
    assert m.tally(votes).tolist() == [[2, 1, 1]] and m.tally(votes).num_teachers == 4
    for ballot in ([True, True, False], [False, False, False]):
        wrong = votes.copy()
        wrong[1, 0] = ballot
        with pytest.raises(SettingError, match="exactly one class"):
            m.tally(wrong)


def test_a_tally_of_many_labels_is_no_vote_for_one():
    with pytest.raises(SettingError, match="one vote from each teacher"):
        GNMax(num_labels=3, sigma=1.0).release(Tally(np.array([[5, 4, 0]]), 5), seeded(1))
    with pytest.raises(SettingError, match="num_labels must be"):
        GNMax(num_labels=1, sigma=1.0)


def test_the_winner_has_the_right_probability_and_another_noise_would_be_noticed():
    counts, draws = np.array([12, 9, 4]), 40_000
    expected = winners(counts, 5.0)
    assert expected.sum() == pytest.approx(1, abs=1e-12)

    def miss(sigma: float) -> float:
        won = GNMax(num_labels=3, sigma=sigma).release(np.tile(counts, (draws, 1)), seeded(4)).labels
        assert (won.sum(axis=1) == 1).all()
        return float(np.abs(won.mean(axis=0) - expected).max() * np.sqrt(draws))

    assert miss(5.0) < 2 < 10 < min(miss(5.0 * 2 / 3), miss(5.0 * 3 / 2))


def test_yes_has_the_right_probability_and_another_noise_would_be_noticed():
    draws, margins = 40_000, np.array([-6, -1, 0, 4])

    def miss(sigma: float) -> float:
        m = BinaryVotes(num_labels=4, sigma=sigma, num_teachers=20)
        answer = m.release(np.tile(10 + margins, (draws, 1)), seeded(5))
        assert answer.scores is None and answer.answered.all()
        return float(np.abs(answer.labels.mean(axis=0) - ndtr(margins / 5.0)).max() * np.sqrt(draws))

    assert miss(5.0) < 2 < 8 < min(miss(5.0 * 2 / 3), miss(5.0 * 3 / 2))


@pytest.mark.parametrize(("relation", "squared"), [("teacher_added", 1), ("teacher_changed", 2)])
def test_the_winner_costs_what_two_moving_counts_cost(relation, squared):
    cost = GNMax(num_labels=10, sigma=7.0, neighbours=relation).cost(30)
    assert cost.rdp(ALPHAS) == pytest.approx(30 * ALPHAS * squared / (2 * 49))
    assert cost.is_gaussian and cost.epsilon(1e-5, "exact") < cost.epsilon(1e-5)


@pytest.mark.parametrize("relation", RELATIONS)
def test_yes_or_no_costs_what_noisy_counts_cost(relation):
    settings = {"num_labels": 40, "sigma": 150.0, "neighbours": relation}
    votes, counts = BinaryVotes(**settings).cost(600), NoisyCounts(**settings).cost(600)
    assert votes.epsilon(1e-6) == pytest.approx(counts.epsilon(1e-6), rel=1e-9)
    assert votes.epsilon(1e-6, "exact") == pytest.approx(counts.epsilon(1e-6, "exact"), rel=1e-9)


def test_the_threshold_must_be_known():
    counts = np.array([[3, 4]])
    with pytest.raises(SettingError, match="num_teachers must be given"):
        BinaryVotes(num_labels=2, sigma=1.0).release(counts, seeded(1))
    votes = np.ones((9, 1, 2), dtype=bool)
    m = BinaryVotes(num_labels=2, sigma=0.1)
    assert m.release(m.tally(votes), seeded(1)).labels.all()


@pytest.mark.parametrize("kind", [GNMax, BinaryVotes])
def test_exact_noise_costs_the_same_at_worst_and_has_no_price_on_the_votes(kind):
    plain, exact = (kind(num_labels=3, sigma=4.0, num_teachers=9, exact=exact) for exact in (False, True))
    assert exact.cost(5).rdp(ALPHAS) == pytest.approx(plain.cost(5).rdp(ALPHAS))
    with pytest.raises(SettingError, match="exact must be false"):
        exact.private_cost(np.array([[5, 3, 1]]))
    with pytest.raises(SettingError, match="exact must be false"):
        exact.prices(2.0, 9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("num_labels", [2, 3, 5])
def test_price_of_the_winner_is_above_every_neighbour_both_ways(relation, num_labels):
    rng = np.random.default_rng(num_labels)
    ratios = []
    for _ in range(12):
        sigma, teachers = float(rng.uniform(1.0, 12.0)), int(rng.integers(5, 60))
        counts = rng.multinomial(teachers, rng.dirichlet(np.full(num_labels, 0.3)))
        m = GNMax(num_labels=num_labels, sigma=sigma, neighbours=relation)
        bound = likely_answer(ALPHAS, m.log_q(counts), m.ratio)
        here = winners(counts, sigma)
        for there in (winners(other, sigma) for other in neighbours_of(counts, relation)):
            exact = np.maximum(divergence(here, there, ALPHAS), divergence(there, here, ALPHAS))
            assert (exact <= bound * (1 + 1e-9) + 1e-13 / (ALPHAS - 1)).all()  # the quadrature's own error
            ratios.append((exact / bound)[bound < 0.9 * m.ratio**2 / 2 * ALPHAS].max(initial=0))
    assert max(ratios) > 0.35  # and not far above the worst of them


def test_the_union_covers_the_chance_of_another_winner():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts, sigma = rng.multinomial(40, rng.dirichlet(np.full(4, 0.3))), float(rng.uniform(1, 15))
        log_q = GNMax(num_labels=4, sigma=sigma).log_q(counts)
        others = np.delete(winners(counts, sigma), counts.argmax()).sum()
        assert others <= np.exp(log_q[0]) * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("relation", RELATIONS)
def test_price_by_the_gap_is_never_below_the_price_by_all_counts(relation):
    rng = np.random.default_rng(1)
    m = GNMax(num_labels=5, sigma=8.0, neighbours=relation)
    at = int(np.searchsorted(ORDERS, 9.0))
    prices = m.prices(float(ORDERS[at]), 60)
    for counts in rng.multinomial(60, rng.dirichlet(np.full(5, 0.4), 40)):
        gap = m.statistic(counts)[0]
        assert m.private_cost(counts).curve[at] <= prices[gap] * (1 + 1e-12)
        for other in neighbours_of(counts, relation):
            assert abs(m.statistic(other)[0] - gap) <= m.reach


@pytest.mark.parametrize("relation", RELATIONS)
def test_votes_at_hand_never_cost_more_than_the_worst_and_far_less_if_teachers_agree(relation):
    rng, shares = np.random.default_rng(3), np.array([0.9, 0.1, 0.0, 0.0])
    for kind in (GNMax, BinaryVotes):
        m = kind(num_labels=4, sigma=20.0, neighbours=relation, num_teachers=200)
        worst = m.cost(30)
        split = rng.multinomial(200, np.full(4, 0.25), 30)
        assert (m.private_cost(split).curve <= worst.rdp(ORDERS) * (1 + 1e-12)).all()
        agreed = m.private_cost(np.tile(200 * shares, (30, 1)))
        assert agreed.epsilon(1e-6).value < 0.2 * worst.epsilon(1e-6)
        assert agreed.epsilon(1e-6).value <= agreed.epsilon(1e-6, "published").value


@pytest.mark.parametrize("kind", [GNMax, BinaryVotes])
def test_private_cost_is_the_sum_over_questions(kind):
    m = kind(num_labels=3, sigma=9.0, num_teachers=30)
    counts = np.random.default_rng(0).multinomial(30, [0.7, 0.2, 0.1], 8)
    both = m.private_cost(counts[:5]) + m.private_cost(counts[5:])
    assert both.curve == pytest.approx(m.private_cost(counts).curve, rel=1e-12)
    assert m.private_cost(counts[:0]).epsilon(1e-5).value == 0
    if kind is GNMax:
        slow = sum(likely_answer(ORDERS, log_q, m.ratio) for log_q in m.log_q(counts))
    else:
        slow = sum(threshold_vote(ORDERS, (count - 15) / 9, 1 / 9) for count in counts.ravel())
    assert both.curve == pytest.approx(slow, rel=1e-9)

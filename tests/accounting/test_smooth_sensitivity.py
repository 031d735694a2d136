"""Smooth sensitivity by brute force; the sanitised release, its noise and its theorem."""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from pate.accounting import PrivacyCost
from pate.accounting.events import Gaussian
from pate.accounting.smooth_sensitivity import Sanitiser, local_sensitivity, sanitise, smooth_sensitivity
from pate.errors import SettingError
from pate.ledger import Ledger
from pate.mechanisms.gnmax import BinaryVotes, GNMax
from pate.noise import seeded

RELATIONS = ("teacher_added", "teacher_changed")
SETTINGS = Sanitiser(alpha=6.0, beta=0.05, sigma=3.0, log_sigma=5.0, delta=0.02)
SMALL = Sanitiser(alpha=3.0, beta=0.4, sigma=1.0, log_sigma=1.0, delta=0.1)
VOTE = BinaryVotes(num_labels=4, sigma=8.0, num_teachers=60)
COUNTS = np.random.default_rng(7).choice([1, 5, 20, 33, 58], (50, 4))
PRICE = VOTE.prices(6.0, 60)[COUNTS].sum()
SMOOTH = smooth_sensitivity(VOTE.prices(6.0, 60), 1, 0.05)[COUNTS].sum()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("teachers", [1, 2, 7, 30])
def test_smooth_sensitivity_is_smooth_and_covers_the_local_one_on_the_whole_grid(teachers, relation):
    for kind, sigma, alpha, beta in [
        (BinaryVotes, 3.0, 8.0, 0.2),
        (BinaryVotes, 1.0, 2.0, 0.05),
        (GNMax, 4.0, 5.0, 0.3),
    ]:
        m = kind(num_labels=3, sigma=sigma, neighbours=relation)
        prices = m.prices(alpha, teachers)
        smooth, places = smooth_sensitivity(prices, m.reach, beta), range(teachers + 1)
        near = [(v, w) for v in places for w in places if abs(v - w) <= m.reach]
        assert all(abs(prices[v] - prices[w]) <= smooth[v] for v, w in near)
        assert all(smooth[v] <= np.exp(beta) * smooth[w] * (1 + 1e-12) for v, w in near)
        local = [max(abs(prices[w] - prices[v]) for w in places if abs(v - w) <= m.reach) for v in places]
        assert local_sensitivity(prices, m.reach) == pytest.approx(local, rel=1e-15)
        slow = [max(np.exp(-beta * -(-abs(v - w) // m.reach)) * local[w] for w in places) for v in places]
        assert smooth == pytest.approx(slow, rel=1e-12)  # the least function that is smooth and covers it


def test_sum_over_questions_covers_every_neighbour_of_whole_vote_tables():
    rng, teachers = np.random.default_rng(6), 12
    m = BinaryVotes(num_labels=4, sigma=2.0)
    prices, smooth = m.prices(4.0, teachers), smooth_sensitivity(m.prices(4.0, teachers), 1, 0.1)
    for _ in range(300):
        votes = rng.random((teachers, 5, 4)) < rng.random((5, 4))
        other = votes.copy()
        other[0] = rng.random((5, 4)) < 0.5
        here, there = (m.statistic(m.tally(v)) for v in (votes, other))
        assert abs(prices[here].sum() - prices[there].sum()) <= smooth[here].sum()
        assert abs(np.log(smooth[here].sum() / smooth[there].sum())) <= 0.1 + 1e-12


@pytest.fixture(scope="module")
def releases() -> list:
    source = seeded(8)
    return [sanitise(VOTE, COUNTS, SETTINGS, source) for _ in range(10_000)]


def test_both_noises_have_the_claimed_scale_and_another_would_be_noticed(releases):
    logs = np.log([r.sensitivity for r in releases]) - np.log(SMOOTH)
    logs = logs / (SETTINGS.beta * SETTINGS.log_sigma) - SETTINGS.z
    values = np.array([(r.value - PRICE) / (r.sensitivity * SETTINGS.sigma) for r in releases])
    for draws in (logs, values):

        def distance(factor: float, draws: np.ndarray = draws) -> float:
            return float(stats.kstest(draws, stats.norm(scale=factor).cdf).statistic * np.sqrt(len(draws)))

        assert distance(1.0) < 1.95 < 5 < min(distance(2 / 3), distance(3 / 2))


def test_bounds_fail_as_rarely_as_claimed_and_stay_below_the_worst_case(releases):
    small, low = (np.mean([r.sensitivity < SMOOTH for r in releases]), np.mean([r.upper < PRICE for r in releases]))
    assert small == pytest.approx(SETTINGS.delta / 2, abs=0.004) and low == pytest.approx(SETTINGS.delta / 2, abs=0.004)
    worst = 200 * VOTE.prices(6.0, 60).max()
    assert all(0 <= r.upper <= worst for r in releases) and worst <= VOTE.cost(50).rdp(np.array([6.0]))[0]


def test_the_sanitised_release_is_charged_whatever_the_votes(releases, tmp_path):
    own = releases[0].own
    assert own.rdp(np.array([6.0]))[0] == pytest.approx(6 / (2 * 25) + 6 / (2 * 9))
    assert own.delta == SETTINGS.delta / 2 and own == SETTINGS.cost("teacher_changed")
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.charge(own, queries=0, details={})
    assert ledger.spent().epsilon(0.05) == own.epsilon(0.05)


def ex_post_epsilon(upper: np.ndarray, settings: Sanitiser, left: float) -> np.ndarray:
    a = settings.alpha
    spent = a / (2 * settings.log_sigma**2) + a / (2 * settings.sigma**2)
    return upper + spent + np.log((a - 1) / a) - (np.log(left) + np.log(a)) / (a - 1)


def test_epsilon_is_the_theorems(releases):
    for released in releases[:20]:
        expected = max(0.0, ex_post_epsilon(released.upper, SETTINGS, 0.03))
        assert released.epsilon(0.05) == pytest.approx(expected)
        beside = PrivacyCost.of(Gaussian(0.3), delta=0.01, neighbours="teacher_changed")
        more = ex_post_epsilon(released.upper + 6 * 0.09 / 2, SETTINGS, 0.02)
        assert released.epsilon(0.05, beside) == pytest.approx(max(0.0, more))


def losses(teachers: int, m: BinaryVotes, settings: Sanitiser):
    """For every pair of neighbouring counts x, y: f(x), then privacy loss, upper bound and whether S* covers, by cells.

    A cell is a label and two standard normals, those behind s and v; its weight is its probability under x.
    """
    prices, step = m.prices(settings.alpha, teachers), settings.beta * settings.log_sigma
    log_smooth = np.log(smooth_sensitivity(prices, 1, settings.beta))
    yes = ndtr((np.arange(teachers + 1) - teachers / 2) / m.sigma)
    grid = np.linspace(-9, 9, 601)
    label, g, h = np.array([True, False])[:, None, None], grid[None, :, None], grid[None, None, :]
    weight = stats.norm.pdf(g) * stats.norm.pdf(h) * (grid[1] - grid[0]) ** 2
    for x, y in [(x, x + move) for move in (-1, 1) for x in range(max(0, -move), teachers + 1 - max(0, move))]:
        p, q = (np.where(label, yes[place], 1 - yes[place]) for place in (x, y))
        bound = np.exp(log_smooth[x] + (g + settings.z) * step)  # S*, released from x
        a, b = (log_smooth[x] - log_smooth[y]) / step, (prices[x] - prices[y]) / (settings.sigma * bound)
        loss = np.log(p / q) + ((g + a) ** 2 - g**2 + (h + b) ** 2 - h**2) / 2
        upper = np.clip(prices[x] + (h + settings.z) * settings.sigma * bound, 0, prices.max())
        yield prices[x], weight * p, loss, upper, bound >= abs(prices[x] - prices[y])


@pytest.mark.parametrize(("beta", "log_sigma", "needed"), [(0.05, 3.0, "v"), (0.4, 0.5, "s")])
def test_the_moment_behind_the_theorem_by_quadrature_and_that_neither_noise_is_free(beta, log_sigma, needed):
    """E[exp((alpha-1)(L - R)); G] <= 1 for every pair of neighbouring counts, not without the price of s or of v."""
    settings = Sanitiser(alpha=3.0, beta=beta, sigma=1.0, log_sigma=log_sigma, delta=0.1)
    price_of = {"s": 3 / (2 * log_sigma**2), "v": 3 / 2}
    whole, without = [], []
    for price, weight, loss, _, covered in losses(5, BinaryVotes(num_labels=1, sigma=0.7), settings):
        assert weight.sum() == pytest.approx(1, abs=1e-9)
        assert (weight * ~covered).sum() <= settings.delta / 2 + 3e-3  # a cell is cut where S* begins to cover
        excess = np.where(covered, loss, -np.inf) - price - sum(price_of.values())
        whole.append((weight * np.exp(2 * excess)).sum())
        without.append((weight * np.exp(2 * (excess + price_of[needed]))).sum())
    assert len(whole) == 10 and max(whole) <= 1 < 2 < max(without)


@pytest.mark.parametrize("less", [0.0, 6.0], ids=["as stated", "too small"])
def test_the_theorem_by_quadrature_on_every_pair_of_a_small_electorate(less):
    """E[(1 - exp(e(o) - L))+] <= d + delta for every pair of neighbouring counts; a much smaller epsilon breaks it."""
    worst = 0.0
    for _, weight, loss, upper, _ in losses(5, BinaryVotes(num_labels=1, sigma=0.7), SMALL):
        epsilon = ex_post_epsilon(upper, SMALL, 0.02) - less
        worst = max(worst, float((weight * np.maximum(-np.expm1(epsilon - loss), 0)).sum()))
    assert (worst <= 0.02 + SMALL.delta) == (less == 0)


def test_facts_are_plain_and_say_what_they_are(releases):
    facts = json.loads(json.dumps(releases[0].facts(0.05)))
    assert facts["kind"] == "ex-post" and facts["private"] is False and facts["neighbours"] == "teacher_changed"
    assert facts["epsilon"] == releases[0].epsilon(facts["delta"]) and facts["order"] == 6.0
    assert "ex post" in str(releases[0]) and "NOT PRIVATE" in str(releases[0])
    fresh = sanitise(VOTE, COUNTS, SETTINGS)
    assert not fresh.seeded and "NOT PRIVATE" not in str(fresh) and fresh.facts(0.05)["private"] is True


def test_agreement_pays_even_after_sanitising():
    settings = Sanitiser(alpha=8.0, beta=0.02, delta=1e-7)
    for m, counts in [
        (BinaryVotes(num_labels=40, sigma=60.0, num_teachers=800), np.full((600, 40), 30)),
        (GNMax(num_labels=10, sigma=40.0, num_teachers=400), np.tile([380, 20] + [0] * 8, (1000, 1))),
    ]:
        released = sanitise(m, counts, settings, seeded(9)).epsilon(1e-6)
        assert m.private_cost(counts).epsilon(1e-6).value < released < 0.6 * m.cost(len(counts)).epsilon(1e-6)


def test_nothing_asked_costs_the_sanitising_only():
    released = sanitise(VOTE, COUNTS[:0], SETTINGS, seeded(1))
    assert released.upper == 0 and released.epsilon(0.05) == pytest.approx(ex_post_epsilon(0, SETTINGS, 0.03))


def test_bad_settings_are_refused():
    good = {"alpha": 6.0, "beta": 0.05}
    for name, value in [("alpha", 1.0), ("beta", 0.0), ("sigma", -1.0), ("log_sigma", np.inf), ("delta", 1.0)]:
        with pytest.raises(SettingError, match=f"{name} must be"):
            Sanitiser(**good | {name: value})
    with pytest.raises(SettingError, match="delta must be in"):
        sanitise(VOTE, COUNTS, SETTINGS, seeded(1)).epsilon(SETTINGS.delta)
    with pytest.raises(SettingError, match="number of teachers"):
        sanitise(VOTE, np.full((1, 4), 61), SETTINGS, seeded(1))
    with pytest.raises(SettingError, match="teachers may be added"):
        m = BinaryVotes(num_labels=2, sigma=1.0, neighbours="teacher_added")
        sanitise(m, m.tally(np.ones((3, 1, 2), bool)), SETTINGS, seeded(1))
    with pytest.raises(SettingError, match="exact must be false"):
        sanitise(BinaryVotes(num_labels=4, sigma=8.0, num_teachers=60, exact=True), COUNTS, SETTINGS, seeded(1))

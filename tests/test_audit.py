"""The audit's own exactness: closed forms, independent quadrature, and lower bounds that stay below the truth."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.integrate import quad
from scipy.optimize import brentq, check_grad
from scipy.special import gammaln, log_ndtr
from scipy.stats import binom, norm

from pate.accounting.noisy_max import valid_minimum
from pate.audit import (
    _ascent,
    empirical_epsilon,
    epsilon_lower_bound,
    noisy_max_divergence,
    noisy_max_probabilities,
    noisy_max_value_divergence,
    worst_noisy_max,
)
from pate.errors import SettingError

ALTERNATING = np.where(np.arange(39) % 2, -1.0, 1.0)

# scores, shift, sigma, alpha, shifted from original, original from shifted; by 200-point Gauss-Hermite quadrature.
PAIRS = [
    ([0, 0], [1, -1], 50, 2, 0.0005090304530371293, 0.0005092896970084056),
    ([0, 0], [1, -1], 50, 8, 0.0020248154829126696, 0.0020299439852376855),
    ([0] * 4, [1, -1, 1, -1], 50, 2, 0.0007529195295523713, 0.0007534868445398912),
    ([0] * 4, [1, -1, 1, -1], 50, 8, 0.002987039814844849, 0.002998204593796803),
    ([0] * 39, ALTERNATING, 50, 2, 0.0019396145218013845, 0.0019477909173358041),
    ([0] * 39, ALTERNATING, 50, 8, 0.007564696856931786, 0.007721652070408191),
    ([3, 0, -4, 1], [1, -1, 0, 1], 2, 2, 0.06896721617205753, 0.2832879283632458),
    ([3, 0, -4, 1], [1, -1, 0, 1], 2, 8, 0.08343967301174374, 1.2853006740037582),
    ([10, 0, 0, 5, -3], [-1, 1, -1, 1, 0], 5, 2, 0.06151071604085779, 0.05092582406467989),
    ([10, 0, 0, 5, -3], [-1, 1, -1, 1, 0], 5, 8, 0.22423351530672211, 0.12302759108535258),
]


# Report-noisy-max, exactly


@pytest.mark.parametrize(("scores", "shift", "sigma", "alpha", "forth", "back"), PAIRS)
def test_reference_divergences_both_ways(scores, shift, sigma, alpha, forth, back):
    scores, shift = np.array(scores), np.array(shift)
    assert noisy_max_divergence(scores, shift, sigma, alpha) == pytest.approx(forth, rel=1e-9)
    assert noisy_max_divergence(scores + shift, -shift, sigma, alpha) == pytest.approx(back, rel=1e-9)


@pytest.mark.parametrize("behind", [0.0, 1.0, 10.0, 40.0])
def test_two_candidates_have_a_closed_form_down_to_the_far_tail(behind):
    p = noisy_max_probabilities([0.0, -3 * behind], sigma=3.0)
    assert np.log(p) == pytest.approx(log_ndtr(np.array([behind, -behind]) / math.sqrt(2)), rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("n", [3, 12, 40])
def test_probabilities_against_adaptive_quadrature(n):
    rng = np.random.default_rng(n)
    u = rng.normal(size=n) * 2
    p = noisy_max_probabilities(u, 1.0)
    assert p.sum() == pytest.approx(1, rel=1e-12)
    for i in (0, int(u.argmin()), int(u.argmax())):
        others = np.delete(u, i)
        win = quad(lambda x, i=i, o=others: norm.pdf(x - u[i]) * norm.cdf(x - o).prod(), -12, 14, epsabs=0, limit=400)
        assert p[i] == pytest.approx(win[0], rel=1e-8)


def test_probabilities_against_simulation():
    u = np.array([0.0, 0.5, 1.0, -1.0])
    wins = np.bincount((u + np.random.default_rng(0).normal(size=(200_000, 4))).argmax(axis=1)) / 200_000
    assert noisy_max_probabilities(u, 1.0) == pytest.approx(wins, abs=0.005)


@pytest.mark.parametrize("alpha", [1.0001, 2.0, 50.0])
def test_value_of_one_candidate_is_the_gaussian_mechanism(alpha):
    assert noisy_max_value_divergence([7.0], [2.0], 5.0, alpha) == pytest.approx(alpha * 0.4**2 / 2, rel=1e-9)
    assert noisy_max_divergence([7.0], [2.0], 5.0, alpha) == pytest.approx(0, abs=1e-15)


def test_value_divergence_against_adaptive_quadrature():
    u, t, alpha = np.array([0.0, 1.0, -0.5]), np.array([0.7, -0.7, -0.7]), 3.0

    def density(x, u, i):
        return norm.pdf(x - u[i]) * norm.cdf(x - np.delete(u, i)).prod()

    def mixed(x):
        return sum(density(x, u + t, i) ** alpha * density(x, u, i) ** (1 - alpha) for i in range(3))

    exact = math.log(quad(mixed, -9, 9, epsabs=0, epsrel=1e-11, limit=300)[0]) / (alpha - 1)
    assert noisy_max_value_divergence(u, t, 1.0, alpha) == pytest.approx(exact, rel=1e-9)


def test_dropping_the_value_never_costs_more_and_a_common_shift_is_free_without_it():
    rng = np.random.default_rng(4)
    for _ in range(50):
        u, t, alpha = rng.normal(size=6), rng.uniform(-1, 1, size=6), 1 + rng.exponential(5)
        assert noisy_max_divergence(u, t, 1.0, alpha) <= noisy_max_value_divergence(u, t, 1.0, alpha) * (1 + 1e-9)
    assert noisy_max_divergence(u, np.ones(6), 1.0, 9.0) == pytest.approx(0, abs=1e-12)
    assert noisy_max_value_divergence(u, np.ones(6), 1.0, 9.0) > 1


def test_tiny_divergences_keep_their_digits():
    """For small moves D is quadratic in the move, also where the sum it is the log of differs from 1 by 1e-13."""
    values = [noisy_max_divergence([0.0, 0.3, 1.0], s * np.array([1, -1, 1]), 1.0, 1.001) / s**2 for s in (1e-3, 1e-5)]
    assert values[1] == pytest.approx(values[0], rel=2e-3)


def test_gradient_of_the_search():
    rng = np.random.default_rng(3)
    for ratio, alpha in ((0.02, 2.0), (0.5, 8.0), (2.0, 1.1)):
        z = np.concatenate([rng.normal(size=6), rng.uniform(-1, 1, size=6)])
        size = np.linalg.norm(_ascent(z, ratio, alpha)[1])
        error = check_grad(
            lambda z, r=ratio, a=alpha: _ascent(z, r, a)[0], lambda z, r=ratio, a=alpha: _ascent(z, r, a)[1], z
        )
        assert error < 1e-5 * size


@pytest.mark.parametrize(("n", "alpha"), [(5, 2.0), (39, 8.0)])
def test_search_beats_alternating_gaps_and_stays_in_its_box(n, alpha):
    shift = ALTERNATING[:n]
    found = worst_noisy_max(n, 50.0, alpha, 1.0, np.random.default_rng(0), restarts=1)
    again = worst_noisy_max(n, 50.0, alpha, 1.0, np.random.default_rng(0), restarts=1)
    assert found.divergence >= noisy_max_divergence(np.zeros(n), shift, 50.0, alpha)
    assert found.divergence == noisy_max_divergence(found.scores, found.shift, 50.0, alpha) == again.divergence
    assert np.abs(found.shift).max() <= 1.0


# Composed epsilons, from below


def composed_two_point(p, q, queries, delta):
    """Exact epsilon of a pair whose outcomes have two different losses: a binomial sum."""
    wins = np.arange(queries + 1)
    loss = wins * math.log(p[0] / q[0]) + (queries - wins) * math.log(p[1] / q[1])
    mass = binom.pmf(wins, queries, p[0])
    return brentq(lambda e: mass @ np.maximum(0, -np.expm1(np.minimum(e - loss, 0))) - delta, 0, 100, xtol=1e-13)


@pytest.mark.parametrize(("move", "stated", "best"), [(1, 5.29, 5.33), (2, 11.9, 12.08)], ids=["added", "changed"])
def test_six_hundred_choices_of_the_counterexample_cost_more_than_stated(move, stated, best):
    """K = 40 equal gaps, every other one rises: sigma1 = 50, delta = 1e-6; the published charge says 2.70 and 5.63."""
    p = noisy_max_probabilities(move * ALTERNATING, 50.0)
    q = noisy_max_probabilities(0 * ALTERNATING, 50.0)
    forth, back = epsilon_lower_bound(p, q, 600, 1e-6), epsilon_lower_bound(q, p, 600, 1e-6)
    assert math.floor(forth * 100) / 100 >= stated and math.floor(back * 100) / 100 == best
    merged = [[x[::2].sum(), x[1::2].sum()] for x in (p, q)]
    assert forth == pytest.approx(composed_two_point(*merged, 600, 1e-6), rel=1e-6)
    orders = 1 + np.logspace(-2, 4, 600)
    curve = 600 * valid_minimum(orders, 39, move / 50)
    above = np.min(curve + np.log1p(-1 / orders) - (math.log(1e-6) + np.log(orders)) / (orders - 1))
    assert max(forth, back) < above == pytest.approx({1: 6.30, 2: 14.50}[move], abs=0.005)
    claimed = np.min(600 * orders * (move / 50) ** 2 / 2 + math.log(1e6) / (orders - 1))
    assert forth > 1.5 * claimed


def test_three_losses_stay_below_the_exact_sum_and_close():
    p, q, queries, delta = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3]), 60, 1e-5
    i, j = np.meshgrid(np.arange(queries + 1), np.arange(queries + 1), indexing="ij")
    i, j = i[i + j <= queries], j[i + j <= queries]
    k = queries - i - j
    ways = gammaln(queries + 1) - gammaln(i + 1) - gammaln(j + 1) - gammaln(k + 1)
    mass = np.exp(ways + i * np.log(p[0]) + j * np.log(p[1]) + k * np.log(p[2]))
    loss = i * np.log(p[0] / q[0]) + k * np.log(p[2] / q[2])
    exact = brentq(lambda e: mass @ np.maximum(0, -np.expm1(np.minimum(e - loss, 0))) - delta, 0, 50, xtol=1e-13)
    assert exact - 1e-3 <= epsilon_lower_bound(p, q, queries, delta) <= exact


def test_between_the_two_roundings_of_dp_accounting():
    p, q = np.array([0.30, 0.25, 0.25, 0.20]), np.array([0.25, 0.25, 0.22, 0.28])
    ends = []
    for pessimistic in (False, True):
        logs = [dict(enumerate(np.log(x))) for x in (q, p)]
        one = pld.from_two_probability_mass_functions(*logs, pessimistic, 1e-4, symmetric=False)
        ends.append(one.self_compose(50).get_epsilon_for_delta(1e-6))
    ours = max(epsilon_lower_bound(p, q, 50, 1e-6), epsilon_lower_bound(q, p, 50, 1e-6))  # It takes both directions.
    assert ends[0] <= ours <= ends[1] <= ends[0] + 0.01


def test_epsilon_of_simple_pairs():
    response = np.array([0.75, 0.25])
    assert epsilon_lower_bound(response, response[::-1], 1, 0.0) == pytest.approx(math.log(3), rel=1e-9)
    assert epsilon_lower_bound(response, response[::-1], 1, 0.25) == pytest.approx(math.log(2), rel=1e-9)
    assert epsilon_lower_bound(response, response[::-1], 1, 0.5) == pytest.approx(0, abs=1e-9)
    assert epsilon_lower_bound(response, response, 1000, 1e-6) == 0
    assert epsilon_lower_bound([1.0, 0.0], [0.0, 1.0], 1, 0.5) == math.inf
    assert epsilon_lower_bound([0.99, 0.01], [1.0, 0.0], 10, 0.05) == math.inf
    assert epsilon_lower_bound([0.99, 0.01], [1.0, 0.0], 10, 0.1) == 0


def test_epsilon_grows_with_queries_and_falls_with_delta():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.35, 0.25])
    queries = [epsilon_lower_bound(p, q, n, 1e-5) for n in (1, 10, 100, 1000)]
    deltas = [epsilon_lower_bound(p, q, 100, d) for d in (1e-8, 1e-5, 1e-2)]
    assert queries == sorted(queries) and deltas == sorted(deltas, reverse=True) and deltas[-1] > 0


# Black boxes


def test_empirical_epsilon_holds_with_its_confidence_and_is_not_vacuous():
    """Randomised response with epsilon = log 3; two events, both directions."""
    rng = np.random.default_rng(8)
    found = []
    for _ in range(400):
        yes_p, yes_q = rng.binomial(5000, 0.75), rng.binomial(5000, 0.25)
        found.append(empirical_epsilon([yes_p, 5000 - yes_p], [yes_q, 5000 - yes_q], 5000, confidence=0.9))
    assert np.mean(np.array(found) > math.log(3)) <= 0.1
    assert np.median(found) > 0.9 * math.log(3)


def test_empirical_epsilon_catches_half_the_noise():
    """Counting queries with Lap(1/2) noise claimed to be 1-DP: the event {output >= 1} gives the game away."""
    rng = np.random.default_rng(9)
    zero, one = rng.laplace(0, 0.5, 20_000) >= 1, 1 + rng.laplace(0, 0.5, 20_000) >= 1
    assert 1 < empirical_epsilon(one.sum(), zero.sum(), 20_000, confidence=0.99) <= 2


def test_empirical_epsilon_ends():
    assert empirical_epsilon([500], [500], 1000) == 0
    assert empirical_epsilon([1000], [0], 1000) > 4
    assert empirical_epsilon([1000], [0], 1000) == empirical_epsilon([0], [1000], 1000)
    assert empirical_epsilon([1000], [0], 1000, delta=0.999) < empirical_epsilon([1000], [0], 1000, delta=0.1)
    assert empirical_epsilon([900, 1], [300, 1], 1000) < empirical_epsilon([900], [300], 1000)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: noisy_max_probabilities([0.0, math.nan], 1.0), "scores"),
        (lambda: noisy_max_probabilities([0.0, 1.0], 0.0), "sigma"),
        (lambda: noisy_max_divergence([0.0, 1.0], [1.0], 1.0, 2.0), "shift"),
        (lambda: noisy_max_value_divergence([0.0], [1.0], 1.0, 1.0), "alpha"),
        (lambda: worst_noisy_max(1, 1.0, 2.0, 1.0, np.random.default_rng(0)), "candidates"),
        (lambda: epsilon_lower_bound([0.5, 0.6], [0.5, 0.5], 1, 0.1), "p"),
        (lambda: epsilon_lower_bound([0.5, 0.5], [0.5, 0.5, 0.0], 1, 0.1), "q"),
        (lambda: epsilon_lower_bound([0.5, 0.5], [0.5, 0.5], 0, 0.1), "queries"),
        (lambda: epsilon_lower_bound([0.5, 0.5], [0.5, 0.5], 1, 1.0), "delta"),
        (lambda: empirical_epsilon([11], [0], 10), "hits"),
        (lambda: empirical_epsilon([1], [0], 10, confidence=1.0), "confidence"),
    ],
)
def test_bad_input_is_refused_by_name(call, name):
    with pytest.raises(SettingError, match=f"^{name} must be"):
        call()

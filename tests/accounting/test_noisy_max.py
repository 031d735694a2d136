"""Report-noisy-max with Gaussian noise: no pair may pass the bounds, and each step of docs/noisy_max.md is checked."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import kstest

from pate.accounting.noisy_max import _kappa, disjoint_events, gap_vector, jensen, union, valid_minimum
from pate.audit import noisy_max_divergence, noisy_max_value_divergence, worst_noisy_max
from pate.errors import SettingError

ALPHAS = 1 + np.logspace(-3, 6, 181)
SIZES = [2, 3, 5, 39, 200, 10**4, 10**6]
RATIOS = [1e-4, 0.02, 0.04, 0.3, 1.0, 10.0]


def alternating(n: int) -> np.ndarray:
    return np.where(np.arange(n) % 2, -1.0, 1.0)


def published(alpha: float, ratio: float) -> float:
    """The charge behind the printed 3.6."""
    return alpha * ratio**2 / 2


# What the bounds are for


@pytest.mark.parametrize("labels", [3, 5, 10, 40])
@pytest.mark.parametrize("move", [1, 2], ids=["teacher_added", "teacher_changed"])
@pytest.mark.parametrize("alpha", [1.5, 2.0, 8.0])
def test_counterexample_breaks_the_published_charge_and_not_the_minimum(labels, move, alpha):
    n, sigma = labels - 1, 50.0
    exact = noisy_max_divergence(np.zeros(n), move * alternating(n), sigma, alpha)
    assert exact > 1.2 * published(alpha, move / sigma)
    assert exact <= valid_minimum(alpha, n, move / sigma)[0]


@pytest.mark.parametrize(
    ("n", "alpha", "reference"),
    [
        (2, 2, 0.0006414528555470186),
        (2, 8, 0.002603480046401653),
        (4, 2, 0.0009081386335320158),
        (4, 8, 0.00377751143381477),
        (39, 2, 0.0021534417163462383),
        (39, 8, 0.009993420922165795),
    ],
)
def test_jensen_agrees_with_independent_upper_sums(n, alpha, reference):
    assert jensen(alpha, n, 0.02)[0] == pytest.approx(reference, rel=3e-5)
    assert jensen(alpha, n, 0.02)[0] <= reference


@pytest.mark.parametrize(
    ("n", "ratio", "alpha", "value"),
    [
        (2, "0.02", 2, 0.000641443529249774),
        (4, "0.5", 2, 0.738026240231698),
        (4, "0.5", 8, 3.80345287510469),
        (5, "0.2", 8, 0.637791122644413),
        (39, "0.02", 8, 0.0099933495631164),
    ],
)
def test_jensen_is_40_digit_arithmetic_plus_its_margin(n, ratio, alpha, value):
    assert jensen(alpha, n, float(ratio))[0] == pytest.approx(value * (1 + 1e-9), rel=1e-12)


def random_pairs(rng: np.random.Generator, count: int):
    """Scores, shift, ratio and alpha of many kinds: equal, close, spread, one ahead; full, partial, one-sided moves."""
    for _ in range(count):
        n, ratio = int(rng.integers(2, 40)), 10 ** rng.uniform(-2.5, 0.7)
        scores = rng.choice([0.0, 0.3, 1.0, 3.0]) * rng.normal(size=n)
        scores[0] += rng.choice([0.0, 1.0, 4.0, -2.0])
        signs = rng.choice([-1.0, 1.0], size=n, p=rng.choice([0.5, 0.1, 0.9]) * np.array([1, -1]) + [0, 1])
        shift = ratio * signs * rng.choice([1.0, rng.uniform(0, 1)])
        yield scores, shift, ratio, 1 + 10 ** rng.uniform(-2, 2)


def assert_random_pairs_obey(count: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    closest = 0.0
    for scores, shift, ratio, alpha in random_pairs(rng, count):
        n = len(scores)
        exact = noisy_max_divergence(scores, shift, 1.0, alpha)
        bounds = [union(alpha, n, ratio), disjoint_events(alpha, n, ratio), jensen(alpha, n, ratio)]
        assert exact <= min(float(b[0]) for b in bounds)
        closest = max(closest, exact / valid_minimum(alpha, n, ratio)[0])
    return closest


def test_random_pairs_never_pass_any_bound():
    assert assert_random_pairs_obey(2000, seed=1) > 0.6


def test_random_pairs_never_pass_with_the_value_released():
    closest = 0.0
    for scores, shift, ratio, alpha in random_pairs(np.random.default_rng(2), 400):
        exact = noisy_max_value_divergence(scores, shift, 1.0, alpha)
        bound = valid_minimum(alpha, len(scores), ratio, value_released=True)[0]
        assert exact <= bound
        closest = max(closest, exact / bound)
    assert closest > 0.9


@pytest.mark.parametrize(
    ("n", "ratio", "alpha"), [(2, 0.02, 64.0), (3, 0.5, 2.0), (6, 0.1, 8.0), (12, 1.0, 1.2), (12, 0.3, 20.0)]
)
def test_optimised_pairs_never_pass(n, ratio, alpha):
    found = worst_noisy_max(n, 1.0, alpha, ratio, np.random.default_rng(0), restarts=2)
    assert np.abs(found.shift).max() <= ratio
    assert 0.4 * valid_minimum(alpha, n, ratio)[0] <= found.divergence <= valid_minimum(alpha, n, ratio)[0]


@pytest.mark.slow
def test_many_random_pairs_never_pass():
    assert assert_random_pairs_obey(30_000, seed=3) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 7, 15, 39])
@pytest.mark.parametrize("ratio", [0.02, 0.04, 0.2, 1.0, 3.0])
def test_many_optimised_pairs_never_pass(n, ratio):
    for alpha in (1.01, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0):
        found = worst_noisy_max(n, 1.0, alpha, ratio, np.random.default_rng(n), restarts=3)
        assert found.divergence <= valid_minimum(alpha, n, ratio)[0]


# Could the tests above fail? Each bound is nearly attained, so four fifths of it is broken


def test_four_fifths_of_jensen_is_violated():
    found = worst_noisy_max(39, 50.0, 1.5, 1.0, np.random.default_rng(0), restarts=0)
    assert found.divergence > 0.8 * jensen(1.5, 39, 0.02)[0]


def test_four_fifths_of_disjoint_events_is_violated():
    found = worst_noisy_max(20, 2.0, 20.0, 1.0, np.random.default_rng(0), restarts=0)
    assert found.divergence > 0.8 * disjoint_events(20.0, 20, 0.5)[0]


def test_four_fifths_of_gap_vector_is_violated_with_two_candidates():
    found = worst_noisy_max(2, 2.0, 8.0, 1.0, np.random.default_rng(0), restarts=0)
    assert found.divergence > 0.8 * gap_vector(8.0, 2 * 0.25)[0]


@pytest.mark.parametrize("alpha", [1.1, 2.0, 500.0])
def test_nine_tenths_of_jensen_is_violated_with_the_value_released(alpha):
    fall = noisy_max_value_divergence(np.zeros(39), -np.ones(39), 50.0, alpha)
    assert fall > 0.9 * jensen(alpha, 39, 0.02)[0]


def test_bounds_1_and_2_do_not_cover_the_released_value():
    fall = noisy_max_value_divergence(np.zeros(39), -np.ones(39), 50.0, 500.0)
    assert fall > 5 * union(500.0, 39, 0.02)[0] > 5 * disjoint_events(500.0, 39, 0.02)[0] * (1 - 1e-9)
    assert fall <= valid_minimum(500.0, 39, 0.02, value_released=True)[0]


# The numbers are upper bounds of the integrals they stand for


def jensen_by_quad(alpha: float, n: int, ratio: float) -> float:
    """Bound 4 as stated, over X ~ Exp(1), by adaptive quadrature between dense break points."""
    unit = alpha * (alpha - 1) * ratio**2 / 2

    def excess(x):
        power = unit * (n - 1) * _kappa(ndtri_exp(-x / (n - 1)) - alpha * ratio)
        return -np.expm1(-power) * np.exp(power - x)

    ends = np.concatenate([[0.0], np.logspace(-20, 0, 41), np.arange(2, 60.0), np.geomspace(60, 60 + 3 * n, 60)])
    total = sum(quad(excess, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairwise(ends))
    return (unit + math.log1p(total)) / (alpha - 1)


@pytest.mark.parametrize("n", [2, 3, 39, 1000])
@pytest.mark.parametrize(
    ("ratio", "alpha"), [(1e-4, 1.001), (1e-4, 5000), (0.02, 2), (0.04, 30), (0.5, 1.5), (1, 1.2), (3, 1.01)]
)
def test_jensen_is_above_its_integral_and_no_more_than_its_margin(n, ratio, alpha):
    exact = jensen_by_quad(alpha, n, ratio)
    assert exact <= jensen(alpha, n, ratio)[0] <= exact * (1 + 2e-9)


@pytest.mark.parametrize("n", [2, 39, 10**6])
@pytest.mark.parametrize("start", [1e-6, 1e-2, 0.5, 3.0, 8.0])
def test_disjoint_events_is_above_its_integral_and_no_more_than_its_margin(n, start):
    alpha, ratio = 2.0, start / 2

    def wins(z):
        return np.exp((n - 1) * log_ndtr(z + start) - z**2 / 2) / math.sqrt(2 * math.pi)

    ends = np.arange(-12, 12.5, 0.5)
    total = n * sum(quad(wins, a, b, epsabs=0, epsrel=1e-13)[0] for a, b in pairwise(ends))
    exact = 2 * alpha * ratio**2 + math.log(total)
    slack = 1e-12  # Of the plain logarithm here.
    assert exact - slack <= disjoint_events(alpha, n, ratio)[0] <= exact * (1 + 2e-9) + slack


def test_jensen_where_one_peak_is_a_thousandth_wide():
    n, ratio, alpha = 10**6, 0.3, 3.0
    y = np.linspace(-3, 9, 2_000_001)
    power = alpha * (alpha - 1) * ratio**2 / 2 * (n - 1) * _kappa(y - alpha * ratio)
    height = power - y**2 / 2 + (n - 2) * log_ndtr(y) + math.log((n - 1) / math.sqrt(2 * math.pi))
    total = height.max() + math.log(np.exp(height - height.max()).sum() * 12 / 2_000_000)
    exact = (alpha * (alpha - 1) * ratio**2 / 2 + total) / (alpha - 1)
    assert exact <= jensen(alpha, n, ratio)[0] <= exact * (1 + 2e-9)


# Shape


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_order_of_the_bounds(n, ratio):
    assert np.all(jensen(ALPHAS, n, ratio) <= gap_vector(ALPHAS, n * ratio**2) * (1 + 1e-15))
    assert np.all(disjoint_events(ALPHAS, n, ratio) <= union(ALPHAS, n, ratio) * (1 + 1e-15))
    four = [f(ALPHAS, n, ratio) for f in (union, disjoint_events, jensen)] + [gap_vector(ALPHAS, n * ratio**2)]
    assert np.allclose(valid_minimum(ALPHAS, n, ratio), np.min(four, axis=0), rtol=1e-15, atol=0)


@pytest.mark.parametrize("bound", [disjoint_events, jensen, valid_minimum, partial(valid_minimum, value_released=True)])
def test_nondecreasing_in_alpha_candidates_and_ratio(bound):
    values = np.array([[bound(ALPHAS, n, ratio) for ratio in RATIOS] for n in SIZES])
    assert np.isfinite(values).all() and (values > 0).all()
    for axis in range(3):
        assert (np.diff(values, axis=axis) >= -1e-12 * values.max()).all()
        assert (np.diff(np.log(values), axis=axis) >= -1e-11).all()


@pytest.mark.parametrize("n", SIZES)
def test_ends(n):
    assert (valid_minimum(ALPHAS, n, 0.0) == 0).all()
    assert np.isposinf(valid_minimum(ALPHAS, n, math.inf)).all()
    assert np.isposinf(jensen(ALPHAS, n, math.inf)).all()
    assert np.isposinf(valid_minimum(ALPHAS, n, 1e200)).all()
    assert (valid_minimum(ALPHAS, n, 1e-9) < 1e-4).all()
    assert (valid_minimum(ALPHAS, n, 1e-160) < 1e-300).all()
    # Little noise: of a choice among n nothing is hidden but the shift of 2s.
    assert valid_minimum(2.0, n, 1e3)[0] == pytest.approx(min(2 * 2, n) * 1e6, rel=1e-4)


def test_one_candidate_costs_nothing_unless_its_value_is_released():
    assert (valid_minimum(ALPHAS, 1, 0.5) == 0).all()
    assert (valid_minimum(ALPHAS, 1, math.inf) == 0).all()
    assert np.allclose(valid_minimum(ALPHAS, 1, 0.5, value_released=True), ALPHAS / 8)


def test_close_to_the_worst_pair_where_it_matters():
    """Within 11 % of alternating gaps at K = 40, sigma1 = 50, alpha = 2: 2.69 against 2.43 alpha / sigma1^2."""
    exact = noisy_max_divergence(np.zeros(39), alternating(39), 50.0, 2.0)
    assert jensen(2.0, 39, 0.02)[0] * 50**2 / 2 == pytest.approx(2.692, abs=0.001)
    assert exact * 50**2 / 2 == pytest.approx(2.425, abs=0.001)


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ((1.0, 3, 0.1), "alpha"),
        ((math.nan, 3, 0.1), "alpha"),
        ((math.inf, 3, 0.1), "alpha"),
        ((2.0, 0, 0.1), "candidates"),
        ((2.0, 3, -0.1), "ratio"),
        ((2.0, 3, math.nan), "ratio"),
    ],
)
@pytest.mark.parametrize("bound", [union, disjoint_events, jensen, valid_minimum])
def test_bad_input_is_refused_by_name(bound, bad, name):
    with pytest.raises(SettingError, match=f"^{name} must be"):
        bound(*bad)
    with pytest.raises(SettingError, match="^squared_sensitivity_ratio must be"):
        gap_vector(2.0, -1.0)


# The steps of the proof


def hazard(y):
    return np.exp(-(y**2) / 2 - log_ndtr(y)) / math.sqrt(2 * math.pi)


def test_kappa_against_40_digits():
    exact = {
        -1e6: 0.999999999999000000000006,
        -1e3: 0.999999000005999950000518,
        -100.5: 0.99990105131606447579,
        -40.0: 0.99937733162140861123,
        -5.0: 0.96730356538288777465,
        0.0: 0.63661977236758134308,
        5.0: 7.4336019148607112465e-6,
        20.0: 1.1041896724319526379e-86,
    }
    assert _kappa(np.array(list(exact))) == pytest.approx(list(exact.values()), rel=1e-12)
    assert np.all(np.diff(_kappa(np.linspace(-300, 38, 100_001))) < 1e-15)


def test_jensen_gap_is_a_mean_of_kappa_over_a_tent():
    """Lemma 6: A = alpha (alpha - 1) b^2 / 2 E[kappa(y + T b)] <= alpha (alpha - 1) s^2 / 2 kappa(y - alpha s)."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        y, b, alpha = rng.normal() * 3, rng.uniform(-1, 1), 1 + 10 ** rng.uniform(-1, 1)
        gap = -log_ndtr(y) - (alpha - 1) * log_ndtr(y + alpha * b) + alpha * log_ndtr(y + (alpha - 1) * b)
        rise = quad(lambda z, y=y, b=b: z * _kappa(np.float64(y + z * b)), 0, alpha - 1)[0]
        fall = quad(lambda z, y=y, b=b, a=alpha: (a - 1) * (a - z) * _kappa(np.float64(y + z * b)), alpha - 1, alpha)[0]
        assert gap == pytest.approx(b**2 * (rise + fall), rel=1e-6, abs=1e-11)
        for s in (abs(b), 1.0):
            assert gap <= alpha * (alpha - 1) * s**2 / 2 * _kappa(np.float64(y - alpha * s)) + 1e-12


def test_summed_log_probabilities_are_exponential_whatever_the_scores():
    rng = np.random.default_rng(6)
    for scores in (np.zeros(5), np.array([4.0, 0.0, 1.0]), rng.normal(size=20) * 2):
        top = (scores + rng.normal(size=(20_000, len(scores)))).max(axis=1)
        assert kstest(-log_ndtr(top[:, None] - scores).sum(axis=1), "expon").pvalue > 0.001


def test_borell_and_the_two_cases_of_lemma_8():
    y = np.linspace(-25, 8, 20_001)
    r = hazard(y)
    a = y + r
    v = 1 - r * a
    assert np.all(v <= a**2 * (1 + 1e-9))
    assert np.all(a[y <= 0] ** 2 <= 3 * v[y <= 0])
    assert np.all(v[y >= 0] >= 1 / 3)
    assert np.all(v - a**2 >= -((v + a**2) ** 2) / 2 - 1e-12)
    assert np.all(v * (3 * a**2 + 1 - v) >= a**2 * (1 - 1e-9))


@pytest.mark.parametrize("d", [0.0, 0.02, 0.3, 2.0, 10.0])
def test_kappa_is_concave_and_increasing_in_the_log_probability(d):
    ell = np.concatenate([np.logspace(-12, 0, 300), np.linspace(1.1, 200, 300)])
    values = _kappa(ndtri_exp(-ell) - d)
    slopes = np.diff(values) / np.diff(ell)
    assert (slopes > 0).all() and (np.diff(slopes) <= 1e-9 * slopes[1:]).all()


def test_one_peak_for_the_windows_to_find():
    """Numerics: the integrand of bound 4 rises, then falls, in Y."""
    y = np.linspace(-9, 9, 4001)
    for n in (2, 39, 10**6):
        for ratio, alpha in [(0.02, 2), (0.02, 300), (0.5, 8), (3, 1.05), (10, 100)]:
            power = alpha * (alpha - 1) * ratio**2 / 2 * (n - 1) * _kappa(y - alpha * ratio)
            height = power + np.log(-np.expm1(-power)) - y**2 / 2 + (n - 2) * log_ndtr(y)
            rising = np.diff(height) > 0
            assert (np.diff(rising.astype(int)) <= 0).all()


@pytest.mark.parametrize(("n", "ratio", "alpha"), [(2, 0.5, 8), (10, 0.1, 8), (39, 0.02, 8), (39, 0.5, 2)])
def test_the_exact_gap_of_the_closing_remark_lies_between_truth_and_bound_4(n, ratio, alpha):
    y = np.linspace(-10, 10, 8001)
    psi = [-log_ndtr(y - k * ratio) for k in (0, alpha - 1, alpha)]
    gap = psi[0] + (alpha - 1) * psi[2] - alpha * psi[1]
    height = alpha * (alpha - 1) * ratio**2 / 2 + (n - 1) * gap - y**2 / 2 + (n - 2) * log_ndtr(y)
    remark = math.log(np.exp(height).sum() * 20 / 8000 * (n - 1) / math.sqrt(2 * math.pi)) / (alpha - 1)
    fall = noisy_max_value_divergence(np.zeros(n), -ratio * np.ones(n), 1.0, alpha)
    worst = worst_noisy_max(n, 1.0, alpha, ratio, np.random.default_rng(0), restarts=0).divergence
    assert max(fall, worst) <= remark <= jensen(alpha, n, ratio)[0]
    assert fall >= (1 - 1 / n) ** 0.5 * remark * 0.98

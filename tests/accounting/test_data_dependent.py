"""Prices on the votes at hand against exact divergences; private types stay private."""

import json

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, ndtr

from pate.accounting import PrivacyCost, total
from pate.accounting.conversion import ORDERS
from pate.accounting.data_dependent import (
    PrivateCost,
    PrivateEpsilon,
    _one_way,
    likely_answer,
    theorem_6,
    threshold_vote,
)
from pate.accounting.events import Gaussian
from pate.errors import SettingError
from pate.labels import plain
from pate.ledger import Budget, Charge, Ledger
from pate.statement import state

PRIVATE = PrivateCost(0.01 * ORDERS, "teacher_changed")


def bernoulli(alpha: float, here: float, there: float) -> float:
    """D_alpha between Bernoulli(Phi(here)) and Bernoulli(Phi(there)) with 60 digits."""
    with mpmath.workdps(60):
        a, sums = mpmath.mpf(alpha), []
        for sign in (1, -1):
            p, q = mpmath.ncdf(sign * mpmath.mpf(here)), mpmath.ncdf(sign * mpmath.mpf(there))
            sums.append(p**a * q ** (1 - a))
        return float(mpmath.log(mpmath.fsum(sums)) / (a - 1))


def forward(alpha: np.ndarray, here: float, there: float) -> np.ndarray:
    """The same in double precision, vectorised; good to about 1e-13 absolute."""
    parts = [log_ndtr(s * here) + (alpha - 1) * (log_ndtr(s * here) - log_ndtr(s * there)) for s in (1, -1)]
    return np.logaddexp(*parts) / (alpha - 1)


def draw(rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Orders, a distance from the threshold in standard deviations, 1 / sigma."""
    return 1 + np.exp(rng.uniform(-4, 6, 6)), float(rng.uniform(0, 9)), float(np.exp(rng.uniform(-7, 0.5)))


def test_yes_or_no_is_exact_and_rounded_up_far_out_and_near():
    rng = np.random.default_rng(0)
    for _ in range(60):
        alphas, margin, ratio = draw(rng)
        got = threshold_vote(alphas[:2], margin, ratio)
        for alpha, value in zip(alphas, got, strict=False):
            ends = [margin + ratio, margin - ratio]
            exact = max(max(bernoulli(alpha, margin, e), bernoulli(alpha, e, margin)) for e in ends)
            assert exact <= value * (1 + 1e-15) and value == pytest.approx(exact, rel=1e-6)


def test_yes_or_no_covers_every_neighbour_of_thousands_of_votes():
    rng = np.random.default_rng(1)
    for _ in range(1500):
        teachers, sigma = int(rng.integers(1, 400)), float(np.exp(rng.uniform(-1, 5)))
        count, alphas = int(rng.integers(0, teachers + 1)), 1 + np.exp(rng.uniform(-3, 6, 6))
        here = (count - teachers / 2) / sigma
        bound = threshold_vote(alphas, here, 1 / sigma)
        for other in (count - 1, count - 0.5, count, count + 1):
            there = (other - teachers / 2) / sigma
            for exact in (forward(alphas, here, there), forward(alphas, there, here)):
                assert (exact <= bound * (1 + 1e-9) + 1e-12 / (alphas - 1)).all()
        assert (bound <= alphas / (2 * sigma**2) * (1 + 1e-15)).all()


def test_a_likely_answer_is_priced_above_yes_or_no_of_the_same_chance():
    """A yes/no vote is one of the votes that the general bound speaks of, and comes close to it."""
    rng, share = np.random.default_rng(2), []
    for _ in range(3000):
        alphas, margin, ratio = draw(rng)
        bound, exact = likely_answer(alphas, log_ndtr(-margin), ratio), threshold_vote(alphas, margin, ratio)
        assert (exact <= bound * (1 + 1e-9)).all() and (bound <= alphas * ratio**2 / 2 * (1 + 1e-15)).all()
        share.append(exact / bound)
    assert np.median(share) > 0.8


def worst_post_processing(alpha: float, q: float, ratio: float) -> float:
    """The largest sum P_j (Q_j/P_j)^e over two-tailed events of mass q that are told whole, by brute force."""
    largest = 1.0
    for s in np.linspace(0, q, 2001)[1:-1]:
        w, y = stats.norm.isf(s), stats.norm.isf(q - s)
        for e in (alpha, 1 - alpha):
            told = np.exp(e * (e - 1) * ratio**2 / 2) * (ndtr(e * ratio - w) + ndtr(-y - e * ratio))
            stay = 1 - ndtr(ratio - w) - ndtr(-y - ratio)
            largest = max(largest, told + (1 - q) * (stay / (1 - q)) ** e)
    return float(np.log(largest) / (alpha - 1))


def test_a_likely_answer_is_priced_above_the_worst_event_and_close_to_it():
    for alpha, q, ratio in [(2, 1e-3, 0.02), (10, 1e-3, 0.1), (30, 1e-6, 0.05), (5, 0.2, 0.3), (1.5, 1e-4, 1.0)]:
        exact, bound = worst_post_processing(alpha, q, ratio), float(likely_answer(alpha, np.log(q), ratio))
        assert exact <= bound * (1 + 1e-9) and (bound < 1.2 * exact or bound == alpha * ratio**2 / 2)


def literal(alpha: float, z: float, ratio: float) -> float:
    """The formula of `likely_answer` as its docstring has it, with 60 digits."""
    with mpmath.workdps(60):
        a, r, z, cdf, exp = mpmath.mpf(alpha), mpmath.mpf(ratio), mpmath.mpf(z), mpmath.ncdf, mpmath.exp
        q = cdf(-z)
        w = mpmath.findroot(lambda x: mpmath.log(cdf(-x) * 2 / q), z + 0.1)
        largest = mpmath.mpf(0)
        for e in (a, 1 - a):
            psi = [u**e - 1 - e * (u - 1) for u in (cdf(z + r) / cdf(z), cdf(z - r) / cdf(z))]
            edge = [u**e - 1 - e * (u - 1) for u in (exp(r * w - r * r / 2), exp(-r * w - r * r / 2))]
            growth = exp(e * (e - 1) * r * r / 2)
            tails = sum(growth * cdf(e * t - w) - (1 - e) * cdf(-w) - e * cdf(t - w) for t in (r, -r))
            largest = max(largest, max(psi) + tails + abs(edge[0] - edge[1]) * q / 2)
        return float(min(mpmath.log(1 + largest) / (a - 1), a * r * r / 2))


def test_a_likely_answer_costs_what_the_formula_says():
    rng = np.random.default_rng(5)
    points = [(alphas[0], margin + ratio, ratio) for alphas, margin, ratio in (draw(rng) for _ in range(60))]
    for alpha, z, ratio in [(1.15, 0.73, 0.4), (2.0, 0.85, 0.1), (8.0, 4.0, 0.02), *points]:
        got, exact = float(likely_answer(alpha, log_ndtr(-z), ratio)), literal(alpha, z, ratio)
        assert exact * (1 - 1e-14) <= got <= exact * (1 + 1e-5)


def test_a_likely_answer_costs_more_the_less_likely_it_is():
    log_q = np.log(np.geomspace(1e-30, 1, 400))
    for alpha, ratio in [(1.2, 0.01), (8.0, 0.03), (40.0, 0.2), (3.0, 1.5)]:
        assert (np.diff(likely_answer(alpha, log_q, ratio)) >= -1e-18).all()
        assert likely_answer(alpha, 0.3, ratio) == likely_answer(alpha, 0.0, ratio) == alpha * ratio**2 / 2


def published(alpha: np.ndarray, q: float, unit: float, mu1: float, mu2: float) -> np.ndarray:
    """Theorem 6 for any mu1 >= alpha and mu2 > 1, a literal transcription."""
    a = (1 - q) / (1 - (q * np.exp(mu2 * unit)) ** ((mu2 - 1) / mu2))
    b = np.exp(mu1 * unit) / q ** (1 / (mu1 - 1))
    return np.log((1 - q) * a ** (alpha - 1) + q * b ** (alpha - 1)) / (alpha - 1)


def test_theorem_6_is_the_printed_formula_at_its_best_mus():
    alphas, q, unit = np.array([2.0, 6.0, 15.0]), 1e-4, 0.07**2 / 2
    got, mu = theorem_6(alphas, float(np.log(q)), 0.07), float(np.sqrt(-np.log(q) / unit))
    assert got == pytest.approx(published(alphas, q, unit, mu + 1, mu), rel=1e-9)
    for factor in (0.8, 0.95, 1.05, 1.3):
        assert (published(alphas, q, unit, mu * factor + 1, mu) > got).all()
        assert (published(alphas, q, unit, mu + 1, mu * factor) > got).all()


def test_theorem_6_speaks_only_under_its_conditions():
    rng, spoke = np.random.default_rng(6), []
    for _ in range(400):
        alpha, q, ratio = (
            float(rng.uniform(1.1, 30)),
            float(np.exp(rng.uniform(-12, -0.1))),
            float(rng.uniform(0.05, 2)),
        )
        unit = ratio**2 / 2
        mu2 = np.sqrt(-np.log(q) / unit)
        mu1, got, general = mu2 + 1, float(theorem_6(alpha, np.log(q), ratio)), alpha * unit
        holds = mu2 > 1 and alpha <= mu1 and q * np.exp(mu2 * unit) < 1
        if holds:
            share = q * np.exp(-(mu2 - 1) * mu2 * unit) * (mu1 / (mu1 - 1) * mu2 / (mu2 - 1)) ** mu2
            a = (1 - q) / (1 - (q * np.exp(mu2 * unit)) ** (1 - 1 / mu2))
            holds = share <= 1 and a <= np.exp(mu1 * unit) / q ** (1 / (mu1 - 1))
        expected = min(float(published(np.array(alpha), q, unit, mu1, mu2)), general) if holds else general
        assert got == pytest.approx(expected, rel=1e-9)
        spoke.append(holds)
    assert 50 < sum(spoke) < 350


def test_theorem_6_covers_one_direction_and_our_bound_for_it_is_never_above():
    rng, used = np.random.default_rng(4), 0
    for _ in range(2000):
        alphas, margin, ratio = draw(rng)
        log_q, general = log_ndtr(-margin), alphas * ratio**2 / 2
        bound = theorem_6(alphas, float(log_q), ratio)
        for there in (margin + ratio, margin - ratio):
            assert (forward(alphas, margin, there) <= bound * (1 + 1e-9) + 1e-12 / (alphas - 1)).all()
        if margin >= ratio / 2:
            with np.errstate(over="ignore", invalid="ignore"):
                ours = np.fmin(np.log1p(_one_way(1 - alphas, log_q, ratio)) / (alphas - 1), general)
            assert (ours <= bound * (1 + 1e-9)).all()
        used += int((bound < general).sum())
    assert used > 2000


def test_theorem_6_does_not_cover_the_other_direction():
    alphas, margin, ratio = np.array([1.5, 5.0]), 4.0, 0.5
    log_q = float(log_ndtr(-margin))
    backward = forward(alphas, margin - ratio, margin)
    assert (backward > 1.2 * theorem_6(alphas, log_q, ratio)).all()
    assert (backward <= likely_answer(alphas, log_q, ratio)).all()


@pytest.mark.parametrize("function", [threshold_vote, likely_answer, theorem_6])
def test_prices_refuse_bad_orders_and_vanish_without_signal(function):
    with pytest.raises(SettingError, match="alpha must be > 1"):
        function([1.0, 2.0], -3.0, 0.1)
    assert function([2.0, 50.0], -3.0, 0.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [PRIVATE, PRIVATE.epsilon(1e-6)])
def test_private_values_say_so_and_do_not_become_json(value):
    assert "PRIVATE" in repr(value) and "PRIVATE" in str(value) and "PRIVATE" in f"{value}"
    assert not any(character.isdigit() for character in repr(value))
    with pytest.raises(SettingError, match="free of the votes"):
        value.to_json()
    with pytest.raises(TypeError):
        json.dumps(plain(value))
    with pytest.raises(TypeError):
        float(value)


def test_private_costs_add_to_their_own_kind_only():
    public = PrivacyCost.of(Gaussian(0.1), neighbours="teacher_changed")
    for mix in (
        lambda: public + PRIVATE,
        lambda: PRIVATE + public,
        lambda: total([public, PRIVATE]),
        lambda: PRIVATE + 1,
    ):
        with pytest.raises(SettingError, match="free of the votes"):
            mix()
    with pytest.raises(SettingError, match="neighbours must be the same"):
        PRIVATE + PrivateCost(PRIVATE.curve, "teacher_added")
    assert isinstance(PRIVATE.epsilon(1e-6), PrivateEpsilon) and not isinstance(PRIVATE, PrivacyCost)
    for delta, conversion in ((0.0, "tight"), (1e-6, "exact")):
        with pytest.raises(SettingError):
            PRIVATE.epsilon(delta, conversion)


def test_private_costs_reach_neither_ledger_nor_statement(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    for budget in (None, Budget(1e9)):
        with pytest.raises(SettingError, match="free of the votes"):
            ledger.charge(PRIVATE, queries=1, details={}, budget=budget)
    assert ledger.charges() == []
    row = Charge(1, "", "", {"mechanism": {"kind": "NoisyCounts"}}, 1, PRIVATE, PRIVATE, None)
    with pytest.raises(SettingError, match="free of the votes"):
        state([row], delta=1e-6, unit="record", num_teachers=5)

"""Exact sampling: whole-number noise, the same curve, the same distributions, no seed."""

import numpy as np
import pytest
from scipy import stats

from pate.accounting.conversion import ORDERS
from pate.errors import SettingError
from pate.mechanisms import (
    GaussianChoice,
    GaussianTest,
    GumbelChoice,
    LaplaceTest,
    NoisyCounts,
    PeelingExponential,
    StableSet,
    StableTopK,
    TauBallots,
)
from pate.noise import ExactNoise, seeded

pytest.importorskip("opendp", reason="the extra `exact` (opendp) is not installed")
PAIRS = [
    lambda exact: NoisyCounts(num_labels=5, sigma=3.0, num_teachers=10, exact=exact),
    lambda exact: StableTopK(num_labels=5, choose=GumbelChoice(3.0), sigma=2.0, delta_t=1e-6, exact=exact),
    lambda exact: StableSet(num_labels=5, k=2, test=GaussianTest(2.0, 1e-6), exact=exact),
    lambda exact: PeelingExponential(num_labels=5, k=2, scale=3.0, exact=exact),
]


@pytest.mark.parametrize("make", PAIRS)
def test_the_curve_is_unchanged(make):
    assert make(True).cost(3).rdp(ORDERS) == pytest.approx(make(False).cost(3).rdp(ORDERS), rel=1e-12)


def test_the_gaussian_shortcut_is_not_offered():
    with pytest.raises(SettingError, match="Gaussian"):
        NoisyCounts(num_labels=5, sigma=3.0, exact=True).cost(1).epsilon(1e-6, "exact")


@pytest.mark.parametrize("make", PAIRS)
def test_answers_have_the_same_shape_and_are_not_seeded(make):
    counts = np.random.default_rng(0).integers(0, 40, (6, 5))
    answer = make(True).release(counts)
    assert answer.labels.shape == (6, 5) and not answer.seeded and "exact" in answer.noise
    with pytest.raises(SettingError, match="rng must be None where noise is exact"):
        make(True).release(counts, seeded(0))


def test_scores_are_whole_numbers():
    answer = NoisyCounts(num_labels=5, sigma=3.0, num_teachers=10, exact=True).release(np.full((50, 5), 4))
    assert np.array_equal(answer.scores, np.round(answer.scores)) and len(np.unique(answer.scores)) > 5


@pytest.mark.parametrize("scale", [1.5, 20.0])
def test_discrete_scales(scale):
    draws = 20_000
    for sample, shape in ((ExactNoise().gaussian, stats.norm), (ExactNoise().laplace, stats.laplace)):
        got = sample(scale, (draws,))
        spread = stats.kstest(
            got + np.random.default_rng(0).uniform(-0.5, 0.5, draws), shape(scale=scale).cdf
        ).statistic
        assert spread < 3 / np.sqrt(draws) + 0.1 / scale  # the grid's own distance from the continuous law
        assert stats.kstest(got * 1.5, shape(scale=scale).cdf).statistic > 0.05


def test_choice_follows_the_exponential_mechanism():
    scores, scale, draws = np.array([0.0, 1.0, 3.0]), 2.0, 4000
    got = ExactNoise().gumbel_top(np.tile(scores, (draws, 1)), 1, scale)[:, 0]
    wanted = np.exp(scores / scale) / np.exp(scores / scale).sum()
    assert stats.chisquare(np.bincount(got, minlength=3), wanted * draws).pvalue > 1e-6
    assert stats.chisquare(np.bincount(got, minlength=3), np.full(3, draws / 3)).pvalue < 1e-9


@pytest.mark.parametrize("test", [GaussianTest(3.0, 0.05), LaplaceTest(0.5, 0.05)])
def test_an_unstable_set_passes_no_more_often_than_promised(test):
    draws = 20_000
    passed = test.passes(np.full(draws, 2.0), 2.0, ExactNoise()).mean()
    assert passed <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / draws)
    assert passed > 0.01


def test_what_cannot_be_exact_says_so():
    with pytest.raises(SettingError, match="exact must be false with GaussianChoice"):
        StableTopK(num_labels=5, choose=GaussianChoice(3.0), sigma=2.0, exact=True)
    with pytest.raises(SettingError, match="exact must be false for scaled ballots"):
        TauBallots(num_labels=5, tau=2.0, sigma=2.0, exact=True)

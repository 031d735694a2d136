"""Few draws instead of many: the same distribution."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from pate import noise
from pate.accounting import calibrate
from pate.errors import SettingError
from pate.mechanisms import FixedTopK, GumbelChoice, PeelingExponential
from pate.reproduction.shortcut import Shortcut

COUNTS = np.array([40, 31, 31, 25, *[12] * 30, *[6] * 200, *[1] * 900])
K, TRIALS = 6, 4000


def short(most=K, head=4):
    return Shortcut.of(COUNTS, head=head, most=most)


def test_columns_and_rates():
    made = short()
    assert made.counts.tolist() == [40, 31, 31, 25, *[12] * 6, *[6] * 6, *[1] * 6]
    assert made.rates.tolist() == [1] * 4 + [
        30,
        29,
        28,
        27,
        26,
        25,
        200,
        199,
        198,
        197,
        196,
        195,
        900,
        899,
        898,
        897,
        896,
        895,
    ]
    assert made.starts.tolist() == [4, 10, 16, 22]


def test_whatever_ties_with_the_head_belongs_to_it():
    made = Shortcut.of(np.array([9, 7, 7, 7, 7, 2, 2, 2]), head=2, most=1)
    assert made.counts.tolist() == [9, 7, 7, 7, 7, 2] and made.rates.tolist() == [1, 1, 1, 1, 1, 3]


def test_a_head_of_everything_keeps_everything():
    made = Shortcut.of(COUNTS, head=len(COUNTS) + 5, most=1)
    assert made.counts.tolist() == COUNTS.tolist() and (made.rates == 1).all()


def test_unsorted_counts_are_refused():
    with pytest.raises(SettingError, match="sorted, the largest first"):
        Shortcut.of(np.array([1, 2]), head=1, most=1)


@pytest.mark.parametrize("place", range(K))
def test_the_largest_draws_of_a_group_have_their_distribution(place):
    """Each of the six largest of 200 draws, against sorting 200 draws."""
    made = short()
    ours = made.noise(noise.seeded(1)).gumbel(3.0, (TRIALS, len(made.counts)))[:, 10 + place]
    direct = np.sort(noise.seeded(2).gumbel(3.0, (TRIALS, 200)), axis=1)[:, -1 - place]
    assert ks_2samp(ours, direct).pvalue > 1e-3
    assert ks_2samp(ours + 0.3, direct).pvalue < 1e-4  # a tenth of the scale would be seen


def test_draws_of_a_group_are_sorted_and_joint():
    """Gaps between neighbours too: minus the logarithm's spacings, which independent draws would not have."""
    made = short()
    drawn = made.noise(noise.seeded(3)).gumbel(1.0, (TRIALS, len(made.counts)))[:, 16:22]
    direct = -np.sort(-noise.seeded(4).gumbel(1.0, (TRIALS, 900)), axis=1)[:, :6]
    assert (np.diff(drawn, axis=1) <= 0).all()
    for i in range(5):
        assert ks_2samp(drawn[:, i] - drawn[:, i + 1], direct[:, i] - direct[:, i + 1]).pvalue > 1e-3


def peeling(width):
    return PeelingExponential(num_labels=width, k=K, scale=4.0, neighbours="teacher_added")


def fixed(width):
    common = {"num_labels": width, "k": K, "max_k": 3, "neighbours": "teacher_added"}
    return FixedTopK(choose=GumbelChoice(3.0), sigma=1.5, rho=0.4, delta_t=1e-3, **common)


@pytest.mark.parametrize("make", [peeling, fixed])
def test_choices_have_the_distribution_of_the_direct_way(make):
    """How many of the head, of each group, and which sum: the two ways differ by less than noise."""
    made = short()
    ours = make(len(made.counts)).release(made.rows(TRIALS), made.noise(noise.seeded(5))).labels
    direct = make(len(COUNTS)).release(np.broadcast_to(COUNTS, (TRIALS, len(COUNTS))), noise.seeded(6)).labels
    for value in np.unique(COUNTS):
        a, b = ours[:, made.counts == value].sum(axis=1), direct[:, value == COUNTS].sum(axis=1)
        error = np.sqrt((a.var() + b.var()) / TRIALS)
        assert abs(a.mean() - b.mean()) < 4 * error + 1e-9
        assert abs(a.std() - b.std()) < 0.1 * b.std() + 0.02
    assert ks_2samp(ours @ made.counts, direct @ COUNTS).pvalue > 1e-3


def test_too_few_columns_would_be_noticed():
    """The test above can fail: with one draw per group the low groups are chosen less often."""
    made = short(most=1)
    ours = peeling(len(made.counts)).release(made.rows(TRIALS), made.noise(noise.seeded(5))).labels
    direct = peeling(len(COUNTS)).release(np.broadcast_to(COUNTS, (TRIALS, len(COUNTS))), noise.seeded(6)).labels
    low, true = ours[:, made.counts < 25].sum(axis=1), direct[:, COUNTS < 25].sum(axis=1)
    assert low.mean() < true.mean() - 0.3


def test_other_noise_passes_through_and_is_refused_for_columns():
    made = short()
    grouped = made.noise(noise.seeded(7))
    assert (grouped.gaussian(2.0, (5,)) == noise.seeded(7).gaussian(2.0, (5,))).all()
    assert grouped.seeded and not grouped.exact and "groups" in grouped.description
    for draw in (grouped.gaussian, grouped.laplace):
        with pytest.raises(SettingError, match="Gumbel on a shortened histogram"):
            draw(1.0, (3, len(made.counts)))


def test_a_trial_count_equal_to_the_width_is_no_histogram():
    """Tests draw one number per trial, as a vector, whose length may happen to be the width."""
    made = short()
    assert made.noise(noise.seeded(0)).gaussian(1.0, (len(made.counts),)).shape == (len(made.counts),)


@pytest.mark.slow
def test_the_real_histogram_both_ways(shared_data):
    from pate.data.checkins import load_visits

    counts, k, trials = load_visits(shared_data, "Foursquare").counts, 50, 400
    made = Shortcut.of(counts, head=k + 1, most=k)
    budget = {"epsilon": 0.4, "delta": 1 / 2293, "queries": 1, "neighbours": "teacher_added", "k": k}
    ours = calibrate(PeelingExponential, num_labels=len(made.counts), **budget)
    labels = ours.release(made.rows(4000), made.noise(noise.seeded(0))).labels
    whole = calibrate(PeelingExponential, num_labels=len(counts), **budget)
    rows = np.broadcast_to(counts, (20, len(counts)))
    direct = np.concatenate([whole.release(rows, noise.seeded(1, i)).labels[:, :k] for i in range(trials // 20)])
    difference = labels[:, :k].sum(axis=1).mean() - direct.sum(axis=1).mean()
    assert abs(difference) < 4 * direct.sum(axis=1).std() / np.sqrt(trials)

"""Simulated votes are what the module's formulas say, resemble real ones, and teach a student."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from pate.errors import SettingError
from pate.mechanisms import GaussianChoice, NoisyCounts, StableTopK, TauBallots
from pate.noise import seeded
from pate.reproduction.simulator import summary
from pate.simulation import Assumptions, Trial, World, draw_ballots, draw_counts, learn, score

CELEBA = Assumptions(teachers=800, labels=40, public=600)


def sample(assume, queries=400, seed=0):
    rng = np.random.default_rng(seed)
    world = World.draw(assume, rng)
    asked = world.questions(queries, rng)
    return world, asked, draw_ballots(asked.margins, 200, rng), rng.random(asked.chance.shape) < asked.chance


@pytest.mark.parametrize("accuracy", [0.7, 0.8])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_rate_and_accuracy_are_those_assumed(rate, accuracy):
    assume = replace(CELEBA, labels=100, rate=rate, teacher_accuracy=accuracy, difficulty=0.5)
    world, _, votes, truth = sample(assume)
    assert world.rates.mean() == pytest.approx(rate, abs=0.005)
    assert truth.mean() == pytest.approx(rate, abs=0.02)
    assert (votes == truth).mean() == pytest.approx(accuracy, abs=0.01)


def test_without_difficulty_what_is_seen_is_the_truth():
    _, asked, _, _ = sample(replace(CELEBA, difficulty=0.0))
    assert set(np.unique(asked.chance)) == {0.0, 1.0}


def test_better_teachers_agree_more():
    blurs = [sample(replace(CELEBA, teacher_accuracy=value), 10)[0].blur for value in (0.7, 0.75, 0.8, 0.82)]
    assert blurs == sorted(blurs, reverse=True) and blurs[0] > 2 * blurs[-1]


def test_counts_and_ballots_have_the_same_shares():
    _, asked, votes, _ = sample(CELEBA)
    counts = draw_counts(asked.margins, 800, np.random.default_rng(1))
    for shares, teachers in ((votes.mean(axis=0), 200), (counts / 800, 800)):
        errors = (shares - ndtr(asked.margins)) / np.sqrt(ndtr(asked.margins) * ndtr(-asked.margins) / teachers + 1e-6)
        assert abs(errors.mean()) < 0.1 and 0.7 < errors.std() < 1.1


def test_a_teacher_has_habits():
    """A teacher who says yes too often about a label does so about many records; strangers to the record do not."""
    _, asked, votes, _ = sample(CELEBA)
    off = votes - ndtr(asked.margins)
    habits = (off.mean(axis=1) ** 2).mean() / (off**2).mean()
    assert 0.12 < habits < 0.3  # of the real votes: 0.19


def test_the_default_resembles_real_votes():
    """Statistics of 800 real teachers on 600 pictures, as the module states them, within a world's own variation."""
    found = []
    for seed in range(4):
        _, _, votes, truth = sample(CELEBA, 600, seed)
        counts = 4 * votes.sum(axis=0)  # 200 teachers stand for 800
        test = StableTopK(num_labels=40, choose=GaussianChoice(15.0), sigma=20.0, delta_t=1e-9)
        answered = test.release(counts, seeded(seed)).answered.mean()
        one = summary(votes, truth)
        found.append([one["teacher"], one["majority"], one["agreed"], one["ballot"], 4 * one["gaps"][1], answered])
    real = np.array([0.795, 0.832, 0.377, 7.5, 170, 0.83])
    assert np.abs(np.mean(found, axis=0) / real - 1).max() < 0.2
    assert np.mean(found, axis=0)[:2] == pytest.approx(real[:2], abs=0.01)


def test_a_part_of_the_ballots_says_how_much_tau_shrinks():
    trial = Trial.make(replace(CELEBA, teachers=300), 40, np.random.default_rng(2))
    tau = TauBallots(num_labels=40, tau=4.0, sigma=1.0, num_teachers=300)
    everybody = draw_ballots(trial.asked.margins, 300, np.random.default_rng(3))
    wanted, found = np.asarray(tau.tally(everybody)), np.asarray(trial.tally(tau, 40))
    plain = everybody.sum(axis=0)
    assert found.sum() == pytest.approx(wanted.sum(), rel=0.03) and wanted.sum() < 0.8 * plain.sum()
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.5 * np.sqrt(((plain - wanted) ** 2).mean())
    assert found.shape == (40, 40) and trial.tally(tau, 7).shape == (7, 40)


def test_mechanisms_without_bounds_get_the_counts_themselves():
    trial = Trial.make(CELEBA, 30, np.random.default_rng(4))
    tally = trial.tally(NoisyCounts(num_labels=40, sigma=1.0), 20)
    assert np.array_equal(tally, trial.counts[:20]) and tally.num_teachers == 800
    assert "ballots" not in vars(trial)  # never drawn


def test_noise_costs_accuracy_and_its_absence_none():
    trial = Trial.make(CELEBA, 200, np.random.default_rng(5))
    scores = [trial.judge(NoisyCounts(num_labels=40, sigma=s, num_teachers=800), 200, 0)[0] for s in (1e-9, 1e3, 1e5)]
    assert scores[0] == pytest.approx(trial.noiseless, abs=1e-9)
    assert trial.noiseless > trial.usual + 0.01 and scores[0] > scores[1] > scores[2]


def test_a_student_of_nothing_says_what_is_usual():
    trial = Trial.make(CELEBA, 20, np.random.default_rng(6))
    mute = StableTopK(num_labels=40, choose=GaussianChoice(1.0), sigma=1e6, delta_t=1e-9)
    assert trial.judge(mute, 20, 0) == (trial.usual, 0.0)


def test_ridge_finds_a_line_and_ignores_noise():
    rng = np.random.default_rng(7)
    x, fresh, slope = rng.standard_normal((300, 20)), rng.standard_normal((100, 20)), np.zeros((20, 3))
    slope[0] = 1, 2, 3
    assert np.abs(learn(x, x @ slope + 5, fresh) - (fresh @ slope + 5)).max() < 0.01
    drowned = learn(x, x @ slope * 0.01 + rng.normal(0, 10, (300, 3)), fresh)
    assert np.abs(drowned - drowned.mean(axis=0)).mean() < 0.6  # least squares would vary by about 2


def test_intercepts_are_drawn_together_as_far_as_noise_explains_them():
    x, fresh = np.zeros((2, 5)), np.zeros((1, 5))
    wanted = np.tile([0.0, 1.0], (2, 1))
    assert learn(x, wanted, fresh).tolist() == [[0.0, 1.0]]
    assert learn(x, wanted, fresh, noise=0.5).tolist() == [
        [0.25, 0.75]
    ]  # half of the variance 1/4 is 1/8 = noise^2 / 2
    assert learn(x, wanted, fresh, noise=9.0).tolist() == [[0.5, 0.5]]


def test_f1_says_as_many_labels_as_the_shares_add_up_to():
    shares, chance = np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([[1.0, 0.0, 0.0, 0.0]])
    assert score(shares, chance, "f1") == 1.0 and score(shares, chance, "accuracy") == 0.75


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"teachers": 0}, "assume.teachers must be a whole number >= 1, got 0"),
        ({"labels": 2.5}, "assume.labels must be a whole number >= 1, got 2.5"),
        ({"public": -3}, "assume.public must be a whole number >= 1, got -3"),
        ({"rate": 0.0}, "assume.rate must be in (0, 1), got 0.0"),
        ({"teacher_accuracy": 0.5}, "assume.teacher_accuracy must be in (0.5, 1), got 0.5"),
        ({"difficulty": 1.0}, "assume.difficulty must be in [0, 1), got 1.0"),
        ({"judge": "auc"}, "assume.judge must be one of accuracy, f1, got 'auc'"),
    ],
)
def test_impossible_assumptions_are_refused(words, sentence):
    with pytest.raises(SettingError) as refused:
        replace(CELEBA, **words)
    assert str(refused.value) == sentence


def test_teachers_cannot_be_better_than_the_difficulty_allows():
    with pytest.raises(SettingError, match=r"assume.teacher_accuracy must be < 0\.8\d*, the best that assume.rate"):
        World.draw(replace(CELEBA, teacher_accuracy=0.95), np.random.default_rng(0))

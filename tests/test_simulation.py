"""Simulated votes are what the module's formulas say, resemble real ones, and teach a student."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from pate.errors import SettingError
from pate.mechanisms import Directions, GaussianChoice, NoisyCounts, ProjectedBallots, StableTopK, TauBallots
from pate.noise import seeded
from pate.reproduction.simulator import summary
from pate.simulation import Assumptions, Trial, World, draw_ballots, draw_counts, learn, score
from pate.student import Targets

CELEBA = Assumptions(teachers=800, labels=40, public=600)


def sample(assume, queries=400, seed=0):
    rng = np.random.default_rng(seed)
    world = World.draw(assume, rng)
    asked = world.questions(queries, rng)
    return world, asked, draw_ballots(asked, 200, rng), rng.random(asked.chance.shape) < asked.chance


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
    everybody = draw_ballots(trial.asked, 300, np.random.default_rng(3))
    wanted, found = np.asarray(tau.tally(everybody)), np.asarray(trial.tally(tau, 40))
    plain = everybody.sum(axis=0)
    assert found.sum() == pytest.approx(wanted.sum(), rel=0.03) and wanted.sum() < 0.8 * plain.sum()
    assert np.sqrt(((found - wanted) ** 2).mean()) < 0.5 * np.sqrt(((plain - wanted) ** 2).mean())
    assert found.shape == (40, 40) and trial.tally(tau, 7).shape == (7, 40)


def test_lengths_of_projected_ballots_resemble_real_ones():
    """Real ones, over the length expected: half between 0.86 and 0.97, median 0.89 to 0.94, on 16 to 96 directions."""
    found = []
    for seed in range(3):
        _, asked, votes, _ = sample(CELEBA, 600, seed)
        directions = Directions.of(asked.features)
        for rank in (15, 29, 95):
            m = ProjectedBallots(num_labels=40, directions=directions, sigma=2.0, num_teachers=800, clip=1.0, rank=rank)
            along = directions.vectors[:, : m.used].T @ (votes[:40] - m.rate)
            weighted = directions.energy[: m.used, None] ** -0.25 * along
            found.append(np.linalg.norm(weighted, axis=(1, 2)) / m.length)
    assert 0.85 < np.median(found) < 1.0 and 0.75 < np.quantile(found, 0.05) < np.quantile(found, 0.95) < 1.15


def test_a_part_of_the_ballots_says_how_much_cutting_to_a_length_leaves():
    """Against all ballots, cut one by one, after the projection that the release makes of both; noise cancels."""
    trial = Trial.make(replace(CELEBA, teachers=300), 120, np.random.default_rng(2))
    everybody = draw_ballots(trial.asked, 300, np.random.default_rng(3))
    m = ProjectedBallots(
        num_labels=40, directions=trial.directions(120), sigma=2.0, num_teachers=300, clip=0.6, rank=20
    )
    wanted, found = (m.release(one, seeded(0)).scores for one in (m.tally(everybody), trial.tally(m, 120)))
    whole = m.release(everybody.sum(axis=0), seeded(0)).scores
    assert np.abs(wanted - found).mean() < 0.3 * np.abs(wanted - whole).mean()
    with pytest.raises(SettingError, match="queries must be all 120"):
        m.release(trial.tally(replace(m, directions=trial.directions(60)), 60), seeded(0))


def test_each_trial_projects_on_its_own_records():
    first, second = (Trial.make(CELEBA, 60, np.random.default_rng(seed)) for seed in (1, 2))
    m = ProjectedBallots(num_labels=40, directions=first.directions(60), sigma=9.0, num_teachers=800)
    fitted = second.fitted(m, 40)
    assert np.array_equal(fitted.directions.vectors, second.directions(40).vectors) and fitted.sigma == 9.0
    score_, share = second.judge(m, 40, 0)
    assert share == 1.0 and score_ > second.usual - 0.05


def test_mechanisms_without_bounds_get_the_counts_themselves():
    trial = Trial.make(CELEBA, 30, np.random.default_rng(4))
    tally = trial.tally(NoisyCounts(num_labels=40, sigma=1.0), 20)
    assert np.array_equal(tally, trial.counts[:20]) and tally.num_teachers == 800
    assert "ballots" not in vars(trial)  # never drawn


def test_noise_costs_accuracy_and_its_absence_none():
    trial = Trial.make(CELEBA, 200, np.random.default_rng(5))
    scores = [trial.judge(NoisyCounts(num_labels=40, sigma=s, num_teachers=800), 200, 0)[0] for s in (1e-9, 1e3, 1e5)]
    assert scores[0] == pytest.approx(trial.noiseless, abs=1e-6)
    assert trial.noiseless > trial.usual + 0.01 and scores[0] > scores[1] > scores[2]


def test_a_student_of_nothing_says_what_is_usual():
    trial = Trial.make(CELEBA, 20, np.random.default_rng(6))
    mute = StableTopK(num_labels=40, choose=GaussianChoice(1.0), sigma=1e6, delta_t=1e-9)
    assert trial.judge(mute, 20, 0) == (trial.usual, 0.0)


def test_the_student_finds_a_line_and_ignores_noise():
    rng = np.random.default_rng(7)
    x, fresh, slope = rng.standard_normal((300, 20)), rng.standard_normal((100, 20)), np.zeros((20, 3))
    slope[0] = 1, 2, 3
    every = np.ones(300)
    assert np.abs(learn(x, Targets(x @ slope + 5, every), fresh) - (fresh @ slope + 5)).max() < 0.01
    drowned = learn(x, Targets(x @ slope * 0.01 + rng.normal(0, 10, (300, 3)), every), fresh)
    assert np.abs(drowned - drowned.mean(axis=0)).mean() < 1.2  # least squares would vary by about 2


def test_unanswered_queries_teach_nothing():
    rng = np.random.default_rng(8)
    x, values, answered = rng.standard_normal((40, 5)), rng.random((40, 2)), np.arange(40) < 25
    alone = learn(x[:25], Targets(values[:25], np.ones(25)), x)
    assert np.allclose(learn(x, Targets(np.where(answered[:, None], values, 9.0), answered * 1.0), x), alone)


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

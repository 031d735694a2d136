"""Projected ballots: sensitivity by attack, fast against literal, the noise that is charged."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pate.errors import SettingError
from pate.mechanisms import Directions, ProjectedBallots
from pate.noise import seeded

T, N, K = 30, 12, 4
FEATURES = np.random.default_rng(3).normal(size=(N, 5)) * [8, 4, 2, 1, 0.5]
DIRECTIONS = Directions.of(FEATURES)
SIMPLE = ProjectedBallots(num_labels=K, directions=DIRECTIONS, sigma=2.0, num_teachers=T, rank=3)
BALLOTS = arrays(bool, (N, K))


def coordinates(mechanism, counts):
    """What the noise is added to, in units of `length`."""
    weights = mechanism.directions.energy[: mechanism.used] ** -0.25
    along = mechanism.directions.vectors[:, : mechanism.used].T @ counts
    return weights[:, None] * along / mechanism.length


def literal(mechanism, votes):
    """The definition, teacher by teacher and label by label."""
    used, directions = mechanism.used, mechanism.directions
    total = np.zeros((N, K))
    for ballots in votes:
        along = {
            (j, k): sum(directions.vectors[n, j] * (float(ballots[n, k]) - mechanism.rate) for n in range(N))
            for j in range(used)
            for k in range(K)
        }
        size = sum(value**2 / directions.energy[j] ** 0.5 for (j, _), value in along.items()) ** 0.5
        share = min(1.0, mechanism.length / size) if size else 1.0
        for (j, k), value in along.items():
            total[:, k] += share * value * directions.vectors[:, j]
    return total + mechanism.num_teachers * mechanism.rate


def test_tally_is_the_definition():
    votes = np.random.default_rng(0).random((T, N, K)) < 0.4
    long, short = replace(SIMPLE, clip=5.0), replace(SIMPLE, clip=0.3)  # cuts none, cuts all
    assert len({round(float(m.tally(votes).sum()), 6) for m in (SIMPLE, long, short)}) == 3
    for mechanism in (SIMPLE, long, short):
        assert np.allclose(mechanism.tally(votes), literal(mechanism, votes), atol=1e-9)


@given(
    BALLOTS, BALLOTS, st.sampled_from([0.05, 0.25, 0.9]), st.sampled_from([0.1, 0.9, 3.0]), st.sampled_from([0, 2, 5])
)
def test_no_ballots_move_the_sum_by_more_than_is_charged(one, other, rate, clip, rank):
    crowd = np.random.default_rng(1).random((3, N, K)) < 0.5
    for neighbours in ("teacher_added", "teacher_changed"):
        mechanism = replace(SIMPLE, neighbours=neighbours, rate=rate, clip=clip, rank=rank)
        with_one = mechanism.tally(np.concatenate([crowd, one[None]]))
        without = crowd if neighbours == "teacher_added" else np.concatenate([crowd, other[None]])
        moved = coordinates(mechanism, np.asarray(with_one - mechanism.tally(without)))
        assert np.linalg.norm(moved) <= mechanism.sensitivity + 1e-9


def test_the_sensitivity_is_reached():
    """All yes against all no, with a cut that both meet: nothing smaller than 2 could be charged."""
    mechanism = replace(SIMPLE, clip=0.1, rate=0.5)
    yes, no = np.ones((1, N, K), bool), np.zeros((1, N, K), bool)
    moved = coordinates(mechanism, np.asarray(mechanism.tally(yes) - mechanism.tally(no)))
    assert np.linalg.norm(moved) == pytest.approx(2.0)


def test_released_scores_know_only_the_charged_coordinates():
    """Counts that differ where no direction in use looks give the same answer."""
    votes = np.random.default_rng(2).random((T, N, K)) < 0.4
    counts = np.asarray(SIMPLE.tally(votes))
    unseen = DIRECTIONS.vectors[:, SIMPLE.used][:, None] * np.ones(K)
    first, second = (SIMPLE.release(each, seeded(1)).scores for each in (counts, counts + 7 * unseen))
    assert np.allclose(first, second)


def noise_of(mechanism, trials=400):
    zeros = np.zeros((N, K))
    return np.array([coordinates(mechanism, mechanism.release(zeros, seeded(s)).scores) for s in range(trials)])


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_is_the_charged_one(factor, right):
    drawn = noise_of(replace(SIMPLE, sigma=SIMPLE.sigma * factor)) / SIMPLE.sigma
    ratio, error = float((drawn**2).mean()), np.sqrt(2 / drawn.size)
    assert (abs(ratio - 1) < 4 * error) == right
    if right:  # every coordinate has it, and none knows of another
        flat = drawn.reshape(len(drawn), -1)
        assert np.abs((flat**2).mean(0) - 1).max() < 5 * np.sqrt(2 / len(flat))
        assert np.abs(np.corrcoef(flat.T) - np.eye(flat.shape[1])).max() < 5 / np.sqrt(len(flat))


def test_score_sd_is_the_noise_of_a_count():
    zeros = np.zeros((N, K))
    scores = np.array([SIMPLE.release(zeros, seeded(s)).scores for s in range(400)])
    assert float(np.sqrt((scores**2).mean())) == pytest.approx(SIMPLE.score_sd, rel=0.05)


def test_epsilon_does_not_depend_on_queries_labels_or_directions():
    many = Directions.of(np.random.default_rng(0).normal(size=(300, 60)))
    costs = [
        ProjectedBallots(num_labels=k, directions=d, sigma=4.0, num_teachers=T).cost(len(d.vectors)).epsilon(1e-6)
        for k, d in ((1, DIRECTIONS), (400, DIRECTIONS), (40, many))
    ]
    assert len(set(costs)) == 1
    assert SIMPLE.cost(N + 1).epsilon(1e-6) > SIMPLE.cost(N).epsilon(1e-6)  # a second release


def test_directions_are_the_constant_and_the_principal_ones():
    vectors = DIRECTIONS.vectors
    assert np.allclose(vectors[:, 0], vectors[0, 0]) and vectors.shape == (N, 6)
    centred = FEATURES - FEATURES.mean(0)
    along = np.linalg.norm(vectors.T @ centred, axis=1)
    assert np.allclose(along[1:], np.linalg.svd(centred)[1]) and along[0] < 1e-9
    assert np.all(np.diff(DIRECTIONS.energy) < 0)


def test_few_and_constant_features_are_enough():
    for features in (np.zeros((5, 3)), np.ones((1, 2)), np.repeat(np.eye(2), 3, axis=0)):
        directions = Directions.of(features)
        mechanism = ProjectedBallots(num_labels=2, directions=directions, sigma=1.0, num_teachers=9)
        assert mechanism.release(mechanism.tally(np.ones((9, len(features), 2), bool)), seeded(0)).labels.shape == (
            len(features),
            2,
        )


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"rate": 0.0}, "rate"),
        ({"clip": 0.0}, "clip"),
        ({"clip": float("inf")}, "clip"),
        ({"rank": 6}, "rank"),
        ({"exact": True}, "exact"),
        ({"directions": FEATURES}, "directions"),
        ({"sigma": 0.0}, "sigma"),
    ],
)
def test_settings_out_of_range_are_named(change, name):
    with pytest.raises(SettingError, match=f"{name} must be"):
        replace(SIMPLE, **change)


def test_other_queries_than_the_directions_are_refused():
    with pytest.raises(SettingError, match="queries must be all 12"):
        SIMPLE.tally(np.ones((T, N - 1, K), bool))
    with pytest.raises(SettingError, match="queries must be all 12"):
        SIMPLE.release(np.ones((N + 1, K)), seeded(0))
    with pytest.raises(SettingError, match="orthonormal"):
        Directions(np.ones((4, 2)), np.ones(2), "made")
    with pytest.raises(SettingError, match="features must be finite"):
        Directions.of(np.full((3, 2), np.nan))


def test_little_noise_lets_ballots_be_longer():
    """Released scores come as near to the projected counts as one likes: neither noise nor cut is left."""
    votes = np.random.default_rng(5).random((T, N, K)) < 0.4
    basis = DIRECTIONS.vectors
    wanted = basis @ (basis.T @ votes.sum(0))
    errors = []
    for sigma in (2.0, 0.2, 0.002):
        mechanism = replace(SIMPLE, sigma=sigma, rank=5)
        errors.append(np.abs(mechanism.release(mechanism.tally(votes), seeded(1)).scores - wanted).max())
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.05 * errors[0]

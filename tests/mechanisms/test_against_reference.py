"""Fast code against the slow transcriptions: same noise in, same answer out."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pate.mechanisms import (
    FixedTopK,
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
from pate.mechanisms.base import gap_sensitivity
from pate.mechanisms.peeling import count_range
from pate.noise import seeded

SHAPES = [(2, 1), (2, 50), (3, 4), (7, 30), (40, 800)]  # labels, teachers: K = 2, T = 1, ties, ordinary
RELATIONS = ("teacher_added", "teacher_changed")


def histograms(labels: int, teachers: int, rows: int = 400) -> np.ndarray:
    """Random ones, many with ties, all-zero and unanimous rows included."""
    rng = np.random.default_rng(labels * 1000 + teachers)
    counts = rng.integers(0, teachers + 1, (rows, labels))
    counts[::3] = rng.integers(0, 2, (len(counts[::3]), labels)) * teachers
    counts[0], counts[1] = 0, teachers
    return counts


def sets(labels: np.ndarray, answered: np.ndarray) -> list[set[int] | None]:
    return [set(np.flatnonzero(row).tolist()) if ok else None for row, ok in zip(labels, answered, strict=True)]


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("offset", ["exact", "published"])
@pytest.mark.parametrize(("labels", "teachers"), SHAPES)
@pytest.mark.parametrize("choice", [GumbelChoice(2.0), GaussianChoice(2.0)])
@pytest.mark.parametrize("max_k", [None, 1])
def test_stable_topk(neighbours, offset, labels, teachers, choice, max_k):
    candidates = max_k or labels - 1
    regulariser = tuple(0.5 * j for j in range(candidates))
    test = GaussianTest(1.0, 0.02, offset)
    m = StableTopK(
        num_labels=labels, choose=choice, test=test, neighbours=neighbours, regulariser=regulariser, max_k=max_k
    )
    counts, noise = histograms(labels, teachers), reference.Recorded()
    answer = m.release(counts, noise)
    choosing = noise.draws[0] if candidates > 1 else np.zeros((len(counts), 1))
    reach, expected = gap_sensitivity(neighbours), []
    for row, choose, test_noise in zip(counts.tolist(), choosing, noise.draws[-1], strict=True):
        k = reference.large_gap(row, list(regulariser), list(choose))
        bound = lambda gap, z=test_noise: reference.gaussian_lower_bound(  # noqa: E731
            gap, reach, 1.0, 0.02, z, offset == "published"
        )
        expected.append(reference.stable_set(row, k, reach, bound))
    assert sets(answer.labels, answer.answered) == expected
    assert None in expected
    if teachers >= 30:
        assert any(found is not None for found in expected)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("offset", ["exact", "published"])
@pytest.mark.parametrize(("labels", "teachers"), SHAPES)
def test_laplace_test(neighbours, offset, labels, teachers):
    k = max(1, labels // 2)
    m = StableSet(num_labels=labels, k=k, test=LaplaceTest(0.5, 0.02, offset), neighbours=neighbours)
    counts, noise = histograms(labels, teachers), reference.Recorded()
    answer = m.release(counts, noise)
    reach = gap_sensitivity(neighbours)
    expected = [
        reference.stable_set(
            row,
            k,
            reach,
            lambda gap, z=z: reference.laplace_lower_bound(gap, reach, 0.5, 0.02, z, offset == "published"),
        )
        for row, z in zip(counts.tolist(), noise.draws[0], strict=True)
    ]
    assert sets(answer.labels, answer.answered) == expected


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("labels", "teachers"), SHAPES)
@pytest.mark.parametrize("pull", [0.0, 0.7])
def test_fixed_topk_takes_all_four_branches(neighbours, labels, teachers, pull):
    k = max(1, labels // 2)
    m = FixedTopK(
        num_labels=labels,
        k=k,
        choose=GumbelChoice(3.0),
        sigma=1.0,
        delta_t=0.02,
        rho=0.5,
        pull=pull,
        neighbours=neighbours,
    )
    counts, noise = histograms(labels, teachers), reference.Recorded()
    answer = m.release(counts, noise)
    choosing = noise.draws[0] if labels > 2 else np.zeros((len(counts), 1))
    reach, spread, branches = gap_sensitivity(neighbours), count_range(neighbours), set()
    for row, choose, z, gumbel, got in zip(
        counts.tolist(), choosing, noise.draws[-2], noise.draws[-1], answer.labels, strict=True
    ):
        near = reference.large_gap(row, [-pull * abs(j - k) for j in range(1, labels)], list(choose))
        bound = lambda gap, z=z: reference.gaussian_lower_bound(gap, reach, 1.0, 0.02, z, False)  # noqa: E731
        stable = reference.stable_set(row, near, reach, bound)
        branches.add("bottom" if stable is None else np.sign(near - k))
        expected = reference.fixed_k(row, k, near, stable, 0.5, spread, list(gumbel))
        assert set(np.flatnonzero(got).tolist()) == expected
    if labels == 7:
        assert branches == {"bottom", -1, 0, 1}


@pytest.mark.parametrize(("labels", "teachers"), SHAPES)
def test_peeling(labels, teachers):
    k = max(1, labels // 2)
    m = PeelingExponential(num_labels=labels, k=k, scale=2.0)
    counts, noise = histograms(labels, teachers), reference.Recorded()
    answer = m.release(counts, noise)
    for row, gumbel, got in zip(counts.tolist(), noise.draws[0], answer.labels, strict=True):
        expected = reference.top_by_noise(list(range(labels)), row, list(gumbel), 1.0, k)
        assert set(np.flatnonzero(got).tolist()) == expected


def test_noisy_counts_threshold_at_half_of_the_teachers():
    m = NoisyCounts(num_labels=3, sigma=4.0, num_teachers=10)
    noise = reference.Recorded()
    answer = m.release(np.array([[0, 5, 10]]), noise)
    assert np.array_equal(answer.scores, np.array([[0, 5, 10]]) + noise.draws[0])
    assert np.array_equal(answer.labels, answer.scores > 5)


def test_number_of_teachers_comes_with_the_tally():
    votes = np.random.default_rng(0).random((21, 4, 3)) < 0.5
    m = NoisyCounts(num_labels=3, sigma=1e-6)
    answer = m.release(m.tally(votes), seeded(0))
    assert np.array_equal(answer.labels, votes.sum(0) > 10.5)
    assert NoisyCounts(num_labels=3, sigma=1.0, soft=False).release(m.tally(votes), seeded(0)).scores is None


@given(
    votes=arrays.arrays(np.bool_, st.tuples(st.integers(1, 5), st.integers(1, 3), st.just(6))),
    tau=st.floats(0.5, 7),
)
def test_tau_tally(votes, tau):
    m = TauBallots(num_labels=6, tau=tau, sigma=1.0)
    assert np.allclose(m.tally(votes), reference.tau_counts(votes, tau))


@given(ballots=arrays.arrays(np.bool_, (2, 1, 6)), tau=st.floats(0.5, 7))
def test_tau_sensitivity_holds_for_every_pair_of_ballots(ballots, tau):
    for neighbours in RELATIONS:
        m = TauBallots(num_labels=6, tau=tau, sigma=1.0, neighbours=neighbours)
        before = m.tally(ballots[:1])
        after = m.tally(ballots[1:]) if neighbours == "teacher_changed" else np.zeros_like(before)
        assert np.linalg.norm(np.asarray(before) - np.asarray(after)) <= m.sensitivity + 1e-12


def test_tau_sensitivity_is_reached():
    for neighbours, ballots in (("teacher_added", 1), ("teacher_changed", 2)):
        m = TauBallots(num_labels=6, tau=3.0, sigma=1.0, neighbours=neighbours)
        votes = np.zeros((2, 1, 6), bool)
        votes[0, 0, :3] = True
        votes[1, 0, 3:] = ballots == 2
        moved = np.asarray(m.tally(votes[:1])) - np.asarray(m.tally(votes[1:]))
        assert np.linalg.norm(moved) == pytest.approx(m.sensitivity)
    assert TauBallots(num_labels=6, tau=3.0, sigma=1.0, charge="tau_squared").sensitivity == 3.0

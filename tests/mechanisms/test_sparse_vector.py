"""SVT and the shared threshold: same noise, same answer as the slow reference; levels; privacy by exact sums."""

import math
from itertools import product

import numpy as np
import pytest
import reference_top_stable as slow
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting import calibrate
from pate.errors import SettingError
from pate.mechanisms.sparse_vector import AboveThreshold, SharedTest, failure_probability

RELATIONS = ("teacher_added", "teacher_changed")


# --- thresholds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p1", [0.05, 0.2, 0.33, 0.37, 0.5, 0.8])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_published_level_is_line_2_and_3_of_algorithm_3(p1: float, delta: float) -> None:
    epsilon = 0.7
    c, half = 2 * p1 / (1 - p1), (1 - p1) * epsilon / 2
    expected = math.log(1 / slow.largest_delta_q(delta, c)) / half
    assert SharedTest(epsilon, delta, p1, "published").level == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("ratio", [0.1, 0.999999, 1.0, 1.0 + 1e-9, 1.17, 5.0])
def test_failure_probability_is_the_integral_and_never_above_lemma_3_1(ratio: float) -> None:
    for distance in (0.0, 0.3, 2.0, 9.0, 25.0):
        exact = slow.Comparisons(distance, 1 / ratio, 1.0, 0, 0).chance([0], [])
        assert failure_probability(distance, ratio) == pytest.approx(exact, rel=1e-8)
        assert exact <= failure_probability(distance, ratio, "published") * (1 + 1e-9)


def test_level_meets_delta_exactly_also_at_one_third_and_at_the_ends() -> None:
    for p1 in (1e-4, 1 / 3, 0.37, 0.999):
        test = SharedTest(2.0, 1e-7, p1)
        ratio = 2 * p1 / (1 - p1)
        reached = failure_probability(test.level / test.test_scale, ratio)
        assert 1e-7 * (1 - 1e-6) <= reached <= 1e-7
    assert SharedTest(1.0, 0.6).level == 0.0
    assert SharedTest(1.0, 0.8, offset="published").level == 0.0


def test_level_at_the_recommended_share_is_about_the_lowest() -> None:
    levels = {p1: SharedTest(1.0, 1e-6, p1).level for p1 in np.linspace(0.05, 0.95, 91).round(2)}
    assert levels[0.37] <= 1.01 * min(levels.values())


# --- the mechanism ---------------------------------------------------------------------------------------------------


@given(slow.histograms(), st.integers(0, 2**32), st.sampled_from(RELATIONS), st.data())
def test_above_threshold_is_algorithm_2(counts: np.ndarray, seed: int, neighbours: str, data: st.DataObject) -> None:
    cutoff = data.draw(st.integers(1, counts.shape[1]))
    tape = slow.Tape(seed)
    mechanism = AboveThreshold(counts.shape[1], 1.5, 2.0, cutoff, neighbours, p1=0.4)
    labels = mechanism.release(counts, tape).labels
    (_, scale1, threshold_noise), (_, scale2, noises) = tape.draws
    monotone = neighbours == "teacher_added"
    assert (scale1, scale2) == (pytest.approx(1 / 0.8), pytest.approx((1 if monotone else 2) * cutoff / 1.2))
    for row in range(len(counts)):
        expected = slow.svt(counts[row].tolist(), 1.5, threshold_noise[row, 0], noises[row], cutoff)
        assert labels[row].tolist() == expected + [False] * (counts.shape[1] - len(expected))


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_noise_has_its_size(neighbours: str) -> None:
    svt = AboveThreshold(2, threshold=10, epsilon=0.5, neighbours=neighbours)
    first = svt.release(np.tile([14, 14], (40_000, 1)), np.random.default_rng(3)).labels[:, 0]
    for one, two in ((1, 1), (2 / 3, 1), (3 / 2, 1), (1, 2 / 3), (1, 3 / 2)):
        exact = slow.Comparisons(10, one * svt.threshold_scale, two * svt.test_scale, 14, 14).chance([14], [])
        assert slow.z_score(first, exact) < 4 if one == two == 1 else slow.z_score(first, exact) > 5


def svt_table(mechanism: AboveThreshold, counts: list[tuple[int, ...]]) -> np.ndarray:
    """(histograms, 2^K) chances of every released set."""
    top = max(max(c) for c in counts)
    exact = slow.Comparisons(mechanism.threshold, mechanism.threshold_scale, mechanism.test_scale, 0, top)
    table = np.zeros((len(counts), 2**mechanism.num_labels))
    for bits in range(2**mechanism.num_labels):
        above = [x for x in range(mechanism.num_labels) if bits >> x & 1]
        if len(above) > mechanism.cutoff:
            continue
        asked = range(above[-1] + 1) if len(above) == mechanism.cutoff else range(mechanism.num_labels)
        for row, c in enumerate(counts):
            table[row, bits] = exact.chance([c[x] for x in above], [c[x] for x in asked if x not in above])
    assert table.sum(axis=1) == pytest.approx(1)
    return table


def worst_ratio(table, counts, neighbours: str) -> float:
    """The largest log ratio of an outcome's chances over all neighbouring histograms."""
    where, worst = {c: row for row, c in enumerate(counts)}, 0.0
    possible = table.max(axis=0) > 0
    for move in slow.moves(len(counts[0]), neighbours):
        for c, row in where.items():
            other = where.get(tuple(a + d for a, d in zip(c, move, strict=True)))
            if other is not None:
                worst = max(worst, float(np.log(table[row, possible] / table[other, possible]).max()))
    return worst


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("cutoff", [1, 2, 3])
@pytest.mark.parametrize("p1", [None, 0.2, 0.7])
def test_above_threshold_is_pure(cutoff: int, p1: float | None, neighbours: str) -> None:
    counts = list(product(range(4), repeat=3))
    mechanism = AboveThreshold(3, 1.5, 1.2, cutoff, neighbours, p1)
    assert 0 < worst_ratio(svt_table(mechanism, counts), counts, neighbours) <= mechanism.cost().pure_epsilon


def sharpest_loss(mechanism: AboveThreshold, neighbours: str) -> float:
    """Log ratio for many labels that rise and stay below the threshold, then labels that (may) fall and are above."""
    many, fall = mechanism.num_labels - mechanism.cutoff, 0 if neighbours == "teacher_added" else 1
    exact = slow.Comparisons(mechanism.threshold, mechanism.threshold_scale, mechanism.test_scale, 0, 8)
    here = exact.chance([1] * mechanism.cutoff, [7] * many)
    there = exact.chance([1 - fall] * mechanism.cutoff, [8] * many)
    return math.log(here / there)


@pytest.mark.parametrize("cutoff", [1, 4])
def test_above_threshold_reaches_epsilon_so_less_noise_fails(cutoff: int) -> None:
    settings = {"num_labels": 60 + cutoff, "threshold": 0, "cutoff": cutoff, "p1": 0.4}
    for neighbours in RELATIONS:
        loss = sharpest_loss(AboveThreshold(epsilon=2.0, neighbours=neighbours, **settings), neighbours)
        assert 1.99 < loss <= 2.0 * (1 + 1e-9)
        assert sharpest_loss(AboveThreshold(epsilon=4.0, neighbours=neighbours, **settings), neighbours) > 3.9
    monotone = AboveThreshold(epsilon=2.0, neighbours="teacher_added", **settings)
    assert sharpest_loss(monotone, "teacher_changed") > 3.0  # e1 + 2 e2 = 3.2: Lap(c/e2) is for monotone queries only


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_calibrated_settings_spend_what_was_asked(neighbours: str) -> None:
    fixed = {"num_labels": 40, "threshold": 100, "cutoff": 8, "p1": None}
    made = calibrate(AboveThreshold, epsilon=3.0, delta=1e-6, queries=600, neighbours=neighbours, **fixed)
    assert 0.999 * 3.0 <= made.cost(600).epsilon(1e-6) <= 3.0
    assert made.fixed() == fixed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cutoff": 5}, "cutoff must be a whole number >= 1 and <= 4, got 5"),
        ({"threshold": math.inf}, "threshold must be a finite number"),
        ({"p1": 0.0}, "p1 must be in"),
        ({"epsilon": 0}, "epsilon must be > 0, got 0"),
    ],
)
def test_bad_settings_are_refused(change, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AboveThreshold(**{"num_labels": 4, "threshold": 3, "epsilon": 1.0} | change)

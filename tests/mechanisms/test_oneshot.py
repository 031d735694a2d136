"""OneshotLaplace: same noise, same answer as the pseudocode; noise of the right size; privacy by quadrature."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import reference_oneshot as slow
from hypothesis import given
from hypothesis import strategies as st
from reference import Recorded

from pate.accounting import PrivacyCost, calibrate
from pate.accounting.events import Laplace, Pure
from pate.errors import SettingError
from pate.mechanisms.oneshot import OneshotLaplace, best_first
from pate.noise import ExactNoise, seeded

RELATIONS = ("teacher_added", "teacher_changed")
MOVES = {"teacher_added": (0, 1), "teacher_changed": (-1, 0, 1)}
SHAPES = [(1, 1, 5), (2, 1, 1), (2, 1, 50), (2, 2, 9), (3, 2, 4), (7, 3, 30), (7, 7, 30), (40, 12, 800)]  # K, k, T


def histograms(labels: int, teachers: int, rows: int = 500) -> np.ndarray:
    """Random ones, a third of them full of ties, all-zero and unanimous rows included."""
    rng = np.random.default_rng(labels * 1000 + teachers)
    counts = rng.integers(0, teachers + 1, (rows, labels))
    counts[::3] = rng.integers(0, 2, (len(counts[::3]), labels)) * teachers
    counts[0], counts[1] = 0, teachers
    return counts


class WholeNoise(Recorded):
    """Rounded draws, so that noisy counts are often equal."""

    def laplace(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        self.draws.append(np.round(self.source.laplace(scale, shape)))
        return self.draws[-1].copy()


# --- same noise in, same answer out -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [Recorded, WholeNoise])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize(("labels", "k", "teachers"), SHAPES)
def test_release_follows_algorithm_1(labels, k, teachers, values, noise):
    m = OneshotLaplace(num_labels=labels, k=k, epsilon=2.0, values=values)
    counts, source = histograms(labels, teachers), noise()
    answer = m.release(counts, source)
    assert answer.answered.all() and (answer.scores is not None) == values
    for n, (row, draws) in enumerate(zip(counts.tolist(), source.draws[0].tolist(), strict=True)):
        chosen = slow.largest(row, k, draws)
        assert set(np.flatnonzero(answer.labels[n]).tolist()) == set(chosen)
        if values:
            fresh = source.draws[1].reshape(-1, k)[n].tolist()
            expected = slow.with_values(row, chosen, fresh)
            assert answer.scores[n].tolist() == [expected.get(label, 0.0) for label in range(labels)]


@pytest.mark.parametrize("noise", [Recorded, WholeNoise])
@pytest.mark.parametrize(("labels", "k", "teachers"), SHAPES)
def test_ranked_follows_algorithm_1_in_its_order(labels, k, teachers, noise):
    m = OneshotLaplace(num_labels=labels, k=k, epsilon=2.0)
    counts, source = histograms(labels, teachers), noise()
    got = m.ranked(counts, source)
    expected = [
        slow.largest(*row) for row in zip(counts.tolist(), [k] * len(counts), source.draws[0].tolist(), strict=True)
    ]
    assert got.positions.tolist() == expected and got.seeded
    assert not m.ranked(counts).seeded


@given(st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(1, 5))
def test_best_first_breaks_ties_by_index(rows, k):
    expected = [sorted(range(5), key=lambda i: (-row[i], i))[:k] for row in rows]
    assert best_first(np.array(rows, dtype=float), k).tolist() == expected


def test_released_values_are_fresh_and_only_of_the_chosen():
    m, source = OneshotLaplace(num_labels=30, k=4, epsilon=1.0, values=True), Recorded()
    answer = m.release(histograms(30, 90), source)
    assert source.draws[1].size == 500 * 4 and not np.intersect1d(source.draws[0], source.draws[1]).size
    assert not answer.scores[~answer.labels].any() and (answer.scores[answer.labels] != 0).all()


# --- the scales and their price -----------------------------------------------------------------------------------


def test_scales_are_the_theorems():
    pure = OneshotLaplace(num_labels=100, k=7, epsilon=0.5, sensitivity=3.0)
    assert pure.scale == pytest.approx(2 * 7 * 3 / 0.5)
    assert replace(pure, neighbours="teacher_added").scale == pytest.approx(7 * 3 / 0.5)
    approximate = OneshotLaplace(num_labels=100, k=7, epsilon=0.1, delta=1e-6, sensitivity=3.0)
    assert approximate.scale == pytest.approx(8 * 3 * math.sqrt(7 * math.log(100 / 1e-6)) / 0.1)
    assert replace(approximate, neighbours="teacher_added").scale == pytest.approx(approximate.scale / 2)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_cheaper_theorem_is_charged(neighbours):
    border = 16 * math.log(2000 / 1e-6)
    make = lambda k: OneshotLaplace(num_labels=2000, k=k, epsilon=0.1, delta=1e-6, neighbours=neighbours)  # noqa: E731
    few, many = make(int(border)), make(int(border) + 1)
    assert few.charged == (pytest.approx(0.1 * math.sqrt(int(border) / border)), 0.0) and few.charged[0] < 0.1
    assert few.cost(3) == PrivacyCost.of(Pure(few.charged[0]), neighbours=neighbours) * 3
    assert many.charged == (0.1, 1e-6)
    assert many.cost(3) == PrivacyCost.of(Pure(0.1), delta=1e-6, neighbours=neighbours) * 3
    assert few.covers_order and not many.covers_order


def test_values_have_their_own_share():
    m = OneshotLaplace(num_labels=9, k=3, epsilon=0.6, values=True, sensitivity=2.0)
    assert m.scale == pytest.approx(m.value_scale) == pytest.approx(3 * 3 * 2 / 0.6)
    assert m.cost(1).counted == ((Pure(0.6 * 2 / 3), 1), (Laplace(2.0 / m.value_scale), 3))
    for split in (0.1, 0.5, 0.9):
        n = replace(m, split=split)
        assert n.cost(1).pure_epsilon == pytest.approx(0.6) and n.choice_epsilon == pytest.approx(0.6 * split)
        assert n.value_scale == pytest.approx(3 * 2 / (0.6 * (1 - split)))
    assert replace(m, exact=True).cost(1).pure_epsilon == pytest.approx(0.6)


# --- the noise that is drawn has the scale that is priced ----------------------------------------------------------


@pytest.mark.parametrize("delta", [None, 0.01])
def test_choice_has_the_right_scale_and_no_other(delta):
    m = OneshotLaplace(num_labels=2, k=1, epsilon=0.2, delta=delta)
    far, draws = 2.0 * m.scale, 40_000
    counts = np.tile([0, round(far)], (draws, 1))
    won = int(m.release(counts, seeded(3)).labels[:, 0].sum())

    def z(scale: float) -> float:
        gap = round(far) / scale
        p = (2 + gap) / 4 * math.exp(-gap)
        return abs(won - draws * p) / math.sqrt(draws * p * (1 - p))

    assert z(m.scale) < 4 and z(m.scale * 2 / 3) > 8 and z(m.scale * 3 / 2) > 8


def test_values_have_the_right_scale_and_no_other():
    m, draws = OneshotLaplace(num_labels=3, k=2, epsilon=0.5, values=True, split=0.3), 20_000
    counts = np.tile([90, 40, 10], (draws, 1))
    answer = m.release(counts, seeded(4))
    size = np.abs(answer.scores - counts)[answer.labels]
    z = lambda scale: abs(size.mean() - scale) / (scale / math.sqrt(size.size))  # noqa: E731
    assert z(m.value_scale) < 4 and z(m.value_scale * 2 / 3) > 8 and z(m.value_scale * 3 / 2) > 8


# --- privacy by exact probabilities -------------------------------------------------------------------------------


def moves(labels: int, neighbours: str) -> list[np.ndarray]:
    """Every way of moving; of four labels, those that move all of them as far as they go."""
    ways = MOVES[neighbours] if labels < 4 else (MOVES[neighbours][0], 1)
    return [np.array(move) for move in product(ways, repeat=labels)]


def distributions(labels: int, k: int, scale: float, neighbours: str, ordered: bool = False):
    """All answers' probabilities on neighbouring scores: near, tied and far apart, in every way of moving."""
    rng = np.random.default_rng(labels)
    places = [np.zeros(labels), np.arange(labels) * scale, rng.integers(0, 9, labels)]
    low = np.arange(labels) < (labels + 1) // 2
    for far in (3, 40):
        places += [np.where(low, 0, far * scale), np.where(low, far * scale, 0), rng.uniform(0, far, labels) * scale]
    for place in places:
        p = slow.answers(place / scale, k, ordered)
        assert p.sum() == pytest.approx(1, abs=1e-9)
        for move in moves(labels, neighbours):
            yield p, slow.answers((place + move) / scale, k, ordered)


def worst_loss(labels: int, k: int, scale: float, neighbours: str, ordered: bool = False) -> float:
    """The largest |log ratio| of any answer's probabilities, over all pairs."""
    return max(np.abs(np.log(p / q)).max() for p, q in distributions(labels, k, scale, neighbours, ordered))


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(
    ("labels", "k", "ordered"), [(2, 1, False), (2, 2, True), (3, 1, False), (3, 2, False), (3, 2, True)]
)
def test_pure_privacy_holds(labels, k, ordered, neighbours):
    epsilon = 0.8
    m = OneshotLaplace(num_labels=labels, k=k, epsilon=epsilon, neighbours=neighbours)
    assert worst_loss(labels, k, m.scale, neighbours, ordered) <= epsilon + 1e-9


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("labels", "k"), [(2, 1), (3, 1)])
def test_pure_privacy_is_nearly_spent_and_fails_at_half_the_noise(labels, k, neighbours):
    epsilon = 0.8
    m = OneshotLaplace(num_labels=labels, k=k, epsilon=epsilon, neighbours=neighbours)
    assert worst_loss(labels, k, m.scale, neighbours) > 0.95 * epsilon
    assert worst_loss(labels, k, m.scale / 2, neighbours) > 1.5 * epsilon


@pytest.mark.parametrize("ordered", [False, True])
def test_two_of_four_is_nearly_spent_and_fails_at_half_the_noise(ordered):
    epsilon = 0.8
    m = OneshotLaplace(num_labels=4, k=2, epsilon=epsilon)
    assert 0.9 * epsilon < worst_loss(4, 2, m.scale, "teacher_changed", ordered) <= epsilon + 1e-9
    assert worst_loss(4, 2, m.scale / 2, "teacher_changed", ordered) > 1.5 * epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("split", [0.3, 2 / 3])
def test_pure_privacy_holds_with_values(neighbours, split):
    m = OneshotLaplace(num_labels=3, k=1, epsilon=0.8, values=True, split=split, neighbours=neighbours)
    values = m.k * m.sensitivity / m.value_scale  # the log ratio of k Laplace densities, reached beyond the counts
    worst = worst_loss(3, 1, m.scale, neighbours) + values
    assert 0.95 * m.epsilon < worst <= m.epsilon + 1e-9


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("labels", "k"), [(2, 1), (3, 1), (3, 2)])
def test_pure_privacy_holds_for_whole_numbers_with_their_ties(labels, k, neighbours):
    """Discrete Laplace noise, summed over all draws up to 14; the order too."""
    m = OneshotLaplace(num_labels=labels, k=k, epsilon=3.0, neighbours=neighbours)
    draws = np.array(list(product(range(-14, 15), repeat=labels)))
    near = [best_first(move + draws, k) @ labels ** np.arange(k) for move in moves(labels, neighbours)]
    far = np.arange(labels) * 3
    apart = [best_first(far + move + draws, k) @ labels ** np.arange(k) for move in moves(labels, neighbours)]
    still = next(place for place, move in enumerate(moves(labels, neighbours)) if not move.any())

    def worst(scale: float) -> float:
        weights, losses = np.exp(-np.abs(draws).sum(axis=1) / scale), []
        for group in (near, apart):
            found = np.array([np.bincount(codes, weights, minlength=labels**k) for codes in group])
            found = found[:, found[still] > 0]
            losses.append(np.abs(np.log(found / found[still])).max())
        return max(losses)

    assert worst(m.scale) <= m.epsilon + 1e-3
    assert k > 1 or worst(m.scale / 2) > 1.5 * m.epsilon


def test_algorithm_1_as_printed_spends_half_as_much_again():
    """Theorem 2.1 with its values: the winner far behind loses 2s/lambda in choice and s/lambda in value."""
    epsilon, scale = 0.8, 2 / 0.8
    before, after = np.array([0.0, 100.0]), np.array([-1.0, 101.0])
    choice = math.log(slow.set_probability(before / scale, (0,)) / slow.set_probability(after / scale, (0,)))
    assert choice + 1 / scale > 1.47 * epsilon
    assert OneshotLaplace(num_labels=2, k=1, epsilon=epsilon).scale == scale


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_approximate_privacy_holds_on_small_cases(neighbours):
    """Few labels: every set, every move; here Theorem 2.1 at the larger noise is what is charged."""
    m = OneshotLaplace(num_labels=4, k=2, epsilon=0.2, delta=0.05, neighbours=neighbours)
    assert m.covers_order and worst_loss(4, 2, m.scale, neighbours) <= m.charged[0] + 1e-9

    def needed(scale: float) -> float:
        return max(slow.hockey_stick(p, q, m.epsilon) for p, q in distributions(4, 2, scale, neighbours))

    assert needed(m.scale) <= m.delta < needed(m.scale / 64)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("sizes", "k"), [((100, 100), 140), ((150, 50), 140), ((200, 200), 150)])
def test_approximate_privacy_holds_where_theorem_2_2_is_needed(sizes, k, neighbours):
    """Two groups of equal counts move apart; then a set's likelihood ratio depends on how many are of the first."""
    m = OneshotLaplace(num_labels=sum(sizes), k=k, epsilon=0.2, delta=0.05, neighbours=neighbours)
    assert m.charged == (0.2, 0.05)
    down = min(MOVES[neighbours])

    def needed(scale: float, gap: float) -> float:
        p = slow.chosen_from_first(sizes, (0.0, gap / scale), k)
        q = slow.chosen_from_first(sizes, (1 / scale, (gap + down) / scale), k)
        assert p.sum() == pytest.approx(1, abs=1e-8) and q.sum() == pytest.approx(1, abs=1e-8)
        return max(slow.hockey_stick(p, q, m.epsilon), slow.hockey_stick(q, p, m.epsilon))

    for gap in (0.0, m.scale / 2, -m.scale):
        assert needed(m.scale, gap) <= m.delta
    assert needed(m.scale / 80, 0.0) > m.delta


def test_quadrature_agrees_with_draws():
    scores, draws = np.array([0.0, 0.5, 0.5, 2.0]), 200_000
    noisy = scores + seeded(0).laplace(1.0, (draws, 4))
    top = best_first(noisy, 2)
    first, second = (top == pair for pair in ((3, 1), (1, 2)))
    for got, expected in (
        (first.all(1).mean(), slow.order_probability(scores, 3, 1)),
        ((np.sort(top, 1) == (1, 2)).all(1).mean(), slow.set_probability(scores, (1, 2))),
        (second.all(1).mean(), slow.order_probability(scores, 1, 2)),
    ):
        assert abs(got - expected) < 4 * math.sqrt(expected / draws)
    of_first = slow.chosen_from_first((2, 2), (0.0, 1.0), 2)
    pairs_of = np.isin(best_first(np.array([0.0, 0.0, 1.0, 1.0]) + seeded(1).laplace(1.0, (draws, 4)), 2), (0, 1)).sum(
        1
    )
    assert np.bincount(pairs_of, minlength=3) / draws == pytest.approx(of_first, abs=4 / math.sqrt(draws))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"k": 0}, "k must be a whole number >= 1 and <= 6, got 0"),
        ({"k": 7}, "k must be a whole number >= 1 and <= 6, got 7"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": math.nan}, "epsilon must be > 0"),
        ({"sensitivity": 0.0}, "sensitivity must be > 0"),
        ({"sensitivity": math.inf}, "sensitivity must be finite"),
        ({"split": 1.0}, r"split must be in \(0, 1\)"),
        ({"delta": 0.0}, r"delta must be in \(0, 1\)"),
        ({"delta": 0.051}, r"delta must be <= 0.05 .*Theorem 2.2"),
        ({"delta": 1e-6, "epsilon": 0.21}, r"epsilon must be <= 0.2 .*Theorem 2.2.* got 0.21"),
        ({"delta": 1e-6, "num_labels": 1, "k": 1}, "num_labels must be a whole number >= 2"),
    ],
)
def test_bad_settings_are_refused(change, sentence):
    good = {"num_labels": 6, "k": 2, "epsilon": 0.1}
    assert OneshotLaplace(**good) and OneshotLaplace(**good | {"epsilon": 0.2, "delta": 0.05})
    with pytest.raises(SettingError, match=sentence):
        OneshotLaplace(**good | change)


def test_order_and_exact_noise_are_refused_where_only_the_set_is_proved():
    settings = {"num_labels": 2000, "k": 500, "epsilon": 0.1, "delta": 1e-6}
    m, counts = OneshotLaplace(**settings), np.zeros((1, 2000), int)
    assert m.release(counts, seeded(0)).labels.sum() == 500
    with pytest.raises(SettingError, match=r"delta must be None for the order.*Theorem 2.2"):
        m.ranked(counts, seeded(0))
    with pytest.raises(SettingError, match="rng must be continuous noise"):
        m.release(counts, ExactNoise())
    with pytest.raises(SettingError, match=r"exact must be false where Theorem 2.2"):
        OneshotLaplace(**settings, exact=True)


def test_exact_noise_gives_whole_values():
    pytest.importorskip("opendp", reason="the extra `exact` (opendp) is not installed")
    m = OneshotLaplace(num_labels=5, k=2, epsilon=0.5, values=True, exact=True)
    answer = m.release(np.tile([30, 0, 20, 10, 0], (50, 1)))
    assert (answer.labels.sum(1) == 2).all() and not answer.seeded
    assert np.array_equal(answer.scores, np.round(answer.scores)) and len(np.unique(answer.scores)) > 5
    assert m.ranked(np.zeros((4, 5), int)).positions.shape == (4, 2)


# --- calibration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("labels", "k"), [(40, 3), (1000, 500)])
@pytest.mark.parametrize(("share", "queries"), [(0.02, 1), (0.5, 1), (0.99, 1), (0.9, 50)])
def test_calibration_reaches_what_theorem_2_2_allows(labels, k, share, queries, neighbours, values):
    fixed = {"num_labels": labels, "k": k, "values": values, "delta_share": 0.5}
    most = OneshotLaplace.at_rho(1.0, neighbours=neighbours, queries=queries, delta=1e-5, **fixed)
    assert most.epsilon == 0.2
    epsilon = share * most.cost(queries).epsilon(1e-5)
    m = calibrate(OneshotLaplace, epsilon=epsilon, delta=1e-5, queries=queries, neighbours=neighbours, **fixed)
    assert m.delta == pytest.approx(0.5 * 1e-5 / queries) and m.fixed() | fixed == m.fixed()
    assert 0.999 * epsilon <= m.cost(queries).epsilon(1e-5) <= epsilon


@pytest.mark.parametrize(("epsilon", "queries"), [(0.3, 1), (5.0, 1), (40.0, 50)])
def test_calibration_beyond_theorem_2_2_says_why(epsilon, queries):
    with pytest.raises(SettingError, match=rf"Theorem 2.2 .* ends at epsilon 0.2 a query, so queries={queries} can"):
        calibrate(OneshotLaplace, epsilon=epsilon, delta=1e-5, queries=queries, num_labels=1000, k=500, delta_share=0.5)
    m = calibrate(OneshotLaplace, epsilon=epsilon, delta=1e-5, queries=queries, num_labels=1000, k=500)
    assert m.delta is None and m.cost(queries).epsilon(1e-5) <= epsilon

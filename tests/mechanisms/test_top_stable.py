"""A_stab and TS: same noise, same answer as the slow reference; noise of the right size; privacy by exact sums."""

import math
from itertools import product

import numpy as np
import pytest
import reference_top_stable as slow
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting import calibrate
from pate.errors import SettingError
from pate.mechanisms.top_stable import Majority, StableAnswer, TopSet, TopStable

RELATIONS = ("teacher_added", "teacher_changed")
REACH = {"teacher_added": 1, "teacher_changed": 2}


# --- distances to instability -------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("query", [TopSet(1), TopSet(2), Majority(4), Majority(5)], ids=str)
def test_distance_moves_by_at_most_one_and_is_not_positive_where_answers_differ(query, neighbours) -> None:
    moves = np.array(slow.moves(3, neighbours))
    counts = np.array(list(product(range(7), repeat=3)))
    labels, distances = query.answers(counts, neighbours)
    moved = (counts[:, None, :] + moves).reshape(-1, 3)
    there, then = query.answers(np.maximum(moved, 0), neighbours)
    real = (moved >= 0).all(axis=1)
    before, labels = np.repeat(distances, len(moves))[real], np.repeat(labels, len(moves), axis=0)[real]
    assert np.abs(before - then[real]).max() == 1
    differ = (labels != there[real]).any(axis=1)
    assert differ.any() and before[differ].max() == 0 and then[real][differ].max() == 0


def test_majority_distance_is_the_definition() -> None:
    for teachers in (1, 2, 5, 6):
        counts = np.array(list(product(range(teachers + 1), repeat=2)))
        labels, distances = Majority(teachers).answers(counts, "teacher_changed")
        for row, label, distance in zip(counts.tolist(), labels, distances, strict=True):
            assert set(np.flatnonzero(label)) == slow.majority(row, teachers)
            assert distance == slow.majority_distance(row, teachers)


def test_majority_takes_the_teachers_from_the_tally_or_refuses() -> None:
    mechanism = StableAnswer(num_labels=2, epsilon=5.0, delta=0.1)
    votes = np.ones((60, 3, 2), dtype=bool)
    assert mechanism.release(mechanism.tally(votes), np.random.default_rng(0)).answered.all()
    with pytest.raises(SettingError, match="num_teachers must be given"):
        mechanism.release(np.array([[1, 2]]), np.random.default_rng(0))


# --- release against the slow reference ---------------------------------------------------------------------------


@given(slow.histograms(), st.integers(0, 2**32), st.data())
def test_top_stable_is_algorithm_3(counts: np.ndarray, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, counts.shape[1] - 1))
    max_k = data.draw(st.integers(k, counts.shape[1] - 1))
    neighbours = data.draw(st.sampled_from(RELATIONS))
    settings = {"epsilon": data.draw(st.sampled_from([0.5, 3.0])), "delta": data.draw(st.sampled_from([0.6, 0.05]))}
    em = max_k > k and data.draw(st.booleans())
    mechanism = TopStable(counts.shape[1], k, **settings, neighbours=neighbours, max_k=max_k, em=em)
    tape = slow.Tape(seed)
    answer = mechanism.release(counts, tape)
    (_, scale1, threshold_noise), (_, scale2, noises), *gumbels = tape.draws
    epsilon = settings["epsilon"]
    assert (scale1, scale2) == (pytest.approx(1 / (0.37 * epsilon)), pytest.approx(2 / (0.63 * epsilon)))
    for row, histogram in enumerate(counts.tolist()):

        def order(inside: list[int], histogram=histogram) -> list[int]:
            _, scale, gumbel = gumbels.pop(0)
            assert scale == (pytest.approx(REACH[neighbours] * k / epsilon) if em else 1.0)
            score = {x: g + (histogram[x] if em else 0) for x, g in zip(inside, gumbel, strict=True)}
            return sorted(inside, key=lambda x: -score[x])

        by_position = {i + 1: noise for i, noise in enumerate(noises[row])}
        level = mechanism.test.level
        expected = slow.top_stable(
            histogram, k, max_k, level, REACH[neighbours], threshold_noise[row, 0], by_position, order
        )
        assert answer.answered[row] == (expected is not None)
        assert set(np.flatnonzero(answer.labels[row])) == (expected or set())
        assert answer.labels[row].sum() <= k
    assert not gumbels and answer.scores is None


def test_top_stable_matches_the_reference_on_thousands_of_histograms() -> None:
    rng = np.random.default_rng(5)
    for width, k, neighbours in product((2, 3, 6), (1, 2, 5), RELATIONS):
        if k >= width:
            continue
        counts = rng.choice([0, 1, 2, 3, 9, 30], size=(400, width), p=[0.3, 0.2, 0.1, 0.1, 0.15, 0.15])
        mechanism = TopStable(width, k, epsilon=2.0, delta=0.2, neighbours=neighbours)
        tape = slow.Tape(int(rng.integers(2**31)))
        answer = mechanism.release(counts, tape)
        (_, _, threshold_noise), (_, _, noises) = tape.draws
        level, reach = mechanism.test.level, REACH[neighbours]
        expected = np.zeros_like(answer.labels)
        for row, histogram in enumerate(counts.tolist()):
            given_noise = dict(enumerate(noises[row], start=1))
            kept = slow.top_stable(histogram, k, k, level, reach, threshold_noise[row, 0], given_noise, None)
            expected[row, sorted(kept or ())] = True
        assert (answer.labels == expected).all()
        assert 0.02 < answer.answered.mean() < 0.98


@given(slow.histograms(), st.integers(0, 2**32), st.sampled_from(RELATIONS), st.booleans())
def test_stable_answer_is_algorithm_1(counts: np.ndarray, seed: int, neighbours: str, tops: bool) -> None:
    teachers = max(1, int(counts.max()))
    query = TopSet(1) if tops else Majority(teachers)
    tape = slow.Tape(seed)
    answer = StableAnswer(counts.shape[1], 0.8, 0.3, neighbours, query).release(counts, tape)
    ((_, scale, noises),) = tape.draws
    assert scale == 1 / 0.8
    for row, histogram in enumerate(counts.tolist()):
        index = slow.ranking(histogram)
        top = slow.surely_unmoved(histogram[index[0]] - histogram[index[1]], REACH[neighbours]), {index[0]}
        whole = slow.majority_distance(histogram[:3], teachers) if counts.shape[1] <= 3 else None
        if not tops and whole is None:
            continue
        distance, truth = top if tops else (whole, slow.majority(histogram, teachers))
        expected = slow.a_stab(distance, truth, math.log(1 / 0.6) / 0.8, noises[row])
        assert answer.answered[row] == (expected is not None)
        assert set(np.flatnonzero(answer.labels[row])) == set(expected or ())


# --- noise of the right size --------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("position", [1, 2])
def test_top_stable_noise_has_its_size(neighbours: str, position: int) -> None:
    mechanism = TopStable(4, 2, epsilon=0.5, delta=0.05, neighbours=neighbours)
    test, reach = mechanism.test, REACH[neighbours]
    gap = reach * (round(test.level) + 6) + 1
    histogram = np.array([gap, gap, 0, 0] if position == 2 else [gap, 0, 0, 0])
    sizes = mechanism.release(np.tile(histogram, (40_000, 1)), np.random.default_rng(1)).labels.sum(axis=1)
    found = sizes == position

    def chance(stretch1: float, stretch2: float) -> float:
        exact = slow.Comparisons(test.level, stretch1 * test.threshold_scale, stretch2 * test.test_scale, -1, 60)
        distance = (gap - 1) // reach
        return exact.chance([distance], [] if position == 2 else [-1])

    assert slow.z_score(found, chance(1, 1)) < 4
    for stretch in (2 / 3, 3 / 2):
        assert slow.z_score(found, chance(stretch, 1)) > 5
        assert slow.z_score(found, chance(1, stretch)) > 5


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_stable_answer_noise_has_its_size(neighbours: str) -> None:
    mechanism = StableAnswer(3, epsilon=0.5, delta=1e-3, neighbours=neighbours, query=TopSet(1))
    gap = REACH[neighbours] * 16 + 1
    answered = mechanism.release(np.tile([0, gap, 0], (40_000, 1)), np.random.default_rng(2)).answered
    margin = 16 - mechanism.level
    for stretch in (2 / 3, 1.0, 3 / 2):
        z = slow.z_score(answered, 1 - math.exp(-margin * 0.5 / stretch) / 2)
        assert z < 4 if stretch == 1 else z > 5


def test_exponential_mechanism_and_random_choice_inside_the_set() -> None:
    counts = np.tile([203, 200, 201, 0, 0], (5_000, 1))
    for neighbours, em in product(RELATIONS, (True, False)):
        settings = {"em": em, "em_epsilon": 1.5 if em else None, "neighbours": neighbours}
        mechanism = TopStable(5, 2, epsilon=1.0, delta=1e-4, max_k=3, **settings)
        labels = mechanism.release(counts, np.random.default_rng(4)).labels
        assert (labels[:, :3].sum(axis=1) == 2).mean() > 0.99
        pairs = labels[labels[:, :3].sum(axis=1) == 2][:, :3]
        scale = REACH[neighbours] * 2 / 1.5
        for kept, chance in slow.kept_of_set([203, 200, 201], 2, scale if em else None).items():
            assert slow.z_score(pairs[:, list(kept)].all(axis=1), chance) < 4


# --- privacy, by exact sums over every outcome --------------------------------------------------------------------


def top_stable_table(mechanism: TopStable, counts: list[tuple[int, ...]], late: int = 0) -> np.ndarray:
    """(histograms, 2^K) chances of every released set; the empty set is bottom. `late` tests the gap so far below."""
    test, reach = mechanism.test, REACH[mechanism.neighbours]
    ranked = [sorted(c, reverse=True) + [0] * late for c in counts]
    spans = range(late, late + mechanism.positions)
    distances = [tuple((h[i] - h[i + 1] - 1) // reach for i in spans) for h in ranked]
    exact = slow.Comparisons(test.level, test.threshold_scale, test.test_scale, -1, max(map(max, distances)))
    scale = reach / mechanism.em_range if mechanism.em else None
    table, known = np.zeros((len(counts), 2**mechanism.num_labels)), {}
    for row, (histogram, distance) in enumerate(zip(counts, distances, strict=True)):
        index = slow.ranking(histogram)
        for i in range(mechanism.positions, 0, -1):
            key = distance[i - 1 :]
            if key not in known:
                known[key] = exact.chance(key[:1], key[1:])
            shares = (
                slow.kept_of_set(ranked[row][:i], mechanism.k, scale) if i > mechanism.k else {tuple(range(i)): 1.0}
            )
            for kept, share in shares.items():
                table[row, sum(1 << index[x] for x in kept)] += known[key] * share
        table[row, 0] = 1 - table[row].sum()
    return table


def worst_excess(table, counts, neighbours: str, epsilon: float) -> float:
    """The largest hockey-stick divergence over all neighbouring histograms."""
    where, worst = {c: row for row, c in enumerate(counts)}, 0.0
    for move in slow.moves(len(counts[0]), neighbours):
        pairs = [(row, where.get(tuple(a + d for a, d in zip(c, move, strict=True)))) for c, row in where.items()]
        here, there = np.array([pair for pair in pairs if pair[1] is not None]).T
        worst = max(worst, float(slow.hockey_stick(table[here], table[there], epsilon).max()))
    return worst


TINY = list(product(range(8), repeat=3))
SMALL = list(product(range(4), repeat=4))
TS_CASES = [
    (TINY, {"k": 1}),
    (TINY, {"k": 2}),
    (TINY, {"k": 1, "max_k": 2}),
    (TINY, {"k": 1, "max_k": 2, "em": True, "em_epsilon": 0.7}),
    (TINY, {"k": 2, "p1": 1 / 3}),
    (SMALL, {"k": 3}),
    (SMALL, {"k": 2, "max_k": 3, "em": True}),
]


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("offset", ["exact", "published"])
@pytest.mark.parametrize("case", range(len(TS_CASES)))
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.1), (0.4, 0.3), (2.5, 1e-3)])
def test_top_stable_is_as_private_as_it_costs(case, epsilon, delta, offset, neighbours) -> None:
    counts, settings = TS_CASES[case]
    mechanism = TopStable(
        len(counts[0]), epsilon=epsilon, delta=delta, neighbours=neighbours, offset=offset, **settings
    )
    table = top_stable_table(mechanism, counts)
    cost = mechanism.cost()
    assert worst_excess(table, counts, neighbours, cost.pure_epsilon) <= cost.delta * (1 + 1e-9)
    for larger in (1.5 * delta, min(0.99, 3 * delta)):  # and at the epsilon that the curve converts to
        assert worst_excess(table, counts, neighbours, cost.epsilon(larger)) <= larger


def alternating(positions: int, low: int, last: int, neighbours: str) -> list[tuple[int, ...]]:
    """Two neighbours: the gap below position 1 closes by s, those below 2, 4, ... open by s, small ones between close.

    Position 1 is tested last, so this is the pair on which a sparse-vector run loses the most.
    """
    reach = REACH[neighbours]
    gaps = [last * reach + 1] + [(low if i % 2 else 1) * reach + 1 for i in range(1, positions)]
    counts = tuple(sum(gaps[i:]) + 5 for i in range(positions + 1))
    ballot = (0, 1) if neighbours == "teacher_added" else (-1, 1)
    return [counts, tuple(c + ballot[i % 2] for i, c in enumerate(counts))]


def excess(mechanism: TopStable, pair: list[tuple[int, ...]], epsilon: float) -> float:
    here, there = top_stable_table(mechanism, pair)
    return float(max(slow.hockey_stick(here, there, epsilon), slow.hockey_stick(there, here, epsilon)))


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_delta_is_met_exactly_and_a_gap_tested_one_position_too_far_fails(neighbours: str) -> None:
    mechanism = TopStable(3, 1, epsilon=1.0, delta=0.05, neighbours=neighbours)
    assert worst_excess(top_stable_table(mechanism, TINY), TINY, neighbours, 1.0) == pytest.approx(0.05, rel=1e-6)
    assert worst_excess(top_stable_table(mechanism, TINY, late=1), TINY, neighbours, 1.0) > 0.1


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("epsilon", "low", "last"), [(1.0, 26, 28), (4.0, 6, 7)])
def test_half_the_noise_is_not_private(epsilon: float, low: int, last: int, neighbours: str) -> None:
    pair = alternating(10, low, last, neighbours)
    settings = {"num_labels": 11, "k": 10, "delta": 1e-6, "neighbours": neighbours}
    assert excess(TopStable(epsilon=epsilon, **settings), pair, epsilon) <= 1e-6
    assert excess(TopStable(epsilon=2 * epsilon, **settings), pair, epsilon) > 0.04


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_epsilon_is_reached(neighbours: str) -> None:
    """On this pair one outcome's log ratio is almost epsilon, so the charge is not loose."""
    mechanism = TopStable(11, 10, epsilon=1.0, delta=1e-6, neighbours=neighbours)
    here, there = top_stable_table(mechanism, alternating(10, 70, 70, neighbours))
    assert 0.98 <= math.log(here[1] / there[1]) <= 1.0


def test_added_noise_does_not_protect_a_changed_ballot() -> None:
    mechanism = TopStable(11, 10, epsilon=4.0, delta=1e-6, neighbours="teacher_added")
    worst = 0.0
    for low, last in product(range(5, 12), repeat=2):
        worst = max(worst, excess(mechanism, alternating(10, low, last, "teacher_changed"), 4.0))
    assert worst > 1e-3


# --- costs, calibration, refusals, scale --------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(
    ("kind", "fixed"),
    [
        (TopStable, {"num_labels": 40, "k": 5}),
        (TopStable, {"num_labels": 40, "k": 5, "max_k": 9, "em": True, "split": 0.3}),
        (StableAnswer, {"num_labels": 40, "query": TopSet(3)}),
    ],
)
def test_calibrated_mechanisms_spend_what_was_asked(kind, fixed, neighbours) -> None:
    for epsilon, queries in ((0.5, 1), (3.0, 600)):
        made = calibrate(kind, epsilon=epsilon, delta=1e-6, queries=queries, neighbours=neighbours, **fixed)
        spent = made.cost(queries).epsilon(1e-6)
        assert 0.999 * epsilon <= spent <= epsilon
        again = kind.at_rho(0.01, neighbours=neighbours, queries=queries, delta=1e-6, **made.fixed())
        assert again.fixed() == made.fixed()


def test_costs_of_top_stable() -> None:
    plain = TopStable(40, 5, epsilon=0.5, delta=1e-7)
    assert plain.cost(0).epsilon(1e-6) == 0
    assert plain.cost().pure_epsilon == 0.5 and plain.cost(3).delta == pytest.approx(3e-7)
    assert TopStable(40, 5, epsilon=math.inf, delta=1e-7).cost().epsilon(1e-6) == math.inf
    em = TopStable(40, 5, epsilon=0.5, delta=1e-7, max_k=9, em=True, em_epsilon=0.8)
    assert em.cost().pure_epsilon == pytest.approx(1.3)
    assert em.cost(600).epsilon(1e-3) > plain.cost(600).epsilon(1e-3)
    smaller = TopStable(40, 5, epsilon=0.4, delta=1e-7)
    assert smaller.cost(600).epsilon(1e-3) < plain.cost(600).epsilon(1e-3)


def test_no_noise_releases_the_largest_set_that_one_ballot_cannot_change() -> None:
    for neighbours, counts, size in (
        ("teacher_added", [5, 5, 3, 3], 2),
        ("teacher_added", [5, 3, 2, 2], 1),
        ("teacher_changed", [6, 6, 3, 3], 2),
        ("teacher_changed", [5, 5, 3, 3], 0),
    ):
        mechanism = TopStable(4, 3, epsilon=math.inf, delta=1e-6, neighbours=neighbours)
        labels = mechanism.release(np.array(counts), np.random.default_rng(0)).labels[0]
        assert labels.tolist() == [x < size for x in range(4)]


BAD = [
    (TopStable, {"k": 4}, "k must be a whole number >= 1 and <= 3, got 4"),
    (TopStable, {"k": 0}, "k must be"),
    (TopStable, {"max_k": 1}, "max_k must be a whole number >= 2"),
    (TopStable, {"max_k": 4}, "max_k must be"),
    (TopStable, {"epsilon": 0}, "epsilon must be > 0, got 0"),
    (TopStable, {"epsilon": math.nan}, "epsilon must be"),
    (TopStable, {"delta": 1.0}, "delta must be in"),
    (TopStable, {"p1": 1.0}, "p1 must be in"),
    (TopStable, {"num_labels": 1}, "num_labels must be"),
    (TopStable, {"neighbours": "rows"}, "neighbours must be one of"),
    (TopStable, {"em": True}, "max_k must be > k for em"),
    (TopStable, {"em_epsilon": 1.0}, "em_epsilon must be None unless em"),
    (TopStable, {"em": True, "max_k": 3, "em_epsilon": -1}, "em_epsilon must be > 0"),
    (TopStable, {"offset": "loose"}, "offset must be one of"),
    (StableAnswer, {"delta": 0}, "delta must be in"),
    (StableAnswer, {"query": TopSet(4)}, "k must be"),
    (StableAnswer, {"offset": "loose"}, "offset must be one of"),
]
GOOD = {
    TopStable: {"num_labels": 4, "k": 2, "epsilon": 1.0, "delta": 1e-6},
    StableAnswer: {"num_labels": 4, "epsilon": 1.0, "delta": 1e-6},
}


@pytest.mark.parametrize(("kind", "change", "message"), BAD)
def test_bad_settings_are_refused(kind, change, message: str) -> None:
    kind(**GOOD[kind])
    with pytest.raises(SettingError, match=message):
        kind(**GOOD[kind] | change)


@pytest.mark.parametrize("counts", [[[1, -1, 0, 0]], [[0.5, 1, 1, 1]], [[math.nan, 1, 1, 1]], [[1, 2, 3]]])
def test_bad_counts_are_refused(counts) -> None:
    with pytest.raises(SettingError, match="counts must be"):
        TopStable(**GOOD[TopStable]).release(np.array(counts), np.random.default_rng(0))


def test_real_check_ins_release_true_tops_only(shared_data) -> None:
    file = shared_data / "checkins" / "foursquare_counts.csv"
    if not file.is_file():
        pytest.skip("checkins/foursquare_counts.csv not found")
    counts = np.loadtxt(file, skiprows=1, dtype=np.int64)
    mechanism = TopStable(len(counts), 10, epsilon=0.8, delta=1 / 2293, neighbours="teacher_added")
    sizes = []
    for seed in range(20):
        labels = mechanism.release(counts, np.random.default_rng(seed)).labels[0]
        sizes.append(int(labels.sum()))
        assert set(np.flatnonzero(labels)) == set(slow.ranking(counts[:2000].tolist())[: sizes[-1]])
    assert 0 < max(sizes) <= 10

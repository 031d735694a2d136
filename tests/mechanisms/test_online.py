"""Streams of stable answers: same noise, same answers as the slow reference; privacy by exact sums over transcripts."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import reference_top_stable as slow
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting import calibrate
from pate.errors import SettingError
from pate.mechanisms.online import OnlineStable
from pate.mechanisms.top_stable import Majority, TopSet

RELATIONS = ("teacher_added", "teacher_changed")
KINDS = ("unstable", "stable")


def online(teachers: int = 5, **settings) -> OnlineStable:
    given_settings = {
        "num_labels": 1,
        "epsilon": 1.0,
        "delta": 0.1,
        "cutoff": 1,
        "query": Majority(teachers),
    } | settings
    return OnlineStable(**given_settings)


# --- release against the slow reference ---------------------------------------------------------------------------


@given(st.data(), st.integers(0, 2**32), st.sampled_from(RELATIONS), st.sampled_from(KINDS), st.integers(1, 6))
def test_stream_is_the_reference(data: st.DataObject, seed: int, neighbours: str, pays: str, cutoff: int) -> None:
    labels, teachers = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([1, 2, 5, 9]))
    row = st.lists(st.integers(0, teachers), min_size=labels, max_size=labels)
    counts = np.array(data.draw(st.lists(row, min_size=1, max_size=25)))
    settings = {"num_labels": labels, "epsilon": 4.0, "delta": 0.4, "cutoff": cutoff}
    mechanism = online(teachers, **settings, neighbours=neighbours, pays=pays)
    tape = slow.Tape(seed)
    answer = mechanism.release(counts, tape)
    (_, scale1, threshold_noises), (_, scale2, noises) = tape.draws
    assert (scale1, scale2) == (pytest.approx(1 / (0.37 * 4)), pytest.approx(2 / (0.63 * 4)))
    stream = [(slow.majority_distance(c, teachers), slow.majority(c, teachers)) for c in counts.tolist()]
    expected = slow.online(stream, cutoff, pays, mechanism.test.level, threshold_noises, noises)
    assert answer.answered.tolist() == [out is not None for out in expected]
    assert [set(np.flatnonzero(x)) for x in answer.labels] == [set(out or ()) for out in expected]
    assert answer.scores is None


def test_thousands_of_queries_of_top_sets_match_the_reference() -> None:
    rng = np.random.default_rng(8)
    for pays, neighbours in product(KINDS, RELATIONS):
        counts = rng.choice([0, 1, 5, 20, 40], size=(3000, 4))
        mechanism = OnlineStable(4, 2.0, 0.01, 700, neighbours, TopSet(2), pays)
        tape = slow.Tape(int(rng.integers(2**31)))
        answer = mechanism.release(counts, tape)
        stream = []
        for histogram in counts.tolist():
            index = slow.ranking(histogram)
            gap = histogram[index[1]] - histogram[index[2]]
            stream.append((slow.surely_unmoved(gap, 1 if neighbours == "teacher_added" else 2), set(index[:2])))
        noises = [draw for _, _, draw in tape.draws]
        expected = slow.online(stream, 700, pays, mechanism.test.level, *noises)
        assert answer.answered.tolist() == [out is not None for out in expected]
        assert [set(np.flatnonzero(x)) for x in answer.labels] == [out or set() for out in expected]
        paid = answer.answered if pays == "stable" else ~answer.answered
        assert paid.sum() >= 700 and answer.answered.any()


def test_nothing_is_answered_after_the_cutoff() -> None:
    sure, unsure = [100], [50]
    mechanism = online(100, epsilon=5.0, delta=1e-3, cutoff=2)
    stream = np.array([sure, unsure, sure, unsure, sure, sure])
    assert mechanism.release(stream, np.random.default_rng(0)).answered.tolist() == [True, False, True] + [False] * 3
    few = online(100, epsilon=5.0, delta=1e-3, cutoff=2, pays="stable")
    assert few.release(stream, np.random.default_rng(0)).answered.tolist() == [True, False, True] + [False] * 3
    assert len(mechanism.release(np.zeros((0, 1), int), np.random.default_rng(0)).answered) == 0


def test_noise_has_its_size_and_thresholds_are_fresh() -> None:
    mechanism = online(200, epsilon=0.5, delta=0.01, cutoff=2)
    test = mechanism.test
    distance = round(test.level) + 12
    stream = np.full((3, 1), 101 + distance)
    rng = np.random.default_rng(3)
    records = np.array([mechanism.release(stream, rng).answered for _ in range(10_000)])
    both_fail = ~records[:, 0] & ~records[:, 1]  # two runs, independent
    both_pass = records[:, 0] & records[:, 1]  # one run, one threshold

    def chances(stretch1: float, stretch2: float) -> tuple[float, float]:
        scales = stretch1 * test.threshold_scale, stretch2 * test.test_scale
        exact = slow.Comparisons(test.level, *scales, distance, distance)
        return exact.chance([], [distance]) ** 2, exact.chance([distance] * 2, [])

    assert max(slow.z_score(both_fail, chances(1, 1)[0]), slow.z_score(both_pass, chances(1, 1)[1])) < 4
    for wrong in ((2 / 3, 1), (3 / 2, 1), (1, 2 / 3), (1, 3 / 2)):
        assert max(slow.z_score(both_fail, chances(*wrong)[0]), slow.z_score(both_pass, chances(*wrong)[1])) > 4
    exact = slow.Comparisons(test.level, test.threshold_scale, test.test_scale, distance, distance)
    assert slow.z_score(both_fail, exact.chance([], [distance] * 2)) > 4  # what one common threshold would give


# --- privacy, by exact sums over every transcript -----------------------------------------------------------------


def transcripts(mechanism: OnlineStable, streams: list[tuple[int, ...]]) -> list[dict]:
    """For each stream of one-label counts, the chance of every transcript (an answer or None per query)."""
    test, known = mechanism.test, {}
    labels, distances = mechanism.query.answers(np.array(streams).reshape(-1, 1), mechanism.neighbours)
    labels, distances = labels.reshape(np.shape(streams)), distances.astype(int).reshape(np.shape(streams))
    low, high = distances.min(), distances.max()
    exact = slow.Comparisons(test.level, test.threshold_scale, test.test_scale, int(low), int(high))
    length, result = len(streams[0]), []

    def run(free: tuple[int, ...], paid: tuple[int, ...]) -> float:
        if (free, paid) not in known:
            order = (paid, free) if mechanism.pays == "stable" else (free, paid)
            known[free, paid] = exact.chance(*order)
        return known[free, paid]

    for label, distance in zip(labels.tolist(), distances.tolist(), strict=True):
        chances: dict = {}
        for count in range(min(mechanism.cutoff, length) + 1):
            for paid in combinations(range(length), count):
                end = paid[-1] + 1 if count == mechanism.cutoff else length
                chance, start = 1.0, 0
                for stop in paid:
                    chance *= run(tuple(distance[start:stop]), (distance[stop],))
                    start = stop + 1
                chance *= run(tuple(distance[start:end]), ()) if count < mechanism.cutoff else 1.0
                answered = [x < end and (x in paid) == (mechanism.pays == "stable") for x in range(length)]
                outcome = tuple(label[x] if answered[x] else None for x in range(length))
                chances[outcome] = chances.get(outcome, 0.0) + chance
        assert sum(chances.values()) == pytest.approx(1)
        result.append(chances)
    return result


def excess(here: dict, there: dict, epsilon: float) -> float:
    return sum(max(0.0, chance - math.exp(epsilon) * there.get(outcome, 0.0)) for outcome, chance in here.items())


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("pays", KINDS)
@pytest.mark.parametrize("cutoff", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.8, 0.1), (3.0, 0.02)])
def test_streams_are_as_private_as_they_cost(epsilon, delta, cutoff: int, pays: str, neighbours: str) -> None:
    streams = list(product(range(6), repeat=3))
    mechanism = online(epsilon=epsilon, delta=delta, cutoff=cutoff, pays=pays, neighbours=neighbours)
    chances = dict(zip(streams, transcripts(mechanism, streams), strict=True))
    cost, worst = mechanism.cost(3), 0.0
    larger = min(0.99, 2 * cost.delta)
    converted = cost.epsilon(larger)
    for stream, move in product(streams, slow.moves(3, neighbours)):
        other = chances.get(tuple(c + d for c, d in zip(stream, move, strict=True)))
        if other is not None:
            worst = max(worst, excess(chances[stream], other, cost.pure_epsilon))
            assert excess(chances[stream], other, converted) <= larger
    assert 0 < worst <= cost.delta * (1 + 1e-9)


@pytest.mark.parametrize("cutoff", [1, 2])
def test_delta_does_not_grow_with_the_stream_when_unstable_answers_are_paid_for(cutoff: int) -> None:
    """Every query's answer differs between the neighbours: the worst case for delta."""
    for length in (1, 5, 30):
        mechanism = online(cutoff=cutoff, delta=0.05)
        here, there = transcripts(mechanism, [(2,) * length, (3,) * length])
        bad = 1 - sum(chance for outcome, chance in here.items() if not any(x is not None for x in outcome))
        cost = mechanism.cost(length)
        reached = excess(here, there, cost.pure_epsilon)
        assert reached * (1 - 1e-9) <= bad <= cost.delta * (1 + 1e-9)
        assert cost.delta == pytest.approx(0.05 * min(length, cutoff))
        assert reached == pytest.approx(1 - 0.95 ** min(length, cutoff), rel=1e-6)  # the sum is all but met


def test_delta_grows_with_the_stream_when_stable_answers_are_paid_for() -> None:
    mechanism = online(pays="stable", delta=1e-4)
    for length in (1, 5, 30):
        here, there = transcripts(mechanism, [(2,) * length, (3,) * length])
        reached = excess(here, there, mechanism.cost(length).pure_epsilon)
        assert 0.8 * length * 1e-4 < reached <= mechanism.cost(length).delta


def sharpest_pair(length: int, distance: int, last: int) -> list[tuple[int, ...]]:
    """A ballot of 400 leaves: sure answers become less sure, the last one, below half, becomes surer."""
    before = (201 + distance,) * (length - 1) + (200 - last,)
    return [before, tuple(c - 1 for c in before)]


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_half_the_noise_is_not_private(neighbours: str) -> None:
    settings = {"cutoff": 1, "delta": 1e-6, "neighbours": neighbours}
    right, half = online(400, epsilon=1.0, **settings), online(400, epsilon=2.0, **settings)
    level = round(half.test.level)
    worst = 0.0
    for distance, last in product(range(level - 6, level + 14, 2), repeat=2):
        pair = sharpest_pair(20, distance, last)
        for mechanism in (right, half):
            here, there = transcripts(mechanism, pair)
            reached = max(excess(here, there, 1.0), excess(there, here, 1.0))
            if mechanism is right:
                assert reached <= 1e-6
            else:
                worst = max(worst, reached)
    assert worst > 0.02


# --- costs, calibration, refusals ---------------------------------------------------------------------------------


def test_cost_of_a_stream() -> None:
    mechanism = online(epsilon=0.1, delta=1e-9, cutoff=50)
    assert mechanism.cost(0).epsilon(1e-6) == 0
    assert mechanism.cost(1).pure_epsilon == pytest.approx(0.1)
    assert mechanism.cost(50) == mechanism.cost(10**6)
    assert mechanism.cost(10**6).delta == pytest.approx(50e-9)
    assert mechanism.cost(600).epsilon(1e-6) < 50 * 0.1
    few = online(epsilon=0.1, delta=1e-9, cutoff=50, pays="stable")
    assert few.cost(600).delta == pytest.approx(600e-9)
    assert few.cost(600).pure_epsilon == pytest.approx(5.0)
    assert online(epsilon=math.inf).cost(3).epsilon(0.2) == math.inf


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("pays", KINDS)
def test_calibrated_streams_spend_what_was_asked(pays: str, neighbours: str) -> None:
    fixed = {"num_labels": 40, "cutoff": 30, "pays": pays, "query": Majority(800)}
    for queries in (1, 600):
        made = calibrate(OnlineStable, epsilon=2.0, delta=1e-6, queries=queries, neighbours=neighbours, **fixed)
        assert 0.999 * 2.0 <= made.cost(queries).epsilon(1e-6) <= 2.0
        again = OnlineStable.at_rho(0.01, neighbours=neighbours, queries=queries, delta=1e-6, **made.fixed())
        assert again.fixed() == made.fixed()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cutoff": 0}, "cutoff must be a whole number >= 1, got 0"),
        ({"epsilon": -1.0}, "epsilon must be > 0, got -1.0"),
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"pays": "both"}, "pays must be one of unstable, stable, got 'both'"),
        ({"p1": 2}, "p1 must be in"),
        ({"query": TopSet(1)}, "k must be"),
        ({"neighbours": "rows"}, "neighbours must be one of"),
        ({"offset": "loose"}, "offset must be one of"),
    ],
)
def test_bad_settings_are_refused(change, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        online(**change)


@pytest.mark.parametrize("queries", [-1, 2.5, None])
def test_bad_numbers_of_queries_are_refused(queries) -> None:
    with pytest.raises(SettingError, match="queries must be a whole number"):
        online().cost(queries)

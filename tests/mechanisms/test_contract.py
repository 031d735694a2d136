"""What every mechanism promises, whatever it is."""

import dataclasses

import numpy as np
import pytest
from catalogue import CASES, CATALOGUE

from pate.accounting import PrivacyCost, calibrate
from pate.errors import SettingError
from pate.noise import seeded

K, N, DELTA = 6, 40, 1e-5
COUNTS = np.random.default_rng(0).integers(0, 51, (N, K))
pytestmark = pytest.mark.parametrize(("name", "neighbours"), CASES)


def mechanism(name: str, neighbours: str, noise: float = 1.0):
    return CATALOGUE[name].make(noise, K, neighbours)


def test_no_query_costs_nothing(name, neighbours):
    assert mechanism(name, neighbours).cost(0).epsilon(DELTA) == 0


def test_no_noise_costs_without_end(name, neighbours):
    assert mechanism(name, neighbours, noise=1e-9).cost(1).epsilon(DELTA) > 1e4


def test_all_noise_costs_next_to_nothing(name, neighbours):
    assert mechanism(name, neighbours, noise=1e9).cost(1).epsilon(DELTA) < 1e-3


def test_more_queries_never_cost_less(name, neighbours):
    costs = [mechanism(name, neighbours).cost(n).epsilon(DELTA) for n in (0, 1, 2, 10, 100, 1000)]
    assert costs == sorted(costs) and costs[-1] >= costs[1] > 0


def test_more_noise_never_costs_more(name, neighbours):
    costs = [mechanism(name, neighbours, noise).cost(10).epsilon(DELTA) for noise in (0.25, 0.5, 1, 2, 4)]
    assert costs == sorted(costs, reverse=True) and costs[0] > costs[-1]


def test_tight_is_never_above_published(name, neighbours):
    cost = mechanism(name, neighbours).cost(25)
    assert cost.epsilon(DELTA) <= cost.epsilon(DELTA, "published")


def test_changing_a_ballot_costs_at_least_as_much_as_adding_one(name, neighbours):
    if len(CATALOGUE[name].neighbours) < 2:
        pytest.skip("offered for one neighbour relation only")
    added, changed = (
        mechanism(name, relation).cost(7).epsilon(DELTA) for relation in ("teacher_added", "teacher_changed")
    )
    assert added <= changed


def test_costs_add_like_queries(name, neighbours):
    if not CATALOGUE[name].linear:
        pytest.skip("priced by the stream")
    m = mechanism(name, neighbours)
    assert (m.cost(3) + m.cost(4)).epsilon(DELTA) == pytest.approx(m.cost(7).epsilon(DELTA), rel=1e-9)


def test_cost_survives_the_ledger(name, neighbours):
    cost = mechanism(name, neighbours).cost(9)
    assert PrivacyCost.from_json(cost.to_json()).epsilon(DELTA) == cost.epsilon(DELTA)


def test_answer_has_the_promised_shape(name, neighbours):
    answer = mechanism(name, neighbours).release(COUNTS, seeded(1))
    assert answer.labels.shape == (N, K) and answer.labels.dtype == np.bool_
    assert answer.answered.shape == (N,) and answer.answered.dtype == np.bool_
    assert answer.scores is None or answer.scores.shape == (N, K)
    assert not answer.labels[~answer.answered].any()


def test_seeded_noise_repeats_and_says_so(name, neighbours):
    first, second = (mechanism(name, neighbours).release(COUNTS, seeded(5)) for _ in range(2))
    assert np.array_equal(first.labels, second.labels) and first.seeded
    assert not mechanism(name, neighbours).release(COUNTS).seeded


def test_counts_are_left_alone(name, neighbours):
    counts = COUNTS.copy()
    mechanism(name, neighbours).release(counts, seeded(1))
    assert np.array_equal(counts, COUNTS)


def test_no_query_gives_an_empty_answer(name, neighbours):
    assert mechanism(name, neighbours).release(COUNTS[:0], seeded(1)).labels.shape == (0, K)


def test_settings_are_frozen(name, neighbours):
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism(name, neighbours).num_labels = 3


@pytest.mark.parametrize(
    "counts",
    [
        np.full((2, K), -1),
        np.full((2, K), np.nan),
        np.full((2, K), np.inf),
        np.zeros((2, K + 1), int),
        np.zeros((2, 2, K), int),
        np.full((2, K), "a"),
    ],
    ids=["negative", "nan", "infinite", "wrong K", "three axes", "text"],
)
def test_bad_counts_are_refused(name, neighbours, counts):
    if counts.dtype.kind == "i" and counts.min() < 0 and mechanism(name, neighbours).lowest_count < 0:
        pytest.skip("projections may be negative")
    with pytest.raises(SettingError, match="counts must be"):
        mechanism(name, neighbours).release(counts, seeded(1))


def test_fractions_are_refused_where_counts_are_whole(name, neighbours):
    m = mechanism(name, neighbours)
    if not m.whole_counts:
        pytest.skip("scaled ballots make fractions")
    with pytest.raises(SettingError, match="whole numbers"):
        m.release(np.full((1, K), 0.5), seeded(1))


@pytest.mark.parametrize("votes", [np.zeros((3, 2, K + 1), bool), np.zeros((2, K), bool), np.zeros((3, 2, K), int)])
def test_bad_votes_are_refused(name, neighbours, votes):
    with pytest.raises(SettingError, match="votes must be"):
        mechanism(name, neighbours).tally(votes)


def test_unknown_neighbours_are_refused(name, neighbours):
    with pytest.raises(SettingError, match="neighbours must be"):
        mechanism(name, "teacher_replaced")


@pytest.mark.parametrize(("epsilon", "queries"), [(0.3, 1), (2.0, 50), (8.0, 600)])
def test_calibration_spends_what_it_may(name, neighbours, epsilon, queries):
    kind = type(mechanism(name, neighbours))
    fixed = {"num_labels": K} | CATALOGUE[name].fixed
    m = calibrate(kind, epsilon=epsilon, delta=DELTA, queries=queries, neighbours=neighbours, **fixed)
    assert 0.999 * epsilon <= m.cost(queries).epsilon(DELTA) <= epsilon


def test_calibration_keeps_the_other_settings(name, neighbours):
    m = mechanism(name, neighbours)
    fixed = {key: value for key, value in m.fixed().items() if key != "regulariser"}
    again = calibrate(type(m), epsilon=1.0, delta=DELTA, queries=5, neighbours=neighbours, **fixed)
    kept = again.fixed()
    assert {key: kept[key] for key in fixed} == fixed

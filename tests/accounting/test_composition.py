"""Composition theorems against enumeration: every sequence of answers of the worst mechanisms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import comb, gammaln

from pate.accounting.composition import advanced, basic, best, bounded_range, optimal_homogeneous
from pate.accounting.cost import PrivacyCost
from pate.accounting.events import BoundedRange, Gaussian, Laplace, NoisyMax, Pure
from pate.errors import SettingError

epsilons = st.floats(1e-3, 8.0)
deltas = st.floats(1e-12, 0.9)


def two_answers(loss: float, span: float) -> tuple[tuple[float, float], ...]:
    """(probability, privacy loss) of a mechanism with the two losses `loss` and `loss - span`."""
    other = (1 - math.exp(loss - span)) / (math.exp(loss) - math.exp(loss - span))
    chance = math.exp(loss) * other
    return (chance, loss), (1 - chance, loss - span)


def response(epsilon: float) -> tuple[tuple[float, float], ...]:
    """Randomised response, the worst epsilon-DP mechanism."""
    return two_answers(epsilon, 2 * epsilon)


def exact_delta(mechanisms, epsilon: float) -> float:
    """delta of a composition at epsilon, from every sequence of answers."""
    total = 0.0
    for answers in itertools.product(*mechanisms):
        loss = sum(loss for _, loss in answers)
        total += math.prod(chance for chance, _ in answers) * max(0.0, -math.expm1(epsilon - loss))
    return total


@given(epsilon=epsilons, count=st.integers(1, 8), delta=deltas)
def test_optimal_is_exact_for_randomised_response(epsilon, count, delta):
    found = optimal_homogeneous(epsilon, count, delta)
    exact = exact_delta([response(epsilon)] * count, found)
    assert exact == pytest.approx(delta, rel=1e-7) if found > 0 else exact <= delta * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 2, 5, 30, 101])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_lemma_4_5_as_printed(epsilon, count):
    checked = 0
    for i in range(1, count // 2 + 1):
        terms = (
            comb(count, j) * (math.exp((count - j) * epsilon) - math.exp((count - 2 * i + j) * epsilon))
            for j in range(i)
        )
        delta = sum(terms) / (1 + math.exp(epsilon)) ** count
        if 1e-200 < delta < 0.999:
            found = optimal_homogeneous(epsilon, count, delta)
            assert found == pytest.approx((count - 2 * i) * epsilon, rel=1e-7, abs=1e-9)
            checked += 1
    assert checked or count == 1


@pytest.mark.parametrize("count", [1000, 99_999, 100_000])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_optimal_for_many_mechanisms(count, epsilon, delta):
    """Against the sum over all numbers of flipped responses."""
    found = optimal_homogeneous(epsilon, count, delta)
    flipped = np.arange(count + 1)
    ways = gammaln(count + 1) - gammaln(flipped + 1) - gammaln(count - flipped + 1)
    chances = np.exp(ways - flipped * epsilon - count * math.log1p(math.exp(-epsilon)))
    shares = -np.expm1(np.minimum(0.0, found - (count - 2 * flipped) * epsilon))
    assert float(chances @ shares) == pytest.approx(delta, rel=1e-6)
    assert found <= advanced([epsilon] * count, delta)


def test_ends_have_values():
    assert optimal_homogeneous(0.0, 9, 1e-6) == optimal_homogeneous(0.3, 0, 1e-6) == 0
    assert optimal_homogeneous(math.inf, 1, 1e-6) == advanced([0.1, math.inf], 1e-6) == math.inf
    assert bounded_range(math.inf, 2, 1e-6) == math.inf and bounded_range(0.2, 0, 1e-6) == 0
    assert basic([]) == advanced([], 1e-6) == 0
    for theorem in (optimal_homogeneous, bounded_range):
        assert theorem(0.3, 7, 0.0) == pytest.approx(2.1)
    assert advanced([0.3] * 7, 0.0) == pytest.approx(2.1)
    assert optimal_homogeneous(500.0, 7, 1e-6) == pytest.approx(3500.0)
    assert optimal_homogeneous(1e-9, 100, 1e-6) == 0


@given(epsilon=epsilons, count=st.integers(1, 5000), delta=deltas)
def test_optimal_is_the_least_for_pure_mechanisms(epsilon, count, delta):
    assert optimal_homogeneous(epsilon, count, delta) <= advanced([epsilon] * count, delta) * (1 + 1e-9)


@given(values=st.lists(st.floats(1e-3, 3.0), min_size=1, max_size=8), delta=deltas)
def test_advanced_holds_for_different_randomised_responses(values, delta):
    found = advanced(values, delta)
    assert exact_delta([response(epsilon) for epsilon in values], found) <= delta * (1 + 1e-9)
    assert found <= basic(values)


def test_each_of_the_three_expressions_is_used():
    assert advanced([0.1] * 4, 1e-6) == pytest.approx(0.4)
    mean, squares = 900 * 0.01 * math.tanh(0.005), 900 * 1e-4
    assert advanced([0.01] * 900, 0.01) == pytest.approx(mean + math.sqrt(2 * squares * math.log(math.e + 0.3 / 0.01)))
    mean, squares = 900 * 0.1 * math.tanh(0.05), 9.0
    assert advanced([0.1] * 900, 1e-6) == pytest.approx(mean + math.sqrt(2 * squares * math.log(1e6)))


@given(
    eta=st.floats(1e-3, 6.0),
    places=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8),
    delta=deltas,
)
def test_bounded_range_holds_for_every_two_answer_mechanism(eta, places, delta):
    """Two answers whose losses are eta apart, wherever 0 lies between them: the extreme points of the class."""
    mechanisms = [two_answers(place * eta, eta) for place in places]
    assert exact_delta(mechanisms, bounded_range(eta, len(places), delta)) <= delta * (1 + 1e-9)


def exponential(scores, moved, scale):
    """(probability, privacy loss) of the exponential mechanism's answers."""
    first, second = (np.exp(np.asarray(u) / scale) for u in (scores, moved))
    first, second = first / first.sum(), second / second.sum()
    return tuple(zip(first.tolist(), np.log(first / second).tolist(), strict=True))


@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.2])
def test_bounded_range_holds_for_exponential_mechanisms_and_a_quarter_does_not(delta):
    rng = np.random.default_rng(4)
    broken = 0
    for _ in range(60):
        eta = float(rng.uniform(0.2, 2.0))
        scores = rng.integers(0, 4, 3).astype(float)
        mechanism = exponential(scores, scores + rng.integers(0, 2, 3), 1 / eta)
        losses = [loss for _, loss in mechanism]
        assert max(losses) - min(losses) <= eta * (1 + 1e-12)
        assert exact_delta([mechanism] * 6, bounded_range(eta, 6, delta)) <= delta
        broken += exact_delta([mechanism] * 6, bounded_range(eta / 4, 6, delta)) > delta
    assert broken


def test_figure_1_bounded_range_beats_the_optimum_for_pure_mechanisms():
    for epsilon in (0.01, 0.05, 0.1):
        ratios = [optimal_homogeneous(epsilon, k, 1e-6) / bounded_range(epsilon, k, 1e-6) for k in (5, 50, 200)]
        assert ratios[0] == pytest.approx(1.0, rel=1e-2) and 1.4 < ratios[1] < ratios[2] < 2


def test_best_takes_the_least_that_holds():
    assert best([(Pure(0.1), 100)], 1e-6) == optimal_homogeneous(0.1, 100, 1e-6)
    assert best([(Pure(0.1), 60), (Laplace(0.1), 40)], 1e-6) == optimal_homogeneous(0.1, 100, 1e-6)
    assert best([(BoundedRange(0.1), 100)], 1e-6) == bounded_range(0.1, 100, 1e-6)
    assert best([(BoundedRange(0.1), 100), (Pure(0.0), 5)], 1e-6) == bounded_range(0.1, 100, 1e-6)
    mixed = [(BoundedRange(0.1), 100), (Pure(0.05), 30)]
    assert best(mixed, 1e-6) == pytest.approx(advanced([0.1] * 100 + [0.05] * 30, 1e-6))
    assert best([(Pure(0.1), 3)], 1e-9) == pytest.approx(0.3)
    assert best([(Pure(1e-4), 10**8)], 1e-6) == pytest.approx(
        1e8 * 1e-4 * math.tanh(5e-5) + math.sqrt(2 * math.log(1e6))
    )
    assert best([], 1e-6) == best([(Pure(0.0), 5)], 1e-6) == best([(Pure(2.0), 0)], 1e-6) == 0
    assert best([(Pure(0.1), 3)], 0.0) == pytest.approx(0.3)


@pytest.mark.parametrize("event", [Gaussian(0.1), NoisyMax(5, 0.1), Pure(math.inf)])
def test_best_has_nothing_to_say_without_a_pure_epsilon(event):
    assert best([(Pure(0.1), 3), (event, 1)], 1e-6) == math.inf


@given(epsilon=st.floats(1e-3, 4.0), count=st.integers(1, 2000), delta=st.floats(1e-10, 0.1))
def test_best_grows_with_the_count(epsilon, count, delta):
    for kind in (Pure, BoundedRange):
        few, more = (best([(kind(epsilon), n)], delta) for n in (count, count + 1))
        assert few <= more * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.001, 0.02, 0.3, 2.0, 6.0])
@pytest.mark.parametrize("count", [1, 3, 40, 900])
def test_for_bounded_ranges_the_optimum_over_pure_mechanisms_is_never_the_least(epsilon, count):
    """Why `best` does not ask for it: the Rényi curve of a bounded range is below."""
    renyi = (PrivacyCost.of(BoundedRange(epsilon), neighbours="teacher_added") * count).epsilon(1e-6)
    assert renyi <= optimal_homogeneous(epsilon, count, 1e-6) * (1 + 1e-4)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: basic([0.1, -1]), "epsilon must be a number >= 0, got -1"),
        (lambda: advanced([math.nan], 0.1), "epsilon must be"),
        (lambda: advanced([0.1], 1.0), r"delta must be in \[0, 1\), got 1.0"),
        (lambda: bounded_range(-0.1, 3, 0.1), "eta must be"),
        (lambda: bounded_range(0.1, 2.5, 0.1), "count must be a whole number >= 0, got 2.5"),
        (lambda: optimal_homogeneous(0.1, -1, 0.1), "count must be"),
        (lambda: optimal_homogeneous(0.1, 1, math.nan), "delta must be"),
        (lambda: best([(Pure(0.1), 1)], -0.5), "delta must be"),
    ],
)
def test_bad_arguments_are_refused(ask, message):
    with pytest.raises(SettingError, match=message):
        ask()

"""Limited domain: against the pseudocode, against exact probabilities of neighbouring histograms, and its budget."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import reference_limited_domain as slow
from reference import Recorded

from pate.accounting import PrivacyCost
from pate.accounting.composition import bounded_range
from pate.errors import BudgetExceeded, SettingError
from pate.mechanisms.limited_domain import LimitedDomain, PayWhatYouGet, laplace_difference_quantile, top_indices
from pate.noise import seeded

RELATIONS = ("teacher_added", "teacher_changed")
REACH = {"teacher_added": 1, "teacher_changed": 2}
OFFSETS = {"gumbel": slow.gumbel_offset, "laplace": slow.laplace_offset}
DISTRIBUTIONS = {"gumbel": slow.gumbel_distribution, "laplace": slow.laplace_distribution}
SHAPES = [(2, 1, 1, 1), (3, 2, 2, 4), (3, 1, 2, 1), (7, 3, 5, 30), (7, 1, 1, 30), (40, 5, 20, 800)]  # K, k, k-bar, T


def make(**changed) -> LimitedDomain:
    settings = {"num_labels": 3, "k": 1, "max_k": 2, "epsilon": 1.0, "delta_t": 0.05, "neighbours": "teacher_added"}
    return LimitedDomain(**(settings | changed))


def printed_scale(m: LimitedDomain) -> float:
    """1/epsilon of Algorithm 1 for one ballot more or less, and what stands for it elsewhere."""
    if m.noise == "gumbel":
        return REACH[m.neighbours] / m.epsilon
    return min(REACH[m.neighbours] * (m.ballot_size or m.num_labels), m.max_k + 1) / m.epsilon


def printed_bottom(m: LimitedDomain, histogram: list[int], k_bar: int) -> float:
    votes = m.ballot_size or m.num_labels
    reach, scale = REACH[m.neighbours], printed_scale(m)
    return slow.bottom_count(histogram, k_bar, m.delta_t, votes, reach, scale, OFFSETS[m.noise])


def slow_answer(m: LimitedDomain, histogram: list[int], draws: Iterator[np.ndarray]) -> slow.Outcome:
    """The pseudocode on the noise that the mechanism drew for this query."""
    k_bar = m.max_k
    if m.private_k_bar and m.max_k > m.k:
        thresholds = {j: printed_bottom(m, histogram, j) for j in range(m.k, m.max_k + 1)}
        k_bar = slow.private_k_bar(thresholds, next(draws).tolist())
    *noise, last = next(draws).tolist()
    return slow.limited_domain(histogram, m.k, k_bar, printed_bottom(m, histogram, k_bar), noise[:k_bar], last)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
@pytest.mark.parametrize("ballot_size", [None, 1, 2])
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize(("labels", "k", "max_k", "teachers"), SHAPES)
def test_same_noise_same_ranking(relation, noise, ballot_size, private, labels, k, max_k, teachers):
    m = make(num_labels=labels, k=k, max_k=max_k, neighbours=relation, noise=noise, epsilon=3.0)
    m = replace(m, ballot_size=ballot_size, private_k_bar=private)
    counts, record = slow.histograms(labels, teachers), Recorded()
    ranked = m.ranked(counts, record)
    expected = []
    for row, histogram in enumerate(counts.tolist()):
        answer = slow_answer(m, histogram, iter([draws[row] for draws in record.draws]))
        expected.append([label for label in answer if label != slow.BOTTOM])
    assert [ranking.tolist() for ranking in ranked] == expected
    assert len(record.draws) == 1 + (private and max_k > k)
    assert any(expected) and max(map(len, expected)) <= k and min(map(len, expected)) == 0

    answer = m.release(counts, Recorded())
    assert [set(np.flatnonzero(row).tolist()) for row in answer.labels] == [set(ranking) for ranking in expected]
    assert np.array_equal(answer.answered, [len(ranking) > 0 for ranking in expected])


def distributions(m: LimitedDomain, stretch: float = 1.0, lower: float = 0.0):
    """Exact answer probabilities, from the mechanism's own scale and threshold; wrong ones on request."""
    known: dict[tuple[int, ...], dict] = {}

    def of(histogram: list[int]) -> dict:
        key = tuple(histogram)
        if key not in known:
            after = histogram[slow.by_count(histogram)[m.max_k]]
            reach, scale = REACH[m.neighbours], m.scale * stretch
            bottom = after + reach + (m.margin(m.max_k) - reach) * stretch - lower
            known[key] = DISTRIBUTIONS[m.noise](histogram, m.k, m.max_k, bottom, scale)
        return known[key]

    return of


def worst_overspend(m: LimitedDomain, most: int, **wrong: float) -> float:
    """The largest delta of a neighbouring pair over the delta that the cost allows, at several deltas."""
    of, votes = distributions(m, **wrong), m.ballot_size or m.num_labels
    claims = [(m.cost().epsilon(times * m.delta_t), times * m.delta_t) for times in (1.0, 1.2, 2.0, 5.0)]
    return max(
        slow.excess(of(first), of(second), epsilon) / delta
        for first, second in slow.pairs(m.num_labels, most, m.neighbours, votes)
        for epsilon, delta in claims
    )


TINY = [
    (4, 2, 2, None, 2),
    (4, 1, 2, 2, 2),
    (2, 1, 1, None, 5),
    (3, 1, 2, None, 3),
    (3, 2, 2, None, 3),
    (3, 1, 1, 1, 3),
    (3, 2, 2, 1, 3),
    (3, 1, 2, 2, 3),
]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
@pytest.mark.parametrize(("labels", "k", "max_k", "ballot_size", "most"), TINY)
@pytest.mark.parametrize("epsilon", [0.4, 1.5])
def test_exact_probabilities_of_neighbours_keep_the_promise(
    relation, noise, labels, k, max_k, ballot_size, most, epsilon
):
    m = make(num_labels=labels, k=k, max_k=max_k, neighbours=relation, noise=noise)
    m = replace(m, ballot_size=ballot_size, epsilon=epsilon, delta_t=0.02)
    assert worst_overspend(m, most) <= 1 + 1e-4


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
@pytest.mark.parametrize("wrong", [{"stretch": 0.5}, {"lower": 1.0}], ids=["half the noise", "bottom one vote lower"])
def test_the_check_finds_a_broken_promise(relation, noise, wrong):
    m = make(num_labels=3, k=1, max_k=1, neighbours=relation, noise=noise, ballot_size=1, epsilon=1.5, delta_t=0.02)
    assert worst_overspend(m, 3, **wrong) > 1.05 > 1.001 > worst_overspend(m, 3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_the_proof_says_about_neighbours(relation):
    """Lines 1 and 3 of the module's proof, for every histogram of four labels and every ballot."""
    reach, seen = REACH[relation], Counter()
    for votes, (first, second) in ((v, pair) for v in (1, 2, 4) for pair in slow.pairs(4, 2, relation, v)):
        orders = slow.by_count(first), slow.by_count(second)
        for k_bar in (1, 2, 3):
            domain, other = (set(order[:k_bar]) for order in orders)
            after, after_other = first[orders[0][k_bar]], second[orders[1][k_bar]]
            left, joined = sorted(domain - other), sorted(other - domain)
            moves = [second[label] - first[label] for label in domain & other] + [after_other - after]
            for renamed in itertools.permutations(joined):
                steps = moves + [second[new] - first[old] for old, new in zip(left, renamed, strict=True)]
                assert max(map(abs, steps)) <= 1
                assert sum(map(abs, steps)) <= min(reach * votes, k_bar + 1)
                assert relation == "teacher_changed" or min(steps) >= 0 or max(steps) <= 0
            assert len(left) <= min(votes, k_bar, 4 - k_bar)
            assert all(first[label] <= after + reach for label in left)
            seen[len(left), any(first[label] == after + reach for label in left)] += 1
    assert seen[1, True] and seen[2, False], "the bounds are reached"


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
def test_answers_are_as_frequent_as_computed(relation, noise):
    m = make(num_labels=4, k=2, max_k=3, neighbours=relation, noise=noise, epsilon=0.5)
    histogram, draws = [30, 3, 33, 36], 40_000
    counted = Counter(tuple(ranking.tolist()) for ranking in m.ranked(np.tile(histogram, (draws, 1)), seeded(3)))
    for outcome, chance in distributions(m)(histogram).items():
        seen = counted[tuple(label for label in outcome if label != slow.BOTTOM)]
        assert abs(seen - draws * chance) <= 4.5 * math.sqrt(draws * chance * (1 - chance)) + 1


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
def test_noise_has_the_right_scale(relation, noise):
    m = make(num_labels=2, k=1, max_k=1, neighbours=relation, noise=noise, epsilon=0.01)
    gap, draws = round(m.margin(1) + 1.2 * m.scale), 20_000
    passed = m.release(np.tile([gap, 0], (draws, 1)), seeded(11)).answered.mean()

    def standard_errors(factor: float) -> float:
        chance = slow.chance_to_pass(noise, (gap - m.margin(1)) / (factor * m.scale))
        return abs(passed - chance) / math.sqrt(chance * (1 - chance) / draws)

    assert standard_errors(1.0) < 4 and min(standard_errors(2 / 3), standard_errors(3 / 2)) > 8


@pytest.mark.parametrize("relation", RELATIONS)
def test_private_k_bar_prefers_low_thresholds(relation):
    m = make(num_labels=30, k=1, max_k=7, neighbours=relation, epsilon=1.0, private_k_bar=True)
    histogram = [[99, 95, 96] + [3] * 27]
    best = min(range(1, 8), key=lambda k_bar: sorted(histogram[0])[-k_bar - 1] + m.margin(k_bar))
    assert best == 3
    chosen = m._threshold(top_indices(np.repeat(histogram, 2000, axis=0), 8)[0], seeded(0))[0].ravel()
    assert np.bincount(chosen).argmax() == best and chosen.min() >= 3 and chosen.max() <= 7
    assert dict(m.cost().counted) == {next(iter(make(neighbours=relation).cost().counted))[0]: 2}, "k + 1 rounds"


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", ["gumbel", "laplace"])
def test_exact_probabilities_with_a_private_k_bar_keep_the_promise(relation, noise):
    """The choice of k-bar and the answer together, as if both were released."""
    settings = {"num_labels": 3, "neighbours": relation, "noise": noise, "delta_t": 0.02, "ballot_size": 2}
    m = make(k=1, max_k=2, epsilon=0.8, private_k_bar=True, **settings)

    def of(histogram: list[int]) -> dict:
        bottoms = {j: histogram[slow.by_count(histogram)[j]] + m.margin(j) for j in (1, 2)}
        odds = {j: math.exp(-bottom / m.scale) for j, bottom in bottoms.items()}
        answers = {j: DISTRIBUTIONS[noise](histogram, 1, j, bottoms[j], m.scale) for j in (1, 2)}
        return {(j, o): odds[j] / sum(odds.values()) * p for j in (1, 2) for o, p in answers[j].items()}

    known = {h: of(list(h)) for h in itertools.product(range(5), repeat=3)}
    claims = [(m.cost().epsilon(delta), delta) for delta in (0.02, 0.03, 0.1)]
    found = [
        slow.excess(known[tuple(first)], known[tuple(second)], epsilon) / delta
        for first, second in slow.pairs(3, 3, relation, 2)
        for epsilon, delta in claims
    ]
    assert 0.3 < max(found) <= 1 + 1e-4


def test_no_k_bar_to_choose_costs_nothing_more():
    assert make(k=2, private_k_bar=True).cost() == make(k=2).cost()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("k", [1, 2, 10, 100, 1000])
def test_never_above_theorem_1(relation, delta, epsilon, k):
    m = make(num_labels=2000, k=k, max_k=1000, epsilon=epsilon, delta_t=delta, neighbours=relation)
    assert m.cost().epsilon(2 * delta) <= bounded_range(epsilon, k, delta) * (1 + 1e-9)


def test_threshold_as_printed():
    m = make(num_labels=100, k=10, max_k=30, epsilon=0.1, delta_t=1e-6)
    assert m.margin(30) == pytest.approx(1 + math.log(30 / 1e-6) / 0.1)
    assert m.margin(99) == pytest.approx(1 + math.log(1 / 1e-6) / 0.1)
    assert replace(m, ballot_size=4).margin(30) == pytest.approx(1 + math.log(4 / 1e-6) / 0.1)


@pytest.mark.parametrize("failure", [0.49, 0.1, 1e-3, 1e-9, 1e-30])
def test_laplace_quantile(failure):
    assert laplace_difference_quantile(np.array(failure)) == pytest.approx(slow.laplace_offset(failure), rel=1e-9)
    assert laplace_difference_quantile(np.array(0.9)) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("relation", RELATIONS)
def test_laplace_price_depends_on_the_ballots_and_not_on_k(relation):
    settings = {"num_labels": 50, "max_k": 40, "noise": "laplace", "neighbours": relation, "epsilon": 0.8}
    one, many = (make(k=k, ballot_size=3, **settings) for k in (1, 30))
    assert one.cost() == many.cost() and one.cost().pure_epsilon == pytest.approx(0.8)
    assert one.scale == pytest.approx(3 * REACH[relation] / 0.8)
    assert make(k=1, **settings).scale == pytest.approx(41 / 0.8)


def test_ballots_are_cut_to_their_size():
    votes = np.random.default_rng(0).random((6, 5, 8)) < 0.6
    tally = make(num_labels=8, ballot_size=2).tally(votes)
    expected = np.zeros((5, 8), int)
    for ballot, query in itertools.product(range(6), range(5)):
        for label in np.flatnonzero(votes[ballot, query])[:2]:
            expected[query, label] += 1
    assert np.array_equal(tally, expected) and tally.num_teachers == 6
    assert np.array_equal(make(num_labels=8).tally(votes), votes.sum(0))


@pytest.mark.parametrize("labels", [1, 2, 7, 1000])
def test_top_indices(labels):
    counts = np.random.default_rng(labels).integers(0, 5, (50, labels)).astype(np.float64)
    order = np.argsort(-counts, axis=1, kind="stable")
    for how_many in {1, min(3, labels), labels}:
        values, found = top_indices(counts, how_many)
        assert np.array_equal(found, order[:, :how_many])
        assert np.array_equal(values, np.take_along_axis(counts, order, axis=1)[:, :how_many])


def test_a_million_candidates():
    counts = np.random.default_rng(0).poisson(1.0, 1_280_000)
    counts[[70_000, 5, 1_279_999]] = 900, 800, 700
    m = make(num_labels=counts.size, k=50, max_k=1000, epsilon=0.5, delta_t=1e-9)
    assert [ranking.tolist() for ranking in m.ranked(counts, seeded(0))] == [[70_000, 5, 1_279_999]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": 3}, "k must be a whole number >= 1 and <= 2"),
        ({"max_k": 3}, "max_k must be a whole number >= 1 and <= 2"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": math.nan}, "epsilon must be > 0"),
        ({"delta_t": 0.0}, "delta_t must be in"),
        ({"neighbours": "record"}, "neighbours must be"),
        ({"noise": "gaussian"}, "noise must be one of"),
        ({"ballot_size": 0}, "ballot_size must be"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(SettingError, match=message):
        make(**changed)


def test_noise_on_a_grid_is_refused():
    record = Recorded(exact=True)
    with pytest.raises(SettingError, match="rng must be continuous"):
        make().release(np.array([[3, 2, 1]]), record)
    assert not record.draws


def test_counts_too_large_to_order_are_refused():
    with pytest.raises(SettingError, match="counts must be <="):
        make().release(np.array([[2**62, 2, 1]]))


def budget(**changed) -> PayWhatYouGet:
    settings = {"k_star": 12, "ell_star": 9, "epsilon": 3.0, "delta_t": 0.05, "neighbours": "teacher_added"}
    return PayWhatYouGet(**(settings | changed))


@pytest.mark.parametrize("private", [False, True])
def test_pay_what_you_get_follows_algorithm_2(private):
    asked = [(row.tolist(), 1 + i % 3, 3 + i % 2) for i, row in enumerate(slow.histograms(7, 30, 60))]
    pay, record, answers = budget(private_k_bar=private), Recorded(), []
    for histogram, k, max_k in asked:
        before = len(record.draws), pay.items_left, pay.queries_left
        try:
            answers.append(pay.ask(np.array(histogram), k, max_k, record).tolist())
        except BudgetExceeded:
            assert before == (len(record.draws), pay.items_left, pay.queries_left), "refused before it drew"
    draws, rounds = (drawn[0] for drawn in record.draws), 0

    def answer(histogram, k, max_k):
        nonlocal rounds
        m = make(num_labels=7, k=k, max_k=max_k, epsilon=3.0, private_k_bar=private)
        outcome = slow_answer(m, histogram, draws)
        rounds += len(outcome) + (private and max_k > k)
        return outcome

    if not private:
        expected = slow.pay_what_you_get(asked, 12, 9, answer)
    else:
        expected = [answer(*query) for query in asked[: len(answers)]]
    assert answers == [[label for label in outcome if label != slow.BOTTOM] for outcome in expected]
    assert pay.items_left == 12 - rounds and pay.queries_left == 9 - len(answers)
    assert len(answers) >= 5 and (pay.items_left == 0 or pay.queries_left == 0)


def test_budget_is_known_before_and_stays():
    pay = budget(k_star=100, ell_star=20, epsilon=0.05, delta_t=1e-9)
    before = pay.cost
    pay.ask(np.array([500, 1, 2]), 1, 2, seeded(0))
    assert pay.cost == before and before.delta == pytest.approx(20e-9)
    assert before.epsilon(1e-6 + 40e-9) <= bounded_range(0.05, 100, 1e-6), "Theorem 2 as printed, or less"
    once = make(k=5, max_k=2000, num_labels=3000, epsilon=0.05, delta_t=1e-9).cost(20)
    assert PrivacyCost.from_json(before.to_json()) == before and before.epsilon(1e-6) == once.epsilon(1e-6)


def test_refusals_say_what_is_left():
    pay = budget(k_star=3, ell_star=1)
    with pytest.raises(BudgetExceeded, match="may use 4 items, 3 of 3 are left"):
        pay.ask(np.arange(9), 4, 5, seeded(0))
    pay.ask(np.arange(9), 1, 5, seeded(0))
    with pytest.raises(BudgetExceeded, match="all 1 are used"):
        pay.ask(np.arange(9), 1, 5, seeded(0))


def test_bad_questions_cost_nothing():
    pay = budget()
    for counts, k, max_k, message in (
        (np.ones((2, 3), int), 1, 2, "counts must be one histogram"),
        (np.array([1, -1, 2]), 1, 2, "counts must be >= 0"),
        (np.array([1, 2, 3]), 3, 2, "k must be"),
        (np.array([1, 2, 3]), 1, 3, "max_k must be"),
    ):
        with pytest.raises(SettingError, match=message):
            pay.ask(counts, k, max_k)
    with pytest.raises(SettingError, match="k_star must be"):
        budget(k_star=0)
    with pytest.raises(SettingError, match="epsilon must be"):
        budget(epsilon=-1.0)
    assert (pay.items_left, pay.queries_left) == (12, 9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_exact_transcripts_of_two_adaptive_queries_keep_theorem_2(relation):
    """Every transcript of an analyst who spends what the first answer left, over neighbouring pairs of histograms."""
    pay = budget(k_star=2, ell_star=2, epsilon=0.7, delta_t=0.02, neighbours=relation)
    of = {k: distributions(make(k=k, max_k=2, neighbours=relation, epsilon=0.7, delta_t=0.02)) for k in (1, 2)}

    def transcripts(first: list[int], second: list[int]) -> dict:
        found = {}
        for opening, chance in of[2](first).items():
            left = 2 - len(opening)
            for closing, further in of[left](second).items() if left else [((), 1.0)]:
                found[opening, closing] = chance * further
        return found

    chosen = [pair for pair in slow.pairs(3, 2, relation, 3) if sum(pair[0]) == 3]
    for (first, first_other), (second, second_other) in itertools.product(chosen[::3], chosen[::7]):
        ours, theirs = transcripts(first, second), transcripts(first_other, second_other)
        for delta in (0.04, 0.05, 0.2):
            assert slow.excess(ours, theirs, pay.cost.epsilon(delta)) <= delta
    assert sum(ours.values()) == pytest.approx(1.0)

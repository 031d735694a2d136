"""The linear student in closed form: against refits without one query, under known noise, at the ends."""

import numpy as np
import pytest
import torch

from pate.errors import SettingError
from pate.models import Network
from pate.student import Student, Targets, predict, train_student
from pate.student.ridge import PENALTIES, fit, solve

LINEAR = Network("linear")


def data(queries, width, seed=0, labels=3, noise=0.3):
    """Features whose directions shrink, and linear targets with noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(queries, width)) * np.geomspace(1, 0.1, width) + rng.normal(size=width)
    values = features @ rng.normal(size=(width, labels)) / width + 0.3 + rng.normal(0, noise, (queries, labels))
    return features, values.astype(np.float32)


def goal(values, weight=None):
    weight = np.ones(len(values)) if weight is None else weight
    return Targets(np.asarray(values, np.float32), np.asarray(weight, np.float32))


def unit(features, weight):
    """What a penalty is measured in: the weighted squared distances from the weighted mean."""
    middle = np.average(features, axis=0, weights=weight)
    return (weight[:, None] * (features - middle) ** 2).sum()


def reference(features, values, weight, ridge):
    """Normal equations with a constant that is not penalised: (D + 1, K), the constant last."""
    wide = np.column_stack([features, np.ones(len(features))])
    penalty = np.diag([ridge] * features.shape[1] + [0.0])
    return np.linalg.solve(wide.T @ (weight[:, None] * wide) + penalty, wide.T @ (weight[:, None] * values))


def said(found, features):
    return np.column_stack([features, np.ones(len(features))]) @ found


def left_out_errors(features, values, weight):
    """(penalties, K): for every penalty, refit without each query in turn and look at it."""
    errors = np.zeros((len(PENALTIES), len(features), values.shape[1]))
    for i in range(len(features)):
        kept = np.arange(len(features)) != i
        for place, penalty in enumerate(PENALTIES * unit(features, weight)):
            found = reference(features[kept], values[kept], weight[kept], penalty)
            errors[place, i] = weight[i] * (said(found, features[i : i + 1])[0] - values[i]) ** 2
    return errors.mean(1)


def largest_best(errors):
    """Places of the first penalties, hence the largest, whose errors are the least but for rounding."""
    return np.argmax(errors <= (1 + 1e-6) * errors.min(0), axis=0)


def literal(features, values, weight):
    """The weights that `solve` should find, and each label's place among the penalties."""
    places = largest_best(left_out_errors(features, values, weight))
    each = [reference(features, values, weight, penalty) for penalty in PENALTIES * unit(features, weight)]
    return np.column_stack([each[place][:, k] for k, place in enumerate(places)]), places


def solved(features, targets):
    return np.vstack(solve(features, targets))


def chosen(features, values):
    """Each label's penalty, found again from the weights."""
    found, ones = solved(features, goal(values)), np.ones(len(features))
    each = [reference(features, values, ones, penalty) for penalty in PENALTIES * unit(features, ones)]
    return PENALTIES[np.abs(np.array(each) - found).sum(1).argmin(0)]


# Against a literal reference


@pytest.mark.parametrize(("queries", "width"), [(24, 5), (12, 20), (8, 8), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_penalty_is_the_one_that_predicts_left_out_queries_best(queries, width, weighted):
    features, values = data(queries, width)
    rng = np.random.default_rng(1)
    weight = rng.choice([0.5, 1.0, 3.0], queries) if weighted else np.ones(queries)
    wanted, _ = literal(features, values, weight)
    np.testing.assert_allclose(solved(features, goal(values, weight)), wanted, atol=1e-7)


def test_labels_have_penalties_of_their_own():
    features, values = data(24, 5)
    values[:, 0] = np.random.default_rng(2).normal(size=24)  # nothing to learn
    wanted, places = literal(features, values, np.ones(24))
    assert PENALTIES[places[0]] > 10 * PENALTIES[places[1:]].max()
    np.testing.assert_allclose(solved(features, goal(values)), wanted, atol=1e-7)


# Weights of queries


@pytest.mark.parametrize(("queries", "width"), [(24, 5), (12, 20)])
def test_a_query_of_weight_zero_is_never_read(queries, width):
    features, values = data(queries, width)
    weight = (np.arange(queries) % 3 > 0).astype(float)
    read = weight > 0
    alone = solved(features[read], goal(values[read]))
    features[~read], values[~read] = np.nan, np.inf
    np.testing.assert_array_equal(solved(features, goal(values, weight)), alone)


def test_all_weights_may_be_multiplied():
    features, values = data(24, 5)
    weight = np.random.default_rng(1).choice([0.5, 1.0, 3.0], 24)
    once, thrice = (solved(features, goal(values, factor * weight)) for factor in (1, 3))
    np.testing.assert_allclose(once, thrice, atol=1e-10)


@pytest.mark.parametrize(("queries", "width"), [(24, 5), (12, 20)])
def test_weight_two_is_the_query_twice_at_every_penalty_but_not_in_the_choice_of_one(monkeypatch, queries, width):
    """A copy that stays behind tells what its twin was, so copies make a smaller penalty look better."""
    features, values = data(queries, width, noise=1.0)
    twice, double = np.repeat(np.arange(queries), 2), np.full(queries, 2.0)
    ones = np.ones(2 * queries)
    apart = left_out_errors(features, values, double).argmin(0)
    copied = left_out_errors(features[twice], values[twice], ones).argmin(0)
    assert (copied > apart).any() and (copied >= apart).all()  # places grow as penalties fall
    np.testing.assert_allclose(
        solved(features[twice], goal(values[twice])), literal(features[twice], values[twice], ones)[0], atol=1e-6
    )
    for penalty in PENALTIES[::7]:
        monkeypatch.setattr("pate.student.ridge.PENALTIES", np.array([penalty]))
        one = solved(features, goal(values, double))
        np.testing.assert_allclose(solved(features[twice], goal(values[twice])), one, atol=1e-7)


# The ends


@pytest.mark.parametrize(("queries", "width"), [(24, 5), (12, 20)])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_a_label_of_one_class_is_always_said(queries, width, value):
    features, values = data(queries, width)
    values[:, 1] = value
    weights, intercepts = solve(features, goal(values))
    np.testing.assert_allclose(weights[:, 1], 0, atol=1e-12)
    assert intercepts[1] == pytest.approx(value)
    others = [0, 2]
    np.testing.assert_allclose(solved(features, goal(values[:, others])), np.vstack([weights, intercepts])[:, others])


def test_two_answers_cannot_tell_penalties_apart_so_the_largest_is_taken():
    features, values = data(2, 3)
    assert (left_out_errors(features, values, np.ones(2)).std(0) < 1e-8).all()
    wanted = reference(features, values, np.ones(2), PENALTIES[0] * unit(features, np.ones(2)))
    np.testing.assert_allclose(solved(features, goal(values)), wanted, atol=1e-9)


def test_one_answer_is_said_of_every_query():
    features, values = data(6, 4)
    weights, intercepts = solve(features, goal(values, [0, 0, 1, 0, 0, 0]))
    assert not weights.any()
    np.testing.assert_allclose(intercepts, values[2])


def test_features_that_never_differ_say_the_mean():
    _, values = data(10, 4)
    weights, intercepts = solve(np.full((10, 4), 0.1), goal(values))
    assert not weights.any()
    np.testing.assert_allclose(intercepts, values.astype(np.float64).mean(0))


# As a model


def test_a_sigmoid_is_above_a_half_where_the_predicted_share_is():
    features, values = data(60, 6, noise=0.5)
    model = fit(features, goal(values), LINEAR.build(3, 0, (6,)))
    share = said(solved(features, goal(values)), features)
    clear = np.abs(share - 0.5) > 1e-5  # float32 tells no closer
    found = predict(model, features, LINEAR)
    assert clear.sum() > 170 and 20 < (share > 0.5).sum() < 160
    np.testing.assert_array_equal((found >= 0.5)[clear], (share >= 0.5)[clear])
    np.testing.assert_allclose(np.log(found / (1 - found)), 4 * (share - 0.5), atol=1e-5)


def test_heads_are_solved_and_networks_are_not():
    features, values = data(30, 6)
    wanted = torch.tensor(4 * solve(features, goal(values))[0].T, dtype=torch.float32)
    for solver, same in (("auto", True), ("ridge", True), ("steps", False)):
        model = train_student(features, goal(values), LINEAR, Student(solver=solver), seed=0)
        assert torch.allclose(model[1].weight, wanted, atol=1e-6) == same and not model.training
    with pytest.raises(SettingError, match="student.solver must be auto or steps, but for heads, got 'ridge'"):
        train_student(features, goal(values), Network("small_mlp"), Student(solver="ridge"), seed=0)


@pytest.mark.parametrize("how", ["drop", "unlabelled"])
def test_heads_never_read_a_query_without_an_answer(how):
    features, values = data(30, 6)
    weight = (np.arange(30) % 2).astype(np.float32)
    first, second = (
        train_student(inputs, goal(values, weight), LINEAR, Student(on_bottom=how), seed=0)
        for inputs in (features, np.where(weight[:, None] > 0, features, 1e6))
    )
    assert torch.equal(first[1].weight, second[1].weight) and torch.equal(first[1].bias, second[1].bias)


# Known noise

QUERIES, WIDTH, LABELS, SEEDS = 150, 60, 8, 6
NOISES = (0.1, 0.3, 1.0)


def votes(seed):
    """Features of queries and of fresh records, and their true shares, linear in the features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(QUERIES + 1000, WIDTH)) * np.geomspace(1, 0.05, WIDTH)
    shares = 0.3 + features @ rng.normal(0, 0.05, (WIDTH, LABELS))
    return features[:QUERIES], shares[:QUERIES], features[QUERIES:], shares[QUERIES:]


def errors(sd, seed):
    """Squared error on fresh shares, mean over labels: of the student, of the best penalty, of the least one; and
    the student's penalties."""
    features, shares, fresh, truth = votes(seed)
    noisy = shares + np.random.default_rng([seed, 1]).normal(0, sd, shares.shape)
    ones = np.ones(QUERIES)
    each = [reference(features, noisy, ones, penalty) for penalty in PENALTIES * unit(features, ones)]
    known = np.array([((said(found, fresh) - truth) ** 2).mean(0) for found in each])
    own = ((said(solved(features, goal(noisy)), fresh) - truth) ** 2).mean()
    return own, known.min(0).mean(), known[-1].mean(), np.log10(chosen(features, noisy)).mean()


@pytest.fixture(scope="module")
def measured():
    """(noises, 4, seeds)."""
    return np.array([[errors(sd, seed) for seed in range(SEEDS)] for sd in NOISES]).transpose(0, 2, 1)


def above(difference, deviations=3):
    """Is the mean over seeds above 0 by so many standard errors?"""
    return difference.mean() > deviations * difference.std(ddof=1) / np.sqrt(len(difference))


def test_the_penalty_grows_with_the_noise(measured):
    penalties = measured[:, 3]
    assert above(penalties[1] - penalties[0]) and above(penalties[2] - penalties[1])


@pytest.mark.parametrize("place", range(len(NOISES)))
def test_under_known_noise_a_student_is_nearly_as_good_as_the_best_penalty(measured, place):
    """The best penalty is the one that the noiseless shares of fresh records would choose, for each label."""
    own, best, _, _ = measured[place]
    assert above(1.5 * best - own)


@pytest.mark.parametrize("place", range(len(NOISES)))
def test_under_known_noise_a_student_beats_one_that_takes_noise_for_votes(measured, place):
    """With hardly a penalty every target is believed: this fails for a student that ignores the noise."""
    own, _, believed, _ = measured[place]
    assert above(believed - (1.2, 2, 4)[place] * own)

"""The student: targets from releases, training that repeats."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pate.backbone import Mirrored
from pate.data.faces import Faces
from pate.errors import DataError, PateError, SettingError
from pate.models import Network, start_from_rates
from pate.settings import build
from pate.student import (
    NothingReleased,
    Student,
    Targets,
    predict,
    targets,
    train_student,
)
from pate.student.training import TRUST

ROOT = Path(__file__).resolve().parent.parent
NETWORK = Network()
QUICK = Student(epochs=2, batch_size=8)
T = 250


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def stripes(count, seed, labels=6, rate=0.5):
    """Pictures with one bright band per true label."""
    rng = np.random.default_rng(seed)
    truth = rng.random((count, labels)) < rate
    pictures = rng.integers(60, 140, (count, 32, 32, 3))
    pictures[:, 1 : 5 * labels + 1] += 60 * np.repeat(truth, 5, axis=1)[:, :, None, None]
    return pictures.astype(np.uint8), truth


def whole(values):
    return Targets(np.asarray(values, np.float32), np.ones(len(values), np.float32))


def weights(model):
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def accuracy(model, pictures, truth):
    return ((predict(model, pictures, NETWORK) >= 0.5) == truth).mean()


# Targets


def test_hard_labels_become_zeros_and_ones():
    labels, answered = np.array([[True, False], [False, True], [True, True]]), np.array([True, False, True])
    goal = targets(labels, answered, None, T, Student())
    np.testing.assert_array_equal(goal.values, [[1, 0], [0, 0], [1, 1]])
    np.testing.assert_array_equal(goal.weight, [1, 0, 1])
    assert goal.values.dtype == goal.weight.dtype == np.float32


@pytest.mark.parametrize(("sd", "noise"), [(None, 0.0), (math.nan, 0.0), (50.0, 0.2)])
def test_scores_become_shares_of_votes_as_they_are(sd, noise):
    scores = np.array([[0.0, 125.0], [300.0, -50.0]])
    goal = targets(scores > 125, np.ones(2, bool), scores, T, Student(), sd)
    np.testing.assert_allclose(goal.values, [[0, 0.5], [1.2, -0.2]])
    assert goal.noise_sd == noise
    hard = targets(scores > 125, np.ones(2, bool), scores, T, Student(soft=False), sd)
    np.testing.assert_array_equal(hard.values, [[0, 0], [1, 0]])
    assert hard.noise_sd == 0.0


def test_queries_without_an_answer():
    scores, answered = np.array([[50.0], [np.nan], [150.0]]), np.array([True, False, True])
    for how in ("drop", "unlabelled"):
        goal = targets(scores > 125, answered, scores, T, Student(on_bottom=how))
        np.testing.assert_array_equal(goal.weight, [1, 0, 1])
    goal = targets(scores > 125, answered, scores, T, Student(on_bottom="prior"))
    np.testing.assert_allclose(goal.values, [[0.2], [0.4], [0.6]])
    np.testing.assert_array_equal(goal.weight, [1, 1, 1])
    nothing = targets(scores > 125, np.zeros(3, bool), scores, T, Student(on_bottom="prior"))
    assert not nothing.weight.any()


def test_targets_refuse_what_cannot_be_learned():
    labels, answered = np.zeros((3, 2), bool), np.ones(3, bool)
    with pytest.raises(DataError, match=re.escape("scores (3, 1)")):
        targets(labels, answered, np.zeros((3, 1)), T, Student())
    with pytest.raises(DataError, match="answered"):
        targets(labels, answered[:2], None, T, Student())
    with pytest.raises(SettingError, match="targets must be finite"):
        targets(labels, answered, np.full((3, 2), np.nan), T, Student())
    with pytest.raises(SettingError, match="num_teachers"):
        targets(labels, answered, None, 0, Student())


# Training


def test_soft_targets_beat_hard_labels_under_much_noise():
    pictures, truth = stripes(200, seed=1, rate=0.25)
    votes = np.where(truth, 0.85, 0.15) * T
    scores = votes + np.random.default_rng(3).normal(0, T, votes.shape)
    found = {}
    for soft in (True, False):
        student = Student(soft=soft)
        goal = targets(scores > T / 2, np.ones(200, bool), scores, T, student, score_sd=T)
        model = train_student(pictures, goal, NETWORK, student, seed=0)
        found[soft] = accuracy(model, *stripes(400, seed=2, rate=0.25))
    assert found[True] > found[False] + 0.05 and found[True] > 0.8


def test_a_student_of_clean_labels_learns():
    pictures, truth = stripes(160, seed=1)
    scalars = []
    model = train_student(
        pictures,
        whole(truth),
        NETWORK,
        Student(epochs=6),
        seed=0,
        log=lambda step, values: scalars.append((step, values)),
    )
    assert accuracy(model, *stripes(200, seed=2)) > 0.9
    assert [step for step, _ in scalars] == list(range(6)) and not model.training
    assert scalars[-1][1]["loss"] < scalars[0][1]["loss"]


def test_same_arguments_same_weights_and_no_global_state_moves():
    pictures, truth = stripes(20, seed=1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = weights(train_student(pictures, whole(truth), NETWORK, QUICK, seed=0))
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    torch.manual_seed(99)
    assert torch.equal(first, weights(train_student(pictures, whole(truth), NETWORK, QUICK, seed=0)))
    assert not torch.equal(first, weights(train_student(pictures, whole(truth), NETWORK, QUICK, seed=1)))


def test_queries_without_an_answer_do_not_touch_the_student():
    pictures, truth = stripes(30, seed=1)
    answered = np.arange(30) % 3 > 0
    scores = np.where(truth, 200.0, 50.0)
    first = targets(truth, answered, scores, T, QUICK, score_sd=20.0)
    other = np.where(answered[:, None], scores, 1e9)
    second = targets(truth & answered[:, None], answered, other, T, QUICK, score_sd=20.0)
    blank = np.where(answered[:, None, None, None], pictures, 255).astype(np.uint8)
    one = weights(train_student(pictures, first, NETWORK, QUICK, seed=0))
    assert torch.equal(one, weights(train_student(blank, second, NETWORK, QUICK, seed=0)))
    kept = Targets(first.values[answered], first.weight[answered], first.noise_sd)
    assert torch.equal(one, weights(train_student(pictures[answered], kept, NETWORK, QUICK, seed=0)))


GUESSING = dataclasses.replace(QUICK, self_training=True)


def test_unlabelled_pictures_matter_but_never_what_is_said_of_them():
    pictures, truth = stripes(30, seed=1)
    answered = np.arange(30) % 3 > 0
    scores = np.where(truth, 200.0, 50.0)
    first = targets(truth, answered, scores, T, GUESSING, score_sd=20.0)
    one = weights(train_student(pictures, first, NETWORK, GUESSING, seed=0))
    assert torch.equal(one, weights(train_student(pictures, first, NETWORK, GUESSING, seed=0)))
    garbage = np.where(answered[:, None], scores, np.nan)
    second = targets(truth ^ ~answered[:, None], answered, garbage, T, GUESSING, score_sd=20.0)
    third = Targets(np.where(answered[:, None], first.values, np.nan), first.weight, first.noise_sd)
    for goal in (second, third):
        assert torch.equal(one, weights(train_student(pictures, goal, NETWORK, GUESSING, seed=0)))
    changed = pictures.copy()
    changed[0] = 255 - changed[0]
    assert not answered[0]
    assert not torch.equal(one, weights(train_student(changed, first, NETWORK, GUESSING, seed=0)))


def test_self_training_learns_the_answers_and_the_first_students_own_guesses():
    pictures, truth = stripes(30, seed=1)
    first = targets(truth, np.arange(30) % 3 > 0, None, T, QUICK)
    silent, values, weight = first.weight == 0, first.values.copy(), first.weight.copy()
    guesser = train_student(pictures, first, NETWORK, QUICK, seed=0)
    values[silent], weight[silent] = predict(Mirrored(guesser), pictures[silent], NETWORK), TRUST
    wanted = weights(train_student(pictures, Targets(values, weight), NETWORK, QUICK, seed=0))
    steps = []
    model = train_student(pictures, first, NETWORK, GUESSING, seed=0, log=lambda step, _: steps.append(step))
    assert torch.equal(weights(model), wanted) and steps == [0, 1] and not model.training


def test_self_training_without_a_missing_answer_is_training():
    pictures, truth = stripes(20, seed=1)
    found = [weights(train_student(pictures, whole(truth), NETWORK, how, seed=0)) for how in (QUICK, GUESSING)]
    assert torch.equal(*found)


def test_rows_of_features_are_guessed_too():
    rng = np.random.default_rng(0)
    rows, network = rng.normal(size=(40, 5)).astype(np.float32), Network("small_mlp")
    goal = Targets((rows[:, :2] > 0).astype(np.float32), (np.arange(40) % 2).astype(np.float32))
    found = [weights(train_student(rows, goal, network, how, seed=0)) for how in (QUICK, GUESSING)]
    assert not torch.equal(*found)


def test_a_weight_counts_over_the_whole_pass_not_within_its_batch():
    """A batch of guesses only must weigh less than a batch of answers: with batches of one record, weights tell."""
    pictures, truth = stripes(12, seed=1)
    still = Student(epochs=1, batch_size=1, learning_rate=1e-9, augment=False)

    def loss(weight):
        found = []
        goal = Targets(truth.astype(np.float32), np.asarray(weight, np.float32))
        train_student(pictures, goal, NETWORK, still, seed=0, log=lambda _, scalars: found.append(scalars["loss"]))
        return found[0]

    model = NETWORK.build(6, 0, (32, 32, 3))
    uneven = np.where(np.arange(12) < 6, 1.0, 0.1)
    start_from_rates(model, torch.as_tensor(np.average(truth, axis=0, weights=uneven)).clamp(0.01, 0.99))
    guess = predict(model, pictures, NETWORK)
    each = -np.where(truth, np.log(guess), np.log1p(-guess)).mean(1)
    assert loss(uneven) == pytest.approx(np.average(each, weights=uneven), rel=1e-4)
    assert loss(uneven) == pytest.approx(loss(5 * uneven), rel=1e-6)


def test_the_first_guess_is_the_released_mean():
    pictures, _ = stripes(40, seed=1)
    mean = np.array([0.9, 0.02, 0.5, 0.7])
    goal = whole(np.tile(mean, (40, 1)))
    still = Student(epochs=1, learning_rate=1e-9)
    guess = predict(train_student(pictures, goal, NETWORK, still, seed=0), pictures, NETWORK).mean(0)
    plain = predict(NETWORK.build(4, 0, (32, 32, 3)), pictures, NETWORK).mean(0)
    assert np.abs(guess - mean).max() < 0.15 < np.abs(plain - mean).max()


def test_noise_makes_the_student_cautious():
    pictures, truth = stripes(30, seed=1)
    rates = []
    for noise in (0.0, 0.5, 2.0):
        goal = Targets(truth.astype(np.float32), np.ones(30, np.float32), noise)
        train_student(
            pictures, goal, NETWORK, QUICK, seed=0, log=lambda _, scalars: rates.append(scalars["learning_rate"])
        )
    assert rates[0] == pytest.approx(rates[2] * 6) == pytest.approx(rates[4] * 81)


def test_noise_of_mean_zero_leaves_the_gradient_as_it_is():
    """Every picture twice, with opposite noise, far beyond 0 and 1: clipping or squashing a target would show."""
    pictures, truth = stripes(16, seed=1)
    shares = np.repeat(np.where(truth, 0.85, 0.15), 2, axis=0)
    noise = np.repeat(np.random.default_rng(0).normal(0, 2, truth.shape), 2, axis=0) * np.tile([[1], [-1]], (16, 1))
    assert np.mean(np.abs(shares + noise - 0.5) > 0.5) > 0.7
    student = Student(epochs=4, batch_size=32, augment=False)  # a step holds both
    found = [
        weights(train_student(pictures.repeat(2, 0), whole(values), NETWORK, student, seed=0))
        for values in (shares, shares + noise)
    ]
    torch.testing.assert_close(*found, atol=1e-4, rtol=0)
    assert not torch.allclose(found[0], weights(NETWORK.build(6, 0, (32, 32, 3))), atol=1e-3)


def test_a_student_that_knows_the_noise_comes_nearer_to_the_noiseless_shares():
    """Synthetic votes on drawn faces, shares 0.15 and 0.85, noise of a whole share; five draws of it."""
    split = Faces(private=1, public=100, test=300).load()
    shares, truth = (0.15 + 0.7 * records.labels for records in (split.public, split.test))
    errors = []
    for seed in range(5):
        noisy = (shares + np.random.default_rng([seed, 1]).normal(0, 1, shares.shape)).astype(np.float32)
        models = [
            train_student(
                split.public.inputs, Targets(noisy, np.ones(100, np.float32), known), NETWORK, Student(), seed=seed
            )
            for known in (1.0, 0.0)
        ]
        errors.append([((predict(model, split.test.inputs, NETWORK) - truth) ** 2).mean() for model in models])
    gain = np.diff(errors)[:, 0]
    assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(5)
    assert gain.mean() > 0.1 * np.mean(errors)


def test_features_are_learned_too():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 5)).astype(np.float32)
    student = Student(learning_rate=0.05)
    model = train_student(features, whole(features[:, :2] > 0), Network("linear"), student, seed=0)
    assert ((predict(model, features, Network("linear")) >= 0.5) == (features[:, :2] > 0)).mean() > 0.9


def test_a_student_that_diverges_says_so():
    pictures, truth = stripes(16, seed=1)
    with pytest.raises(PateError, match=r"diverged: use a smaller student.learning_rate than 1e\+30"):
        train_student(pictures, whole(truth), NETWORK, dataclasses.replace(QUICK, learning_rate=1e30), seed=0)


def test_nothing_released_is_said():
    pictures, truth = stripes(5, seed=1)
    silent = Targets(truth.astype(np.float32), np.zeros(5, np.float32))
    with pytest.raises(
        NothingReleased, match=re.escape("answered queries must be >= 1 to train a student, got 0 of 5")
    ):
        train_student(pictures, silent, NETWORK, QUICK, seed=0)
    with pytest.raises(NothingReleased, match=">= 6"):
        train_student(pictures, whole(truth), NETWORK, dataclasses.replace(QUICK, min_answered=6), seed=0)
    with pytest.raises(DataError, match="equal lengths, got 4 and 5"):
        train_student(pictures[:4], whole(truth), NETWORK, QUICK, seed=0)


def test_one_answer_and_one_class_are_enough_to_train():
    pictures, truth = stripes(1, seed=1)
    assert accuracy(train_student(pictures, whole(truth), NETWORK, Student(), seed=0), pictures, truth) == 1.0
    model = train_student(pictures.repeat(3, 0), whole(np.ones((3, 2))), NETWORK, QUICK, seed=0)
    assert (predict(model, pictures, NETWORK) > 0.5).all()


@pytest.mark.parametrize(("queries", "size"), [(3, 1), (3, 2), (5, 4)])
def test_a_batch_may_be_one_record(queries, size):
    pictures, truth = stripes(queries, seed=1)
    student = Student(epochs=20, batch_size=size)
    assert accuracy(train_student(pictures, whole(truth), NETWORK, student, seed=0), pictures, truth) > 0.9


def test_predict_does_not_depend_on_the_batches():
    pictures, truth = stripes(21, seed=1)
    model = train_student(pictures, whole(truth), NETWORK, QUICK, seed=0)
    whole_set = predict(model, pictures, NETWORK)
    np.testing.assert_allclose(predict(model, pictures, NETWORK, batch_size=4), whole_set, atol=1e-6)
    assert whole_set.shape == truth.shape and whole_set.min() >= 0 and whole_set.max() <= 1
    with pytest.raises(SettingError, match="at least one record"):
        predict(model, pictures[:0], NETWORK)


# Settings


def test_the_default_file_is_the_default_student():
    assert build(yaml.safe_load((ROOT / "conf/student/default.yaml").read_text()), "student") == Student()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", -1),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("weight_decay", -0.1),
        ("min_answered", 0),
        ("on_bottom", "guess"),
        ("solver", "newton"),
        ("epochs", 1.5),
        ("min_answered", math.nan),
        ("batch_size", math.inf),
        ("learning_rate", math.inf),
        ("weight_decay", math.nan),
    ],
)
def test_settings_out_of_range_are_named(field, value):
    with pytest.raises(SettingError, match=f"student.{field} must be .*, got {value!r}"):
        Student(**{field: value})

"""The student: targets from releases, training that repeats."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pate.errors import DataError, PateError, SettingError
from pate.models import Network
from pate.settings import build
from pate.student import (
    NothingReleased,
    Student,
    Targets,
    predict,
    targets,
    train_student,
)

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
    for how in ("unlabelled", "drop"):
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
    ],
)
def test_settings_out_of_range_are_named(field, value):
    with pytest.raises(SettingError, match=f"student.{field} must be .*, got {value!r}"):
        Student(**{field: value})

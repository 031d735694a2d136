"""A student that says yes as often as its targets."""

import numpy as np
import pytest
import torch

from pate.models import Network
from pate.student import Student, Targets, predict, train_student

NETWORK = Network("linear")


def rare(queries=300, labels=8, seed=0):
    """Features, and labels that hold for one query in ten and are hard to see."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(queries, 12)).astype(np.float32)
    weights = rng.normal(size=(12, labels)) * 0.4
    truth = features @ weights + rng.normal(size=(queries, labels)) * 2 > 3.0
    return features, truth


def said(decision, features, values, sd=0.0):
    goal = Targets(values.astype(np.float32), np.ones(len(values), np.float32), sd)
    model = train_student(features, goal, NETWORK, Student(decision=decision), seed=0)
    return predict(model, features, NETWORK) >= 0.5


def test_rare_labels_are_said_as_often_as_they_were_seen():
    features, truth = rare()
    assert said("half", features, truth).sum() < 0.2 * truth.sum()
    matched = said("matched", features, truth)
    assert matched.sum() == pytest.approx(truth.sum(), rel=0.02)
    assert (matched & truth).sum() > 2 * matched.mean() * truth.sum()  # and not at random


def test_noise_on_the_targets_hardly_moves_how_often():
    features, truth = rare()
    noisy = truth + np.random.default_rng(1).normal(size=truth.shape) * 0.5
    error = 0.5 * np.sqrt(truth.size)
    assert abs(said("matched", features, noisy, 0.5).sum() - truth.sum()) < 4 * error


@pytest.mark.parametrize(("value", "share"), [(0.0, 0.0), (1.0, 1.0), (-0.4, 0.0), (1.4, 1.0)])
def test_never_and_always(value, share):
    features, truth = rare(40)
    assert said("matched", features, np.full(truth.shape, value)).mean() == share


def test_pictures_too():
    pictures = np.random.default_rng(0).integers(0, 255, (40, 16, 16, 3), dtype=np.uint8)
    values = (np.random.default_rng(1).random((40, 5)) < 0.15).astype(np.float32)
    with torch.random.fork_rng():
        student = Student(epochs=2, decision="matched", augment=False)
        model = train_student(pictures, Targets(values, np.ones(40, np.float32)), Network(), student, seed=0)
    yes = predict(model, pictures, Network()) >= 0.5
    assert yes.sum() == pytest.approx(values.sum(), abs=2)

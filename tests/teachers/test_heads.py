"""Heads: closed form, public units, and no bit of a teacher that depends on another teacher's records."""

import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pate.backbone import features
from pate.data.faces import Faces
from pate.data.records import Records, Split
from pate.errors import PateError
from pate.models import Network
from pate.partition import partition
from pate.runs import Run
from pate.student import Student, predict, targets, train_student
from pate.teachers import Pool, Teachers, on_features, train_teachers
from pate.teachers.features import keep_features
from pate.teachers.heads import leave_one_out, ridge, spread, train_head
from pate.votes import VoteStore

HEADS = Teachers(count=8, mode="heads")
NETWORK = Network()  # a random backbone will do


@pytest.fixture(scope="module")
def split():
    return Faces(private=160, public=80, test=10).load()


@pytest.fixture(scope="module")
def reference(split):
    """What each teacher votes when nothing else is in the world."""
    queries = torch.from_numpy(seen(split.public.inputs))
    own = [split.private.take(part) for part in partition(split.private, 8, "record", "pate")]
    given = (queries, spread(queries), NETWORK, HEADS)
    return np.array([train_head(records, *given, t, "cpu")[0] for t, records in enumerate(own)])


def seen(inputs):
    return np.concatenate([features(NETWORK, inputs[i : i + 64], mirror=True) for i in range(0, len(inputs), 64)])


def votes_of(run, queries=80):
    return VoteStore(run.private / "votes", 8, queries, 40).load()


def tables(count, queries, wide=12, labels=3):
    rng = np.random.default_rng(0)

    def records(n, name):
        inputs = rng.normal(size=(n, wide)).astype(np.float32)
        ids = np.char.mod(f"{name}-%d", np.arange(n))
        return Records(inputs, inputs[:, :labels] > 0, ids, ids)

    return Split(records(count, "a"), records(queries, "b"), records(9, "c"), ("x", "y", "z"))


@pytest.mark.parametrize(("rows", "wide"), [(6, 9), (30, 4)])
def test_ridge_solves_the_normal_equations(rows, wide):
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(rows, n, generator=draw, dtype=torch.float64) for n in (wide, 3))
    weight, bias = ridge(x, y, 0.7)
    residual = y - x @ weight - bias
    assert torch.allclose(x.T @ residual, 0.7 * weight) and torch.allclose(residual.sum(0), torch.zeros(3).double())
    shifted, moved = ridge(x, y + 5, 0.7)  # the intercept is free
    assert torch.allclose(shifted, weight) and torch.allclose(moved, bias + 5)


@pytest.mark.parametrize(("rows", "wide"), [(2, 9), (6, 9), (9, 9), (30, 4)])
def test_leave_one_out_is_what_the_ridge_of_the_others_says(rows, wide):
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.randn(rows, n, generator=draw, dtype=torch.float64) for n in (wide, 3))
    weight, bias = ridge(x, y, 0.7)
    quick = leave_one_out(x, y, x @ weight + bias, 0.7)
    for one in range(rows):
        others = torch.arange(rows) != one
        weight, bias = ridge(x[others], y[others], 0.7)
        assert torch.allclose(quick[one], x[one] @ weight + bias)


def test_validation_accuracy_is_of_records_that_were_not_learnt():
    """Labels that are pure chance are learnt by heart, and no better than chance on a record that was left out."""
    split, settings = tables(40, 30, wide=200), Teachers(mode="heads", ridge=0.001)
    chance = split.private.with_labels(np.random.default_rng(0).random((40, 3)) < 0.5)
    queries = torch.from_numpy(split.public.inputs)
    _, stats = train_head(chance, queries, spread(queries), Network("linear"), settings, 0, "cpu")
    assert stats["accuracy"] == 1.0 and 0.3 < stats["validation_accuracy"] < 0.7


def test_the_ridge_is_measured_by_public_features_only():
    """Inputs in another unit give the same votes; a teacher's own records never decide how it is regularised."""
    split, settings, network = tables(40, 30), Teachers(mode="heads", ridge=0.1), Network("linear")
    own, queries = split.private, torch.from_numpy(split.public.inputs)
    votes, _ = train_head(own, queries, spread(queries), network, settings, 0, "cpu")
    large, far = replace(own, inputs=1000 * own.inputs), 1000 * queries
    same, _ = train_head(large, far, spread(far), network, settings, 0, "cpu")
    other, _ = train_head(own, queries, spread(far), network, settings, 0, "cpu")
    assert np.array_equal(same, votes) and not np.array_equal(other, votes)


def test_heads_learn_from_tables(tmp_path, one_process):
    split = tables(400, 200)
    run = Run(tmp_path, "a")
    summary = train_teachers(run, split, Network("linear"), Teachers(count=4, mode="heads"), devices="cpu")
    votes = VoteStore(run.private / "votes", 4, 200, 3).load()
    right = (votes == split.public.labels).mean()
    assert right > 0.9 and np.mean(summary.accuracies) == pytest.approx(right, abs=0.01)


def test_a_run_in_heads_mode(split, reference, tmp_path, one_process):
    run = Run(tmp_path, "a")
    summary = train_teachers(run, split, NETWORK, HEADS, devices="cpu")
    assert np.array_equal(votes_of(run), reference) and summary.backbone_seconds > 0
    assert one_process == ["look"] * 2 + ["teach"] * 8  # the queries are looked at once, not by every teacher
    kept = [path for path in (run.private / "features").rglob("*") if path.is_file()]
    assert [len(np.load(path)) for path in sorted(kept)] == [64, 16]  # of queries; no private features are kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    (run.private / "votes" / "teacher-00003.votes").unlink()
    train_teachers(run, split, NETWORK, HEADS, devices="cpu")
    assert one_process[10:] == ["teach"] and np.array_equal(votes_of(run), reference)


def test_changing_one_teachers_records_changes_no_other_teachers_votes(split, reference, tmp_path, one_process):
    """Isolation, bit for bit: other pictures, other labels, and a record removed, so that all others move up."""
    part = partition(split.private, 8, "record", "pate")[3]
    inputs, labels = split.private.inputs.copy(), split.private.labels.copy()
    inputs[part[:3]] = 255 - inputs[part[:3]]
    labels[part[:9]] ^= True
    changed = Records(inputs, labels, split.private.ids, split.private.persons)
    changed = changed.take(np.delete(np.arange(160), part[-1]))
    run = Run(tmp_path, "a")
    train_teachers(run, replace(split, private=changed), NETWORK, HEADS, devices="cpu")
    others = np.arange(8) != 3
    assert np.array_equal(votes_of(run)[others], reference[others])
    assert not np.array_equal(votes_of(run)[3], reference[3])


def test_the_backbone_never_sees_two_teachers_together(split, tmp_path, one_process, monkeypatch):
    """The reason why isolation does not hang on how a library computes batches."""
    parts = {frozenset(part.tolist()) for part in partition(split.private, 8, "record", "pate")}
    place = {picture.tobytes(): index for index, picture in enumerate(split.private.inputs)}
    batches = []

    def watch(network, inputs, **options):
        batches.append(frozenset(place[picture.tobytes()] for picture in inputs))
        return features(network, inputs, **options)

    monkeypatch.setattr("pate.teachers.heads.features", watch)
    train_teachers(Run(tmp_path, "a"), split, NETWORK, HEADS, devices="cpu")
    assert len(batches) == 8 and set(batches) == parts


def test_the_order_of_the_data_set_does_not_matter(split, reference, tmp_path, one_process):
    shuffled = split.private.take(np.random.default_rng(0).permutation(160))
    train_teachers(Run(tmp_path, "a"), replace(split, private=shuffled), NETWORK, HEADS, devices="cpu")
    assert np.array_equal(votes_of(Run(tmp_path, "a")), reference)


@pytest.mark.slow
def test_the_pool_computes_the_same(split, reference, tmp_path):
    train_teachers(Run(tmp_path, "a"), split, NETWORK, replace(HEADS, slots_per_device=2), devices="cpu")
    assert np.array_equal(votes_of(Run(tmp_path, "a")), reference)


def test_features_are_kept_chunk_by_chunk(split, tmp_path, one_process):
    inputs, pool = split.private.inputs, Pool(["cpu"], 1)
    first = keep_features(inputs, NETWORK, HEADS, pool, tmp_path / "features")
    assert len(one_process) == 3 and np.array_equal(first, seen(inputs))
    (chunk,) = (tmp_path / "features").glob("*/000000064.npy")
    chunk.unlink()  # a kill came before it was written
    again = keep_features(inputs, NETWORK, HEADS, pool, tmp_path / "features")
    assert len(one_process) == 4 and np.array_equal(again, first)
    for other in (replace(NETWORK, image_size=40), replace(NETWORK, name="linear")):
        keep_features(inputs[:2], other, HEADS, pool, tmp_path / "features")
    keep_features(inputs[:2], NETWORK, replace(HEADS, augment=False), pool, tmp_path / "features")
    assert len(one_process) == 7 and len(list((tmp_path / "features").iterdir())) == 4  # nothing is taken for another


def test_checkpoints_are_the_heads(split, tmp_path, one_process):
    run = Run(tmp_path, "a")
    train_teachers(run, split, NETWORK, replace(HEADS, keep_checkpoints=True), devices="cpu")
    head = load_file(run.private / "teachers" / "teacher-00005.safetensors")
    scores = seen(split.public.inputs) @ head["weight"].numpy().T + head["bias"].numpy()
    assert head["weight"].shape == (40, 768) and ((scores > 0) == votes_of(run)[5]).mean() > 0.999


def test_damaged_features_are_named(tmp_path, one_process):
    split = tables(60, 5)
    split.private.inputs[partition(split.private, 4, "record", "pate")[2][0]] = np.nan
    with pytest.raises(PateError, match=r"1 of 4 teachers failed, the others have voted: teacher 2: .*not finite"):
        train_teachers(Run(tmp_path, "a"), split, Network("linear"), Teachers(count=4, mode="heads"), devices="cpu")


def test_a_student_can_learn_from_the_same_features(split, tmp_path, one_process):
    train_teachers(Run(tmp_path, "a"), split, NETWORK, HEADS, devices="cpu")
    view = on_features(split, NETWORK, HEADS, Run(tmp_path, "a").private / "features", devices="cpu")
    assert one_process.count("look") == 3  # two chunks of queries for the teachers, one of test pictures now
    assert view.split.public.inputs.shape == (80, 768) and view.split.test.inputs.shape == (10, 768)
    assert view.split.public.inputs.std() == pytest.approx(1, rel=1e-3) and view.split.private is split.private
    truth = split.public.labels
    goal = targets(truth, np.ones(80, bool), None, 1, Student())
    model = train_student(view.split.public.inputs, goal, view.network, Student(epochs=40), seed=0)
    assert (predict(model, view.split.public.inputs, view.network) > 0.5)[truth].mean() > 0.8

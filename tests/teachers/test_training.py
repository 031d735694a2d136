"""One teacher: learns from few records, and its votes are a function of its arguments alone."""

import numpy as np
import pytest
import torch

from pate.data.faces import Faces
from pate.data.records import Records
from pate.errors import PateError
from pate.models import Network
from pate.partition import partition
from pate.teachers import Teachers
from pate.teachers.training import _batches, _pace, train_teacher

QUICK = Teachers(epochs=3, batch_size=8)


@pytest.fixture(scope="module")
def faces():
    return Faces(private=600, public=300, test=10).load()


def part(split, index):
    return split.private.take(np.asarray(index))


def teach(records, queries, network=None, settings=QUICK, seed=0, teacher=0, **more):
    labels = records.labels.shape[1]
    return train_teacher(records, queries, network or Network(), settings, labels, seed, teacher, "cpu", **more)


def features(count, width=12, labels=3, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, width)).astype(np.float32)
    names = np.arange(count).astype(str)
    return Records(inputs, inputs[:, :labels] > 0, names, names)


def test_fifty_pictures_beat_the_prior(faces):
    truth = faces.public.labels
    prior = (truth == (faces.private.labels.mean(0) > 0.5)).mean()
    parts = partition(faces.private, 12, "record", "pate")[:4]
    found = [
        teach(part(faces, index), faces.public.inputs, settings=Teachers(), teacher=t) for t, index in enumerate(parts)
    ]
    accuracy = np.mean([(votes == truth).mean() for votes, _ in found])
    assert prior + 0.01 < accuracy < 0.95
    assert all(stats["accuracy"] > 0.93 and 0 < stats["loss"] < 0.4 for _, stats in found)


def test_votes_do_not_depend_on_what_was_done_before(faces):
    records, queries = part(faces, range(30)), faces.public.inputs[:50]
    alone, _ = teach(records, queries, teacher=3)
    teach(part(faces, range(30, 70)), queries, teacher=4)
    torch.manual_seed(99)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    again, _ = teach(records, queries, teacher=3)
    assert torch.get_num_threads() == 2  # given back as it was
    torch.set_num_threads(threads)
    assert np.array_equal(alone, again)


def test_training_moves_nobodys_random_state(faces):
    before = torch.random.get_rng_state()
    teach(part(faces, range(20)), faces.public.inputs[:5])
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("change", [{"seed": 1}, {"teacher": 1}])
def test_seed_and_teacher_decide_the_draws(faces, change):
    records, queries = part(faces, range(30)), faces.public.inputs[:100]
    assert not np.array_equal(teach(records, queries)[0], teach(records, queries, **change)[0])


def test_layers_that_draw_are_seeded_too(faces):
    records, queries, network = (
        part(faces, range(10)),
        faces.public.inputs[:20],
        Network("squeezenet1_1", image_size=32),
    )
    first, second = (teach(records, queries, network)[1]["loss"] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["linear", "small_mlp"])
def test_features_are_learned(name):
    votes, _ = teach(features(200), features(300, seed=1).inputs, Network(name), Teachers(learning_rate=0.03))
    assert (votes == features(300, seed=1).labels).mean() > 0.85


def test_the_start_is_the_teachers_own_prior():
    """With almost no training the votes are the part's majority, label by label."""
    records = features(40)
    labels = np.zeros((40, 3), bool)
    labels[:, 1] = True
    votes, _ = teach(
        records.with_labels(labels), records.inputs, Network("linear"), Teachers(epochs=1, learning_rate=1e-6)
    )
    assert (votes == [False, True, False]).all()


def test_mirror_images_get_the_same_votes(faces):
    records, queries = part(faces, range(30)), faces.public.inputs[:50]
    assert np.array_equal(teach(records, queries)[0], teach(records, queries[:, :, ::-1])[0])
    plain = Teachers(epochs=3, batch_size=8, augment=False)
    assert not np.array_equal(
        teach(records, queries, settings=plain)[0], teach(records, queries[:, :, ::-1], settings=plain)[0]
    )


def test_memory_mapped_queries_are_only_read(faces, tmp_path):
    np.save(tmp_path / "q.npy", faces.public.inputs[:20])
    mapped = np.load(tmp_path / "q.npy", mmap_mode="r")
    records = part(faces, range(20))
    assert np.array_equal(teach(records, mapped)[0], teach(records, faces.public.inputs[:20])[0])


def test_steps_are_told_and_checkpoints_kept(faces, tmp_path):
    from safetensors.torch import load_file

    steps = []
    path = tmp_path / "teacher.safetensors"
    teach(part(faces, range(20)), faces.public.inputs[:5], on_step=lambda *step: steps.append(step), checkpoint=path)
    assert [(step, of) for step, of, _ in steps] == [(n, 9) for n in range(1, 10)]
    assert all(loss > 0 for *_, loss in steps)
    assert path.stat().st_mode & 0o777 == 0o600
    model = Network(weights=str(path)).build(40, 1, (32, 32, 3))  # it can be loaded again
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in load_file(path).items())


def test_a_diverging_teacher_says_what_to_change():
    records = features(20)
    records.inputs[3, 3] = np.nan
    with pytest.raises(PateError, match=r"teacher 5 diverged: .*teachers.learning_rate"):
        teach(records, records.inputs, Network("linear"), teacher=5)


@pytest.mark.parametrize("count", [2, 3, 7, 8, 9, 17, 64, 65, 129])
def test_no_batch_is_a_single_record(count):
    for size in (2, 8, 64):
        batches = np.array_split(np.arange(count), _batches(count, size))
        assert min(map(len, batches)) >= 2 and max(map(len, batches)) <= max(size, 3)


def test_the_pace_warms_up_and_ends_near_zero():
    pace = [_pace(step, 50) for step in range(50)]
    assert pace[0] == pytest.approx(0.2) and max(pace) > 0.95 and pace[-1] < 0.01 and min(pace) > 0

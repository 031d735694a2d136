"""The factory: the same votes whoever computes them, in whatever order, whatever is killed; nothing done twice."""

import importlib
import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate.ballots import Ballots
from pate.data.faces import Faces
from pate.data.records import Records, Split
from pate.errors import PateError, RunChanged, SettingError
from pate.models import Network
from pate.partition import partition
from pate.runs import Run
from pate.teachers import Mapped, Pool, Result, Teachers, train_teachers
from pate.teachers.training import train_teacher
from pate.votes import VoteStore

DATA = Faces(private=160, public=12, test=1)
TEACHERS = Teachers(count=8, epochs=12, batch_size=16, slots_per_device=2)
SHAPE = (8, 12, 40)


@pytest.fixture(scope="module")
def split():
    return DATA.load()


@pytest.fixture(scope="module")
def reference(split):
    """What each teacher votes when nothing else is in the world."""
    return in_this_process(split)


def in_this_process(split, teachers=TEACHERS, network=None, seed=0):
    parts = partition(split.private, teachers.count, "record", "pate")
    return np.array(
        [
            train_teacher(
                split.private.take(part),
                split.public.inputs,
                network or Network(),
                teachers,
                split.num_labels,
                seed,
                t,
                "cpu",
            )[0]
            for t, part in enumerate(parts)
        ]
    )


@pytest.fixture
def one_process(monkeypatch):
    """The pool's jobs in this process: the same function on the same files, without the seconds a start takes."""

    def run(pool, function, shared, jobs):
        module, name = function.split(":")
        job_of = getattr(importlib.import_module(module), name)
        mapped = {k: np.load(v.path, mmap_mode="r") if isinstance(v, Mapped) else v for k, v in shared.items()}
        for index, job in enumerate(jobs):
            try:
                yield Result(index, job_of(mapped, job, "cpu"), None, 1, 0.0, "cpu")
            except PateError as error:
                yield Result(index, None, error, 1, 0.0, "cpu")

    monkeypatch.setattr(Pool, "run", run)


def votes_of(run, shape=SHAPE):
    return VoteStore(run.private / "votes", *shape).load()


def eventually(condition, seconds=60.0):
    for _ in range(int(seconds * 100)):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_run_from_start_to_end(split, reference, tmp_path, monkeypatch, capsys):
    run = Run(tmp_path, "a")
    summary = train_teachers(run, split, Network(), TEACHERS, devices="cpu")
    assert np.array_equal(votes_of(run), reference)
    names = {path.name for path in run.private.iterdir()}
    assert names == {"manifest.json", "partition.json", "queries.json", "tensorboard", "votes"}  # no arrays are left
    assert stat.S_IMODE((run.private / "partition.json").stat().st_mode) == 0o600
    assert sum(json.loads((run.private / "partition.json").read_text())["sizes"]) == 160
    assert list((run.private / "tensorboard").glob("events.*")) and not list(run.release.iterdir())
    assert (summary.teachers, summary.trained, summary.retried) == (8, 8, 0) and len(summary.accuracies) == 8
    assert "8 teachers of" in str(summary) and "8 trained now (0 retried)" in str(summary)
    assert np.array_equal(Ballots.load(run).votes, reference)
    assert "teachers: 100%" in capsys.readouterr().err

    def never(*args):
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(Pool, "run", never)  # a rerun starts no process
    again = train_teachers(run, split, Network(), replace(TEACHERS, slots_per_device=1), devices="cpu")
    assert again.trained == 0 and "nothing was left to do" in str(again)
    for changed in (replace(TEACHERS, epochs=2), replace(TEACHERS, salt="x")):
        with pytest.raises(RunChanged, match=r"teachers\.(epochs was 12, is 2|salt was 'pate', is 'x')"):
            train_teachers(run, split, Network(), changed, devices="cpu")
    with pytest.raises(RunChanged, match="seed was 0, is 1"):
        train_teachers(run, split, Network(), TEACHERS, devices="cpu", seed=1)
    others = Faces(private=160, public=12, test=1, seed=1)
    with pytest.raises(RunChanged, match="private_records was"):
        train_teachers(run, others, Network(), TEACHERS, devices="cpu")


def test_only_what_is_missing_or_torn_is_done_again(split, reference, tmp_path, one_process):
    run = Run(tmp_path, "a")
    train_teachers(run, split, Network(), replace(TEACHERS, keep_checkpoints=True), devices="cpu")
    assert len(list((run.private / "teachers").glob("teacher-*.safetensors"))) == 8
    votes = run.private / "votes"
    whole = {path.name: path.stat().st_mtime_ns for path in votes.iterdir()}
    (votes / "teacher-00002.votes").unlink()
    (votes / "teacher-00005.votes").write_bytes(b"torn")
    assert train_teachers(run, split, Network(), replace(TEACHERS, keep_checkpoints=True), devices="cpu").trained == 2
    changed = {path.name for path in votes.iterdir() if path.stat().st_mtime_ns != whole[path.name]}
    assert changed == {"teacher-00002.votes", "teacher-00005.votes"}
    assert np.array_equal(votes_of(run), reference)


def test_changing_one_teachers_records_changes_no_other_teachers_votes(split, reference, tmp_path, one_process):
    """Isolation, which the privacy proof rests on: other pictures, other labels, and a record removed."""
    part = partition(split.private, 8, "record", "pate")[3]
    inputs, labels = split.private.inputs.copy(), split.private.labels.copy()
    inputs[part[:3]] = 255 - inputs[part[:3]]
    labels[part[:9]] ^= True
    changed = Records(inputs, labels, split.private.ids, split.private.persons)
    changed = changed.take(np.delete(np.arange(160), part[-1]))
    run = Run(tmp_path, "a")
    train_teachers(run, replace(split, private=changed), Network(), TEACHERS, devices="cpu")
    votes = votes_of(run)
    others = np.arange(8) != 3
    assert np.array_equal(votes[others], reference[others])
    assert not np.array_equal(votes[3], reference[3])


def test_the_order_of_the_data_set_does_not_matter(split, reference, tmp_path, one_process):
    shuffled = split.private.take(np.random.default_rng(0).permutation(160))
    run = Run(tmp_path, "a")
    train_teachers(run, replace(split, private=shuffled), Network(), TEACHERS, devices="cpu")
    assert np.array_equal(votes_of(run), reference)


def test_a_worker_killed_in_the_middle_changes_nothing(split, reference, tmp_path):
    run, killed = Run(tmp_path, "a"), []

    def kill_one():
        assert eventually(lambda: list((run.private / "votes").glob("teacher-*")))
        victim = multiprocessing.active_children()[0]
        os.kill(victim.pid, signal.SIGKILL)
        killed.append(victim.pid)

    killer = threading.Thread(target=kill_one)
    killer.start()
    summary = train_teachers(run, split, Network(), TEACHERS, devices="cpu")
    killer.join()
    assert killed and summary.trained == 8
    assert np.array_equal(votes_of(run), reference)


SCRIPT = """
from pate.data.faces import Faces
from pate.models import Network
from pate.runs import Run
from pate.teachers import Teachers, train_teachers
if __name__ == "__main__":
    train_teachers(Run({root!r}, "a"), {data!r}, Network(), {teachers!r}, devices="cpu")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_parent_killed_in_the_middle_leaves_no_process_and_loses_nothing(split, reference, tmp_path):
    path, votes = tmp_path / "script.py", tmp_path / "a" / "private" / "votes"
    path.write_text(SCRIPT.format(root=str(tmp_path), data=DATA, teachers=TEACHERS))
    parent = subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE, start_new_session=True)
    assert eventually(lambda: list(votes.glob("teacher-*")))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()  # returns when everybody who could write there is gone
    assert eventually(lambda: not processes_of_session(parent.pid), 5)
    done = len(list(votes.glob("teacher-*")))
    one_slot = replace(TEACHERS, slots_per_device=1)  # another number of workers, the same votes
    summary = train_teachers(Run(tmp_path, "a"), DATA, Network(), one_slot, devices="cpu")
    assert 1 <= done < 8 and summary.trained == 8 - done
    assert np.array_equal(votes_of(Run(tmp_path, "a")), reference)
    left = [
        path.name for path in (tmp_path / "a" / "private").rglob("*") if "tmp" in path.name or path.suffix == ".npy"
    ]
    assert left == []


def processes_of_session(session):
    """Running processes whose session is the given one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(owner) == session and state not in "ZX":
            found.append(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_twenty_random_kills_change_nothing(tmp_path):
    data, teachers = Faces(private=5000, public=30, test=1), Teachers(count=100, slots_per_device=2)
    path, votes, rng = tmp_path / "script.py", tmp_path / "a" / "private" / "votes", np.random.default_rng(0)
    path.write_text(SCRIPT.format(root=str(tmp_path), data=data, teachers=teachers))
    kills, parent = 0, None
    while kills < 20:
        if parent is None or parent.poll() is not None:
            parent = subprocess.Popen([sys.executable, str(path)], stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(rng.uniform(0.5, 3))
        for path_of_votes in sorted(votes.glob("teacher-*"))[50:]:  # so that it never ends before the last kill
            path_of_votes.unlink(missing_ok=True)
        if victims := processes_of_session(parent.pid):
            os.kill(int(rng.choice(victims)), signal.SIGKILL)
            kills += 1
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    train_teachers(Run(tmp_path, "a"), data, Network(), teachers, devices="cpu")
    assert np.array_equal(votes_of(Run(tmp_path, "a"), (100, 30, 40)), in_this_process(data.load(), teachers))


def tables(count=60, queries=5):
    rng = np.random.default_rng(0)

    def records(n, name):
        inputs = rng.normal(size=(n, 6)).astype(np.float32)
        ids = np.char.mod(f"{name}-%d", np.arange(n))
        return Records(inputs, inputs[:, :2] > 0, ids, ids)

    return Split(records(count, "private"), records(queries, "public"), records(2, "test"), ("a", "b"))


def test_a_teacher_that_fails_is_named_and_the_others_vote(tmp_path, one_process):
    split, settings = tables(), Teachers(count=4, epochs=2)
    split.private.inputs[partition(split.private, 4, "record", "pate")[2][0]] = np.nan
    run = Run(tmp_path, "a")
    with pytest.raises(PateError, match=r"1 of 4 teachers failed, the others have voted: teacher 2: .*diverged"):
        train_teachers(run, split, Network("linear"), settings, devices="cpu")
    assert VoteStore(run.private / "votes", 4, 5, 2).missing() == [2]


def test_memory_mapped_inputs_are_not_copied(tmp_path):
    from pate.teachers.factory import _as_file

    values = np.arange(60, dtype=np.uint8).reshape(5, 12)
    np.save(tmp_path / "cache.npy", values)
    mapped = np.load(tmp_path / "cache.npy", mmap_mode="r")
    assert _as_file(mapped, tmp_path) == tmp_path / "cache.npy"
    for other in (mapped[1:], mapped[::-1], mapped[[0, 1, 2, 3, 4]], values + 1):  # not the file as a whole
        copy = _as_file(other, tmp_path)
        assert copy != tmp_path / "cache.npy" and np.array_equal(np.load(copy), other)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600 and _as_file(other, tmp_path) == copy


@pytest.mark.parametrize(
    ("network", "teachers", "sentence"),
    [
        (Network("resnet5O"), TEACHERS, "model.name must be"),
        (Network(weights="absent.pth"), TEACHERS, "no file absent.pth"),
        (Network(), replace(TEACHERS, count=100), "teachers.count must be <= "),
    ],
)
def test_a_mistake_is_told_before_any_work_and_can_be_mended(split, tmp_path, network, teachers, sentence):
    run = Run(tmp_path, "a")
    with pytest.raises(PateError, match=sentence):
        train_teachers(run, split, network, teachers, devices="cpu")
    assert not (run.private / "manifest.json").exists() and not (run.private / "votes").exists()


def test_a_device_that_is_not_here_is_refused(split, tmp_path):
    with pytest.raises(SettingError, match="devices must be auto, cpu or"):
        train_teachers(Run(tmp_path, "a"), split, Network(), TEACHERS, devices="cuda:9")


def test_resnet50_is_finetuned_by_the_same_code(tmp_path, one_process):
    split = Faces(private=16, public=4, test=1).load()
    settings = Teachers(count=2, epochs=1, batch_size=4, smallest=2, slots_per_device=1, learning_rate=1e-3)
    run = Run(tmp_path, "a")
    train_teachers(run, split, Network("resnet50"), settings, devices="cpu")
    votes = votes_of(run, (2, 4, 40))
    assert votes.any() and not votes.all()
    assert np.array_equal(votes, in_this_process(split, settings, Network("resnet50")))

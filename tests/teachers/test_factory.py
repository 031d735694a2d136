"""The factory: the same votes whoever computes them, in whatever order, whatever is killed; nothing done twice."""

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
from PIL import Image

from pate.ballots import Ballots
from pate.data.celeba import CelebA
from pate.data.faces import Faces
from pate.data.folder import Folder
from pate.data.records import Records, Split
from pate.errors import DataError, PateError, RunChanged, SettingError
from pate.models import Network
from pate.partition import partition
from pate.runs import Run
from pate.teachers import Pool, Teachers, train_teachers
from pate.teachers.arrays import as_file
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


def votes_of(run, shape=SHAPE):
    return VoteStore(run.private / "votes", *shape).load()


def eventually(condition, seconds=60.0):
    for _ in range(int(seconds * 100)):
        if condition():
            return True
        time.sleep(0.01)
    return False


def kill_a_worker(run, killed):
    """As soon as one teacher has voted."""
    assert eventually(lambda: list((run.private / "votes").glob("teacher-*")))
    victim = multiprocessing.active_children()[0]
    os.kill(victim.pid, signal.SIGKILL)
    killed.append(victim.pid)


def test_a_run_from_start_to_end_in_which_a_worker_is_killed(split, reference, tmp_path, monkeypatch, capsys):
    run, killed = Run(tmp_path, "a"), []
    killer = threading.Thread(target=kill_a_worker, args=(run, killed))
    killer.start()
    summary = train_teachers(run, split, Network(), TEACHERS, devices="cpu")
    killer.join()
    assert len(killed) == 1 and np.array_equal(votes_of(run), reference)
    names = {path.name for path in run.private.iterdir()}
    assert names == {"manifest.json", "partition.json", "queries.json", "tensorboard", "views.npy", "votes"}
    assert stat.S_IMODE((run.private / "partition.json").stat().st_mode) == 0o600
    assert sum(json.loads((run.private / "partition.json").read_text())["sizes"]) == 160
    assert list((run.private / "tensorboard").glob("events.*")) and not list(run.release.iterdir())
    assert (summary.teachers, summary.voted, summary.trained) == (8, 8, 8) and len(summary.accuracies) == 8
    assert summary.retried <= 1  # none, if the worker had no teacher at that moment
    assert "8 teachers of" in str(summary) and f"8 trained now ({summary.retried} retried)" in str(summary)
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


SCRIPT = """
from pate.data.celeba import CelebA
from pate.data.faces import Faces
from pate.models import Network
from pate.runs import Run
from pate.teachers import Teachers, train_teachers
if __name__ == "__main__":
    train_teachers(Run({root!r}, "a"), {data!r}, Network(), {teachers!r}, devices="cpu")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_parent_killed_in_the_middle_leaves_no_process_and_loses_nothing(reference, tmp_path, one_process):
    path, votes = tmp_path / "script.py", tmp_path / "a" / "private" / "votes"
    path.write_text(SCRIPT.format(root=str(tmp_path), data=DATA, teachers=TEACHERS))
    parent = subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE, start_new_session=True)
    assert eventually(lambda: list(votes.glob("teacher-*")))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()  # returns when everybody who could write there is gone
    assert eventually(lambda: not processes_of_session(parent.pid), 5)
    done = len(list(votes.glob("teacher-*")))
    one_slot = replace(TEACHERS, slots_per_device=1)  # another number of slots is the same run
    summary = train_teachers(Run(tmp_path, "a"), DATA, Network(), one_slot, devices="cpu")
    assert 1 <= done < 8 and summary.trained == 8 - done
    assert np.array_equal(votes_of(Run(tmp_path, "a")), reference)
    left = [
        path.name for path in (tmp_path / "a" / "private").rglob("*") if "tmp" in path.name or path.suffix == ".npy"
    ]
    assert left == ["views.npy"]  # of public records


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
def test_twenty_random_kills_change_nothing(tmp_path, shared_data):
    data = CelebA(str(shared_data / "celeba"), size=32, cache=str(tmp_path / "cache"))
    teachers = Teachers(count=100, slots_per_device=2)
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
    assert np.array_equal(votes_of(Run(tmp_path, "a"), (100, 600, 40)), in_this_process(data.load(), teachers))


def tables(count=60, queries=5):
    rng = np.random.default_rng(0)

    def records(n, name):
        inputs = rng.normal(size=(n, 6)).astype(np.float32)
        ids = np.char.mod(f"{name}-%d", np.arange(n))
        return Records(inputs, inputs[:, :2] > 0, ids, ids)

    return Split(records(count, "private"), records(queries, "public"), records(2, "test"), ("a", "b"))


def test_pictures_that_do_not_decode_are_left_out_on_request(tmp_path, one_process, caplog):
    rng, lines = np.random.default_rng(0), ["file,dark"]
    for number in range(60):
        dark = number % 2
        Image.fromarray(rng.integers(0, 256 - 150 * dark, (16, 16, 3), np.uint8)).save(tmp_path / f"{number:02d}.png")
        lines.append(f"{number:02d}.png,{dark}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    (tmp_path / "07.png").write_bytes((tmp_path / "07.png").read_bytes()[:200])
    data = Folder(str(tmp_path), size=16, public=10, test=4, cache=str(tmp_path / "cache"), workers=1)
    teachers, run = Teachers(count=3, epochs=2), Run(tmp_path / "runs", "a")
    with pytest.raises(DataError, match=r"07.png does not decode .*data.on_bad_image=skip"):
        train_teachers(run, data, Network(), teachers, devices="cpu")
    assert not run.folder.exists()  # before any training
    summary = train_teachers(run, replace(data, on_bad_image="skip"), Network(), teachers, devices="cpu")
    assert summary.voted == 3 and "left out 1 images that do not decode: 07.png" in caplog.text
    index = json.loads((run.private / "queries.json").read_text())
    assert sum(json.loads((run.private / "partition.json").read_text())["sizes"]) + len(index["ids"]) + 4 == 59


def test_a_teacher_that_fails_is_named_and_the_others_vote(tmp_path, one_process):
    split, settings = tables(), Teachers(count=4, epochs=2)
    split.private.inputs[partition(split.private, 4, "record", "pate")[2][0]] = np.nan
    run = Run(tmp_path, "a")
    with pytest.raises(PateError, match=r"1 of 4 teachers failed, the others have voted: teacher 2: .*diverged"):
        train_teachers(run, split, Network("linear"), settings, devices="cpu")
    assert VoteStore(run.private / "votes", 4, 5, 2).missing() == [2]


def test_memory_mapped_inputs_are_not_copied(tmp_path):
    values = np.arange(60, dtype=np.uint8).reshape(5, 12)
    np.save(tmp_path / "cache.npy", values)
    mapped = np.load(tmp_path / "cache.npy", mmap_mode="r")
    for rows in (mapped, mapped[1:], mapped[1:][1:3], mapped[:1]):  # one stretch of the file
        found = as_file(rows, tmp_path)
        assert found.path == tmp_path / "cache.npy" and np.array_equal(found.open(), rows)
    for other in (mapped[::-1], mapped[::2], mapped[:, 3:], mapped[[0, 1, 2, 3, 4]], values + 1):
        copy = as_file(other, tmp_path)
        assert copy.path != tmp_path / "cache.npy" and np.array_equal(copy.open(), other)
        assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600 and as_file(other, tmp_path) == copy


def test_shards_share_the_work_and_disturb_nobody(split, reference, tmp_path, one_process):
    """Each trains its own; what they share on the way is removed by the one that comes last."""
    run, shards = Run(tmp_path, "a"), [replace(TEACHERS, shard=f"{share}/3") for share in (2, 1, 3)]
    first = train_teachers(run, split, Network(), shards[0], devices="cpu")
    assert (first.trained, first.voted) == (3, 3) and str(first).startswith("3 of 8 teachers")
    assert sorted(path.stem for path in (run.private / "votes").iterdir()) == [f"teacher-{t:05d}" for t in (1, 4, 7)]
    (run.private / "votes" / ".teacher-00000.votes.abc.tmp").write_bytes(b"of a neighbour that is at work")
    assert train_teachers(run, split, Network(), shards[1], devices="cpu").trained == 3
    assert (run.private / "votes" / ".teacher-00000.votes.abc.tmp").exists() and (run.private / "mapped").exists()
    last = train_teachers(run, split, Network(), shards[2], devices="cpu")
    assert (last.trained, last.voted) == (2, 8) and not (run.private / "mapped").exists()
    assert not list((run.private / "votes").glob(".*")) and np.array_equal(votes_of(run), reference)


@pytest.mark.slow
def test_shards_at_the_same_time(reference, tmp_path):
    scripts = []
    for share in (1, 2, 3):
        path = tmp_path / f"script{share}.py"
        teachers = replace(TEACHERS, shard=f"{share}/3", slots_per_device=1)
        path.write_text(SCRIPT.format(root=str(tmp_path), data=DATA, teachers=teachers))
        scripts.append(subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE))
    assert [(script.communicate()[1], script.returncode)[1] for script in scripts] == [0, 0, 0]
    assert np.array_equal(votes_of(Run(tmp_path, "a")), reference)
    assert not (tmp_path / "a" / "private" / "mapped").exists()


@pytest.mark.parametrize(
    ("network", "teachers", "sentence"),
    [
        (Network("resnet5O"), TEACHERS, "model.name must be"),
        (Network(weights="absent.pth"), TEACHERS, "no file absent.pth"),
        (Network(), replace(TEACHERS, count=100), "teachers.count must be <= "),
        (Network(), replace(TEACHERS, estimate=True), "teachers.estimate must be false here"),
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

"""The whole last stage on a small real run: what it leaves, what it repeats, what it refuses, what it never reads."""

import dataclasses
import importlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from desk.office import label, lighten, memory_folder

from pate import desk
from pate.data.faces import Faces
from pate.data.records import Split
from pate.errors import DataError, SettingError
from pate.labels import Labels
from pate.ledger import Ledger
from pate.mechanisms import GaussianChoice, NoisyCounts, StableTopK
from pate.metrics import SCALARS, evaluate
from pate.models import Network
from pate.runs import Run
from pate.student import NothingReleased, Student, load_student, network_of, predict
from pate.teachers import Mapped, Pool, Result, Teachers, train_teachers
from pate.teaching import Lesson, Room, make_student, student_path

ROOT = Path(__file__).resolve().parent.parent
TEACHERS = {mode: Teachers(count=6, epochs=2, mode=mode) for mode in ("finetune", "heads")}
FILES = ("metrics.csv", "metrics.json", "student.md", "student.safetensors")


@pytest.fixture(autouse=True, scope="module")
def quick():
    """One thread, and the pool's jobs in this process: the same work without the seconds that a start takes."""

    def run(pool, function, shared, jobs, first=0):
        module, name = function.split(":")
        job_of = getattr(importlib.import_module(module), name)
        mapped = {key: value.open() if isinstance(value, Mapped) else value for key, value in shared.items()}
        for index, job in enumerate(jobs):
            yield Result(index, job_of(mapped, job, "cpu"), None, 1, 0.0, "cpu")

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "run", run)
        lighten(patch.setattr)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def split() -> Split:
    return Faces(private=120, public=30, test=40).load()


@pytest.fixture(scope="module")
def folder(split):
    """Two labelled runs, `finetune` and `heads`; tests that write work on copies."""
    with memory_folder() as root:
        for mode, teachers in TEACHERS.items():
            train_teachers(Run(root, mode), split, Network(), teachers, devices="cpu")
            label(Run(root, mode), NoisyCounts(num_labels=40, sigma=3.0, num_teachers=6))
        yield root


def copy(folder, mode, name) -> Run:
    """A labelled run under another name."""
    shutil.copytree(folder / mode, folder / name)
    (folder / name / "private").chmod(0o700)
    return Run(folder, name)


def lesson(mode="finetune", **changes) -> Lesson:
    given = {"student": Student(epochs=2), "devices": "cpu", "seed": 0} | changes
    return Lesson(Network(), TEACHERS[mode], **given)


def labels_of(run):
    return Labels.load(run.release / "labels.npz")


def contents(run):
    return {name: (run.release / name).read_bytes() for name in FILES}


def with_public_labels(split, change):
    return dataclasses.replace(split, public=split.public.with_labels(change(split.public.labels)))


@pytest.fixture(scope="module", params=list(TEACHERS))
def taught(request, folder, split):
    mode = request.param
    run = copy(folder, mode, f"taught-{mode}")
    return run, mode, make_student(run, labels_of(run), split, lesson(mode))


# What it leaves


def test_the_file_predicts_what_was_judged(taught, split):
    run, mode, outcome = taught
    model, meta = load_student(student_path(run))
    assert meta["mirror"] and meta["mode"] == mode
    found = predict(model, split.test.inputs, network_of(meta))
    room = Room(run, labels_of(run), split, lesson(mode))
    again = room.teach(room.goal())
    tests = room.view.split.test.inputs if room.view else split.test.inputs
    np.testing.assert_allclose(found, predict(again, tests, room.view.network if room.view else Network()), atol=1e-5)
    figures = evaluate(found, split.test.labels).scalars()
    assert figures == pytest.approx(outcome.rows["student"], abs=1e-3)
    np.testing.assert_allclose(predict(model, split.test.inputs[:, :, ::-1], network_of(meta)), found, atol=1e-5)


def test_the_rows_to_compare_with(taught):
    outcome = taught[2]
    assert list(outcome.rows) == ["student", "prior-only", "all zeros", "non-private"]
    assert outcome.rows["all zeros"]["macro_f1"] == 0 and all(set(row) == set(SCALARS) for row in outcome.rows.values())
    head, *lines = str(outcome).splitlines()
    assert "mean accuracy" in head and len({len(line) for line in lines[:4]}) == 1
    assert [bool(re.search("private: not covered by epsilon$", line)) for line in lines] == [False] * 4 + [True] * 2
    assert lines[4].startswith("student on noiseless votes") and lines[5].startswith("gain")


def test_what_depends_on_votes_without_noise_stays_in_the_private_room(taught):
    run, _, outcome = taught
    path = run.private / "reference.json"
    kept = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and kept["student on noiseless votes"] == outcome.private
    for file in run.release.rglob("*"):
        assert not file.is_file() or b"noiseless" not in file.read_bytes(), file


def test_the_card_stands_beside_the_student(taught):
    run, _, outcome = taught
    text = (run.release / "student.md").read_text()
    statement = (run.release / "statement.txt").read_text().strip()
    assert all(f"> {line}".rstrip() in text for line in statement.splitlines())
    digest = desk.sha256(student_path(run).read_bytes())
    assert digest in text and f"{100 * outcome.rows['non-private']['mean_ap']:.1f} %" in text
    assert "| Wearing_Hat" in text and labels_of(run).digest in text


def test_the_ledger_knows_every_file(taught):
    run, _, _ = taught
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert ledger.published().keys() == {*desk.PUBLISHED, *FILES} and set(desk.TAUGHT) == set(FILES)
        assert desk.check_release(run, ledger) == []
        for name in FILES:
            path = run.release / name
            whole = path.read_bytes()
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            with pytest.raises(DataError, match=f"^{name} in .* is not what ledger.sqlite recorded"):
                desk.check_release(run, ledger)
            path.write_bytes(whole)


def test_the_student_has_a_board(taught):
    assert list((taught[0].release / "tensorboard" / "student").glob("events*"))


# What it repeats


def test_a_rerun_does_nothing_twice_and_makes_what_is_missing(folder, split, monkeypatch):
    run = copy(folder, "finetune", "again")
    first = make_student(run, labels_of(run), split, lesson())
    before = contents(run), {name: (run.release / name).stat().st_mtime_ns for name in FILES}
    monkeypatch.setattr("pate.teaching.train_student", lambda *_, **__: pytest.fail("trained again"))
    assert make_student(run, labels_of(run), split, lesson()) == first
    (run.release / "student.md").unlink()
    assert make_student(run, labels_of(run), split, lesson()) == first and contents(run) == before[0]
    times = {name: (run.release / name).stat().st_mtime_ns for name in FILES if name != "student.md"}
    assert times.items() <= before[1].items()
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert all(len(ledger.published()[name]) == 1 for name in FILES)


def test_other_settings_make_another_student(folder, split):
    run = copy(folder, "finetune", "other")
    make_student(run, labels_of(run), split, lesson(references=False))
    first = contents(run)
    assert "non-private" not in json.loads(first["metrics.json"])["rows"]
    assert not (run.private / "reference.json").exists()
    make_student(run, labels_of(run), split, lesson())
    assert contents(run)["student.safetensors"] == first["student.safetensors"]  # only references came
    assert "non-private" in json.loads(contents(run)["metrics.json"])["rows"]
    for changes in ({"seed": 1}, {"student": Student(epochs=1)}, {"student": Student(epochs=2, augment=False)}):
        make_student(run, labels_of(run), split, lesson(references=False, **changes))
        assert contents(run)["student.safetensors"] != first["student.safetensors"]
        assert load_student(student_path(run))[1]["mirror"] == changes.get("student", Student()).augment
    (run.release / ".student.safetensors.x.tmp").write_bytes(b"torn")
    make_student(run, labels_of(run), split, lesson(references=False))
    assert contents(run) == first and not list(run.release.glob(".*.tmp"))
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert desk.check_release(run, ledger) == []


def test_a_release_that_was_handed_on_is_enough(folder, split):
    run = copy(folder, "finetune", "handed")
    (run.folder / "private").rename(run.folder.with_name("kept at home"))
    before = (run.release / "ledger.sqlite").read_bytes()
    outcome = make_student(run, labels_of(run), split, lesson())
    assert outcome.private is None and "not covered" not in str(outcome)
    assert (run.release / "ledger.sqlite").read_bytes() == before and not run.private.exists()
    (run.release / "statement.txt").unlink()
    make_student(run, labels_of(run), split, lesson())
    assert "There is no privacy statement" in (run.release / "student.md").read_text()


def test_a_seeded_release_says_so_first(folder, split):
    run = copy(folder, "finetune", "seeded")
    label(run, NoisyCounts(num_labels=40, sigma=2.0, num_teachers=6), seed=3)
    make_student(run, labels_of(run), split, lesson(references=False))
    assert (run.release / "student.md").read_text().splitlines()[4].startswith("> NOT PRIVATE")


# What it never reads


@pytest.mark.parametrize("mode", list(TEACHERS))
def test_no_true_label_of_a_public_record_reaches_the_student(folder, split, mode):
    """Inverted, permuted, gone: the same bytes; only the references, which are made of those labels, move."""
    rng = np.random.default_rng(0)
    found = {}
    for name, change in (("true", np.copy), ("inverted", np.invert), ("permuted", rng.permutation)):
        run = copy(folder, mode, f"{name}-{mode}")
        outcome = make_student(run, labels_of(run), with_public_labels(split, change), lesson(mode))
        found[name] = contents(run)["student.safetensors"], contents(run)["metrics.csv"], outcome
    for name in ("inverted", "permuted"):
        assert found[name][:2] == found["true"][:2] and found[name][2].private == found["true"][2].private
        assert found[name][2].rows["student"] == found["true"][2].rows["student"]
    for row in ("prior-only", "non-private"):
        assert found["inverted"][2].rows[row] != found["true"][2].rows[row]


def test_another_truth_is_judged_again(folder, split):
    run = copy(folder, "finetune", "judged")
    first = make_student(run, labels_of(run), split, lesson())
    second = make_student(run, labels_of(run), with_public_labels(split, np.invert), lesson())
    assert second.rows["student"] == first.rows["student"] and second.rows["prior-only"] != first.rows["prior-only"]


# What it refuses, and what it takes


def test_labels_that_were_changed_are_named(folder, split):
    run = copy(folder, "finetune", "changed")
    labels = labels_of(run)
    (run.release / "labels.npz").write_bytes(dataclasses.replace(labels, answered=~labels.answered).encode())
    with pytest.raises(DataError, match=r"^labels.npz in .* is not what ledger.sqlite recorded"):
        make_student(run, labels_of(run), split, lesson())
    assert not student_path(run).exists()


def test_all_bottoms_are_a_sentence(folder, split):
    run = copy(folder, "finetune", "silent")
    label(run, StableTopK(num_labels=40, choose=GaussianChoice(sigma=15.0), sigma=8.0, delta_t=1e-9))
    with pytest.raises(NothingReleased, match="answered queries must be >= 1 to train a student, got 0 of 30") as error:
        make_student(run, labels_of(run), split, lesson())
    assert error.value.exit_code == 2 and not any((run.release / name).exists() for name in FILES)


@pytest.mark.parametrize("soft", [True, False])
def test_one_class_only_trains_and_is_said(folder, split, soft):
    run = copy(folder, "finetune", f"one-class-{soft}")
    labels = labels_of(run)
    values, scores = labels.labels.copy(), labels.scores.copy()
    for column, every in ((0, True), (1, False)):
        values[:, column], scores[:, column] = every, 6.0 * every
    one = dataclasses.replace(labels, labels=values, scores=scores if soft else None)
    blank = split.test.with_labels(np.where(np.arange(40) == 0, False, split.test.labels))
    outcome = make_student(run, one, dataclasses.replace(split, test=blank), lesson())
    assert all(value is not None and 0 <= value <= 1 for value in outcome.rows["student"].values())
    text, (first, second) = (run.release / "student.md").read_text(), split.label_names[:2]
    assert re.search(rf"always yes,[^.]*\b{first}\b", text) and re.search(rf"always no,[^.]*\b{second}\b", text)
    assert re.search(rf"\| {first} .*\| +- \| +0.0 % \|", text)  # average precision of what is never true


def test_a_size_that_the_network_cannot_take_is_a_sentence(folder, split):
    run = copy(folder, "finetune", "small")
    network = dataclasses.replace(lesson(), network=Network("alexnet"))
    with pytest.raises(
        SettingError, match=r"image_size must be .* alexnet can take, 63 is the smallest .*, got \(32, 32\)"
    ):
        make_student(run, labels_of(run), split, network)


def test_without_labels_the_script_names_the_command_that_makes_them(tmp_path):
    command = [sys.executable, "train_student.py", f"runs={tmp_path}", "run=mine", "quick=true"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""
    assert "labels.npz is missing: make it with `python label_student.py run=mine`" in done.stderr

"""The README's own commands, in small; then every file they promise."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pate.ledger import Ledger
from pate.runs import read_npz

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def commands() -> list[str]:
    """Every `python ...` line of the bash blocks, and what follows `&&` in the first."""
    lines = [part.strip() for block in blocks("bash") for line in block.splitlines() for part in line.split("&&")]
    return [line for line in lines if line.startswith("python ")]


def run(command: str, folder: Path, *more: str) -> subprocess.CompletedProcess:
    words = [sys.executable, *shlex.split(command)[1:], f"runs={folder}", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """All of the README's commands, run in order with quick=true in one folder of runs."""
    folder = tmp_path_factory.mktemp("runs")
    for command in commands():
        done = run(command, folder, "quick=true")
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr and "Warning" not in done.stderr, f"{command}\n{done.stderr}"
    return folder


def test_the_two_lines_stand_in_the_readme():
    assert any(block.strip() == "pip install -e . && python compare.py" for block in blocks("bash"))
    assert any(block.strip() == "pip install -e '.[test]' && pytest" for block in blocks("bash"))
    assert len(commands()) == 4


def test_compare_leaves_report_ledger_and_board(finished):
    release = finished / "demo" / "release"
    names = {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}
    assert {"report/index.html", "report/summary.csv", "report/frontier.png"} <= names
    assert "study/teacher_changed/ledger.sqlite" in names
    assert any(name.startswith("tensorboard/compare/events") for name in names)
    page = (release / "report" / "index.html").read_text()
    assert "epsilon" in page and "prior-only" in page and "data:image/png" in page
    ledger = Ledger(release / "study" / "teacher_changed" / "ledger.sqlite")
    assert len(ledger.charges()) == 5 * 4 * 3 and ledger.unanswered() == []


def test_the_stages_leave_every_promised_file(finished):
    private, release = finished / "mine" / "private", finished / "mine" / "release"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    for name in ("manifest.json", "partition.json", "queries.json", "votes", "tensorboard"):
        assert (private / name).exists(), name
    for name in ("labels.npz", "student.safetensors", "ledger.sqlite", "statement.json", "metrics.csv", "tensorboard"):
        assert (release / name).exists(), name
    labels = read_npz(release / "labels.npz")
    assert labels["labels"].shape == (60, 40) and labels["labels"].dtype == np.bool_
    statement = json.loads((release / "statement.json").read_text())
    assert statement["private"] is True and statement["neighbours"] == "teacher_changed"
    assert 0.999 * 4 <= statement["epsilon"]["tight"] <= 4
    manifest = json.loads((private / "manifest.json").read_text())
    assert manifest["teachers"]["settings"]["teachers.count"] == 12 and "torch" in manifest["teachers"]["versions"]


def test_a_rerun_does_nothing_twice(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.npz")}
    done = run("python compare.py", finished, "quick=true")
    assert done.returncode == 0 and "nothing was left to do" in done.stdout and "students:" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.npz")} == before


def test_other_settings_are_refused_by_name(finished):
    done = run("python train_teachers.py run=mine", finished, "quick=true", "teachers.count=11")
    assert done.returncode == 2 and "teachers.count was 12, is 11" in done.stderr and done.stderr.count("\n") == 1


def test_the_python_example_runs():
    done = subprocess.run([sys.executable, "-c", blocks("python")[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "epsilon 1.0" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("label_student.py run=absent", 2, "python train_teachers.py run=absent"),
        ("label_student.py run=mine budget.epsilon=1 mechanism=tau_ballots", 3, "budget 1"),
        ("compare.py quries=5", 2, "quries must be a setting"),
        ("compare.py mechanism=nothing", 2, "mechanism must be one of"),
        ("compare.py teachers.epochs=many", 2, "teachers.epochs must be a whole number, got 'many'"),
    ],
)
def test_mistakes_end_in_one_sentence(finished, words, code, sentence):
    done = run(f"python {words}", finished)
    assert done.returncode == code and sentence in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_your_own_data_from_a_csv(tmp_path):
    """The folder example of the README, on pictures made here."""
    from PIL import Image

    folder, rng = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    lines = ["file,who,smiling,hat"]
    for number in range(160):
        smiling, hat = rng.random(2) < 0.5
        picture = rng.integers(0, 80, (20, 20, 3)) + np.array([100 * smiling, 100 * hat, 0])
        Image.fromarray(picture.astype(np.uint8)).save(folder / f"{number:04d}.jpg")
        lines.append(f"{number:04d}.jpg,person{number // 2},{int(smiling)},{int(hat)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    command = next(line for block in blocks("") for line in block.splitlines() if "data=folder" in line)
    small = ("teachers.count=6", "teachers.epochs=2", "student.epochs=2", "seeds=1", "epsilons=[8]", "data.public=30")
    more = (*small, "data.size=16", f"data.root={folder}", f"data.cache={tmp_path / 'cache'}", "teachers.smallest=4")
    done = run(command, tmp_path / "runs", *more)
    assert done.returncode == 0, done.stderr
    assert "noisy_counts" in done.stdout and (tmp_path / "runs/photos/release/report/index.html").exists()
    assert "one person's data" in (tmp_path / "runs/photos/release/report/index.html").read_text().replace(
        "&#x27;", "'"
    )

"""A study that is killed among its students goes on with the others and ends as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from inline_pool import Inline
from omegaconf import OmegaConf

from pate import classroom
from pate.commands import translate
from pate.runs import Run
from pate.settings import build, pick
from pate.study import Outcome, Study, compare
from pate.sweeps import School

ROOT = Path(__file__).resolve().parent.parent
WORDS = [
    *("quick=true", "devices=cpu", "run=demo", "noise_seed=0", "student.epochs=12"),
    *("only=[noisy_counts,tau_ballots]", "epsilons=[4,64]", "neighbours=teacher_changed", "seeds=6"),
]
STUDENTS = 2 * 2 * 6 + 2 * 6


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classroom, "Pool", Inline)
    monkeypatch.setattr(Inline, "jobs", 0)


def start(runs: Path) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "compare.py"), *WORDS, f"runs={runs}"]
    given = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)


def finish(runs: Path) -> tuple[str, str]:
    process = start(runs)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out, err


def students(runs: Path) -> dict[Path, int]:
    """Results there are, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in runs.glob("demo/*/study/students/*.json")}


def undisturbed(killed: Path, whole: Path) -> Path:
    """The same teachers, and nothing else done yet."""
    return shutil.copytree(killed, whole, ignore=shutil.ignore_patterns("study", "ledger", "report", "tensorboard"))


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """Runs of which compare.py was killed when it had taught a few of its students."""
    runs, deadline = tmp_path / "killed", time.monotonic() + 300
    process = start(runs)
    while len(students(runs)) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 4 <= len(students(runs)) < STUDENTS and not (runs / "demo/release/report").exists()
    return runs


def again(runs: Path) -> Outcome:
    """What compare.py does with the same words, in this process."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        words = [translate(word, ROOT / "conf") for word in WORDS]
        plain = OmegaConf.to_container(compose("compare", [*words, f"runs={runs}"]), resolve=True)
    data, network, teachers, student = (build(plain[name], name) for name in ("data", "model", "teachers", "student"))
    school = School(Run(runs, "demo"), data.load(), network, teachers, "cpu", plain["seed"])
    assert "nothing was left to do" in str(school.train())
    return compare(school, pick(Study, plain), student, plain["queries"])


def test_killed_among_the_students_a_rerun_teaches_the_others_and_ends_as_if_undisturbed(killed, tmp_path):
    before = students(killed)
    rows = again(killed)
    assert Inline.jobs == STUDENTS - len(before)
    after = students(killed)
    assert len(after) == STUDENTS and before.items() <= after.items()
    assert again(undisturbed(killed, tmp_path / "whole")) == rows


@pytest.mark.slow
def test_killed_among_the_students_the_script_itself_goes_on(killed, tmp_path):
    before = students(killed)
    out, err = finish(killed)
    assert "nothing was left to do" in out and f"/{STUDENTS - len(before)} " in err
    assert before.items() <= students(killed).items()
    finish(undisturbed(killed, tmp_path / "whole"))
    for name in ("release/report/summary.csv", "private/report/summary.csv"):
        assert (killed / "demo" / name).read_bytes() == (tmp_path / "whole/demo" / name).read_bytes()

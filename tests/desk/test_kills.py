"""A process may die at any step of a release: budget may be wasted, never hidden; no noise twice, nothing torn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from desk.office import memory_folder

VICTIM = Path(__file__).with_name("victim.py")


def run(*words: object) -> dict:
    with memory_folder() as folder:
        task, *numbers = map(str, words)
        command = [sys.executable, str(VICTIM), task, str(folder / "runs"), *numbers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_every_second_step():
    """Steps stand before and after each write, sync, rename, lock, statement of SQL and draw; `victim.check` judges."""
    found = run("steps", 1, 2)
    assert found["kills"] >= 180 and found["steps"] >= 360


def test_killed_from_outside():
    assert run("outside", 30, 0)["kills"] == 30


@pytest.mark.slow
def test_killed_at_every_step():
    assert run("steps", 1, 1)["kills"] >= 360


@pytest.mark.slow
def test_killed_from_outside_300_times():
    assert run("outside", 300, 1)["kills"] == 300

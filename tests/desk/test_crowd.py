"""Eight processes, one ledger, a hundred rounds: never over the budget together, and no row is lost."""

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


@pytest.mark.parametrize("fit", [300, 7, 10_000])
def test_eight_processes_never_pass_the_budget_together(fit):
    """`victim.crowd` checks that every row that a process was given is there, chained, answered and within budget."""
    assert run("crowd", 8, 100, fit)["charges"] == min(fit, 800)


def test_desks_that_publish_at_once_state_what_all_of_them_spent():
    assert run("desks", 6)["stated"] == 6

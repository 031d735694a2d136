"""reproduce.py as people type it."""

import subprocess
import sys
from pathlib import Path

import pytest

from pate.reproduction import NAMES
from pate.reproduction.experiment import from_csv

ROOT = Path(__file__).resolve().parents[2]


def reproduce(*words, folder=ROOT):
    command = [sys.executable, str(ROOT / "reproduce.py"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_without_a_word_it_lists_the_names():
    done = reproduce()
    assert done.returncode == 0 and all(f"  {name}\n" in done.stdout for name in NAMES)


def test_quick_writes_csv_and_png_into_the_run(tmp_path):
    words = ("experiment=composition_ratio", "quick=true", "seed=3", "run=mine", f"runs={tmp_path}")
    done = reproduce(*words)
    folder = tmp_path / "mine" / "release" / "reproduction" / "composition_ratio"
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".png", ".json"}
    assert "quick=true" in (folder / "composition_ratio.json").read_text() and str(folder) in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("experiment=nothing",), "experiment must be one of"),
        (
            ("experiment=exp2_covid", "data.root=/nowhere/at/all"),
            "data folder /nowhere/at/all not found: give data.root=PATH",
        ),
        (
            ("experiment=composition_ratio", "trials=5"),
            "trials must be >= 1, and given only to what draws noise, got 5",
        ),
        (("experiment=spectral", "trials=0"), "trials must be >= 1"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, words, sentence):
    done = reproduce(*words, f"runs={tmp_path}")
    assert done.returncode == 2 and done.stderr.startswith(sentence) and done.stderr.count("\n") == 1


def test_trials_are_a_word(tmp_path):
    done = reproduce("experiment=spectral", "quick=true", "trials=2", f"runs={tmp_path}")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "papers" / "release" / "reproduction" / "spectral" / "spectral.csv").read_text()
    assert {row["trials"] for row in from_csv(text)} == {2}

"""`label_student.py` as a person types it: what it prints, its exit codes, one sentence for a mistake."""

import json
import logging
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from desk.office import N, T, make_run, see, votes

from pate.ledger import Ledger
from pate.mechanisms import NoisyCounts
from pate.runs import Run

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "label_student.py"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path, ballots=votes(labels=12))


@pytest.fixture
def type_(run, capsys, monkeypatch):
    """Run the script in this process, which saves a second each time; gives exit code, output and errors."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    # A script may configure logging as it likes; in this process that would close and silence what other tests use.
    monkeypatch.setattr(logging, "shutdown", lambda *_: None)
    level = logging.root.level
    heard = [each for each in logging.root.manager.loggerDict.values() if not getattr(each, "disabled", True)]
    handler = signal.getsignal(signal.SIGTERM)

    def typed(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), f"runs={run.root}", "run=mine", *words])
        code = 0
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as left:
            code = left.code or 0
        finally:
            signal.signal(signal.SIGTERM, handler)
            logging.root.setLevel(level)
            for each in heard:
                each.disabled = False
        return code, *capsys.readouterr()

    return typed


def charges(run: Run) -> int:
    with Ledger(run.release / "ledger.sqlite") as ledger:
        return len(ledger.charges())


def test_label_and_label_again(type_, run):
    code, out, err = type_("mechanism=noisy_counts", "target.epsilon=2", "budget.epsilon=3")
    assert (code, err) == (0, "")
    assert "mechanism: NoisyCounts(num_labels=12, sigma=" in out and f"answered {N} of {N} queries (100.0 %)" in out
    assert "epsilon 2 at delta" in out.replace("1.999", "2") and "next: python train_student.py run=mine" in out
    names = {path.name for path in run.release.iterdir()}
    assert names == {
        "answers",
        "labels.npz",
        "labels.json",
        "ledger.sqlite",
        "spending.png",
        "statement.json",
        "statement.txt",
    }
    before = {path: path.read_bytes() for path in run.release.rglob("*") if path.is_file()}
    again = type_("mechanism=noisy_counts", "target.epsilon=2")
    assert again == (code, out, err)
    assert {path: path.read_bytes() for path in run.release.rglob("*") if path.is_file()} == before


def test_the_budget_refuses_with_exit_code_3_and_numbers(type_, run):
    code, _, err = type_("mechanism=noisy_counts", "mechanism.sigma=10", "budget.epsilon=3", "budget.delta=1e-5")
    assert code == 3 and err.startswith(f"{N} queries need epsilon ") and err.count("\n") == 1
    assert "at delta 1e-05, budget 3.00; " in err and err.endswith(" fit.\n")
    assert charges(run) == 0
    code, _, err = type_("mechanism=noisy_counts", "budget.epsilon=4")
    assert code == 2 and "budget.epsilon must be <= 3" in err


def test_until_the_budget(type_, run):
    words = ("mechanism=noisy_counts", "mechanism.sigma=25", "queries=until_budget", "batch=4")
    code, out, _ = type_(*words, "budget.epsilon=3")
    assert code == 0 and "the budget ends after" in out and "are unanswered: 4 queries need epsilon" in out
    done = charges(run)
    assert 1 <= done < 5
    assert type_(*words)[:2] == (0, out) and charges(run) == done


def test_online(type_, run):
    code, out, _ = type_("mechanism=online_stable", "mechanism.cutoff=3", "mechanism.epsilon=0.3")
    assert code == 0 and "OnlineStable(" in out and charges(run) == 1
    facts = json.loads((run.release / "statement.json").read_text())
    assert facts["epsilon"]["tight"] <= 0.9 and "OnlineStable: online stable answers" in facts["theorems"][0]


def test_projected_ballots_on_the_first_queries(type_, run):
    """Charged once; asked again, the same; other views are other noise, under a new charge or refused."""
    words = ("mechanism=projected_ballots", "target.epsilon=2", "queries=8")
    code, out, err = type_(*words, "budget.epsilon=2.5")
    assert (code, err) == (0, "") and "answered 8 of 8 queries" in out and "of 8 queries)" in out
    before = {path: path.read_bytes() for path in run.release.rglob("*") if path.is_file()}
    assert type_(*words) == (0, out, "")
    assert {path: path.read_bytes() for path in run.release.rglob("*") if path.is_file()} == before
    see(run, seed=1)
    code, _, err = type_(*words)  # two of them would pass the budget
    assert code == 3 and err.startswith("8 queries need epsilon ") and err.endswith("; 0 fit.\n") and charges(run) == 1
    assert type_(*words[:1], "target.epsilon=1", "queries=8")[0] == 0 and charges(run) == 2
    see(run)
    assert type_(*words)[0] == 0 and charges(run) == 2


def test_projected_ballots_until_the_budget(type_, run):
    words = ("mechanism=projected_ballots", "target.epsilon=2", "queries=until_budget", "batch=4")
    code, _, err = type_(*words, "budget.epsilon=1")
    assert code == 3 and f"{N} queries need epsilon 2.00" in err and "0 fit" in err and charges(run) == 0
    code, out, _ = type_(*words[:1], "target.epsilon=1", *words[2:])
    assert code == 0 and f"answered {N} of {N} queries" in out and charges(run) == 1


def test_projected_ballots_need_views_that_fit(type_, run):
    see(run, queries=N - 1)
    code, _, err = type_("mechanism=projected_ballots")
    assert (code, charges(run)) == (2, 0)
    assert err == f"views.npy must have a row for each of the {N} queries, got {N - 1}\n"
    (run.private / "views.npy").unlink()
    code, _, err = type_("mechanism=projected_ballots")
    assert code == 2 and err.startswith("mechanism.directions must be given") and err.count("\n") == 1
    assert charges(run) == 0 and type_("mechanism=noisy_counts")[0] == 0


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "conf" / "mechanism").glob("*.yaml"))])
def test_every_mechanism_by_its_name(type_, run, name):
    more = ["mechanism.max_k=9"] if name == "limited_domain" else []
    code, _, err = type_(f"mechanism={name}", "target.epsilon=4", "noise_seed=1", *more)
    assert (code, err) == (0, "")
    facts = json.loads((run.release / "statement.json").read_text())
    assert 3.99 < facts["epsilon"]["tight"] <= 4 and facts["seeded"]
    assert (run.release / "statement.txt").read_text().startswith("NOT PRIVATE")


def test_status(type_, run):
    code, out, err = type_("status=true")
    assert (code, err) == (0, "") and "nothing has been charged yet" in out
    type_("mechanism=noisy_counts", "target.epsilon=2", "budget.epsilon=3")
    code, out, err = type_("status=true")
    assert (code, err) == (0, "") and charges(run) == 1
    for word in ("budget epsilon 3 at delta 1e-06", "tight", "published", "exact", "NoisyCounts", "100.0 %",
                 "the next 100 queries", "stable_topk_gumbel", "does not fit"):  # fmt: skip
        assert word in out, word
    (run.release / "labels.npz").write_bytes(b"other labels")
    code, out, err = type_("status=true")
    assert code == 2 and "labels.npz in " in err and "is not what ledger.sqlite recorded" in err


def test_a_charge_that_a_crash_left_is_told_at_the_next_start(type_, run):
    with Ledger(run.release / "ledger.sqlite") as ledger:
        details = {"mechanism": {"kind": "NoisyCounts"}, "seeded": False, "noise": "entropy"}
        ledger.charge(NoisyCounts(num_labels=12, sigma=100.0).cost(5), queries=5, details=details)
    code, out, _ = type_("mechanism=noisy_counts", "target.epsilon=2")
    assert code == 0 and out.startswith("charge 1 of ") and "has no answer" in out and "stays spent" in out
    code, out, _ = type_("status=true")
    assert "charges without an answer: row 1." in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["queries=0"], "queries must be from 1 to the public records (20), got 0"),
        (["queries=500"], "queries must be from 1 to the public records (20), got 500"),
        (["queries=some"], "queries must be a whole number or one of until_budget, got 'some'"),
        (["queries=until_budget"], "budget.epsilon must be given with queries=until_budget, got None"),
        (["batch=0"], "batch must be >= 1, got 0"),
        (["status=maybe"], "status must be true or false, got 'maybe'"),
        (["budget.epsilon=-1"], "budget.epsilon must be > 0, got -1.0"),
        (["budget.delta=2"], "budget.delta must be in (0, 1), got 2.0"),
        (["target.epsilon=0"], "target.epsilon must be > 0 and finite, got 0.0"),
        (["target.epsilon=1", "target.split=0.2", "mechanism=noisy_counts"], "target.split must be null"),
        (["neighbours=none"], "neighbours must be one of teacher_added, teacher_changed, got 'none'"),
        (["mechanism=peeling", "mechanism.k=13"], "k must be a whole number >= 1 and <= 12, got 13"),
        (["mechanism=unknown"], "mechanism must be one of"),
        (["noise_seed=-1"], "noise_seed must be a whole number >= 0, got -1"),
        (["run=other"], "is missing: make it with `python train_teachers.py run=other`"),
    ],
)
def test_a_mistake_is_one_sentence_and_charges_nothing(type_, run, words, sentence):
    code, _, err = type_(*words)
    assert code == 2 and sentence in err and err.count("\n") == 1 and "Traceback" not in err
    assert charges(run) == 0


def test_the_script_itself(run):
    """One real process, with a vote missing; and the script is short enough to be read."""
    (run.private / "votes" / "teacher-00004.votes").unlink()
    command = [sys.executable, str(SCRIPT), f"runs={run.root}", "run=mine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"votes of 1 of {T} teachers are missing") and done.stderr.count("\n") == 1
    assert len(SCRIPT.read_text().splitlines()) <= 80

"""The odometer: spent and left by every conversion, a line per release, the price of the next, a picture."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from desk.office import DELTA, K, N, label, mechanism, opened
from omegaconf import OmegaConf

from pate import desk, odometer
from pate.errors import DataError
from pate.mechanisms import Majority, OnlineStable
from pate.runs import Run

CONF = Path(__file__).resolve().parents[2] / "conf" / "mechanism"
M = mechanism()


def configured() -> dict:
    return {path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in sorted(CONF.glob("*.yaml"))}


def test_status_says_spent_left_releases_and_prices(run):
    label(run, epsilon=9.0, queries=5)
    label(run, mechanism(sigma=30.0))
    status = desk.status(run, configured(), "teacher_changed", DELTA)
    spent = M.cost(5) + mechanism(sigma=30.0).cost(N)
    assert status.spent == {how: spent.epsilon(DELTA, how) for how in ("tight", "published", "exact")}
    assert status.left == {how: 9.0 - value for how, value in status.spent.items()}
    assert [(line.queries, line.answered, line.mechanism) for line in status.lines] == [
        (5, 5, "NoisyCounts"), (N, N, "NoisyCounts"),
    ]  # fmt: skip
    assert status.lines[1].epsilon == mechanism(sigma=30.0).cost(N).epsilon(DELTA)
    assert status.lines[1].total == status.spent["tight"] and status.unanswered == ()
    assert {one.mechanism for one in status.ahead} == {path.stem for path in CONF.glob("*.yaml")}
    price = next(one for one in status.ahead if one.mechanism == "noisy_counts")
    m = mechanism(sigma=configured()["noisy_counts"]["sigma"])
    assert price.epsilon == m.cost(100).epsilon(DELTA) and price.total == (spent + m.cost(100)).epsilon(DELTA)
    assert price.fits == (price.total <= 9.0)
    text = str(status)
    for word in ("budget epsilon 9 at delta 1e-06, for teacher_changed, unit record", "tight", "published", "exact",
                 "the next 100 queries", "online_stable", "100.0 %"):  # fmt: skip
        assert word in text, word
    needs = next(one for one in status.ahead if one.mechanism == "peeling")
    assert not needs.fits and math.isinf(needs.total) and "k must be a whole number >= 1 and <= 5, got 8" in text


def test_status_by_the_ledger_is_the_same(run):
    label(run, epsilon=9.0)
    by_desk = desk.status(run, {}, "teacher_changed", 0.5)
    assert opened(run).status() == by_desk and by_desk.delta == DELTA
    ahead = opened(run).status(mechanisms={"mine": M}, queries=7).ahead
    assert ahead[0].epsilon == M.cost(7).epsilon(DELTA) and ahead[0].queries == 7


def test_status_names_lost_charges_and_failure_probabilities(run):
    with opened(run) as ledger:
        ledger.charge(M.cost(3), queries=3, details={})
    m = OnlineStable(num_labels=K, epsilon=0.2, delta=1e-6, cutoff=4, query=Majority())
    status = opened(run).status(mechanisms={"risky": m, "other": mechanism(neighbours="teacher_added")})
    assert [line.row for line in status.unanswered] == [1] and "charges without an answer: row 1." in str(status)
    assert math.isinf(status.ahead[0].total) and "pass delta" in status.ahead[0].remark
    assert "neighbours must be the same" in status.ahead[1].remark


def test_status_of_an_empty_run_and_of_a_release_folder_alone(run, tmp_path):
    empty = desk.status(run, configured(), "teacher_changed", DELTA)
    assert empty.lines == () and "nothing has been charged yet" in str(empty) and "no budget set" in str(empty)
    label(run, epsilon=9.0)
    alone = Run(tmp_path, "given")
    alone.folder.mkdir()
    run.release.rename(alone.release)
    status = desk.status(alone, configured(), "teacher_changed", DELTA)
    assert status.spent["tight"] == M.cost(N).epsilon(DELTA) and status.ahead == () and not alone.private.exists()


def test_status_says_what_a_crash_left_unpublished(run):
    label(run)
    (run.release / "labels.json").unlink()
    assert "missing, or older than the ledger: labels.json; run the" in str(desk.status(run, {}, M.neighbours, DELTA))
    label(run)
    assert desk.status(run, {}, M.neighbours, DELTA).remarks == ()
    with opened(run) as ledger:
        ledger.record({"student.safetensors": "hash"})  # by a later stage: the statement covers all charges still
        assert [line for line in desk.status(run, {}, M.neighbours, DELTA).remarks if "cover" in line] == []
    (run.release / "student.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="^student.safetensors in"):
        desk.status(run, {}, M.neighbours, DELTA)
    (run.release / "student.safetensors").unlink()


def test_status_names_the_command_that_makes_what_is_missing(run):
    label(run)
    with opened(run) as ledger, ledger.witness.lock("publish"):
        desk.write_files(run, dict.fromkeys(desk.TAUGHT, b"taught"), ledger)
    (run.release / "metrics.csv").unlink()
    (run.release / "student.md").unlink()
    (remark,) = desk.status(run, {}, M.neighbours, DELTA).remarks
    assert remark == (
        "missing, or older than the ledger: metrics.csv, student.md; "
        "`python train_student.py run=mine` makes what is missing"
    )
    (run.release / "spending.png").unlink()
    first, second = desk.status(run, {}, M.neighbours, DELTA).remarks
    assert second == remark and first.startswith("missing, or older than the ledger: spending.png; run the labelling")
    label(run)
    assert desk.status(run, {}, M.neighbours, DELTA).remarks == (remark,)


def test_status_says_that_the_statement_is_behind(run):
    label(run)
    with opened(run) as ledger:
        ledger.charge(
            M.cost(1), queries=1, details={"mechanism": {"kind": "NoisyCounts"}, "seeded": False, "noise": ""}
        )
    assert "statement.json does not cover the last rows" in str(desk.status(run, {}, M.neighbours, DELTA))


def test_the_picture_is_a_png_that_shows_the_ledger(run):
    label(run, epsilon=9.0, queries="until_budget")
    png = (run.release / "spending.png").read_bytes()
    assert png.startswith(b"\x89PNG") and len(png) > 10_000
    status = opened(run).status()
    assert odometer.picture(status) == png  # nothing in it changes from one drawing to the next
    fewer = replace(status, lines=status.lines[:2])
    assert odometer.picture(fewer) != png

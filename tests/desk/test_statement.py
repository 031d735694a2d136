"""The statement: everything it rests on, NOT PRIVATE where it is not, and nothing that is only published."""

import json
import re

from desk.office import DELTA, N, T, label, make_run, mechanism, opened

from pate import desk
from pate.ledger import Ledger
from pate.models import Network
from pate.statement import NOT_PRIVATE

M = mechanism()


def test_the_statement_says_everything(tmp_path):
    run = make_run(tmp_path, unit="person", weights=Network("resnet18", "DEFAULT").describe())
    _, statement = label(run, epsilon=30.0)
    facts = json.loads((run.release / "statement.json").read_text())
    assert facts == json.loads(json.dumps(statement.facts))
    text = (run.release / "statement.txt").read_text()
    spent = M.cost(N)
    assert facts["epsilon"] == {how: spent.epsilon(DELTA, how) for how in ("tight", "published", "exact")}
    assert facts["unit"] == "person" and facts["neighbours"] == "teacher_changed" and facts["budget"] == 30.0
    assert facts["private"] and not facts["seeded"] and facts["teachers"] == T and "torch" in facts["versions"]
    rows, seal = facts["ledger"]["rows"], facts["ledger"]["hash"]
    assert opened(run).verify()[rows - 1].hash == seal and seal in text
    for word in (
        f"epsilon {spent.epsilon(DELTA):.4g} at delta 1e-06", "one person's data changes", "12 teachers",
        "20 questions",
        "NoisyCounts(", "sigma=20", "Mironov 2017, Corollary 3", "Canonne, Kamath & Steinke 2020, Proposition 12",
        "operating system entropy",
        "The teachers' networks: resnet18, public weights DEFAULT.", "People, not single images, are protected",
        "The budget is epsilon 30",
        "Released: the labels", "Not covered: settings that a person chose", "other runs on the same private data",
        "privacy of the public pictures", "numpy",
    ):  # fmt: skip
        assert word in text, word
    assert "as_published" not in text + json.dumps(facts) and "NOT PRIVATE" not in text


def test_an_index_of_an_earlier_run_says_nothing_about_weights(run):
    path = run.private / "queries.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in index.items() if key != "weights"}))
    _, statement = label(run)
    assert statement.facts["weights"] is None and "networks:" not in statement.text


def test_records_are_not_people(run):
    _, statement = label(run)
    assert statement.facts["unit"] == "record" and "one record's data changes" in statement.text
    assert "Single images (or rows), not people, are protected" in statement.text and "People," not in statement.text


def test_a_seeded_run_is_not_private_in_its_first_line(run):
    _, statement = label(run, seed=5)
    assert (run.release / "statement.txt").read_text().splitlines()[0] == NOT_PRIVATE
    assert not statement.facts["private"] and statement.facts["seeded"]
    label(run)  # and stays so, whatever is added
    assert (run.release / "statement.txt").read_text().startswith("NOT PRIVATE")


def test_a_claim_about_teachers_is_not_one_about_records(run):
    _, statement = label(run, mechanism(neighbours="teacher_added"))
    assert "protected" not in statement.text
    assert "one whole teacher is added or removed (a claim about teachers, not about a single record)" in statement.text


def test_lost_charges_are_stated_and_told(run):
    with opened(run) as ledger:
        details = {"mechanism": {"kind": "NoisyCounts", "sigma": 20.0}, "seeded": False, "noise": "entropy"}
        ledger.charge(M.cost(3), queries=3, details=details)
        assert re.search(r"charge 1 of .* \(3 queries\) has no answer.*stays spent", desk.lost(ledger)[0])
    _, statement = label(run)
    assert (
        statement.facts["charges_without_answer"] == 1
        and "Counted too: 1 charge whose answer was lost" in statement.text
    )
    assert statement.facts["epsilon"]["tight"] == M.cost(N + 3).epsilon(DELTA)


def test_a_statement_claims_no_more_than_its_own_ledger(run):
    """Labels and a study share a folder and not a ledger: neither speaks for both, and the statement says so."""
    study = Ledger(run.release / "study" / "teacher_changed" / "ledger.sqlite")
    study.charge(M.cost(N), queries=N, details={"mechanism": {"kind": "NoisyCounts"}, "repeat": 1})
    _, statement = label(run)
    assert statement.facts["epsilon"]["tight"] == M.cost(N).epsilon(DELTA) < (M.cost(N) + M.cost(N)).epsilon(DELTA)
    assert statement.text.startswith("What is listed here as released is together differentially private with epsilon")
    listed, excluded = re.search(r"Released: (.*?)\. Not covered: (.*)", statement.text, re.DOTALL).groups()
    assert "report" not in listed and "a study (study/, report/) beside labels: it adds up too" in excluded

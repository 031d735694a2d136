"""The door: charged before drawn, stored, never drawn twice; what is stated is what the ledger holds."""

import json
from pathlib import Path

import numpy as np
import pytest

from pate import noise
from pate.errors import BudgetExceeded, DataError, MissingInput, SettingError
from pate.labels import Labels, Request, Target, prepare_mechanism, publish, release
from pate.ledger import Budget, Ledger
from pate.mechanisms import GaussianChoice, GumbelChoice, NoisyCounts, StableTopK
from pate.runs import Run

T, N, K = 30, 8, 5
VOTES = np.random.default_rng(0).random((T, N, K)) < 0.5
IDS = np.array([f"q{n}" for n in range(N)])
M = NoisyCounts(num_labels=K, sigma=3.0, num_teachers=T)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def request(mechanism=M, ids=IDS, source=None, repeat=0) -> Request:
    return Request(mechanism, ids, "digest", source or noise.system(), repeat)


def test_the_same_request_costs_once(ledger):
    first = release(request(), VOTES, ledger)
    second = release(request(), VOTES, ledger)
    assert np.array_equal(first.labels.scores, second.labels.scores) and first.path == second.path
    assert len(ledger.charges()) == 1


def test_other_settings_are_another_release_and_compose(ledger):
    release(request(), VOTES, ledger)
    release(request(NoisyCounts(num_labels=K, sigma=4.0, num_teachers=T)), VOTES, ledger)
    release(request(repeat=1), VOTES, ledger)
    release(request(ids=IDS[:4]), VOTES[:, :4], ledger)
    assert len(ledger.charges()) == 4
    assert ledger.spent().epsilon(1e-6) > M.cost(N).epsilon(1e-6)


class Interrupted(Exception):
    pass


class BrokenNoise(type(noise.seeded(0))):
    def gaussian(self, scale, shape):
        raise Interrupted


def test_the_price_is_on_disk_before_noise_is_drawn(ledger):
    broken = BrokenNoise(noise.seeded(0).words, seeded=True, description="breaks")
    with pytest.raises(Interrupted):
        release(request(source=broken), VOTES, ledger)
    assert len(ledger.charges()) == 1 and len(ledger.unanswered()) == 1
    assert not list(ledger.path.parent.glob("answers/*"))


def test_nothing_is_drawn_when_the_budget_refuses(ledger):
    broken = BrokenNoise(noise.seeded(0).words, seeded=True, description="breaks")
    with pytest.raises(BudgetExceeded):
        release(request(source=broken), VOTES, ledger, Budget(0.1))
    assert ledger.charges() == []


def test_labels_survive_the_file(ledger):
    for mechanism in (M, StableTopK(num_labels=K, choose=GumbelChoice(1.0), sigma=0.5, delta_t=1e-6)):
        labels, path = release(request(mechanism), VOTES, ledger)
        again = Labels.load(path)
        assert np.array_equal(again.labels, labels.labels) and np.array_equal(again.ids, IDS)
        assert (again.scores is None) == (labels.scores is None) and again.num_teachers == T
        assert again.score_sd == 3.0 if labels.scores is not None else np.isnan(again.score_sd)


def test_a_changed_answer_is_noticed(ledger):
    path = release(request(), VOTES, ledger).path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="is not the answer that charge 1"):
        release(request(), VOTES, ledger)


@pytest.mark.parametrize(
    ("ids", "votes", "sentence"),
    [
        (IDS[:0], VOTES[:, :0], "queries must be at least one"),
        (np.array(["a", "a"]), VOTES[:, :2], "queries must be different"),
        (IDS, VOTES[:, :3], "votes must be on 8 queries, got 3"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_charged(ledger, ids, votes, sentence):
    with pytest.raises(SettingError, match=sentence):
        release(request(ids=ids), votes, ledger)
    assert ledger.charges() == []


def prepared(target=None, queries=N, neighbours="teacher_changed"):
    config = {
        "_target_": "pate.mechanisms.StableTopK",
        "choose": {"_target_": "pate.mechanisms.GaussianChoice", "sigma": 50.0},
        "sigma": 60.0,
    }
    known = {"num_labels": 40, "num_teachers": T, "neighbours": neighbours, "queries": queries, "delta": 1e-6}
    return prepare_mechanism(config, target=target or Target(), **known)


def test_a_target_replaces_the_noise_and_nothing_else():
    assert prepared() == StableTopK(num_labels=40, choose=GaussianChoice(50.0), sigma=60.0)
    made = prepared(Target(2.0), queries=100)
    assert isinstance(made.choose, GaussianChoice) and made.cost(100).epsilon(1e-6) == pytest.approx(2.0, rel=1e-3)
    louder_choice = prepared(Target(2.0, split=0.2), queries=100)
    assert louder_choice.choose.sigma > made.choose.sigma and louder_choice.sigma < made.sigma


@pytest.mark.parametrize("source", [noise.system(), noise.seeded(3)])
def test_statement_says_what_the_ledger_holds(tmp_path, source):
    run = Run(tmp_path, "mine").create()
    ledger = Ledger(run.release / "ledger.sqlite")
    labels, _ = release(request(source=source), VOTES, ledger)
    release(request(source=source, repeat=1), VOTES, ledger)
    statement = publish(run, labels, ledger, delta=1e-6, unit="person")
    facts = json.loads((run.release / "statement.json").read_text())
    assert facts["epsilon"]["tight"] == ledger.spent().epsilon(1e-6)
    assert facts["epsilon"]["exact"] <= facts["epsilon"]["tight"] <= facts["epsilon"]["published"]
    assert facts["unit"] == "person" and facts["neighbours"] == "teacher_changed" and facts["queries"] == 2 * N
    assert "NoisyCounts: Gaussian mechanism" in facts["theorems"][0]
    first_line = (run.release / "statement.txt").read_text().splitlines()[0]
    assert first_line.startswith("NOT PRIVATE") == source.seeded == (not facts["private"])
    assert "one person's data changes" in statement.text and "Not covered:" in statement.text
    assert "published" not in json.dumps(facts["mechanisms"]) and "as_published" not in statement.text


def test_missing_labels_name_the_command(tmp_path):
    with pytest.raises(MissingInput, match="python label_student.py run=mine"):
        Labels.load(tmp_path / "mine" / "release" / "labels.npz")

"""The door: refused before charged, charged before drawn, stored, never drawn twice."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate import labels as door
from pate import noise
from pate.errors import BudgetExceeded, DataError, MissingInput, SettingError
from pate.labels import Labels, Request, Target, merge, prepare_mechanism, release
from pate.ledger import Budget, Ledger, StorageFailed
from pate.mechanisms import FixedTopK, GaussianChoice, GumbelChoice, Majority, NoisyCounts, OnlineStable, StableTopK

T, N, K = 30, 8, 5
VOTES = np.random.default_rng(0).random((T, N, K)) < 0.5
IDS = np.array([f"q{n}" for n in range(N)])
M = NoisyCounts(num_labels=K, sigma=3.0, num_teachers=T)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "mine" / "release" / "ledger.sqlite")


def request(mechanism=M, ids=IDS, source=None, repeat=0) -> Request:
    return Request(mechanism, ids, "digest", source or noise.system(), repeat)


def test_the_same_request_costs_once(ledger):
    first = release(request(), VOTES, ledger)
    second = release(request(), VOTES, ledger)
    assert np.array_equal(first.labels.scores, second.labels.scores) and first.path == second.path
    assert len(ledger.charges()) == 1 and first.charge.id == second.charge.id


def test_other_settings_are_another_release_and_compose(ledger):
    release(request(), VOTES, ledger)
    release(request(NoisyCounts(num_labels=K, sigma=4.0, num_teachers=T)), VOTES, ledger)
    release(request(repeat=1), VOTES, ledger)
    release(request(ids=IDS[:4]), VOTES[:, :4], ledger)
    release(replace(request(), votes_digest="other votes"), VOTES, ledger)
    assert len(ledger.charges()) == 5
    assert ledger.spent().epsilon(1e-6) > M.cost(N).epsilon(1e-6)


def test_the_ledger_never_holds_the_plain_hash_of_the_votes(ledger):
    release(replace(request(), votes_digest="0123456789abcdef"), VOTES, ledger)
    ledger.close()
    assert b"0123456789abcdef" not in ledger.path.read_bytes()
    assert ledger.charges()[0].details["votes"] == ledger.witness.blind("0123456789abcdef")


class Interrupted(Exception):
    pass


class BrokenNoise(type(noise.seeded(0))):
    def gaussian(self, scale, shape):
        raise Interrupted


def broken() -> BrokenNoise:
    return BrokenNoise(noise.seeded(0).words, seeded=True, description="breaks")


def test_the_price_is_on_disk_before_noise_is_drawn(ledger):
    with pytest.raises(Interrupted):
        release(request(source=broken()), VOTES, ledger)
    assert len(ledger.charges()) == 1 and len(ledger.unanswered()) == 1
    assert not list(ledger.path.parent.glob("answers/*"))


def test_after_a_crash_new_noise_comes_under_a_new_charge(ledger):
    with pytest.raises(Interrupted):
        release(request(source=broken()), VOTES, ledger)
    source = replace(noise.seeded(0), description="breaks")
    assert release(request(source=source), VOTES, ledger).charge.id == 2
    assert [charge.id for charge in ledger.unanswered()] == [1] and len(ledger.charges()) == 2


def test_nothing_is_drawn_when_the_budget_refuses(ledger):
    with pytest.raises(BudgetExceeded, match=r"8 queries need epsilon .*; 0 fit\."):
        release(request(source=broken()), VOTES, ledger, Budget(0.1))
    assert ledger.charges() == []


def test_an_answer_that_cannot_be_written_is_reported_as_spent(ledger, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(door, "write_bytes", full)
    with pytest.raises(StorageFailed, match="charge 1 could not be written and is lost; its price stays.*No space"):
        release(request(), VOTES, ledger)
    assert len(ledger.unanswered()) == 1


def test_labels_survive_the_file(ledger):
    for mechanism in (M, StableTopK(num_labels=K, choose=GumbelChoice(1.0), sigma=0.5, delta_t=1e-6)):
        labels, path, _ = release(request(mechanism), VOTES, ledger)
        again = Labels.load(path)
        assert np.array_equal(again.labels, labels.labels) and np.array_equal(again.ids, IDS)
        assert (again.scores is None) == (labels.scores is None) and again.num_teachers == T
        assert again.score_sd == 3.0 if labels.scores is not None else np.isnan(again.score_sd)
        assert again.digest == labels.digest


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), Path.unlink])
def test_a_changed_or_missing_answer_is_noticed(ledger, damage):
    path = release(request(), VOTES, ledger).path
    damage(path)
    with pytest.raises(DataError, match="1.npz is not the answer that charge 1 of ledger.sqlite recorded: restore it"):
        release(request(), VOTES, ledger)
    assert len(ledger.charges()) == 1


NAN = np.full((T, N, K), np.nan)


@pytest.mark.parametrize(
    ("change", "votes", "sentence"),
    [
        ({"ids": IDS[:0]}, VOTES[:, :0], "queries must be at least one"),
        ({"ids": np.array(["a", "a"])}, VOTES[:, :2], "queries must be different"),
        ({}, VOTES[:, :3], "votes must be on 8 queries, got 3"),
        ({}, VOTES[:, :, :4], "votes must be on 5 labels, got 4"),
        ({}, VOTES[:29], "votes must be of 30 teachers, got 29"),
        ({}, VOTES[:0], "votes must be of one teacher at least"),
        ({}, VOTES[0], r"votes must be of shape \(teachers, queries, labels\)"),
        ({}, NAN, r"votes must be yes or no \(bool\), got 'float64 with NaN or infinity'"),
        ({}, VOTES.astype(int), r"votes must be yes or no \(bool\), got 'int64'"),
        ({"mechanism": replace(M, exact=True)}, VOTES, "rng must be None where noise is exact"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_charged(ledger, change, votes, sentence):
    with pytest.raises(SettingError, match=sentence):
        release(replace(request(), **change), votes, ledger)
    assert ledger.charges() == []


def test_a_stream_is_charged_once_for_all_its_queries(ledger):
    m = OnlineStable(num_labels=K, epsilon=0.5, delta=1e-9, cutoff=3, query=Majority())
    labels = release(request(m), VOTES, ledger).labels
    assert ledger.spent() == m.cost(N) == m.cost(3) and len(labels.answered) == N


def answers(*answered: bool, scores: bool = True) -> Labels:
    n = len(answered)
    values = np.arange(2.0 * n).reshape(n, 2) if scores else None
    ids = np.array([f"{'s' if scores else 'h'}{n}" for n in range(n)])
    return Labels(ids, np.ones((n, 2), bool) & np.array(answered)[:, None], np.array(answered), values, 1.5, 9)


def test_batches_become_one_and_what_was_not_asked_is_unanswered():
    first, second = answers(True, False), replace(answers(True), ids=np.array(["x"]))
    whole = merge([first, second], np.array(["s0", "s1", "x", "y"]))
    assert whole.answered.tolist() == [True, False, True, False] and whole.labels.sum() == 4
    assert np.array_equal(whole.scores[:3], [[0, 1], [2, 3], [0, 1]]) and np.isnan(whole.scores[3]).all()
    assert (whole.score_sd, whole.num_teachers) == (1.5, 9)
    assert merge([answers(True, scores=False)], np.array(["h0", "z"])).scores is None
    assert merge([first], first.ids) is first


def test_the_report_counts_released_answers_only():
    labels = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0]], bool)
    report = Labels(IDS[:4], labels, np.array([True, True, True, False]), None, np.nan, T).report()
    assert report["queries"] == 4 and report["answered"] == 3 and report["answered_fraction"] == 0.75
    assert report["mean_k"] == 2.0 and report["histogram_k"] == {"1": 1, "2": 1, "3": 1}
    empty = Labels(IDS[:1], labels[:1], np.array([False]), None, np.nan, T).report()
    assert empty["mean_k"] is None and empty["histogram_k"] == {}


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
    assert prepared(Target(2.0), queries=100) == made  # so that a rerun finds its answer


CONFIGS = {
    "OnlineStable": {"epsilon": 1.0, "delta": 1e-9, "cutoff": 4, "query": {"_target_": "pate.mechanisms.Majority"}},
    "TopStable": {"epsilon": 1.0, "delta": 1e-9, "k": 3},
    "LimitedDomain": {"epsilon": 1.0, "delta_t": 1e-9, "k": 3, "max_k": 5},
    "PeelingExponential": {"scale": 1.0, "k": 3},
    "FixedTopK": {
        "choose": {"_target_": "pate.mechanisms.GumbelChoice", "scale": 9.0},
        "sigma": 5.0, "rho": 0.1, "k": 3,
    },
    "TauBallots": {"tau": 3.0, "sigma": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_every_labelling_mechanism_can_be_calibrated_and_answers(name, ledger):
    known = {"num_labels": K, "num_teachers": T, "neighbours": "teacher_changed", "queries": N, "delta": 1e-6}
    if name in ("TopStable", "LimitedDomain", "PeelingExponential", "FixedTopK"):
        known["num_labels"] = 6
    config = {"_target_": f"pate.mechanisms.{name}"} | CONFIGS[name]
    made = prepare_mechanism(config, target=Target(3.0), **known)
    assert made.cost(N).epsilon(1e-6) == pytest.approx(3.0, rel=1e-3)
    votes = np.random.default_rng(1).random((T, N, known["num_labels"])) < 0.5
    labels = release(request(made), votes, ledger, Budget(3.0)).labels
    assert labels.labels.shape == (N, known["num_labels"])
    if isinstance(made, FixedTopK):
        assert (labels.labels.sum(axis=1) == 3).all()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"epsilon": 0.0}, "target.epsilon must be > 0 and finite"),
        ({"epsilon": float("inf")}, "target.epsilon must be > 0 and finite"),
        ({"epsilon": 1.0, "split": 1.0}, r"target.split must be in \(0, 1\)"),
    ],
)
def test_impossible_targets_are_refused(wrong, sentence):
    with pytest.raises(SettingError, match=sentence):
        Target(**wrong)


def test_a_split_needs_two_noises():
    config, known = {"_target_": "pate.mechanisms.NoisyCounts", "sigma": 1.0}, {"num_labels": K, "num_teachers": T}
    with pytest.raises(SettingError, match="target.split must be null for a mechanism with one noise, got 0.3"):
        prepare_mechanism(config, **known, neighbours="teacher_changed", queries=N, delta=1e-6, target=Target(1.0, 0.3))


def test_missing_and_torn_labels_are_a_sentence(tmp_path):
    path = tmp_path / "mine" / "release" / "labels.npz"
    with pytest.raises(MissingInput, match="python label_student.py run=mine"):
        Labels.load(path)
    path.parent.mkdir(parents=True)
    whole = answers(True).encode()
    for torn in (b"", b"x" * 100, whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(torn)
        with pytest.raises(DataError, match="labels.npz is torn or no file of labels"):
            Labels.load(path)


def test_the_door_needs_no_torch():
    check = (
        "import sys, pate.desk, pate.labels, pate.ledger; sys.exit('torch' in sys.modules or 'hydra' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0

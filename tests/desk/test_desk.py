"""The desk: batches that end with the budget, reruns that do nothing, and only charged answers get out."""

import json
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from desk.office import DELTA, K, N, T, cast, label, lighten, mechanism, opened, projected, see, votes

from pate import desk
from pate.errors import BudgetExceeded, DataError, MissingInput, SettingError
from pate.mechanisms import Majority, OnlineStable
from pate.runs import Run, read_npz, write_json

M = mechanism()

# --- answering ---------------------------------------------------------------------------------------------


def test_batches_end_with_the_budget_and_say_where(run):
    answered, _ = label(run, epsilon=M.cost(11).epsilon(DELTA), queries="until_budget")
    assert len(answered.released) == 3 and opened(run).spent() == M.cost(9)
    labels = read_npz(run.release / "labels.npz")
    assert (
        labels["ids"].tolist() == [f"q{n}" for n in range(N)]
        and labels["answered"].tolist() == [True] * 9 + [False] * 11
    )
    assert re.search(r"ends after 9 queries, the other 11 are unanswered: 3 queries need .*; 2 fit\.", str(answered))
    assert "answered 9 of 20 queries (45.0 %)" in str(answered)
    head = opened(run).head()
    again, _ = label(run, queries="until_budget")
    assert opened(run).head() == head and np.array_equal(again.labels.labels, answered.labels.labels)


def test_batches_that_all_fit_answer_everything(run):
    answered, _ = label(run, epsilon=50.0, queries="until_budget", batch=7)
    assert [len(part.labels.ids) for part in answered.released] == [7, 7, 6] and answered.stopped is None
    assert answered.labels.answered.all() and "ends after" not in str(answered)


def test_batches_need_a_budget_and_a_first_one_that_fits(run):
    with pytest.raises(SettingError, match="budget.epsilon must be given with queries=until_budget"):
        label(run, queries="until_budget")
    with pytest.raises(BudgetExceeded, match="0 fit"):
        label(run, epsilon=1e-3, queries="until_budget")
    assert opened(run).charges() == [] and not (run.release / "labels.npz").exists()


def test_a_stream_is_one_charge_also_until_the_budget(run):
    m = OnlineStable(num_labels=K, epsilon=0.2, delta=1e-9, cutoff=4, query=Majority())
    answered, _ = label(run, m, epsilon=2.0, queries="until_budget")
    assert len(answered.released) == 1 and opened(run).spent() == m.cost(N) and len(answered.labels.ids) == N


def test_projected_ballots_are_one_charge_or_none_until_the_budget(run):
    m = projected(run)
    price = m.cost(N).epsilon(DELTA)
    with pytest.raises(BudgetExceeded, match=rf"^{N} queries need epsilon {price:.2f} at .*, budget .*; 0 fit\.$"):
        label(run, m, epsilon=0.9 * price, queries="until_budget", batch=3)
    assert opened(run).charges() == []
    run.release.joinpath("ledger.sqlite").unlink()  # nothing was spent: a larger budget may be set anew
    (run.private / "ledger").rename(run.private / "before")
    answered, _ = label(run, m, epsilon=1.1 * price, queries="until_budget", batch=3)
    assert len(answered.released) == 1 and opened(run).spent() == m.cost(N) and answered.labels.answered.all()
    again, _ = label(run, m, queries="until_budget", batch=3)
    assert len(opened(run).charges()) == 1 and np.array_equal(again.labels.scores, answered.labels.scores)


def test_projected_ballots_answer_the_queries_they_were_made_for(run):
    for queries, made_for in ((None, 7), (7, None)):
        with pytest.raises(SettingError, match=r"queries must be all \d+ that the directions were made from"):
            label(run, projected(run, queries=made_for), queries=queries)
    assert opened(run).charges() == []
    answered, _ = label(run, projected(run, queries=7), queries=7)
    assert len(answered.ids) == 7 and len(opened(run).charges()) == 1


def test_other_views_are_another_request(run):
    """The same votes seen along other directions get new noise under a new charge, never for free."""
    first, _ = label(run, projected(run))
    see(run, seed=1)
    second, _ = label(run, projected(run))
    assert opened(run).spent() == projected(run).cost(N) * 2
    see(run)
    third, _ = label(run, projected(run))
    assert len(opened(run).charges()) == 2 and np.array_equal(third.labels.scores, first.labels.scores)
    assert not np.allclose(second.labels.scores, first.labels.scores)


def test_a_batch_of_a_seeded_release_does_not_repeat_the_noise_of_another(run):
    ballots = np.repeat(votes()[:, :1], N, axis=1)  # equal counts, so that scores show the noise
    cast(run, ballots)
    answered, _ = label(run, epsilon=50.0, queries="until_budget", batch=10, seed=3)
    first, second = (part.labels.scores for part in answered.released)
    assert not np.isclose(first, second).any()


def test_exact_noise_comes_from_its_own_source(run):
    pytest.importorskip("opendp")
    answered, statement = label(run, mechanism(exact=True))
    assert (answered.labels.scores == np.round(answered.labels.scores)).all()
    assert "exact discrete sampling" in statement.facts["noise"] and statement.facts["private"]
    with pytest.raises(SettingError, match="noise_seed must be null where the mechanism is exact"):
        label(run, mechanism(exact=True), seed=1)


@pytest.mark.parametrize(("queries", "asked"), [(None, N), (4, 4)])
def test_all_or_the_first_queries(run, queries, asked):
    answered, _ = label(run, queries=queries)
    assert len(answered.ids) == asked and opened(run).spent() == M.cost(asked)
    for wrong in (0, N + 1):
        with pytest.raises(SettingError, match="queries must be from 1 to the public records"):
            label(run, queries=wrong)
    with pytest.raises(SettingError, match="batch must be >= 1"):
        label(run, batch=0)


def test_failure_probabilities_that_leave_no_epsilon_are_refused_before_the_charge(run):
    m = OnlineStable(num_labels=K, epsilon=0.2, delta=1e-6, cutoff=4, query=Majority())
    with pytest.raises(BudgetExceeded, match="do not fit a budget of delta 1e-06"):
        label(run, m)
    assert opened(run).charges() == []


# --- votes that are not the ones ---------------------------------------------------------------------------


def test_other_votes_than_those_of_earlier_charges_are_named(run):
    label(run)
    other = votes()
    other[3] = ~other[3]
    cast(run, other)
    with pytest.raises(DataError, match=r"teacher-00003.votes in .*votes: not the votes .* \(1 files differ\)"):
        label(run)
    cast(run, votes(1))
    with pytest.raises(DataError, match=r"teacher-00000.votes, teacher-00001.votes, .*, \.\.\. .*\(12 files differ\)"):
        label(run)
    assert len(opened(run).charges()) == 1
    cast(run, votes())
    label(run)


def test_a_foreign_runs_votes_are_refused_before_anything_is_charged(run):
    cast(run, votes(1), token="settings of another run")
    with pytest.raises(DataError, match="teacher-00000.votes belongs to other queries, settings or another teacher"):
        label(run)
    assert opened(run).charges() == []


def test_votes_may_change_before_anything_was_charged(run):
    with pytest.raises(BudgetExceeded):
        label(run, epsilon=1e-3)
    cast(run, votes(1))
    label(run, mechanism(sigma=1e5))


INDEX = {"ids": [f"q{n}" for n in range(N)], "label_names": list("abcde"), "teachers": T, "unit": "record"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"teachers": T + 1}, "votes of 1 of 13 teachers are missing"),
        ({"label_names": list("abcd")}, "teacher-00000.votes belongs to other queries, settings or another teacher"),
        ({"ids": INDEX["ids"][:-1]}, "teacher-00000.votes belongs to other queries, settings or another teacher"),
        ({"ids": ["q0", *INDEX["ids"][:-1]]}, "queries must be different from each other, got 'duplicate ids'"),
        ({"ids": []}, "queries must be >= 1, got 0"),
        ({"ids": 5}, "queries.json is torn or was changed"),
        ({"teachers": "12"}, "queries.json is torn or was changed"),
    ],
)
def test_an_index_that_does_not_fit_the_votes_is_refused(run, change, sentence):
    write_json(run.private / "queries.json", INDEX | change)
    with pytest.raises((DataError, MissingInput, SettingError), match=sentence):
        label(run)
    assert opened(run).charges() == []


def test_a_torn_index_and_a_missing_run_are_sentences(run, tmp_path):
    (run.private / "queries.json").write_text('{"ids": [')
    with pytest.raises(DataError, match="queries.json is torn or was changed"):
        label(run)
    nowhere = Run(tmp_path, "nowhere")
    with pytest.raises(MissingInput, match="python train_teachers.py run=nowhere"):
        label(nowhere)
    with pytest.raises(MissingInput, match="python train_teachers.py run=nowhere"):
        desk.status(nowhere, {}, "teacher_changed", DELTA)
    assert not nowhere.folder.exists()


# --- publishing --------------------------------------------------------------------------------------------


def test_only_charged_answers_can_be_published(run):
    answered, _ = label(run)
    part = answered.released[0]
    better = replace(part.labels, labels=np.ones_like(part.labels.labels))
    forged = part._replace(labels=better, charge=replace(part.charge, id=9))
    with opened(run) as ledger:
        with pytest.raises(SettingError, match="answers must be to charges of ledger.sqlite"):
            desk.publish(run, replace(answered, released=(forged,)), ledger, delta=DELTA, unit="record")
        again = replace(answered, released=(part._replace(labels=better),))
        desk.publish(run, again, ledger, delta=DELTA, unit="record")
    assert np.array_equal(read_npz(run.release / "labels.npz")["labels"], part.labels.labels)


def test_a_charge_without_an_answer_cannot_be_published(run):
    answered, _ = label(run)
    with opened(run) as ledger:
        charge = ledger.charge(M.cost(1), queries=1, details={"seeded": False})
        lost = replace(answered, released=(answered.released[0]._replace(charge=charge),))
        with pytest.raises(DataError, match=f"is not the answer that charge {charge.id}"):
            desk.publish(run, lost, ledger, delta=DELTA, unit="record")


def test_a_deleted_published_file_is_made_again_at_no_cost(run):
    label(run)
    before = (run.release / "labels.npz").read_bytes()
    for name in desk.PUBLISHED:
        (run.release / name).unlink()
    label(run)
    assert (run.release / "labels.npz").read_bytes() == before and len(opened(run).charges()) == 1
    assert all((run.release / name).exists() for name in desk.PUBLISHED)


def test_what_the_student_lacks_is_not_the_desks_to_publish(run):
    """A student's file that is gone makes no new statement; one of the desk's own does."""
    label(run)
    with opened(run) as ledger, ledger.witness.lock("publish"):
        desk.write_files(run, {name: name.encode() for name in desk.TAUGHT}, ledger)
    head, before = opened(run).head(), (run.release / "statement.json").read_bytes()
    for name in desk.TAUGHT:
        (run.release / name).unlink()
    label(run)
    assert opened(run).head() == head and (run.release / "statement.json").read_bytes() == before
    (run.release / "labels.json").unlink()
    label(run)
    assert opened(run).head() != head and (run.release / "labels.json").exists()


def test_files_are_recorded_once_written_if_they_differ_and_swept(run):
    label(run)
    torn = run.release / ".notes.txt.x.tmp"
    torn.write_bytes(b"left by a writer that was killed")
    with opened(run) as ledger, ledger.witness.lock("publish"):
        desk.write_files(run, {"notes.txt": b"one", "more.txt": b"more"}, ledger)
        written, head = (run.release / "more.txt").stat().st_mtime_ns, ledger.head()
        desk.write_files(run, {"notes.txt": b"one", "more.txt": b"more"}, ledger)
        assert ledger.head() == head
        desk.write_files(run, {"notes.txt": b"two", "more.txt": b"more"}, ledger)
        assert [len(ledger.published()[name]) for name in ("notes.txt", "more.txt")] == [2, 1]
        assert desk.check_release(run, ledger) == []
    assert (run.release / "notes.txt").read_bytes() == b"two" and not torn.exists()
    assert (run.release / "more.txt").stat().st_mtime_ns == written


def test_two_labellings_are_stated_together(run):
    label(run, queries=5)
    _, statement = label(run, mechanism(sigma=30.0))
    both = M.cost(5) + mechanism(sigma=30.0).cost(N)
    assert statement.facts["epsilon"]["tight"] == both.epsilon(DELTA) and statement.facts["queries"] == 5 + N
    assert [one["queries"] for one in statement.facts["mechanisms"]] == [5, N]


def test_the_report_of_labels(run):
    answered, _ = label(run)
    report = json.loads((run.release / "labels.json").read_text())
    sizes = answered.labels.labels.sum(axis=1)
    assert report["mean_k"] == sizes.mean() and sum(report["histogram_k"].values()) == report["answered"] == N
    assert report["charges"] == [1] and report["sha256"] == answered.labels.digest
    assert f"labels per answer: {sizes.mean():.2f} on average" in str(answered)


def test_one_publishes_at_a_time_so_that_no_statement_is_behind(run, monkeypatch):
    """The second desk waits while the first, which has read the ledger, has not yet written."""
    lighten(monkeypatch.setattr)
    files, reading, done = desk._files, threading.Event(), threading.Event()

    def slow(*args):
        monkeypatch.setattr(desk, "_files", files)
        reading.set()
        done.wait(0.7)
        return files(*args)

    def second() -> None:
        reading.wait()
        label(run, mechanism(sigma=30.0))
        done.set()

    monkeypatch.setattr(desk, "_files", slow)
    thread = threading.Thread(target=second)
    thread.start()
    label(run)
    thread.join()
    stated = json.loads((run.release / "statement.json").read_text())["epsilon"]["tight"]
    assert stated == (M.cost(N) + mechanism(sigma=30.0).cost(N)).epsilon(DELTA)


def test_a_charge_meanwhile_is_not_claimed_to_be_covered(run, monkeypatch):
    """Another process charges while the statement is made: the rows it says it covers are rows it has counted."""
    charges = type(opened(run)).charges

    def meanwhile(ledger):
        counted = charges(ledger)
        if counted and len(counted) < 2:
            details = {"mechanism": {"kind": "NoisyCounts"}, "seeded": False, "noise": "entropy"}
            opened(run).charge(M.cost(1), queries=1, details=details)
        return counted

    monkeypatch.setattr(type(opened(run)), "charges", meanwhile)
    facts = label(run)[1].facts
    monkeypatch.undo()
    rows = opened(run).verify()[: facts["ledger"]["rows"]]
    assert sum(entry.kind == "charge" for entry in rows) <= facts["charges"]


def test_checking_while_another_publishes_is_no_alarm(run, monkeypatch):
    label(run, queries=5)
    found = desk._hash

    def meanwhile(path):
        if path.name == "labels.npz":
            monkeypatch.setattr(desk, "_hash", found)
            label(run)
        return found(path)

    with opened(run) as ledger:
        monkeypatch.setattr(desk, "_hash", meanwhile)
        desk.check_release(run, ledger)
        assert desk.check_release(run, ledger) == [] and len(ledger.published()["labels.npz"]) == 2

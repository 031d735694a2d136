"""The study: what is asked, what is charged, what is kept, what never leaves."""

import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inline_pool import Inline

from pate import classroom
from pate.ballots import Ballots, write_index, write_views
from pate.data.records import Records, Split
from pate.errors import SettingError
from pate.labels import Labels, Target
from pate.ledger import Budget, Ledger
from pate.models import Network
from pate.report import NOISELESS, NON_PRIVATE, PRIOR_ONLY
from pate.runs import Run
from pate.student import Student
from pate.study import PRIVATE, Outcome, Study, compare, report
from pate.sweeps import School, Sweep
from pate.teachers import Teachers
from pate.votes import VoteStore
from pate.whatif import Scene, View, label_view, make_point

TEACHERS, QUERIES, LABELS = 40, 30, 6
NOISY = {"_target_": "pate.mechanisms.NoisyCounts", "sigma": 1.0}
STABLE = {
    "_target_": "pate.mechanisms.StableTopK",
    "choose": {"_target_": "pate.mechanisms.GumbelChoice", "scale": 1.0},
    "sigma": 1.0,
}
PEELING = {"_target_": "pate.mechanisms.PeelingExponential", "k": 4, "scale": 1.0}
PAPER = {
    "_target_": "pate.mechanisms.StableTopK",
    "choose": {"_target_": "pate.mechanisms.GaussianChoice", "sigma": 50.0},
    "sigma": 60.0,
    "delta_t": 1e-9,
    "note": "printed as 3.6 in the paper",
}
STUDY = Study(
    mechanisms={"noisy_counts": NOISY, "stable": STABLE},
    fixed={"paper_row": PAPER},
    only=None,
    epsilons=(2.0, 50.0),
    neighbours=("teacher_changed", "teacher_added"),
    seeds=2,
    target=Target(),
    budget=Budget(),
    noise_seed=0,
    sweeps=(),
    sweep=Sweep(),
)


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classroom, "Pool", Inline)
    monkeypatch.setattr(Inline, "jobs", 0)


def records(rng: np.random.Generator, size: int, name: str) -> Records:
    inputs = rng.normal(size=(size, 8)).astype(np.float32)
    labels = inputs[:, :LABELS] + 0.3 * rng.normal(size=(size, LABELS)) > np.linspace(-0.8, 1.2, LABELS)
    ids = np.array([f"{name}{n:03d}" for n in range(size)])
    return Records(inputs, labels, ids, ids)


@pytest.fixture
def school(tmp_path: Path) -> School:
    """Forty teachers that know the truth up to a little noise, and their votes as the factory would leave them."""
    rng = np.random.default_rng(0)
    split = Split(*(records(rng, size, name) for size, name in ((80, "p"), (QUERIES, "q"), (60, "t"))), tuple("abcdef"))
    run = Run(tmp_path, "made").create()
    write_index(run, split, TEACHERS, "record", "token")
    store = VoteStore(run.private / "votes", TEACHERS, QUERIES, LABELS)
    for teacher in range(TEACHERS):
        store.save(teacher, split.public.labels ^ (rng.random((QUERIES, LABELS)) < 0.15), "token")
    return School(run, split, Network("linear"), Teachers(count=TEACHERS), "cpu", 0)


def ask(school: School, study: Study = STUDY, queries: int | None = None) -> Outcome:
    return compare(school, study, Student(epochs=4), queries)


def charges(school: School, how: str = "teacher_changed") -> int:
    with Ledger(school.run.release / "study" / how / "ledger.sqlite") as ledger:
        return len(ledger.charges())


def wide(teachers: int, queries: int, labels: int) -> Scene:
    """A scene of any size without votes in it."""
    votes = np.broadcast_to(np.False_, (teachers, queries, labels))
    return Scene("", Ballots(votes, np.arange(queries).astype(str), ("x",) * labels, "record", ""))


# --- what is asked -----------------------------------------------------------------------------------------


def test_fixed_noise_is_shown_at_what_it_really_costs_under_both_relations():
    points = [p for p in STUDY.points(wide(800, 600, 40)) if p.name == "paper_row"]
    prices = {p.neighbours: p.mechanism.cost(600).epsilon(1e-6) for p in points}
    assert prices == {"teacher_changed": pytest.approx(15.95, abs=0.01), "teacher_added": pytest.approx(6.95, abs=0.01)}
    assert {p.note for p in points} == {"printed as 3.6 in the paper"} and {p.target.epsilon for p in points} == {None}


def test_a_given_noise_without_an_epsilon_is_refused_at_once():
    """600 tests that fail with probability 1e-9 each do not fit into a delta of 1e-7."""
    with pytest.raises(SettingError, match=r"budget.delta must be > 6e-07, .* of paper_row, got 1e-07"):
        replace(STUDY, budget=Budget(delta=1e-7)).points(wide(800, 600, 40))


def test_calibrated_points_spend_their_epsilon():
    points = [p for p in STUDY.points(wide(800, 600, 40)) if p.target.epsilon is not None]
    assert len(points) == 2 * 2 * 2
    assert all(0.999 * p.target.epsilon <= p.mechanism.cost(600).epsilon(1e-6) <= p.target.epsilon for p in points)


def test_exact_conversion_gives_gaussian_mechanisms_less_noise_and_others_the_same():
    tight, exact = (
        {p.name: p for p in replace(STUDY, target=Target(conversion=how), epsilons=(2.0,)).points(wide(800, 600, 40))}
        for how in ("tight", "exact")
    )
    assert exact["noisy_counts"].mechanism.sigma < 0.97 * tight["noisy_counts"].mechanism.sigma
    assert exact["stable"].mechanism.sigma == tight["stable"].mechanism.sigma
    assert (
        0.998 * 2 <= exact["noisy_counts"].epsilon(1e-6) <= 2 < exact["noisy_counts"].mechanism.cost(600).epsilon(1e-6)
    )


def test_a_mechanism_on_public_directions_finds_them_in_every_scene(school):
    write_views(school.run, school.split.public.inputs)
    config = {"_target_": "pate.mechanisms.ProjectedBallots", "sigma": 1.0}
    sweep = Sweep(seeds=1, queries=(10,), labels=(9,), larger_epsilon=None)
    mechanisms = {"projected": config}
    study = replace(STUDY, mechanisms=mechanisms, fixed={}, epsilons=(8.0,), sweeps=("queries", "labels"), sweep=sweep)
    outcome = ask(school, study)
    every = [outcome.rows, *outcome.sweeps.values()]
    found = [row for part in every for row in part if row.mechanism == "projected"]
    assert [row.size[1:] for row in found] == [(30, 6), (30, 6), (10, 6), (30, 9)]
    assert outcome.remarks == () and all(row.accuracy for row in found)


def test_one_relation_is_accepted_and_only_leaves_some():
    study = replace(STUDY, neighbours="teacher_added", only=("paper_row",))
    assert [(p.name, p.neighbours) for p in study.points(wide(40, 30, 6))] == [("paper_row", "teacher_added")]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"only": ("noisy",)}, "only must be names out of noisy_counts, stable, paper_row, got 'noisy'"),
        ({"fixed": {"stable": PAPER}}, "fixed must be names that no calibrated mechanism has"),
        ({"seeds": 0}, "seeds must be >= 1"),
        ({"neighbours": ()}, "neighbours must be at least one relation"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change, sentence):
    with pytest.raises(SettingError, match=sentence):
        replace(STUDY, **change)


def test_nothing_to_ask_is_refused():
    with pytest.raises(SettingError, match="epsilons must be at least one"):
        replace(STUDY, epsilons=(), fixed={}).points(wide(40, 30, 6))


def test_a_view_restricts_to_a_prefix_and_enlarges_by_both_of_two():
    small, all_six, large = (label_view(6, size, seed=1) for size in (3, 6, 15))
    assert small.first == all_six.first[:3] and all_six.first == large.first[:6]
    assert sorted(all_six.first) == list(range(6)) and all_six.first == all_six.second
    pairs = list(zip(large.first, large.second, strict=True))[6:]
    assert len(set(pairs)) == 9 and all(a < b for a, b in pairs)
    votes = np.random.default_rng(0).random((4, 5, 6)) < 0.5
    a, b = pairs[0]
    assert np.array_equal(large.of(votes)[..., 6], votes[..., a] & votes[..., b])


def test_a_scene_counts_conjunctions_ballot_by_ballot(school):
    ballots = Ballots.load(school.run)
    scene = Scene("labels", ballots, View((2, 0), (2, 5)))
    seen = scene.look()
    assert scene.size == (TEACHERS, QUERIES, 2) and seen.label_names == ("c", "a and f")
    assert np.array_equal(seen.votes[..., 1], ballots.votes[..., 0] & ballots.votes[..., 5])
    assert seen.digest != ballots.digest


def test_seeded_noise_of_a_point_depends_on_the_point_alone(school):
    scene = Scene("", Ballots.load(school.run))
    one, other = (
        make_point(n, NOISY, scene, neighbours="teacher_changed", delta=1e-6, target=Target(2.0)) for n in "ab"
    )
    draws = [p.source(0, seed).gaussian(1.0, (3,)).tolist() for p, seed in ((one, 0), (one, 0), (one, 1), (other, 0))]
    assert draws[0] == draws[1] and len({tuple(draw) for draw in draws}) == 3
    assert not one.source(None, 0).seeded


# --- what is found, charged and kept -----------------------------------------------------------------------


def test_rows_for_every_point_and_reference(school):
    outcome = ask(school)
    points = [row for row in outcome.rows if not row.is_reference]
    assert len(points) == (2 * 2 + 1) * 2 and all(row.size == (TEACHERS, QUERIES, LABELS) for row in outcome.rows)
    assert [row.mechanism for row in outcome.rows[len(points) :]] == [PRIOR_ONLY, "all-zeros", NON_PRIVATE, NOISELESS]
    rich = next(row for row in points if row.mechanism == "noisy_counts" and row.epsilon > 40)
    assert len(rich.accuracy) == len(rich.micro_f1) == len(rich.mean_ap) == 2
    assert rich.answered == 1 and rich.label_accuracy > 0.9 and rich.label_f1 > 0.8
    paper = [row for row in points if row.mechanism == "paper_row"]
    assert all(row.answered == 0 and not row.accuracy and row.label_accuracy is None for row in paper)
    assert all(row.label_f1 == 0 and row.note == "printed as 3.6 in the paper" for row in paper)


def test_every_what_if_is_charged_once_and_a_rerun_draws_and_teaches_nothing(school):
    first = ask(school)
    taught = Inline.jobs
    assert charges(school, "teacher_changed") == charges(school, "teacher_added") == 5 * 2
    assert ask(school) == first and Inline.jobs == taught
    assert charges(school) == 10


def test_only_what_is_missing_is_taught(school):
    first = ask(school)
    results = sorted((school.run.release / "study" / "students").glob("*.json"))
    for path in results[:3]:
        path.unlink()
    before, Inline.jobs = {path: path.stat().st_mtime_ns for path in results[3:]}, 0
    assert ask(school) == first and Inline.jobs == 3
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())


def test_rows_do_not_depend_on_what_else_is_asked(school, tmp_path):
    every = ask(school).rows
    alone = replace(school, run=Run(tmp_path, "alone").create())
    shutil.copytree(school.run.private, alone.run.private, dirs_exist_ok=True, ignore=lambda *_: ["study", "ledger"])
    few = ask(alone, replace(STUDY, only=("stable",), neighbours="teacher_added")).rows
    assert [r for r in few if not r.is_reference] == [
        r for r in every if r.mechanism == "stable" and r.neighbours == "teacher_added"
    ]


def test_the_reference_of_noiseless_votes_learns_the_shares_without_noise(school):
    ask(school)
    kept = [Labels.load(path) for path in (school.run.private / "study" / "references").iterdir()]
    noiseless = next(labels for labels in kept if labels.scores is not None)
    counts = Ballots.load(school.run).votes.sum(0)
    assert np.array_equal(noiseless.scores, counts) and noiseless.score_sd == 0
    assert np.array_equal(noiseless.labels, counts > TEACHERS / 2) and noiseless.num_teachers == TEACHERS


# --- sweeps ------------------------------------------------------------------------------------------------


def test_sweeps_over_queries_and_labels_are_charged_too(school):
    sweep = Sweep(epsilon=50.0, larger_epsilon=60.0, seeds=1, queries=(10, 20, 30, 99), labels=(2, 6, 12, 400))
    study = replace(STUDY, neighbours="teacher_changed", sweeps=("queries", "labels"), sweep=sweep)
    outcome = ask(school, study)
    noisy = {axis: [r for r in rows if r.mechanism == "noisy_counts"] for axis, rows in outcome.sweeps.items()}
    assert [row.queries for row in noisy["queries"]] == [10, 20, 30]
    assert sorted((row.labels, round(row.epsilon)) for row in noisy["labels"]) == [
        (labels, epsilon) for labels in (2, 6, 12) for epsilon in (50, 60)
    ]
    priors = [row for row in outcome.sweeps["labels"] if row.mechanism == PRIOR_ONLY]
    assert [row.labels for row in priors] == [2, 6, 12]
    assert outcome.remarks == ()
    # 10 of the study; all 30 queries at epsilon 50 are a request that it made already, by both mechanisms
    assert charges(school) == 10 + 2 * 3 - 2 + 2 * 3 * 2


def test_a_mechanism_that_cannot_be_at_a_place_is_remarked(school):
    sweep = Sweep(seeds=1, labels=(2, 6), larger_epsilon=None)
    study = replace(STUDY, mechanisms={"peeling": PEELING}, fixed={}, sweeps=("labels",), sweep=sweep)
    outcome = ask(school, study)
    assert [row.labels for row in outcome.sweeps["labels"] if not row.is_reference] == [6]
    (remark,) = outcome.remarks
    assert remark.startswith("No peeling at 40 teachers, 30 queries, 2 labels and epsilon 4: k must be")


def test_too_many_teachers_are_remarked_and_the_studys_own_number_is_not_trained_again(school, monkeypatch):
    trained = []
    monkeypatch.setattr(School, "train", lambda self: trained.append(self.teachers.count))
    monkeypatch.setattr(School, "of", _fails_beyond(100))
    remarks: list[str] = []
    scenes = list(Sweep(teachers=(TEACHERS, 200)).scenes("teachers", school, 10, remarks))
    assert [scene.size for scene in scenes] == [(TEACHERS, 10, LABELS)] and trained == [TEACHERS]
    assert remarks == ["No sweep over 200 teachers: teachers.count must be small, got 200."]


def _fails_beyond(most: int):
    def of(self: School, count: int) -> School:
        if count > most:
            raise SettingError("teachers.count", "small", count)
        return self

    return of


def test_other_teachers_have_a_run_inside_the_private_room_and_the_features_at_hand(school):
    features = school.run.private / "features" / "abc"
    features.mkdir(parents=True)
    (features / "0.npy").write_bytes(b"rows")
    other = school.of(8)
    assert other.run.folder == school.run.private / "sweep" / "teachers_8" and other.teachers.count == 8
    assert (other.run.private / "features" / "abc" / "0.npy").read_bytes() == b"rows"
    assert stat.S_IMODE((school.run.private / "sweep").stat().st_mode) == 0o700
    assert school.of(TEACHERS) is school


# --- what never leaves -------------------------------------------------------------------------------------


def test_nothing_of_noiseless_votes_is_under_release(school):
    sweep = Sweep(seeds=1, queries=(10,))
    study = replace(STUDY, sweeps=("queries",), sweep=sweep)
    outcome = ask(school, study)
    page, private = report(school.run, study, outcome, "made", {"run": "made"})
    run = school.run
    secret = [repr(value) for row in outcome.rows if row.mechanism == NOISELESS for value in row.accuracy]
    files = [path for path in run.release.rglob("*") if path.is_file()]
    names = {path.name for path in (run.private / "study" / "students").iterdir()}
    assert len(names) == 3 and not names & {path.name for path in files}
    public = {repr(v) for row in outcome.released().rows for v in row.accuracy}
    texts = [path.read_text() for path in files if path.suffix in (".csv", ".html", ".json")]
    assert len(texts) > 10
    for text in (re.sub(r"base64,[^\"]+", "", text) for text in texts):
        assert "noiseless" not in text and not re.search(r"\bgain", text, re.IGNORECASE)
        assert not any(value in text for value in secret if value not in public)
    assert private.is_relative_to(run.private) and page.is_relative_to(run.release)
    assert PRIVATE.split(".")[0] in private.read_text() and "Gain %" in private.read_text()
    for folder in (run.private / "report", run.private / "study"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for folder in ("report", "study/students", "study/references"):
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (run.private / folder).iterdir()}
        assert modes == {0o600}, folder


def test_the_page_says_what_all_what_ifs_cost_together_and_the_board_has_every_row(school):
    outcome = ask(school)
    page, _ = report(school.run, STUDY, outcome, "made", {"run": "made"})
    text = page.read_text()
    for how in ("teacher_changed", "teacher_added"):
        assert f"about the labellings calibrated for {how} alone" in text and f"made with neighbours={how}." in text
    assert "costs add up" in text and text.count("in 2 charges") == 2 * 5
    assert "NOT PRIVATE: the noise was drawn from a seed" in text
    board = school.run.release / "tensorboard" / "compare"
    folders = [path for path in board.iterdir() if path.is_dir()]
    assert len(folders) == 10
    one = next(path for path in folders if path.name.startswith("noisy_counts_teacher_changed"))
    data = b"".join(path.read_bytes() for path in one.iterdir())
    for word in (
        b"hparams",
        b"mechanism",
        b"neighbours",
        b"epsilon",
        b"queries",
        b"hparam/accuracy",
        b"hparam/macro_f1",
    ):
        assert word in data, word

"""The two rooms: what leaves was charged for, nothing else depends on the votes; what stays is its owner's alone."""

import json
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from desk.office import DELTA, make_run, mechanism, memory_folder, projected, votes

from pate import desk
from pate.labels import Labels
from pate.ledger import Budget, Ledger
from pate.mechanisms import Mechanism
from pate.runs import Run, read_npz

# Each mechanism with the answers that all queries take: in two batches, or at once.
MECHANISMS = {
    "noisy_counts": (lambda _: mechanism(), ("answers/2.npz", "answers/4.npz")),
    "projected_ballots": (projected, ("answers/2.npz",)),
}
# With the noise fixed, this and charged answers are all that may differ between runs on different votes, and why.
CHARGED_FOR = {
    "labels.npz": "the charged answers, put together",
    "labels.json": "counted from the charged answers",
    "statement.json": "the ledger's last hash",
    "statement.txt": "the ledger's last hash",
    "ledger.sqlite": "the answers' hashes, the chain over them, and the salted name of the votes",
}


def label(root: Path, ballots: np.ndarray, name: str, salt: bytes | None = None) -> Run:
    """A finished run with noise from a seed, and the salt of another run if one is given."""
    run = make_run(root, ballots=ballots)
    m = made(run, name)
    if salt is not None:
        (run.private / "ledger").mkdir(mode=0o700)
        (run.private / "ledger" / "salt").write_bytes(salt)
        (run.private / "ledger" / "salt").chmod(0o600)
    with desk.open_desk(run) as ledger:
        loaded = desk.load_votes(run, ledger)
        budget = ledger.set_budget(Budget(20.0, DELTA), neighbours=m.neighbours, unit="record")
        answered = desk.answer(loaded, m, ledger, budget=budget, queries="until_budget", batch=10, noise_seed=1)
        desk.publish(run, answered, ledger, delta=DELTA, unit="record")
    return run


def made(run: Run, name: str) -> Mechanism:
    return MECHANISMS[name][0](run)


@pytest.fixture(scope="module", params=MECHANISMS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def pair(name) -> Iterator[tuple[Run, Run, Run]]:
    """Two runs on the same votes and one on others; the first two differ in nothing but their salts."""
    with memory_folder() as folder:
        first, again = (label(folder / place, votes(0), name) for place in ("first", "again"))
        salt = (first.private / "ledger" / "salt").read_bytes()
        yield first, again, label(folder / "other", ~votes(0), name, salt)


def files(run: Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.release)): path.read_bytes() for path in run.release.rglob("*") if path.is_file()}


def test_changing_the_votes_changes_only_what_was_charged_for(pair, name):
    first, _, other = map(files, pair)
    may = CHARGED_FOR.keys() | set(MECHANISMS[name][1])
    assert first.keys() == other.keys() == may | {"spending.png"}
    assert {file for file in first if first[file] != other[file]} == may


def rows(run: Run) -> list[dict]:
    with sqlite3.connect(run.release / "ledger.sqlite") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM entries ORDER BY id")]


def leaves(value, name: str = "") -> dict:
    if not isinstance(value, dict):
        return {name: value}
    return {key: leaf for child, inner in value.items() for key, leaf in leaves(inner, f"{name}.{child}").items()}


def test_in_the_ledger_only_hashes_of_answers_and_the_votes_name_differ(pair):
    """Every value of every row, JSON taken apart; times are when the test ran."""
    first, _, other = map(rows, pair)
    differ = set()
    for one, two in zip(first, other, strict=True):
        for column in one.keys() - {"time"}:
            values = one[column], two[column]
            if column == "body":
                mine, yours = (leaves(json.loads(text)) for text in values)
                differ |= {f"{one['kind']}{name}" for name in mine if mine[name] != yours[name]}
            elif values[0] != values[1]:
                differ.add(f"{one['kind']}.{column}")
    chain = {
        f"{kind}.{column}" for kind in ("budget", "charge", "answer", "published") for column in ("previous", "hash")
    }
    published = {f"published.files.{name}" for name in ("labels.npz", "labels.json", "statement.json", "statement.txt")}
    # `subject` of a charge is the hash of its details, the votes' name among them.
    assert differ - chain == {"charge.details.votes", "charge.subject", "answer.answer"} | published


def test_the_votes_name_is_as_random_as_its_salt(pair):
    """The same votes have another name in every run, so the name tells nothing about them."""
    first, again, other = (rows(run)[1] for run in pair)
    names = [json.loads(row["body"])["details"]["votes"] for row in (first, again, other)]
    assert len(set(names)) == 3


def test_the_statements_differ_in_the_ledgers_hash_only(pair):
    first, _, other = (leaves(json.loads(files(run)["statement.json"])) for run in pair)
    assert {name for name in first if first[name] != other[name]} == {".ledger.hash"}


def test_labels_are_the_answers_and_nothing_more(pair, name):
    for run in pair:
        parts = [Labels.load(run.release / file) for file in MECHANISMS[name][1]]
        whole = read_npz(run.release / "labels.npz")
        for what in ("ids", "labels", "answered", "scores"):
            assert np.array_equal(whole[what], np.concatenate([getattr(part, what) for part in parts]))
        assert whole.keys() == {"ids", "labels", "answered", "scores", "score_sd", "num_teachers"}


def test_noise_is_what_separates_scores_from_votes(pair, name):
    """The scores of the two runs differ by exactly the difference of the counts: the noise was indeed the same."""
    first, _, other = (read_npz(run.release / "labels.npz")["scores"] for run in pair)
    mine, yours = (np.asarray(made(pair[0], name).tally(ballots)) for ballots in (votes(0), ~votes(0)))
    assert np.allclose(first - other, mine - yours) and np.abs(mine - yours).max() > 1


def test_every_private_file_is_its_owners_alone(pair):
    for run in pair:
        for path in [run.private, *run.private.rglob("*")]:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_nothing_private_is_copied_into_the_release_folder(pair):
    run = pair[0]
    secrets = [path.read_bytes() for path in run.private.rglob("*") if path.is_file() and path.stat().st_size >= 32]
    manifest = json.loads((run.private / "ledger" / "votes.json").read_text())
    hidden = [*secrets, *(digest.encode() for digest in manifest.values())]
    for name, data in files(run).items():
        assert not any(secret in data for secret in hidden), name


def test_nothing_in_a_release_needs_unpickling(pair):
    for name, data in files(pair[0]).items():
        assert name.endswith((".npz", ".json", ".txt", ".png", ".sqlite"))
        if name.endswith(".npz"):
            read_npz(pair[0].release / name)  # which never unpickles
        assert b"\x80\x04" not in data[:2]
    with Ledger(pair[0].release / "ledger.sqlite") as ledger:
        ledger.verify()

"""Any byte of the votes, of an answer, of a published file, of the ledger: a change is noticed, and the file named."""

import random
from pathlib import Path

import pytest
from desk.office import DELTA, label, lighten, make_run, mechanism

from pate import desk
from pate.errors import DataError, PateError
from pate.ledger import Ledger, LedgerDamaged
from pate.runs import Run

M = mechanism()


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Run:
    """Two releases, published."""
    lighten(monkeypatch.setattr)
    run = make_run(tmp_path)
    label(run, epsilon=30.0, queries=5)
    label(run)
    return run


def flip(path: Path, place: int) -> bytes:
    """Change one bit of one byte; returns the file as it was."""
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[place] ^= 1 << place % 8
    path.write_bytes(bytes(changed))
    return whole


def test_any_byte_of_the_votes(run):
    for path in (run.private / "votes" / "teacher-00000.votes", run.private / "votes" / "teacher-00007.votes"):
        for place in range(path.stat().st_size):
            whole = flip(path, place)
            with pytest.raises(DataError, match=rf"{path.name}"):
                label(run)
            path.write_bytes(whole)
    label(run)


@pytest.mark.parametrize("name", ["answers/2.npz", "answers/5.npz", *desk.PUBLISHED])
def test_any_byte_of_a_release_file(run, name):
    path, clock = run.release / name, random.Random(0)
    for place in {0, path.stat().st_size - 1, *(clock.randrange(path.stat().st_size) for _ in range(6))}:
        whole = flip(path, place)
        for look in (lambda: label(run), lambda: desk.status(run, {}, M.neighbours, DELTA)):
            with pytest.raises(DataError, match=rf"^{name} in .*release is not what ledger.sqlite recorded"):
                look()
        path.write_bytes(whole)
    label(run)


def test_several_changed_files_are_all_named(run):
    flip(run.release / "answers" / "2.npz", 100)
    flip(run.release / "statement.txt", 100)
    (run.release / "answers" / "5.npz").unlink()
    with pytest.raises(DataError, match=r"answers/2.npz, answers/5.npz, statement.txt in .* are not what"):
        label(run)


def test_an_older_published_file_is_outdated_not_unknown(run, tmp_path):
    """As after a crash between record and file; publishing again makes it new."""
    now = (run.release / "labels.npz").read_bytes()
    label(run, queries=5)
    old = (run.release / "labels.npz").read_bytes()
    label(run)
    (run.release / "labels.npz").write_bytes(old)
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert desk.check_release(run, ledger) == ["labels.npz"]
    label(run)
    assert (run.release / "labels.npz").read_bytes() == now != old


def test_any_byte_of_the_ledger(run):
    """Whatever byte of the file is changed, the ledger is refused or says exactly what it said."""
    path, clock = run.release / "ledger.sqlite", random.Random(0)
    with Ledger(path) as ledger:
        known, seen = ledger.verify(), ledger.witness.path.read_bytes()
    refused = 0
    for _ in range(300):
        whole = flip(path, clock.randrange(path.stat().st_size))
        try:
            with Ledger(path) as ledger:
                assert ledger.verify() == known
        except PateError as error:
            assert isinstance(error, LedgerDamaged) and "ledger.sqlite" in str(error)
            refused += 1
        for side in path.parent.glob("ledger.sqlite-*"):
            side.unlink()
        path.write_bytes(whole)
        assert Ledger(path).witness.path.read_bytes() == seen
    assert refused > 50


def test_the_salt_decides_which_votes_are_known(run):
    """Without the salt the same votes have another name: the request is new, and paid for anew; nothing is hidden."""
    (run.private / "ledger" / "salt").unlink()
    label(run)
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert len(ledger.charges()) == 3

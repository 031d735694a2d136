"""A disk that is full: a sentence, nothing torn, and the same command goes on once there is room."""

import ctypes
import errno
import functools
import os
import sqlite3
from pathlib import Path

import pytest
from desk.office import label, lighten, make_run, mechanism

from pate import desk
from pate.errors import PateError
from pate.ledger import Ledger, StorageFailed
from pate.runs import Run

M = mechanism()


def sound(run: Run) -> int:
    """Nothing is torn; returns the number of charges."""
    assert not list(run.folder.rglob("*.tmp"))
    with Ledger(run.release / "ledger.sqlite") as ledger:
        desk.check_release(run, ledger)
        return len(ledger.charges())


@pytest.fixture
def run(tmp_path: Path, monkeypatch) -> Run:
    lighten(monkeypatch.setattr)
    return make_run(tmp_path)


class Full:
    """Refuses the n-th call, and all that follow."""

    def __init__(self, function, at: int, error: Exception) -> None:
        self.function, self.left, self.error = function, at, error

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("name", ["fsync", "write", "replace"])
def test_every_write_may_fail(run, name, monkeypatch):
    """The first call that fails is moved on until the whole stage gets through."""
    for at in range(100):
        error = OSError(errno.ENOSPC, "No space left on device")
        with monkeypatch.context() as patch:
            patch.setattr(os, name, Full(getattr(os, name), at, error))
            try:
                label(run)
                break
            except StorageFailed as told:
                assert "No space left on device" in str(told)
        sound(run)
    assert 0 < at < 99
    label(run)
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert len(ledger.charges()) == 1 + len(ledger.unanswered())


@pytest.mark.parametrize("what", ["INSERT", "UPDATE", "COMMIT"])
def test_every_statement_of_sql_may_fail(run, what, monkeypatch):
    for at in range(30):

        class Connection(sqlite3.Connection):
            left = at

            def execute(self, sql, *values):
                if sql.startswith(what) and self.in_transaction:
                    type(self).left -= 1
                    if type(self).left < 0:
                        error = sqlite3.OperationalError("database or disk is full")
                        error.sqlite_errorname = "SQLITE_FULL"
                        raise error
                return super().execute(sql, *values)

        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Connection))
            try:
                label(run)
                break
            except StorageFailed as told:
                assert "disk is full" in str(told) and "ledger.sqlite could not be" in str(told)
        sound(run)
    assert 0 < at < 29
    label(run)


def test_the_refusal_says_what_was_not_done(run, monkeypatch):
    with Ledger(run.release / "ledger.sqlite") as ledger:
        ledger._connection().execute("PRAGMA max_page_count = 1")
        with pytest.raises(StorageFailed, match="could not be charged; nothing was drawn: database or disk is full"):
            ledger.charge(M.cost(1), queries=1, details={"long": "x" * 10**6})
        assert ledger.charges() == []


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system in memory of 1 MB, where mounting one is allowed."""
    folder, libc = tmp_path / "disk", ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    if libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip(f"cannot mount a small disk: {os.strerror(ctypes.get_errno())}")
    yield folder
    libc.umount2(str(folder).encode(), 2)


def test_a_disk_that_is_really_full(small_disk, monkeypatch):
    """The first try finds no room at all, each later one a page more than the one before it."""
    lighten(monkeypatch.setattr)
    run, told = make_run(small_disk), []
    ballast = small_disk / "ballast"
    for room in range(0, 160_000, 4096):
        ballast.write_bytes(b"")
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(b"x" * max(0, free - room))
        try:
            label(run)
        except PateError as error:
            told.append(str(error))
            assert isinstance(error, StorageFailed), told[-1]
        ballast.write_bytes(b"")
        sound(run)
    label(run)
    assert len(told) > 3
    assert all(
        sentence.endswith(("disk is full", "disk I/O error", "kept")) or "No space" in sentence for sentence in told
    )
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert len(ledger.charges()) == 1 + len(ledger.unanswered())

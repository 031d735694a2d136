"""What has been spent, durably: an append-only SQLite file in the release folder that refuses before it is too late.

Every row of `entries` carries the running total, the terms in force and the hash of the row before it:
    budget      what may be spent in all, once it is set; afterwards epsilon may be lowered, nothing else changed
    charge      committed before a single noise value is drawn
    answer      the hash of the answer that was written for a charge; at most one per charge
    published   the hashes of files, committed before they are written
`head` holds the number of rows and the last hash. A charge reads the head and the last row, so its time does not grow
with the number of rows (only, by microseconds each, with the number of different mechanisms ever charged).

Noticed and named: a row that was edited, deleted, inserted or moved; rows cut from the end (by the head, or, if that
was cut too, by the witness in the private room: `pate.witness`); a whole ledger that was deleted, rewritten or replaced
by an older copy (by the witness). Not noticed: ledger and witness set back together. Only what was kept elsewhere shows
that, such as an earlier statement, which names the last row it covers and that row's hash.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.budget import Budget, Price, Terms, check_budget
from pate.entries import FIELDS, SCHEMA, START, Charge, Entry, Page, carried, request_hash, to_charge
from pate.errors import PateError
from pate.runs import sync_folder
from pate.witness import Seen, Witness

if TYPE_CHECKING:
    from pate.mechanisms import Mechanism
    from pate.odometer import Status

__all__ = ["Budget", "Charge", "Ledger", "LedgerDamaged", "StorageFailed", "Terms"]

STORAGE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_PERM")


class LedgerDamaged(PateError):
    """The ledger is not as it was written; the message names the row."""


class StorageFailed(PateError):
    """The disk is full or refuses; the message says what was and what was not done."""


class Ledger:
    """The charges of one run. Safe among threads and processes; nothing is cached between calls.

    >>> import tempfile
    >>> from pate.mechanisms import NoisyCounts
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.sqlite")
    >>> m = NoisyCounts(num_labels=40, sigma=400.0)
    >>> charge = ledger.charge(m.cost(100), queries=100, details={"mechanism": "noisy_counts"}, budget=Budget(2.0))
    >>> round(ledger.spent().epsilon(1e-6), 2)
    0.7
    >>> ledger.charge(m.cost(900), queries=900, details={}, price=m.cost)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pate.errors.BudgetExceeded: 900 queries need epsilon 2.42 at delta 1e-06 with the 0.70 spent, budget ... 605 fit.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.witness = Witness(self.path)
        self._connections: dict[tuple[int, int], sqlite3.Connection] = {}
        with self._guarded("opened"):
            self._create()

    def charge(
        self,
        cost: PrivacyCost,
        *,
        queries: int,
        details: Mapping[str, Any],
        budget: Budget | None = None,
        price: Price | None = None,
        unit: str | None = None,
    ) -> Charge:
        """Commit a price before anything is drawn, or raise `BudgetExceeded` and change nothing.

        Args:
            details: what is asked, as JSON values; equal details are the same request.
            budget: set, or lowered, before the price is looked at. One without epsilon asks for some epsilon at its
                delta; no budget here nor in the ledger means that prices are counted and nothing is refused.
            price: n -> cost of n queries, so that a refusal can say how many fit.
            unit: whose data the cost protects, `record` or `person`.
        """
        with self._writing("charged; nothing was drawn") as page:
            terms, spent = page.terms.about(cost.neighbours, unit), page.spent + cost
            self._set(page, terms.under(budget or Budget()))
            limit = budget if page.terms.epsilon is None else page.terms
            if limit is not None:
                check_budget(page.spent, cost, queries, limit, price)
            body = {"details": dict(details), "queries": queries, "cost": cost.to_json()}
            entry = page.append("charge", request_hash(details), body, spent, page.terms.about(cost.neighbours, unit))
        return to_charge(entry, None)

    def settle(self, charge: Charge, answer: str, answered: int | None = None) -> None:
        """Record the hash of the answer that was written for a charge; once only."""
        body = {"answer": answer, "answered": answered}
        with self._writing(f"told of the answer to charge {charge.id}, whose price stays spent") as page:
            if not self._select("id = ? AND kind = 'charge' AND subject = ?", str(charge.id), charge.request):
                raise PateError(f"charge {charge.id} is not in {self.path.name}: there is no answer without a charge")
            try:
                page.append("answer", str(charge.id), body, page.spent, page.terms)
            except sqlite3.IntegrityError:
                raise PateError(f"charge {charge.id} already has its answer; noise is never drawn twice") from None

    def record(self, files: Mapping[str, str]) -> None:
        """Commit the hashes of files that are about to be published: name -> SHA-256."""
        with self._writing("told what is published") as page:
            page.append("published", "", {"files": dict(files)}, page.spent, page.terms)

    def set_budget(self, budget: Budget, *, neighbours: Neighbours | None = None, unit: str | None = None) -> Terms:
        """Set the budget, or lower its epsilon; returns the terms in force. No epsilon: the stored budget holds."""
        with self._writing("given its budget") as page:
            self._set(page, page.terms.about(neighbours, unit).under(budget))
        return page.terms if page.terms.epsilon is not None else replace(page.terms, delta=budget.delta)

    def find(self, details: Mapping[str, Any]) -> Charge | None:
        """The newest answered charge for exactly this request, or None; found by an index, whatever the rows."""
        with self._guarded("read"):
            found = self._select("kind = 'charge' AND subject = ? ORDER BY id DESC", request_hash(details))
            for entry in found:
                answers = self._select("kind = 'answer' AND subject = ?", str(entry.id))
                if answers:
                    return to_charge(self._sound(entry), self._sound(answers[0]))
        return None

    def charges(self) -> list[Charge]:
        """Every charge, oldest first, after checking every row."""
        entries = self.verify()
        answers = {entry.subject: entry for entry in entries if entry.kind == "answer"}
        return [to_charge(entry, answers.get(str(entry.id))) for entry in entries if entry.kind == "charge"]

    def unanswered(self) -> list[Charge]:
        """Charges whose answer was never recorded: a crash fell between; their price stays spent."""
        return [charge for charge in self.charges() if charge.answer is None]

    def published(self) -> dict[str, list[str]]:
        """Every file that was ever recorded as published, with its hashes, the newest first."""
        with self._guarded("read"):
            found = self._select("kind = 'published' AND subject = '' ORDER BY id DESC")
        files: dict[str, list[str]] = {}
        for entry in found:
            for name, seal in self._sound(entry).parsed()[0]["files"].items():
                files.setdefault(name, []).append(seal)
        return files

    def spent(self) -> PrivacyCost:
        """Everything charged so far, composed."""
        return self._now().spent

    def terms(self) -> Terms:
        """The budget in force and what it is about."""
        return self._now().terms

    def head(self) -> tuple[int, str]:
        """Number of rows and hash of the last: what a statement names to say how far it covers."""
        entry = self._now().entry
        return entry.id, entry.hash

    def status(
        self, delta: float = 1e-6, mechanisms: "Mapping[str, Mechanism] | None" = None, queries: int = 100
    ) -> "Status":
        """Spent, left, a line per release, and what the next queries would cost with each mechanism."""
        from pate.odometer import read  # which is about ledgers, and imports this module

        return read(self, delta, mechanisms or {}, queries)

    def verify(self) -> list[Entry]:
        """Every row, after checking each by itself, the chain, the totals, the head and the witness."""
        with self._reading() as (connection, seen):
            entries = self._select("1 ORDER BY id")
            self._check_chain(entries)
            self._check_ends(connection, entries[-1] if entries else START, seen)
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if sound != "ok":
            raise LedgerDamaged(f"{self.path.name} cannot be used: {sound}")
        return entries

    def close(self) -> None:
        """Close this process's connections, so that SQLite folds its side files into the ledger; use reopens it."""
        for own in [own for own in self._connections if own[0] == os.getpid()]:
            self._connections.pop(own).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        """Make the tables; a ledger that the witness has seen is not begun anew."""
        if self.path.exists() and self._tables() >= {"entries", "head"}:
            return
        seen = self.witness.seen()
        if seen is not None:
            raise LedgerDamaged(
                f"{self.path} is missing or empty, but {self.witness.path} has seen {seen[0]} rows of it: restore it"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.witness.lock():
            tables = self._tables()
            if tables and not tables >= {"entries", "head"}:
                raise LedgerDamaged(f"{self.path.name} cannot be used: it is no ledger of this version")
            self._connection().executescript(SCHEMA)
        sync_folder(self.path.parent)

    def _tables(self) -> set[str]:
        return {row[0] for row in self._connection().execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _now(self) -> Page:
        with self._reading() as (connection, seen):
            return self._page(connection, seen)

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, Seen]]:
        """One state of the ledger. The witness is asked first: what it has seen is there, whoever writes meanwhile."""
        with self._guarded("read"):
            connection, seen = self._connection(), self.witness.seen()
            connection.execute("BEGIN")
            try:
                yield connection, seen
            finally:
                connection.execute("COMMIT")

    @staticmethod
    def _set(page: Page, terms: Terms) -> None:
        """Write a budget down if it is a new one."""
        if (terms.epsilon, terms.delta) != (page.terms.epsilon, page.terms.delta):
            page.append("budget", "", asdict(terms), page.spent, terms)

    @contextmanager
    def _writing(self, purpose: str) -> Iterator[Page]:
        """The last page, to append to; committed durably, noted by the witness, or left as it was."""
        with self._guarded(purpose), self.witness.lock():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                page = self._page(connection, self.witness.seen())
                yield page
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if page.grown:
                self.witness.note(page.entry.id, page.entry.hash)

    def _page(self, connection: sqlite3.Connection, seen: Seen) -> Page:
        """The last row, if it, the head and the witness agree."""
        last = self._select("1 ORDER BY id DESC LIMIT 1")
        entry = self._sound(last[0]) if last else START
        self._check_ends(connection, entry, seen)
        return Page(connection, entry)

    def _select(self, where: str, *values: str) -> list[Entry]:
        rows = self._connection().execute(f"SELECT {FIELDS} FROM entries WHERE {where}", values)
        return [Entry(*row) for row in rows]

    def _sound(self, entry: Entry) -> Entry:
        if entry.seal != entry.hash:
            raise LedgerDamaged(f"{self.path.name}: row {entry.id} was edited: its hash does not fit its contents")
        return entry

    def _check_ends(self, connection: sqlite3.Connection, last: Entry, seen: Seen) -> None:
        """Do the head and the witness know the last row?"""
        head = connection.execute("SELECT rows, hash FROM head").fetchall()
        if len(head) == 1 and isinstance(head[0][0], int) and head[0][0] > last.id:
            raise LedgerDamaged(f"{self.path.name}: rows {last.id + 1} to {head[0][0]} are missing at the end")
        if head != [(last.id, last.hash)]:
            raise LedgerDamaged(f"{self.path.name}: the head was edited, or row {last.id} was added by other means")
        rows, seal = seen or (0, "")
        if rows > last.id:
            gone = f"rows {last.id + 1} to {rows} are missing at the end"
            raise LedgerDamaged(f"{self.path.name}: {gone}; {self.witness.path} has seen them")
        if rows and [entry.hash for entry in self._select("id = ?", str(rows))] != [seal]:
            raise LedgerDamaged(f"{self.path.name}: row {rows} is not the one that {self.witness.path} has seen")

    def _check_chain(self, entries: list[Entry]) -> None:
        """Each row fits its hash, follows the row before it, and carries the right total and terms."""
        before = START
        for entry in entries:
            if entry.id != before.id + 1:
                raise LedgerDamaged(f"{self.path.name}: row {before.id + 1} is missing")
            self._sound(entry)
            try:
                follows = entry.previous == before.hash and carried(before, entry) == (entry.spent, entry.terms)
            except (KeyError, TypeError, ValueError):
                follows = False
            if not follows:
                raise LedgerDamaged(f"{self.path.name}: row {entry.id} does not follow from row {before.id}")
            before = entry

    def _connection(self) -> sqlite3.Connection:
        """One connection per process and thread, kept: closing it would cost two more syncs."""
        own = os.getpid(), threading.get_ident()
        if own not in self._connections:
            connection = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._connections[own] = connection
        return self._connections[own]

    @contextmanager
    def _guarded(self, purpose: str) -> Iterator[None]:
        """Storage that fails and files that are no ledger are a sentence."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "").startswith(STORAGE):
                raise StorageFailed(f"{self.path} could not be {purpose}: {error}") from error
            raise LedgerDamaged(f"{self.path.name} cannot be used: {error}") from error
        except OSError as error:
            raise StorageFailed(f"{self.path} could not be {purpose}: {error}") from error

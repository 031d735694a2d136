"""What has been spent, durably: an append-only SQLite file in the release folder that refuses before it is too late.

Every row of `entries` carries the terms in force and the hash of the row before it:
    budget      what may be spent in all, once it is set; afterwards epsilon may be lowered, nothing else changed
    charge      committed before a single noise value is drawn
    answer      the hash of the answer that was written for a charge; at most one per charge
    published   the hashes of files, committed before they are written
`head` holds the number of rows and the last hash. No total is stored: whoever opens the ledger adds up its rows, after
checking each, and from then on reads only the rows that others add. So the time of a charge does not grow with the
number of rows, whatever mechanisms they are of; opening does, by some thirty microseconds a row. A charge is durable by
one sync; several can share it (`charge_all`).

Noticed and named: a row that was edited, deleted, inserted or moved; rows cut from the end (by the head, or, if that
was cut too, by the witness in the private room: `pate.witness`); a whole ledger that was deleted, rewritten or replaced
by an older copy (by the witness). Not noticed: ledger and witness set back together. Only what was kept elsewhere shows
that, such as an earlier statement, which names the last row it covers and that row's hash.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.budget import Budget, Price, Terms, check_budget
from pate.entries import FIELDS, SCHEMA, VERSION, Charge, Entry, Page, request_hash, to_charge
from pate.errors import BudgetExceeded, PateError
from pate.runs import sync_folder
from pate.witness import Seen, Witness

if TYPE_CHECKING:
    from pate.mechanisms import Mechanism
    from pate.odometer import Status

__all__ = ["Ask", "Budget", "Charge", "Ledger", "LedgerDamaged", "StorageFailed", "Terms"]

STORAGE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_PERM")


class LedgerDamaged(PateError):
    """The ledger is not as it was written; the message names the row."""


class StorageFailed(PateError):
    """The disk is full or refuses; the message says what was and what was not done."""


class Ask(NamedTuple):
    """One of several charges that are made at once; see `Ledger.charge`."""

    cost: PrivacyCost
    queries: int
    details: Mapping[str, Any]
    price: Price | None = None


class Ledger:
    """The charges of one run. Safe among threads and processes.

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
        self._pages: dict[tuple[int, int], Page] = {}  # by process and thread
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
        return self.charge_all([Ask(cost, queries, details, price)], budget=budget, unit=unit)[0]

    def charge_all(
        self, asked: Sequence[Ask], *, budget: Budget | None = None, unit: str | None = None
    ) -> list[Charge]:
        """Commit several prices, all or none, with one sync; as `charge` otherwise."""
        charges: list[Charge] = []
        with self._writing("charged; nothing was drawn") as page:
            for ask in asked:
                try:
                    charges.append(self._charge(page, ask, budget, unit))
                except BudgetExceeded as error:
                    at_once = f"number {len(charges) + 1} of {len(asked)} charges at once does not fit, none is made: "
                    raise BudgetExceeded(f"{at_once if len(asked) > 1 else ''}{error}") from None
        return charges

    def _charge(self, page: Page, ask: Ask, budget: Budget | None, unit: str | None) -> Charge:
        """Append a price that fits."""
        cost = PrivacyCost() + ask.cost  # a cost that depends on the votes refuses to be added
        terms = page.terms.about(cost.neighbours, unit).under(budget or Budget())
        self._set(page, terms)
        limit = budget if terms.epsilon is None else terms
        if limit is not None:
            check_budget(page.total, cost, ask.queries, limit, ask.price)
        body = {"details": dict(ask.details), "queries": ask.queries, "cost": cost.to_json()}
        return to_charge(page.append("charge", request_hash(ask.details), body, terms), None)

    def settle(self, charge: Charge, answer: str, answered: int | None = None) -> None:
        """Record the hash of the answer that was written for a charge; once only."""
        body = {"answer": answer, "answered": answered}
        with self._writing(f"told of the answer to charge {charge.id}, whose price stays spent") as page:
            if not self._select("id = ? AND kind = 'charge' AND subject = ?", str(charge.id), charge.request):
                raise PateError(f"charge {charge.id} is not in {self.path.name}: there is no answer without a charge")
            try:
                page.append("answer", str(charge.id), body, page.terms)
            except sqlite3.IntegrityError:
                raise PateError(f"charge {charge.id} already has its answer; noise is never drawn twice") from None

    def record(self, files: Mapping[str, str]) -> None:
        """Commit the hashes of files that are about to be published: name -> SHA-256."""
        with self._writing("told what is published") as page:
            page.append("published", "", {"files": dict(files)}, page.terms)

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
            for name, seal in json.loads(self._sound(entry).body)["files"].items():
                files.setdefault(name, []).append(seal)
        return files

    def spent(self) -> PrivacyCost:
        """Everything charged so far, composed."""
        return self._now().total.cost

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
            entries = self._replay(seen)
            self._read(seen)
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if sound != "ok":
            raise LedgerDamaged(f"{self.path.name} cannot be used: {sound}")
        return entries

    def close(self) -> None:
        """Close this process's connections, so that SQLite folds its side files into the ledger; use reopens it."""
        for own in [own for own in self._pages if own[0] == os.getpid()]:
            self._pages.pop(own).connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        """Make the tables; a ledger that the witness has seen is not begun anew."""
        if self.path.exists() and self._is_ledger():
            return
        seen = self.witness.seen()
        if seen is not None:
            raise LedgerDamaged(
                f"{self.path} is missing or empty, but {self.witness.path} has seen {seen[0]} rows of it: restore it"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.witness.lock():
            self._is_ledger()
            self._connection().executescript(SCHEMA)
        sync_folder(self.path.parent)

    def _is_ledger(self) -> bool:
        """Whether the file is a ledger; False if it is empty, an error if it is something else."""
        connection = self._connection()
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if tables and not (tables >= {"entries", "head"} and version == VERSION):
            raise LedgerDamaged(f"{self.path.name} cannot be used: it is no ledger of this version")
        return bool(tables)

    def _now(self) -> Page:
        with self._reading() as (_, seen):
            return self._read(seen)

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
            page.append("budget", "", asdict(terms), terms)

    @contextmanager
    def _writing(self, purpose: str) -> Iterator[Page]:
        """The last page, to append to; committed durably, noted by the witness, or left as it was."""
        with self._guarded(purpose), self.witness.lock():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                page = self._read(self.witness.seen())
                yield page
                connection.execute("COMMIT")
            except BaseException:
                if self._page().grown:  # what was appended is not there: all is read again
                    self._pages[_here()] = Page(connection)
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            grown, page.grown = page.grown, False
            if grown:
                self.witness.note(page.entry.id, page.entry.hash)

    def _read(self, seen: Seen) -> Page:
        """What this thread has read, with the rows that came since; the last that it read must still be there."""
        page = self._page()
        known = [page.entry] if page.entry.id else []
        found = self._select("id >= ? ORDER BY id", str(page.entry.id))
        if found[: len(known)] != known:
            self._replay(seen)
            raise LedgerDamaged(f"{self.path.name}: row {page.entry.id} is not the one that was read before")
        self._take(page, found[len(known) :], seen)
        return page

    def _replay(self, seen: Seen) -> list[Entry]:
        """Every row, read and checked anew."""
        entries = self._select("1 ORDER BY id")
        self._take(Page(self._connection()), entries, seen)
        return entries

    def _select(self, where: str, *values: str) -> list[Entry]:
        rows = self._connection().execute(f"SELECT {FIELDS} FROM entries WHERE {where}", values)
        return [Entry(*row) for row in rows]

    def _sound(self, entry: Entry) -> Entry:
        if entry.seal != entry.hash:
            raise LedgerDamaged(f"{self.path.name}: row {entry.id} was edited: its hash does not fit its contents")
        return entry

    def _take(self, page: Page, entries: Sequence[Entry], seen: Seen) -> None:
        """Add up rows, each of which fits its hash and follows the one before it; do head and witness know the last?"""
        for entry in entries:
            before = page.entry.id
            if entry.id != before + 1:
                raise LedgerDamaged(f"{self.path.name}: row {before + 1} is missing")
            try:
                page.take(self._sound(entry))
            except (KeyError, TypeError, ValueError):
                raise LedgerDamaged(f"{self.path.name}: row {entry.id} does not follow from row {before}") from None
        self._check_ends(page.entry, seen)

    def _check_ends(self, last: Entry, seen: Seen) -> None:
        """Do the head and the witness know the last row?"""
        head = self._connection().execute("SELECT rows, hash FROM head").fetchall()
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

    def _connection(self) -> sqlite3.Connection:
        return self._page().connection

    def _page(self) -> Page:
        """What this thread has read; one connection per process and thread, kept: closing it costs two more syncs."""
        if _here() not in self._pages:
            connection = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._pages[_here()] = Page(connection)
        return self._pages[_here()]

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


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()

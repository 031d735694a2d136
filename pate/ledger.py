"""What has been spent, durably: a SQLite file in the release folder that refuses before it is too late.

Order of a release: `charge` commits the price; only then is noise drawn; `settle` records the hash of the answer. A
crash may waste budget, never hide it. Each row carries the hash of the row before it, so that an edited or deleted row
is noticed.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate.accounting.cost import PrivacyCost, total
from pate.errors import BudgetExceeded, PateError, SettingError, require

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    request TEXT NOT NULL,
    details TEXT NOT NULL,
    queries INTEGER NOT NULL,
    cost TEXT NOT NULL,
    spent TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    charge INTEGER PRIMARY KEY REFERENCES charges(id),
    answer TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_request ON charges(request);
"""
FIELDS = "id, time, request, details, queries, cost, spent, previous, hash"


class LedgerDamaged(PateError):
    """A row of the ledger does not fit its hash or its predecessor."""


@dataclass(frozen=True)
class Budget:
    """What may be spent in all; epsilon None means no limit (the ledger still counts)."""

    epsilon: float | None = None
    delta: float = 1e-6

    def __post_init__(self) -> None:
        limit = self.epsilon
        require(limit is None or limit > 0, "budget.epsilon", "> 0", limit)
        require(0 < self.delta < 1, "budget.delta", "in (0, 1)", self.delta)


@dataclass(frozen=True)
class Charge:
    """One row: what was asked, what it cost, what had been spent after it, and the answer's hash if there is one."""

    id: int
    time: str
    request: str
    details: dict[str, Any]
    queries: int
    cost: PrivacyCost
    spent: PrivacyCost
    answer: str | None


class Ledger:
    """The charges of one run.

    >>> import tempfile
    >>> from pate.mechanisms import NoisyCounts
    >>> ledger = Ledger(Path(tempfile.mkdtemp()) / "ledger.sqlite")
    >>> m = NoisyCounts(num_labels=40, sigma=400.0)
    >>> charge = ledger.charge(m.cost(100), queries=100, details={"mechanism": "noisy_counts"}, budget=Budget(2.0))
    >>> round(ledger.spent().epsilon(1e-6), 2)
    0.7
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as connection:
            connection.executescript(SCHEMA)

    def charge(
        self, cost: PrivacyCost, *, queries: int, details: Mapping[str, Any], budget: Budget | None = None
    ) -> Charge:
        """Commit a price before anything is drawn, or raise `BudgetExceeded` and change nothing."""
        request = request_hash(details)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            last = connection.execute(f"SELECT {FIELDS} FROM charges ORDER BY id DESC LIMIT 1").fetchone()
            before = self._checked(last).spent if last else PrivacyCost()
            spent = before + cost
            check_budget(before, cost, queries, budget or Budget())
            row = self._row(last, request, details, queries, cost, spent)
            connection.execute(f"INSERT INTO charges ({FIELDS}) VALUES (?,?,?,?,?,?,?,?,?)", row)
            connection.execute("COMMIT")
        return _charge(row, None)

    def settle(self, charge: Charge, answer: str) -> None:
        """Record the hash of the answer that was written for a charge; once only."""
        with self._open() as connection:
            try:
                connection.execute(
                    "INSERT INTO answers VALUES (?,?,?)",
                    (charge.id, answer, _digest(f"{charge.id}:{answer}")),
                )
            except sqlite3.IntegrityError:
                raise PateError(f"charge {charge.id} already has its answer; noise is never drawn twice") from None

    def find(self, details: Mapping[str, Any]) -> Charge | None:
        """The newest answered charge for exactly this request, or None."""
        wanted = request_hash(details)
        matches = [row for row in self.charges() if row.request == wanted and row.answer is not None]
        return matches[-1] if matches else None

    def charges(self) -> list[Charge]:
        """Every row, oldest first, after checking the chain."""
        with self._open() as connection:
            rows = connection.execute(f"SELECT {FIELDS} FROM charges ORDER BY id").fetchall()
            answers = connection.execute("SELECT charge, answer, hash FROM answers").fetchall()
        self._check_chain(rows)
        known = {charge: self._checked_answer(charge, answer, seal) for charge, answer, seal in answers}
        return [_charge(row, known.get(row[0])) for row in rows]

    def unanswered(self) -> list[Charge]:
        """Charges whose answer was never written: a crash fell between; their budget stays spent."""
        return [charge for charge in self.charges() if charge.answer is None]

    def spent(self) -> PrivacyCost:
        """Everything charged so far, composed."""
        return total(charge.cost for charge in self.charges())

    def _row(self, last: Any, request: str, details: Any, queries: int, cost: Any, spent: Any) -> tuple[Any, ...]:
        number, previous = (last[0] + 1, last[8]) if last else (1, "")
        body = (
            number,
            datetime.now(UTC).isoformat(timespec="seconds"),
            request,
            canonical(details),
            queries,
            canonical(cost.to_json()),
            canonical(spent.to_json()),
            previous,
        )
        return (*body, _digest(canonical(body)))

    def _checked(self, row: Any) -> Charge:
        if _digest(canonical(list(row[:8]))) != row[8]:
            raise LedgerDamaged(f"{self.path.name}: charge {row[0]} was edited: its hash does not fit its contents")
        return _charge(row, None)

    def _check_chain(self, rows: list[Any]) -> None:
        previous = ""
        for number, row in enumerate(rows, 1):
            self._checked(row)
            if row[0] != number or row[7] != previous:
                raise LedgerDamaged(f"{self.path.name}: charge {number} is missing or out of place")
            previous = row[8]

    def _checked_answer(self, charge: int, answer: str, seal: str) -> str:
        if _digest(f"{charge}:{answer}") != seal:
            raise LedgerDamaged(f"{self.path.name}: the answer hash of charge {charge} was edited")
        return answer

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            yield connection
        except sqlite3.DatabaseError as error:
            raise LedgerDamaged(f"{self.path.name} cannot be used: {error}") from error
        finally:
            connection.close()


def check_budget(before: PrivacyCost, cost: PrivacyCost, queries: int, budget: Budget) -> None:
    """Refuse with numbers a cost that does not fit."""
    if budget.epsilon is None:
        return
    try:
        needed = (before + cost).epsilon(budget.delta)
    except SettingError as error:
        raise BudgetExceeded(f"{queries} queries do not fit the budget: {error}") from None
    if needed <= budget.epsilon:
        return
    already = before.epsilon(budget.delta)
    raise BudgetExceeded(
        f"{queries} queries need epsilon {needed:.4g} in all at delta {budget.delta:g} ({already:.4g} already spent), "
        f"budget {budget.epsilon:.4g}; nothing was drawn"
    )


def request_hash(details: Mapping[str, Any]) -> str:
    """One hash for what was asked: mechanism, settings, queries, votes."""
    return _digest(canonical(details))


def canonical(value: Any) -> str:
    """JSON with one spelling per value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _charge(row: Any, answer: str | None) -> Charge:
    number, time, request, details, queries, cost, spent = row[:7]
    price, after = (PrivacyCost.from_json(json.loads(text)) for text in (cost, spent))
    return Charge(number, time, request, json.loads(details), queries, price, after, answer)

"""The rows of a ledger: what each holds, what it must carry on from the row before it, and the pen that adds one."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pate.accounting.cost import PrivacyCost
from pate.budget import Budget, Terms

SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    spent TEXT NOT NULL,
    terms TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_subject ON entries(subject, kind);
CREATE UNIQUE INDEX IF NOT EXISTS one_answer ON entries(subject) WHERE kind = 'answer';
CREATE TABLE IF NOT EXISTS head (rows INTEGER NOT NULL, hash TEXT NOT NULL);
INSERT INTO head SELECT 0, '' WHERE NOT EXISTS (SELECT * FROM head);
COMMIT;
"""
FIELDS = "id, time, kind, subject, body, spent, terms, previous, hash"


@dataclass(frozen=True)
class Charge:
    """What was asked, what it cost, what had been spent after it, and its answer's hash if there is one.

    Attributes:
        id: the charge's row.
        answered: how many queries were not answered with bottom; known once there is an answer.
    """

    id: int
    time: str
    request: str
    details: dict[str, Any]
    queries: int
    cost: PrivacyCost
    spent: PrivacyCost
    answer: str | None
    answered: int | None = None


class Entry(NamedTuple):
    """A row as it is stored."""

    id: int
    time: str
    kind: str
    subject: str
    body: str
    spent: str
    terms: str
    previous: str
    hash: str

    @property
    def seal(self) -> str:
        """The hash that the row must carry."""
        values = [value if isinstance(value, (int, str)) else repr(value) for value in self[:8]]
        return digest(canonical(values))

    def parsed(self) -> tuple[dict[str, Any], PrivacyCost, Terms]:
        """Body, running total and terms."""
        spent = PrivacyCost.from_json(json.loads(self.spent))
        return json.loads(self.body), spent, Terms(**json.loads(self.terms))


class Page:
    """The last row inside a transaction, and the pen that adds the next."""

    def __init__(self, connection: sqlite3.Connection, entry: Entry) -> None:
        self.connection, self.entry, self.grown = connection, entry, False
        _, self.spent, self.terms = entry.parsed()

    def append(self, kind: str, subject: str, body: Mapping[str, Any], spent: PrivacyCost, terms: Terms) -> Entry:
        """Add a row; it becomes the last."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        texts = (canonical(body), canonical(spent.to_json()), canonical(asdict(terms)))
        entry = Entry(self.entry.id + 1, time, kind, subject, *texts, self.entry.hash, "")
        entry = entry._replace(hash=entry.seal)
        self.connection.execute(f"INSERT INTO entries ({FIELDS}) VALUES (?,?,?,?,?,?,?,?,?)", entry)
        self.connection.execute("UPDATE head SET rows = ?, hash = ?", (entry.id, entry.hash))
        self.entry, self.spent, self.terms, self.grown = entry, spent, terms, True
        return entry


def carried(before: Entry, entry: Entry) -> tuple[str, str]:
    """The total and the terms that a row must carry after the row before it."""
    body, _, terms = entry.parsed()
    _, spent, old = before.parsed()
    if entry.kind == "charge":
        cost = PrivacyCost.from_json(body["cost"])
        return canonical((spent + cost).to_json()), canonical(asdict(old.about(cost.neighbours, terms.unit)))
    if entry.kind == "budget":
        limit = Budget(body["epsilon"], body["delta"])
        return before.spent, canonical(asdict(old.about(body["neighbours"], body["unit"]).under(limit)))
    return before.spent, before.terms


def to_charge(entry: Entry, answer: Entry | None) -> Charge:
    """A charge's row, and the row of its answer, as one object."""
    body, spent, _ = entry.parsed()
    cost, reply = PrivacyCost.from_json(body["cost"]), json.loads(answer.body) if answer else {}
    asked = (entry.id, entry.time, entry.subject, body["details"], body["queries"])
    return Charge(*asked, cost, spent, reply.get("answer"), reply.get("answered"))


def request_hash(details: Mapping[str, Any]) -> str:
    """One hash for what was asked: mechanism, settings, queries, votes."""
    return digest(canonical(details))


def canonical(value: Any) -> str:
    """JSON with one spelling per value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


START = Entry(0, "", "", "", "{}", canonical(PrivacyCost().to_json()), canonical(asdict(Terms())), "", "")

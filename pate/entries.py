"""The rows of a ledger: what each holds, what it must carry on from the row before it, and the pen that adds one."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pate.accounting.cost import PrivacyCost
from pate.budget import Budget, Running, Terms

VERSION = 2
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    terms TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_subject ON entries(subject, kind);
CREATE UNIQUE INDEX IF NOT EXISTS one_answer ON entries(subject) WHERE kind = 'answer';
CREATE TABLE IF NOT EXISTS head (rows INTEGER NOT NULL, hash TEXT NOT NULL);
INSERT INTO head SELECT 0, '' WHERE NOT EXISTS (SELECT * FROM head);
PRAGMA user_version = {VERSION};
COMMIT;
"""
FIELDS = "id, time, kind, subject, body, terms, previous, hash"


@dataclass(frozen=True)
class Charge:
    """What was asked, what it cost, and its answer's hash if there is one.

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
    answer: str | None
    answered: int | None = None


class Entry(NamedTuple):
    """A row as it is stored."""

    id: int
    time: str
    kind: str
    subject: str
    body: str
    terms: str
    previous: str
    hash: str

    @property
    def seal(self) -> str:
        """The hash that the row must carry."""
        values = [value if isinstance(value, (int, str)) else repr(value) for value in self[:7]]
        return digest(canonical(values))


class Page:
    """What one connection has read of a ledger: the last row, the terms in force, and the sum of all charges.

    The sum is stored nowhere, so nobody can forge it: it is made of the rows, each read once and checked to follow
    from the one before it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.grown = connection, False
        self.entry, self.terms, self.total = START, Terms(), Running()

    def append(self, kind: str, subject: str, body: Mapping[str, Any], terms: Terms) -> Entry:
        """Write a row inside a transaction; it becomes the last, if it follows."""
        time, texts = datetime.now(UTC).isoformat(timespec="seconds"), (canonical(body), canonical(asdict(terms)))
        entry = Entry(self.entry.id + 1, time, kind, subject, *texts, self.entry.hash, "")
        entry = entry._replace(hash=entry.seal)
        self.grown = True
        self.connection.execute(f"INSERT INTO entries ({FIELDS}) VALUES (?,?,?,?,?,?,?,?)", entry)
        self.connection.execute("UPDATE head SET rows = ?, hash = ?", (entry.id, entry.hash))
        self.take(entry)
        return entry

    def take(self, entry: Entry) -> None:
        """The next row, which must carry the terms that follow; a ValueError, KeyError or TypeError if not."""
        body, stated = json.loads(entry.body), Terms(**json.loads(entry.terms))
        terms, cost = self.terms, PrivacyCost()
        if entry.kind == "charge":
            cost = PrivacyCost.from_json(body["cost"])
            terms = terms.about(cost.neighbours, stated.unit)
        elif entry.kind == "budget":
            terms = terms.about(body["neighbours"], body["unit"]).under(Budget(body["epsilon"], body["delta"]))
        if (entry.previous, stated) != (self.entry.hash, terms):
            raise ValueError(f"row {entry.id} does not follow")
        self.total.add(cost)
        self.entry, self.terms = entry, terms


def to_charge(entry: Entry, answer: Entry | None) -> Charge:
    """A charge's row, and the row of its answer, as one object."""
    body, reply = json.loads(entry.body), json.loads(answer.body) if answer else {}
    asked = (entry.id, entry.time, entry.subject, body["details"], body["queries"])
    return Charge(*asked, PrivacyCost.from_json(body["cost"]), reply.get("answer"), reply.get("answered"))


def request_hash(details: Mapping[str, Any]) -> str:
    """One hash for what was asked: mechanism, settings, queries, votes."""
    return digest(canonical(details))


def canonical(value: Any) -> str:
    """JSON with one spelling per value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


START = Entry(0, "", "", "", "{}", canonical(asdict(Terms())), "", "")

"""A mechanism, and how the tests of the ledger charge it and look at the rows."""

import sqlite3

from pate.entries import FIELDS, Entry
from pate.ledger import Budget, Charge, Ledger
from pate.mechanisms import NoisyCounts

M = NoisyCounts(num_labels=40, sigma=200.0)


def charge(ledger: Ledger, number: int = 0, queries: int = 10, budget: Budget | None = None, **more) -> Charge:
    known = {"queries": queries, "details": {"number": number}, "budget": budget, "price": M.cost}
    return ledger.charge(more.pop("cost", M.cost(queries)), **(known | more))


def rows(ledger: Ledger) -> list[Entry]:
    with sqlite3.connect(ledger.path) as connection:
        return [Entry(*row) for row in connection.execute(f"SELECT {FIELDS} FROM entries ORDER BY id")]

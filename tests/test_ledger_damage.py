"""Whatever is changed, cut, forged or taken away of a ledger is noticed and named."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from bookkeeping import M, charge, rows

from pate.entries import FIELDS
from pate.errors import BudgetExceeded
from pate.ledger import Budget, Ledger, LedgerDamaged


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "mine" / "release" / "ledger.sqlite")


@pytest.fixture
def full(ledger) -> Ledger:
    """Seven rows of every kind."""
    ledger.set_budget(Budget(30.0), neighbours="teacher_changed", unit="record")
    for number in range(2):
        ledger.settle(charge(ledger, number), f"answer {number}", 10)
    ledger.record({"labels.npz": "hash"})
    charge(ledger, 2)
    ledger.close()
    return ledger


@pytest.mark.parametrize("column", FIELDS.split(", "))
@pytest.mark.parametrize("row", range(1, 8))
def test_any_changed_value_is_noticed_and_its_row_named(full, row, column):
    with sqlite3.connect(full.path) as connection:
        value = 99 if column == "id" else "x"
        sql = (
            "UPDATE entries SET {0} = ? WHERE id = ?"
            if column == "id"
            else "UPDATE entries SET {0} = {0} || ? WHERE id = ?"
        )
        assert connection.execute(sql.format(column), (value, row)).rowcount == 1
    with pytest.raises(LedgerDamaged, match=rf"ledger.sqlite: (row {row} |rows {row} to 7 )"):
        Ledger(full.path).charges()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("DELETE FROM entries WHERE id = 3", "row 3 is missing"),
        ("DELETE FROM entries WHERE id >= 6", "rows 6 to 7 are missing at the end"),
        ("DELETE FROM entries", "rows 1 to 7 are missing"),
        ("UPDATE head SET rows = 6", "the head was edited"),
        ("UPDATE head SET hash = 'x'", "the head was edited"),
        ("DELETE FROM head", "the head was edited"),
        ("INSERT INTO head VALUES (7, 'x')", "the head was edited"),
        (
            "INSERT INTO entries SELECT 8, time, kind, 'x', body, terms, hash, hash FROM entries WHERE id = 7",
            "row 8",
        ),
        ("DROP TABLE head", "missing or empty|no ledger"),
        ("UPDATE entries SET body = CAST(body AS BLOB) WHERE id = 4", "row 4 was edited"),
    ],
)
def test_rows_that_go_missing_or_appear_are_named(full, damage, named):
    with sqlite3.connect(full.path) as connection:
        connection.execute(damage)
    for look in (Ledger.charges, lambda ledger: charge(ledger, 9)):
        with pytest.raises(LedgerDamaged, match=named):
            look(Ledger(full.path))


def forge(ledger: Ledger, change) -> None:
    """Rewrite a ledger with the right hashes, as somebody can who holds the release folder only."""
    entries = change(rows(ledger))
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("DELETE FROM entries")
        last = ""
        for entry in entries:
            entry = entry._replace(previous=last, hash="")
            last = entry.seal
            connection.execute("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?)", entry._replace(hash=last))
        connection.execute("UPDATE head SET rows = ?, hash = ?", (len(entries), last))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda entries: entries[:5], "rows 6 to 7 are missing at the end; .*seen"),
        (lambda entries: [entries[0]._replace(time="earlier"), *entries[1:]], "row 7 is not the one that .*seen"),
    ],
)
def test_a_forged_chain_is_noticed_by_the_witness(full, change, named):
    forge(full, change)
    for look in (Ledger.charges, Ledger.spent, charge):
        with pytest.raises(LedgerDamaged, match=named):
            look(Ledger(full.path))


def test_without_the_private_room_forged_terms_are_still_noticed(full):
    """Terms that do not follow from the rows are not believed, whatever their hash; a total is nowhere to be forged."""
    shutil.rmtree(full.witness.folder)
    high = rows(full)[0].terms.replace("30.0", "60.0")
    forge(full, lambda entries: [*entries[:4], entries[4]._replace(terms=high), *entries[5:]])
    with pytest.raises(LedgerDamaged, match="row 5 does not follow from row 4"):
        Ledger(full.path).charges()
    forge(full, lambda entries: [*entries[:3], entries[3]._replace(body="{}"), *entries[4:]])
    with pytest.raises(LedgerDamaged, match="row 4 does not follow from row 3"):
        Ledger(full.path).charges()


def test_what_was_read_before_is_still_there(full):
    """A ledger that is open adds up only what is new, and notices if what it had added up is no longer so."""
    shutil.rmtree(full.witness.folder)
    spent, last = full.spent(), rows(full)[-1]
    forge(full, lambda entries: [*entries[:6], entries[6]._replace(time="earlier")])
    with pytest.raises(LedgerDamaged, match="row 7 is not the one that was read before"):
        charge(full, 9)
    forge(full, lambda entries: [*entries[:6], last])
    assert full.spent() == spent
    forge(full, lambda entries: entries[:6])
    with pytest.raises(LedgerDamaged, match="row 7 is not the one that was read before"):
        charge(full, 9)


def test_rows_of_others_are_added_up(ledger):
    charge(ledger, 1)
    theirs = Ledger(ledger.path)
    for number in range(2, 5):
        charge(theirs, number)
        assert ledger.spent() == theirs.spent() == M.cost(10 * number)
    ledger.set_budget(Budget(M.cost(45).epsilon(1e-6)))
    with pytest.raises(BudgetExceeded, match="; 5 fit"):
        charge(theirs, 9)
    with pytest.raises(BudgetExceeded, match="; 5 fit"):
        charge(ledger, 9)


def test_a_ledger_of_another_version_is_refused(full):
    with sqlite3.connect(full.path) as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(LedgerDamaged, match="no ledger of this version"):
        Ledger(full.path)


def test_an_older_copy_of_the_ledger_is_noticed(full, tmp_path):
    shutil.copy(full.path, tmp_path / "copy")
    charge(full, 5)
    full.close()
    shutil.copy(tmp_path / "copy", full.path)
    with pytest.raises(LedgerDamaged, match="rows 8 to 8 are missing at the end; .*seen them"):
        charge(Ledger(full.path), 6)


@pytest.mark.parametrize("left", [None, b""])
def test_a_ledger_that_is_gone_is_not_begun_anew(full, left):
    full.path.unlink()
    if left is not None:
        full.path.write_bytes(left)
    with pytest.raises(LedgerDamaged, match="has seen 7 rows of it: restore it"):
        Ledger(full.path)


def test_a_witness_may_lag_or_be_torn_or_lost(full):
    """As after a crash, a power cut, or in a copy of the release folder alone."""
    path, whole = full.witness.path, full.witness.path.read_bytes()
    lines = whole.split(b"\n")
    for left in (b"\n".join(lines[:6]) + b"\n", whole + b"\n9 abc", whole + b"\0" * 100):
        path.write_bytes(left)
        assert len(Ledger(full.path).charges()) == 3
    shutil.rmtree(full.witness.folder)
    assert len(Ledger(full.path).charges()) == 3 and not full.witness.folder.exists()


@pytest.mark.parametrize(
    "content", [b"not a database, and long enough to be looked at" * 40, b"SQLite format 3\0" + b"\0" * 84]
)
def test_a_file_that_is_no_ledger_is_refused(tmp_path, content):
    (tmp_path / "ledger.sqlite").write_bytes(content)
    with pytest.raises(LedgerDamaged, match="cannot be used"):
        Ledger(tmp_path / "ledger.sqlite")


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("CREATE TABLE charges (id INTEGER)")
    with pytest.raises(LedgerDamaged, match="no ledger of this version"):
        Ledger(tmp_path / "ledger.sqlite")

"""The ledger: charged before drawn, refused with numbers, damage noticed and named."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pate.errors import BudgetExceeded, PateError, SettingError
from pate.ledger import Budget, Ledger, LedgerDamaged
from pate.mechanisms import NoisyCounts

M = NoisyCounts(num_labels=40, sigma=200.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def charge(ledger: Ledger, number: int = 0, queries: int = 10, budget: Budget | None = None):
    return ledger.charge(M.cost(queries), queries=queries, details={"number": number}, budget=budget)


def test_charges_compose_and_survive(ledger):
    first, second = charge(ledger, 1), charge(ledger, 2)
    again = Ledger(ledger.path)
    assert [row.id for row in again.charges()] == [first.id, second.id] == [1, 2]
    assert again.spent().epsilon(1e-6) == M.cost(20).epsilon(1e-6) == again.charges()[-1].spent.epsilon(1e-6)


def test_a_request_is_found_only_once_it_is_answered(ledger):
    row = charge(ledger, 7)
    assert ledger.find({"number": 7}) is None and [c.id for c in ledger.unanswered()] == [row.id]
    ledger.settle(row, "abc")
    assert ledger.find({"number": 7}).answer == "abc" and ledger.unanswered() == []
    assert ledger.find({"number": 8}) is None
    with pytest.raises(PateError, match="already has its answer"):
        ledger.settle(row, "def")


def test_a_request_past_the_budget_is_refused_with_numbers_and_leaves_no_trace(ledger):
    budget = Budget(1.5)
    charge(ledger, 1, queries=20, budget=budget)
    with pytest.raises(
        BudgetExceeded, match=r"200 queries need epsilon .* in all at delta 1e-06 .*, budget 1.5; nothing"
    ):
        charge(ledger, 2, queries=200, budget=budget)
    assert len(ledger.charges()) == 1 and BudgetExceeded.exit_code == 3


def test_failure_probabilities_count_against_the_budget_too(ledger):
    from pate.mechanisms import GumbelChoice, StableTopK

    m = StableTopK(num_labels=5, choose=GumbelChoice(1e6), sigma=1e6, delta_t=1e-7)
    with pytest.raises(BudgetExceeded, match="the sum of the queries' delta_t"):
        ledger.charge(m.cost(10), queries=10, details={}, budget=Budget(1.0, 1e-6))


def test_costs_for_other_neighbours_are_refused(ledger):
    charge(ledger)
    other = NoisyCounts(num_labels=40, sigma=200.0, neighbours="teacher_added")
    with pytest.raises(SettingError, match="neighbours"):
        ledger.charge(other.cost(1), queries=1, details={})
    assert len(ledger.charges()) == 1


def test_two_at_once_never_pass_the_budget_together(ledger):
    budget = Budget(M.cost(35).epsilon(1e-6))

    def attempt(number: int) -> bool:
        try:
            charge(Ledger(ledger.path), number, budget=budget)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = sum(pool.map(attempt, range(16)))
    assert won == 3 == len(ledger.charges())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE charges SET queries = 1 WHERE id = 2",
        "UPDATE charges SET cost = replace(cost, '0.0316', '0.0016') WHERE id = 1",
        "UPDATE charges SET details = '{}' WHERE id = 3",
        "DELETE FROM charges WHERE id = 2",
        "UPDATE charges SET id = 9 WHERE id = 3",
        "UPDATE answers SET answer = 'other'",
    ],
)
def test_a_changed_row_is_noticed_and_named(ledger, damage):
    rows = [charge(ledger, number) for number in range(3)]
    ledger.settle(rows[0], "abc")
    with sqlite3.connect(ledger.path) as connection:
        assert connection.execute(damage).rowcount == 1
    with pytest.raises(LedgerDamaged, match=r"charge \d"):
        ledger.charges()


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 40)
    with pytest.raises(LedgerDamaged, match="cannot be used"):
        Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize(("wrong", "name"), [({"epsilon": 0.0}, "budget.epsilon"), ({"delta": 1.0}, "budget.delta")])
def test_impossible_budgets_are_refused(wrong, name):
    with pytest.raises(SettingError, match=name):
        Budget(**wrong)

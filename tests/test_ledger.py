"""The ledger: charged before drawn, refused with numbers, a charge as cheap as the first."""

import json
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bookkeeping import M, charge, rows
from desk.office import memory_folder

from pate.accounting import PrivacyCost, total
from pate.accounting.events import BoundedRange, Gaussian, Laplace, Pure
from pate.budget import Running, fitting
from pate.errors import BudgetExceeded, PateError, SettingError
from pate.ledger import Ask, Budget, Ledger, Terms
from pate.mechanisms import GumbelChoice, NoisyCounts, StableTopK
from pate.witness import Witness


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "mine" / "release" / "ledger.sqlite")


# --- charging ----------------------------------------------------------------------------------------------


def test_charges_compose_and_survive(ledger):
    first, second = charge(ledger, 1), charge(ledger, 2)
    again = Ledger(ledger.path)
    assert [row.id for row in again.charges()] == [first.id, second.id] == [1, 2]
    assert again.spent().epsilon(1e-6) == M.cost(20).epsilon(1e-6)
    assert again.spent() == total(row.cost for row in again.charges())


def test_a_request_is_found_only_once_it_is_answered(ledger):
    row = charge(ledger, 7)
    assert ledger.find({"number": 7}) is None and [c.id for c in ledger.unanswered()] == [row.id]
    ledger.settle(row, "abc", 9)
    assert ledger.find({"number": 7}).answer == "abc" and ledger.unanswered() == []
    assert ledger.find({"number": 7}).answered == ledger.charges()[0].answered == 9
    assert ledger.find({"number": 8}) is None
    with pytest.raises(PateError, match="already has its answer"):
        ledger.settle(row, "def")


def test_an_answer_needs_a_charge_of_this_ledger(ledger, tmp_path):
    foreign = charge(Ledger(tmp_path / "other" / "release" / "ledger.sqlite"))
    with pytest.raises(PateError, match="no answer without a charge"):
        ledger.settle(foreign, "abc")
    ledger.settle(charge(ledger, 1), "abc")
    assert [row.kind for row in rows(ledger)] == ["charge", "answer"]


def test_every_row_says_when_what_it_cost_and_what_is_in_force(ledger):
    charge(ledger, 3, budget=Budget(5.0, 1e-5), unit="person")
    set_, row = rows(ledger)
    assert set_.kind == "budget" and json.loads(set_.body)["epsilon"] == 5.0
    terms = {"epsilon": 5.0, "delta": 1e-5, "neighbours": "teacher_changed", "unit": "person"}
    assert json.loads(set_.terms) == json.loads(row.terms) == terms
    assert row.time.endswith("+00:00") and json.loads(row.body)["queries"] == 10
    assert PrivacyCost.from_json(json.loads(row.body)["cost"]) == M.cost(10)


# --- the budget --------------------------------------------------------------------------------------------


def test_the_refusal_says_what_is_needed_what_is_left_and_how_many_fit(ledger):
    m, budget = NoisyCounts(num_labels=40, sigma=80.0), Budget(3.0, 1e-5)
    fit = fitting(PrivacyCost(), m.cost, 100, budget)
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge(m.cost(100), queries=100, details={}, budget=budget, price=m.cost)
    needed = f"{m.cost(100).epsilon(1e-5):.2f}"
    assert str(refused.value) == f"100 queries need epsilon {needed} at delta 1e-05, budget 3.00; {fit} fit."
    assert m.cost(fit).epsilon(1e-5) <= 3 < m.cost(fit + 1).epsilon(1e-5)
    assert rows(ledger) == [] and BudgetExceeded.exit_code == 3
    ledger.charge(m.cost(fit - 5), queries=fit - 5, details={}, budget=budget)
    with pytest.raises(BudgetExceeded, match=r"with the 2\.\d\d spent, budget 3\.00 \(0\.\d\d left\); 5 fit\."):
        ledger.charge(m.cost(100), queries=100, details={}, price=m.cost)
    ledger.charge(m.cost(5), queries=5, details={})
    assert ledger.spent().epsilon(1e-5) <= 3


def test_a_refusal_by_a_hair_shows_the_hair(ledger):
    with pytest.raises(BudgetExceeded) as refused:
        charge(ledger, queries=100, budget=Budget(M.cost(100).epsilon(1e-6) - 1e-4))
    needed, limit = re.search(r"epsilon (\S+) at .* budget ([\d.]+);", str(refused.value)).groups()
    assert float(needed) > float(limit)


def test_a_budget_once_set_holds_without_being_said_again(ledger):
    charge(ledger, 1, budget=Budget(1.5))
    with pytest.raises(BudgetExceeded):
        charge(Ledger(ledger.path), 2, queries=500)
    with pytest.raises(BudgetExceeded):
        charge(Ledger(ledger.path), 2, queries=500, budget=Budget(None, 1e-3))


def test_a_budget_can_be_lowered_and_nothing_else(ledger):
    about = {"neighbours": "teacher_changed", "unit": "record"}
    assert ledger.set_budget(Budget(3.0), **about) == Terms(3.0, 1e-6, **about)
    assert ledger.set_budget(Budget(3.0), **about) == ledger.set_budget(Budget(), **about) and len(rows(ledger)) == 1
    assert ledger.set_budget(Budget(2.0), **about).epsilon == 2.0 and len(rows(ledger)) == 2
    for wrong, sentence in [
        ((Budget(2.5), about), r"budget.epsilon must be <= 2, the budget that was set.*never raised, got 2.5"),
        ((Budget(2.0, 1e-5), about), "budget.delta must be 1e-06, as it was set, got 1e-05"),
        ((Budget(2.0), about | {"unit": "person"}), "unit must be record"),
        ((Budget(), about | {"neighbours": "teacher_added"}), "neighbours must be teacher_changed"),
    ]:
        with pytest.raises(SettingError, match=sentence):
            ledger.set_budget(wrong[0], **wrong[1])
    assert ledger.terms() == Terms(2.0, 1e-6, **about) and len(rows(ledger)) == 2


def test_lowered_below_what_is_spent_nothing_fits(ledger):
    charge(ledger, 1, queries=100)
    ledger.set_budget(Budget(0.5))
    with pytest.raises(BudgetExceeded, match=r"\(0.00 left\); 0 fit"):
        charge(ledger, 2)


def test_failure_probabilities_count_against_the_budget_too(ledger):
    m = StableTopK(num_labels=5, choose=GumbelChoice(1e6), sigma=1e6, delta_t=1e-7)
    for budget in (Budget(1.0, 1e-6), Budget(None, 1e-6)):
        with pytest.raises(BudgetExceeded, match="the sum of the queries' delta_t.*; 9 fit"):
            ledger.charge(m.cost(10), queries=10, details={}, budget=budget, price=m.cost)
    ledger.charge(m.cost(10), queries=10, details={})  # without a word about delta it is only counted
    assert len(ledger.charges()) == 1


def test_costs_for_other_neighbours_or_units_are_refused(ledger):
    charge(ledger, unit="record")
    other = NoisyCounts(num_labels=40, sigma=200.0, neighbours="teacher_added")
    with pytest.raises(SettingError, match="neighbours must be teacher_changed"):
        ledger.charge(other.cost(1), queries=1, details={})
    with pytest.raises(SettingError, match="unit must be record"):
        charge(ledger, 1, unit="person")
    assert len(ledger.charges()) == 1


def test_two_at_once_never_pass_the_budget_together(ledger):
    budget = Budget(M.cost(35).epsilon(1e-6))

    def attempt(number: int) -> bool:
        try:
            charge(Ledger(ledger.path) if number % 2 else ledger, number, budget=budget)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = sum(pool.map(attempt, range(16)))
    assert won == 3 == len(ledger.charges())


@pytest.mark.parametrize("look", [Ledger.charges, Ledger.spent])
def test_looking_while_another_writes_is_no_alarm(ledger, monkeypatch, look):
    """The witness knows of a row that is committed after it was asked, and before the rows are read."""
    charge(ledger, 1)
    seen = Witness.seen

    def meanwhile(witness):
        monkeypatch.setattr(Witness, "seen", seen)
        charge(Ledger(ledger.path), 2)
        return seen(witness)

    monkeypatch.setattr(Witness, "seen", meanwhile)
    look(ledger)
    assert len(ledger.charges()) == 2


@pytest.mark.parametrize("before", [0, 13])
def test_how_many_fit(before):
    spent, budget = M.cost(before), Budget(1.0)
    fit = fitting(spent, M.cost, 10_000, budget)
    assert (spent + M.cost(fit)).epsilon(1e-6) <= 1 < (spent + M.cost(fit + 1)).epsilon(1e-6)
    assert fitting(spent, M.cost, fit - 3, budget) == fit - 3 and fitting(M.cost(10**6), M.cost, 5, budget) == 0


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"epsilon": 0.0}, "budget.epsilon"),
        ({"epsilon": float("nan")}, "budget.epsilon"),
        ({"delta": 1.0}, "budget.delta"),
    ],
)
def test_impossible_budgets_are_refused(wrong, name):
    with pytest.raises(SettingError, match=name):
        Budget(**wrong)


# --- durability and speed ----------------------------------------------------------------------------------


def test_sqlite_writes_ahead_and_syncs_fully(ledger):
    connection = ledger._connection()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    charge(ledger)
    ledger.close()
    assert [path.name for path in ledger.path.parent.iterdir()] == ["ledger.sqlite"]


def steps_of(ledger: Ledger, number: int) -> int:
    """How many instructions SQLite executes for one charge and one search."""
    count = [0]
    ledger._connection().set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 1)
    row = charge(ledger, number, budget=Budget(1e4))
    ledger.settle(row, "hash", 1)
    ledger.find({"number": number})
    ledger._connection().set_progress_handler(None, 1)
    return count[0]


def test_a_thousand_charges_and_status_are_quick_and_the_last_is_as_cheap_as_the_first():
    with memory_folder() as folder, Ledger(folder / "ledger.sqlite") as ledger:
        early = [steps_of(ledger, number) for number in range(5, 15)]
        began = time.process_time()
        for number in range(100, 1100):
            charge(ledger, number)
        status = ledger.status(1e-6)
        text = str(status)
        seconds = time.process_time() - began
        late = [steps_of(ledger, number) for number in range(2000, 2010)]
        longest = max(len(entry.body) for entry in rows(ledger))
    assert len(status.lines) == 1010 and text.count("\n") > 1010
    assert sum(late) <= 1.2 * sum(early) and longest < 300
    assert seconds < 2


def other(number: int) -> NoisyCounts:
    return NoisyCounts(num_labels=40, sigma=1000.0 + number)


def test_a_thousand_different_mechanisms_are_as_quick(monkeypatch):
    """The sum of all events is asked for once, by the status; a charge that fits takes the running one."""
    sums = []
    with memory_folder() as folder, Ledger(folder / "ledger.sqlite") as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(Running, "cost", property(lambda running: sums.append(len(running.counted))))
            began = time.process_time()
            for number in range(1000):
                charge(ledger, number, cost=other(number).cost(10), budget=Budget(1e3))
        assert sums == []
        status = ledger.status(1e-6)
        seconds = time.process_time() - began
        spent, longest = ledger.spent(), max(len(entry.body) for entry in rows(ledger))
    assert spent == total(other(number).cost(10) for number in range(1000)) and longest < 300
    assert status.lines[-1].total == pytest.approx(status.spent["tight"], rel=1e-8) and seconds < 2
    assert status.lines[-1].published == pytest.approx(status.spent["published"], rel=1e-8)


@pytest.mark.parametrize(
    "events",
    [
        [Gaussian(0.01 + i / 1e4) for i in range(50)],
        [Pure(0.01 + i / 1e4) for i in range(50)],
        [BoundedRange(0.3), Gaussian(0.2)] * 25,
        [Laplace(1e-3 * i) for i in range(50)],
        [Pure(0.0), Gaussian(0.0)],
        [Gaussian(1e9), Pure(1e9)],
    ],
)
def test_a_running_bound_is_never_below_the_sum(events):
    running, so_far = Running(), PrivacyCost()
    for event in events:
        cost = PrivacyCost.of(event, delta=1e-8, neighbours="teacher_changed") * 3
        exact = (so_far + cost).epsilon(1e-5)
        assert exact <= running.bound(1e-5, cost)
        if exact == running.bound(1e-5, cost):
            assert exact in (0.0, math.inf)
        running.add(cost)
        so_far = so_far + cost
        assert running.cost == so_far and running.bound(so_far.delta) == math.inf
        if math.isinf(running.pure):
            assert running.bound(1e-5) == pytest.approx(so_far.epsilon(1e-5), rel=1e-7, abs=1e-7)


def test_a_budget_that_is_met_exactly_is_used_up_to_the_last_query(ledger):
    """The bound passes it by a hair; then the sum itself decides."""
    budget = Budget(M.cost(60).epsilon(1e-6))
    for number in range(6):
        charge(ledger, number, budget=budget)
    with pytest.raises(BudgetExceeded, match="; 0 fit"):
        charge(ledger, 6)


# --- several at once ---------------------------------------------------------------------------------------


def asks(count: int) -> list[Ask]:
    return [Ask(other(number).cost(10), 10, {"number": number}, other(number).cost) for number in range(count)]


def test_charges_at_once_are_all_made_in_one_transaction(ledger):
    commits = []
    ledger._connection().set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    made = ledger.charge_all(asks(5), budget=Budget(9.0), unit="record")
    assert commits == ["COMMIT"] and [row.id for row in made] == [2, 3, 4, 5, 6]
    assert Ledger(ledger.path).charges() == made and ledger.spent() == total(ask.cost for ask in asks(5))
    assert ledger.charge_all([]) == [] and ledger.head()[0] == 6


def test_charges_at_once_are_all_refused_if_the_last_does_not_fit(ledger):
    budget = Budget(total(ask.cost for ask in asks(4)).epsilon(1e-6))
    with pytest.raises(BudgetExceeded, match=r"number 5 of 5 charges at once does not fit, none is made: 10 queries"):
        ledger.charge_all(asks(5), budget=budget)
    assert rows(ledger) == [] and ledger.spent() == PrivacyCost()
    assert len(ledger.charge_all(asks(4), budget=budget)) == 4
    with pytest.raises(BudgetExceeded):
        charge(ledger, 9)


def test_an_error_among_charges_at_once_leaves_nothing(ledger):
    wrong = Ask(NoisyCounts(num_labels=40, sigma=200.0, neighbours="teacher_added").cost(1), 1, {})
    with pytest.raises(SettingError, match="neighbours must be teacher_changed"):
        ledger.charge_all([*asks(2), wrong])
    assert rows(ledger) == [] and ledger.spent() == PrivacyCost() and charge(ledger).id == 1

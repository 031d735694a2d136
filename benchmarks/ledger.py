"""What the ledger costs: a thousand charges and a status, one by one and at once, and whether a charge gets dearer.

    python benchmarks/ledger.py [FOLDER]        (about half a minute; FOLDER is on the disk to measure, default: here)

A charge is durable before it returns, so on disk it takes as long as the disk takes to sync once; bare syncs of the
same disk are measured in between. What is left is the ledger's own work. The settings of the mechanisms are all equal,
or all different, so that nothing can be added up beforehand.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pate.ledger import Ask, Budget, Ledger
from pate.mechanisms import GaussianChoice, StableTopK

CHARGES, AROUND = 1000, 20
BUDGET = Budget(1e3)
GOAL = 2.0


def seconds(task: Callable[[], object]) -> float:
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def ask(number: int, differ: bool) -> Ask:
    sigma = 6000.0 + (number if differ else 0)
    m = StableTopK(num_labels=40, choose=GaussianChoice(5000.0), sigma=sigma, delta_t=1e-12)
    return Ask(m.cost(10), 10, {"number": number}, m.cost)


def one_by_one(ledger: Ledger, differ: bool, pages: Path) -> dict[str, float]:
    """Seconds of the charges, of as many bare syncs taken in turn with them, and of the status; growth in CPU time."""
    each, cpu, syncs = [], [], 0.0
    with pages.open("wb", buffering=0) as file:
        for number in range(CHARGES):
            one, began = ask(number, differ), time.process_time()
            each.append(seconds(lambda one=one: ledger.charge_all([one], budget=BUDGET)))  # type: ignore[misc]
            cpu.append(time.process_time() - began)
            file.write(b"x" * 4096)
            syncs += seconds(lambda: os.fdatasync(file.fileno()))
    last, first = cpu[-AROUND:], cpu[10 : 10 + AROUND]
    found = {"charges": sum(each), "cpu": sum(cpu), "syncs": syncs, "status": seconds(lambda: str(ledger.status()))}
    return found | {"early": 1e6 * statistics.median(first), "late": 1e6 * statistics.median(last)}


def at_once(ledger: Ledger, differ: bool) -> dict[str, float]:
    asked = [ask(number, differ) for number in range(CHARGES)]
    grouped = seconds(lambda: ledger.charge_all(asked, budget=BUDGET))
    return {"grouped": grouped, "grouped status": seconds(lambda: str(ledger.status()))}


def measure(place: str, differ: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=place) as name:
        with Ledger(Path(name) / "single" / "ledger.sqlite") as ledger:
            found = one_by_one(ledger, differ, Path(name) / "pages")
        with Ledger(Path(name) / "grouped" / "ledger.sqlite") as ledger:
            found |= at_once(ledger, differ)
        fresh = Ledger(Path(name) / "single" / "ledger.sqlite")
        return found | {"open": seconds(fresh.spent)}


ROWS: dict[str, Callable[[dict[str, float]], str]] = {
    f"{CHARGES} charges one by one, and status": lambda one: verdict(one["charges"] + one["status"]),
    "  of which CPU time of the charges": lambda one: f"{one['cpu']:.2f} s",
    "  of which status": lambda one: f"{one['status']:.2f} s",
    f"  {CHARGES} bare syncs, in turn with them": lambda one: f"{one['syncs']:.2f} s",
    f"{CHARGES} charges at once, and status": lambda one: verdict(one["grouped"] + one["grouped status"]),
    "CPU time of a charge after 10 rows": lambda one: f"{one['early']:.0f} us",
    f"CPU time of a charge after {CHARGES - AROUND} rows": lambda one: f"{one['late']:.0f} us",
    "  growth (goal 1x)": lambda one: f"{one['late'] / one['early']:.2f}x",
    f"a new process reads {CHARGES} rows": lambda one: f"{1e3 * one['open']:.0f} ms",
}


def verdict(total: float) -> str:
    return f"{total:.2f} s {'<' if total < GOAL else '>'} {GOAL:g}"


def main() -> None:
    ask(0, False).cost.epsilon(1e-6)
    places = {"memory": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    places["disk"] = sys.argv[1] if len(sys.argv) > 1 else "."
    cases = [(name, place, differ) for name, place in places.items() for differ in (False, True)]
    heads = [f"{name}, {'different' if differ else 'equal'}" for name, _, differ in cases]
    print(f"{'':<44}" + "".join(f"{head:>19}" for head in heads))
    found = [measure(place, differ) for _, place, differ in cases]
    for name, show in ROWS.items():
        print(f"{name:<44}" + "".join(f"{show(one):>19}" for one in found))


if __name__ == "__main__":
    main()

"""What the ledger costs: a thousand charges and a status, in memory and on disk, and the last charge against the first.

    python benchmarks/ledger.py [FOLDER]        (about ten seconds; FOLDER is on the disk to measure, default: here)

A charge is durable before it returns, so on disk it takes as long as the disk takes to sync once; the bare sync of the
same disk is measured beside it. What is left is the ledger's own work.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pate.ledger import Budget, Ledger
from pate.mechanisms import GaussianChoice, StableTopK

M = StableTopK(num_labels=40, choose=GaussianChoice(5000.0), sigma=6000.0, delta_t=1e-12)
CHARGES = 1000


def seconds(task: Callable[[], object]) -> float:
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def charges(ledger: Ledger, count: int) -> list[float]:
    """Seconds of each charge."""

    def charge(number: int) -> None:
        ledger.charge(M.cost(10), queries=10, details={"number": number}, budget=Budget(1e3), price=M.cost)

    return [seconds(lambda number=number: charge(number)) for number in range(count)]  # type: ignore[misc]


def bare_syncs(folder: Path, count: int) -> float:
    """Seconds of appending a page and syncing it, as often."""
    with (folder / "pages").open("wb", buffering=0) as file:
        return sum(seconds(lambda: (file.write(b"x" * 4096), os.fdatasync(file.fileno()))) for _ in range(count))


def measure(place: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=place) as name, Ledger(Path(name) / "ledger.sqlite") as ledger:
        each = charges(ledger, CHARGES)
        status = seconds(lambda: str(ledger.status()))
        ends = statistics.median(each[-100:]) / statistics.median(each[100:200])
        return {"charges": sum(each), "status": status, "ends": ends, "syncs": bare_syncs(Path(name), CHARGES)}


def main() -> None:
    M.cost(1).epsilon(1e-6)
    places = {"disk": sys.argv[1] if len(sys.argv) > 1 else "."}
    places = ({"memory": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}) | places
    print(f"{'what':<58}" + "".join(f"{name:>12}" for name in places) + f"{'goal':>12}")
    found = {name: measure(place) for name, place in places.items()}
    rows = {
        f"{CHARGES} charges and status": (lambda one: f"{one['charges'] + one['status']:.2f} s", "< 2 s"),
        "status alone": (lambda one: f"{one['status']:.2f} s", ""),
        f"{CHARGES} bare syncs of the same place": (lambda one: f"{one['syncs']:.2f} s", ""),
        "a charge after 900 others / after 100": (lambda one: f"{one['ends']:.2f}x", "1x"),
    }
    for name, (show, goal) in rows.items():
        print(f"{name:<58}" + "".join(f"{show(one):>12}" for one in found.values()) + f"{goal:>12}")


if __name__ == "__main__":
    main()

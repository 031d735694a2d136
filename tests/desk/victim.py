"""Processes that are killed at a chosen step, by themselves or from outside; run as a script, it forks one per kill.

`python victim.py steps|outside|crowd|desks FOLDER NUMBER...` prints JSON; a broken promise is an AssertionError.
"""

import functools
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from desk.office import DELTA, K, N, lighten, make_run
from desk.office import votes as cast_votes

from pate import desk
from pate.accounting import total
from pate.errors import BudgetExceeded
from pate.labels import answer_path, sha256
from pate.ledger import Budget, Ledger
from pate.mechanisms import NoisyCounts
from pate.noise import FloatNoise
from pate.runs import Run

M, BATCH = NoisyCounts(num_labels=K, sigma=20.0), N // 2  # two batches
BALLOTS = cast_votes(teachers=3)


class Fuse:
    """Kills this process at its n-th step."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable) -> Callable:
        """A step before, and one after."""

        def stepped(*args, **kwargs):
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return stepped


def arm(fuse: Fuse) -> None:
    """Put steps around everything that touches a disk, a lock or the noise."""
    for name in ("fsync", "replace", "write", "link", "chmod", "open", "close"):
        setattr(os, name, fuse.around(getattr(os, name)))

    class Connection(sqlite3.Connection):
        execute = fuse.around(sqlite3.Connection.execute)
        executescript = fuse.around(sqlite3.Connection.executescript)

    sqlite3.connect = functools.partial(sqlite3.connect, factory=Connection)
    FloatNoise.gaussian = fuse.around(FloatNoise.gaussian)


def watch(folder: Path) -> None:
    """Note every draw, in this process and its children, with the charge it is for: the last one without an answer."""
    gaussian = getattr(FloatNoise, "unwatched", FloatNoise.gaussian)

    def drawn(self, scale, shape):
        with sqlite3.connect(folder / "mine" / "release" / "ledger.sqlite") as connection:
            row = connection.execute("SELECT max(id) FROM entries WHERE kind = 'charge'").fetchone()[0]
        with (folder / "draws").open("a") as file:
            file.write(f"{row}\n")
        return gaussian(self, scale, shape)

    FloatNoise.unwatched, FloatNoise.gaussian = gaussian, drawn


def label(run: Run, queries: int | str = "until_budget", m: NoisyCounts = M) -> None:
    """The whole stage: open, set the budget, answer (in batches), publish."""
    with desk.open_desk(run) as ledger:
        ballots = desk.load_votes(run, ledger)
        budget = ledger.set_budget(Budget(4.0, DELTA), neighbours=M.neighbours, unit=ballots.unit)
        answered = desk.answer(ballots, m, ledger, budget=budget, queries=queries, batch=BATCH)
        desk.publish(run, answered, ledger, delta=DELTA, unit=ballots.unit)


def armed(run: Run, fuse: Fuse) -> None:
    arm(fuse)
    label(run)


def killed(task: Callable[[], None], wait: float | None = None) -> bool:
    """Run a task in a process of its own, killed from outside after a while if one is given; was it killed?"""
    pid = os.fork()
    if pid == 0:
        try:
            task()
        finally:
            os._exit(0)
    if wait is not None:
        time.sleep(wait)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def check(run: Run) -> int:
    """What must hold at any moment; returns the number of charges."""
    log = run.root / "draws"
    draws = log.read_text().split() if log.exists() else []
    with Ledger(run.release / "ledger.sqlite") as ledger:
        charges, spent = ledger.charges(), ledger.spent()
        assert len(draws) == len(set(draws)), f"noise was drawn twice for one charge: {draws}"
        assert set(draws) <= {str(charge.id) for charge in charges}, "noise was drawn without a charge"
        files = {path.name for path in (run.release / "answers").glob("*.npz")}
        assert files <= {f"{charge.id}.npz" for charge in charges}, "an answer without a charge"
        for charge in charges:
            if charge.answer is not None:
                assert sha256(answer_path(charge, ledger).read_bytes()) == charge.answer, "a torn answer"
        assert spent == total(charge.cost for charge in charges), "a charge that is not in the total"
        assert spent.epsilon(DELTA) <= 4.0
        desk.check_release(run, ledger)
    return len(charges)


def survive(folder: Path, killer: Callable[[Run], bool], number: int) -> bool:
    """One kill, what must hold after it, a restart that finishes; now and then another, which does nothing.

    Every second time something else has been labelled and published before.
    """
    run, earlier = make_run(folder, ballots=BALLOTS), number % 2
    watch(folder)
    if earlier:
        label(run, 3)
    if not killer(run):
        return False
    found = check(run)
    label(run)
    charges = check(run) - earlier
    assert 2 <= charges <= 3 and charges >= found - earlier
    with Ledger(run.release / "ledger.sqlite") as ledger:
        head, lost = ledger.head(), len(ledger.unanswered())
        assert charges == 2 + lost, "a charge was neither answered nor reported"
        assert desk.check_release(run, ledger) == [], "something was not published"
    if number % 5 == 0:
        label(run)
        with Ledger(run.release / "ledger.sqlite") as ledger:
            assert ledger.head() == head, "a rerun did something"
    assert not list(run.release.rglob("*.tmp")), "something torn was left"
    return True


def steps(folder: Path, first: int, stride: int) -> dict[str, int]:
    """Kill at every stride-th step until one run gets through."""
    at, kills, through = first, 0, 0
    while through < 2:  # with and without an earlier labelling

        def killer(run: Run, at: int = at) -> bool:
            return killed(lambda: armed(run, Fuse(at)))

        died = survive(folder / str(at), killer, at // stride)
        kills, through, at = kills + died, 0 if died else through + 1, at + stride
    return {"kills": kills, "steps": at}


def outside(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """`kill -9` from outside, at random moments of a run that takes a few hundredths of a second."""
    clock, done, tries = random.Random(seed), 0, 0

    def killer(run: Run) -> bool:
        return killed(lambda: armed(run, Fuse(-1)), clock.uniform(0.0, 0.05))

    while done < kills and tries < 20 * kills:
        done += survive(folder / str(tries), killer, tries)
        tries += 1
    return {"kills": done, "tries": tries}


def crowd(folder: Path, processes: int, rounds: int, fit: int) -> dict[str, int]:
    """Many processes charge one ledger at once, round after round; `fit` charges are within the budget."""
    path, budget = folder / "mine" / "release" / "ledger.sqlite", Budget(M.cost(fit).epsilon(DELTA), DELTA)

    def work(number: int) -> None:
        won, ledger = [], Ledger(path)
        for turn in range(rounds):
            details = {"who": number, "turn": turn}
            try:
                row = ledger.charge(M.cost(1), queries=1, details=details, budget=budget, price=M.cost)
                ledger.settle(row, f"{number}-{turn}")
                won.append(row.id)
            except BudgetExceeded:
                ledger = Ledger(path) if turn % 10 == 0 else ledger  # one that has read nothing yet, or all
            if turn % 20 == 0:  # looking at it while others write is no alarm
                assert len(ledger.charges()) >= len(won) and ledger.spent().counted
        (folder / f"won-{number}.json").write_text(json.dumps(won))
        os._exit(0)

    pids = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            work(number)
        pids.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids), "a process failed"
    won = [json.loads((folder / f"won-{number}.json").read_text()) for number in range(processes)]
    with Ledger(path) as ledger:
        charges = ledger.charges()
        assert sorted(row for rows in won for row in rows) == [charge.id for charge in charges], "a lost row"
        assert len({canonical for charge in charges if (canonical := json.dumps(charge.details))}) == len(charges)
        assert ledger.unanswered() == [] and ledger.spent().epsilon(DELTA) <= budget.epsilon
        assert (ledger.spent() + M.cost(1)).epsilon(DELTA) > budget.epsilon or len(charges) == processes * rounds
    return {"charges": len(charges), "busy": sum(bool(rows) for rows in won)}


def desks(folder: Path, processes: int) -> dict[str, int]:
    """Several desks label one run at once, each with noise of its own; the last word is about all of them."""
    run = make_run(folder, ballots=BALLOTS)
    pids = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            try:
                label(run, 5, NoisyCounts(num_labels=K, sigma=100.0 + number))
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids), "a desk failed"
    with Ledger(run.release / "ledger.sqlite") as ledger:
        assert desk.check_release(run, ledger) == [] and len(ledger.charges()) == processes
        facts = json.loads((run.release / "statement.json").read_text())
        assert facts["epsilon"]["tight"] == ledger.spent().epsilon(DELTA), "the statement says less than was spent"
    return {"stated": facts["charges"]}


if __name__ == "__main__":
    assert "torch" not in sys.modules
    lighten(setattr)
    task, where, *numbers = sys.argv[1:]
    Path(where).mkdir(parents=True, exist_ok=True)
    tasks = {"steps": steps, "outside": outside, "crowd": crowd, "desks": desks}
    print(json.dumps(tasks[task](Path(where), *map(int, numbers))))

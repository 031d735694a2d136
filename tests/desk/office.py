"""A run whose votes were never trained: everything that the labelling desk needs, in milliseconds."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pate import desk, odometer, statement
from pate.ballots import Ballots, write_views
from pate.ledger import Budget, Ledger
from pate.mechanisms import Mechanism, NoisyCounts, ProjectedBallots
from pate.runs import Run, write_json
from pate.statement import Statement
from pate.votes import VoteStore

T, N, K = 12, 20, 5
DELTA = 1e-6


def votes(seed: int = 0, teachers: int = T, queries: int = N, labels: int = K) -> np.ndarray:
    return np.random.default_rng(seed).random((teachers, queries, labels)) < 0.5


def mechanism(sigma: float = 20.0, **changes) -> NoisyCounts:
    return NoisyCounts(**({"num_labels": K, "sigma": sigma, "num_teachers": T} | changes))


def projected(run: Run, sigma: float = 5.0, queries: int | None = None) -> ProjectedBallots:
    """For the first so many of the run's queries."""
    chosen = Ballots.load(run).first(queries)
    facts = {name: value for name, value in chosen.facts.items() if name != "queries"}
    return ProjectedBallots(sigma=sigma, **facts)


def see(run: Run, seed: int = 0, queries: int = N) -> None:
    """Note how the public records differ."""
    write_views(run, np.random.default_rng(seed).standard_normal((queries, 6)))


def cast(run: Run, ballots: np.ndarray, token: str = "settings") -> None:
    """Store every teacher's votes."""
    store = VoteStore(run.private / "votes", *ballots.shape)
    for teacher, ballot in enumerate(ballots):
        store.save(teacher, ballot, token)


def make_run(root: Path, name: str = "mine", ballots: np.ndarray | None = None, unit: str = "record", **about) -> Run:
    """A run as `train_teachers.py` leaves it, as far as labelling looks."""
    run = Run(root, name).create()
    ballots = votes() if ballots is None else ballots
    cast(run, ballots)
    names = [f"label {k}" for k in range(ballots.shape[2])]
    index = {"ids": [f"q{n}" for n in range(ballots.shape[1])], "label_names": names}
    about = {"teachers": len(ballots), "unit": unit, "token": "settings", "weights": "a network"} | about
    write_json(run.private / "queries.json", index | about, mode=0o600)
    see(run, queries=ballots.shape[1])
    return run


def label(
    run: Run,
    m: Mechanism | None = None,
    epsilon: float | None = None,
    queries: int | str | None = None,
    batch: int = 3,
    seed: int | None = None,
) -> tuple[desk.Answered, Statement]:
    """The whole stage: open, set the budget, answer, publish."""
    m = m or mechanism()
    with desk.open_desk(run) as ledger:
        ballots = desk.load_votes(run, ledger)
        budget = ledger.set_budget(Budget(epsilon, DELTA), neighbours=m.neighbours, unit=ballots.unit)
        answered = desk.answer(ballots, m, ledger, budget=budget, queries=queries, batch=batch, noise_seed=seed)
        about = {"delta": budget.delta, "unit": ballots.unit, "weights": ballots.weights}
        return answered, desk.publish(run, answered, ledger, **about)


def opened(run: Run) -> Ledger:
    return Ledger(run.release / "ledger.sqlite")


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: killing processes does not need a disk, only speed."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def lighten(patch: Callable[[object, str, object], None]) -> None:
    """Leave out what takes longer than everything else: the picture, and looking up versions."""
    patch(odometer, "picture", lambda status: b"a picture")
    patch(statement, "versions", lambda: {"pate": "0"})

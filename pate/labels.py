"""The door between private and public: votes go in, a charged answer comes out and is written.

The price is committed before noise is drawn; the answer is written whole, then its hash is recorded. Nothing else that
derives from votes is written under `release/`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate.accounting import Neighbours, calibrate
from pate.errors import DataError, MissingInput, require
from pate.ledger import Budget, Charge, Ledger
from pate.mechanisms import Answer, Mechanism
from pate.noise import Noise
from pate.runs import Run, read_npz, to_npz, write_bytes, write_json
from pate.settings import build
from pate.statement import Statement, state


@dataclass(frozen=True)
class Labels:
    """Released labels: what a student may see. N queries, K labels.

    Attributes:
        ids: (N,) names of the public records.
        labels: (N, K) bool; all False where nothing was answered.
        answered: (N,) bool.
        scores: (N, K) noisy counts, or None.
        score_sd: standard deviation of the noise in scores, which is public; nan without scores.
        num_teachers: T.
    """

    ids: np.ndarray
    labels: np.ndarray
    answered: np.ndarray
    scores: np.ndarray | None
    score_sd: float
    num_teachers: int

    @property
    def digest(self) -> str:
        """Hash of everything released here."""
        return hashlib.sha256(self.encode()).hexdigest()

    @property
    def answered_fraction(self) -> float:
        return float(self.answered.mean())

    def encode(self) -> bytes:
        """The bytes of `labels.npz`."""
        scores = np.empty((0, 0)) if self.scores is None else self.scores
        numbers = {"score_sd": np.float64(self.score_sd), "num_teachers": np.int64(self.num_teachers)}
        return to_npz(ids=self.ids, labels=self.labels, answered=self.answered, scores=scores, **numbers)

    @classmethod
    def load(cls, path: Path) -> "Labels":
        """Read `labels.npz`; says which command makes it if it is not there."""
        if not path.exists():
            raise MissingInput(
                f"{path} is missing: make it with `python label_student.py run={path.parent.parent.name}`"
            )
        file = read_npz(path)
        scores = file["scores"] if file["scores"].size else None
        numbers = (float(file["score_sd"]), int(file["num_teachers"]))
        return cls(file["ids"], file["labels"], file["answered"], scores, *numbers)


@dataclass(frozen=True)
class Request:
    """One release: which mechanism answers which queries from which votes.

    Attributes:
        ids: (N,) the queries' names, in order.
        votes_digest: hash of the votes, for the ledger; equal requests on equal votes are the same request.
        noise: where the noise will come from.
        repeat: tells apart releases that are meant to be drawn again, as a study does.
    """

    mechanism: Mechanism
    ids: np.ndarray
    votes_digest: str
    noise: Noise
    repeat: int = 0

    def details(self) -> dict[str, Any]:
        """What the ledger stores."""
        ids = hashlib.sha256("\n".join(map(str, self.ids)).encode()).hexdigest()
        source = {"noise": self.noise.description, "seeded": self.noise.seeded, "repeat": self.repeat}
        return {"mechanism": plain(self.mechanism), "ids": ids, "votes": self.votes_digest} | source


class Released(NamedTuple):
    """Labels and the file that holds them."""

    labels: Labels
    path: Path


def release(request: Request, votes: np.ndarray, ledger: Ledger, budget: Budget | None = None) -> Released:
    """Answer a request once: charge, draw, write, record. Asked again, the stored answer comes back and costs nothing.

    Args:
        request: what is asked.
        votes: (T, N, K) bool ballots on the request's queries.
        ledger: where the price is committed before anything is drawn.
        budget: what may be spent in all.
    """
    require(len(request.ids) > 0, "queries", "at least one", 0)
    require(len(set(request.ids)) == len(request.ids), "queries", "different from each other", "duplicate ids")
    require(votes.shape[1] == len(request.ids), "votes", f"on {len(request.ids)} queries", votes.shape[1])
    details = request.details()
    known = ledger.find(details)
    if known is not None:
        return _stored(known, ledger)
    queries = len(request.ids)
    charge = ledger.charge(request.mechanism.cost(queries), queries=queries, details=details, budget=budget)
    answer = request.mechanism.release(request.mechanism.tally(votes), request.noise)
    return _write(charge, answer, request, len(votes), ledger)


@dataclass(frozen=True)
class Target:
    """An epsilon to spend: the mechanism's noise is calibrated to it instead of being taken from its settings."""

    epsilon: float | None = None
    split: float | None = None


def prepare_mechanism(
    config: Mapping[str, Any],
    *,
    num_labels: int,
    num_teachers: int,
    neighbours: Neighbours,
    queries: int,
    delta: float,
    target: Target,
) -> Mechanism:
    """The mechanism that a configuration names, with its noise calibrated where a target is given."""
    known = {"num_labels": num_labels, "num_teachers": num_teachers, "neighbours": neighbours}
    mechanism: Mechanism = build(config, "mechanism", **known)
    if target.epsilon is None:
        return mechanism
    fixed = mechanism.fixed() | ({} if target.split is None else {"split": target.split})
    return calibrate(
        type(mechanism), epsilon=target.epsilon, delta=delta, queries=queries, neighbours=neighbours, **fixed
    )


def answer_path(charge: Charge, ledger: Ledger) -> Path:
    """Where a charge's answer lies: beside its ledger."""
    return ledger.path.parent / "answers" / f"{charge.id}.npz"


def publish(run: Run, labels: Labels, ledger: Ledger, *, delta: float, unit: str) -> Statement:
    """Make these the run's labels and state what everything in the ledger costs together."""
    statement = state(ledger.charges(), delta=delta, unit=unit, num_teachers=labels.num_teachers)
    write_bytes(run.release / "labels.npz", labels.encode())
    write_json(run.release / "statement.json", statement.facts)
    write_bytes(run.release / "statement.txt", (statement.text + "\n").encode())
    return statement


def _write(charge: Charge, answer: Answer, request: Request, teachers: int, ledger: Ledger) -> Released:
    sd = float("nan") if answer.scores is None else request.mechanism.score_sd
    labels = Labels(request.ids, answer.labels, answer.answered, answer.scores, sd, teachers)
    data, path = labels.encode(), answer_path(charge, ledger)
    write_bytes(path, data)
    ledger.settle(charge, hashlib.sha256(data).hexdigest())
    return Released(labels, path)


def _stored(charge: Charge, ledger: Ledger) -> Released:
    path = answer_path(charge, ledger)
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != charge.answer:
        raise DataError(f"{path} is not the answer that charge {charge.id} of {ledger.path.name} recorded")
    return Released(Labels.load(path), path)


def plain(value: Any) -> Any:
    """Settings as JSON values, each class by its name.

    >>> from pate.mechanisms import GumbelChoice
    >>> plain(GumbelChoice(scale=2.0))
    {'kind': 'GumbelChoice', 'scale': 2.0}
    """
    if is_dataclass(value):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__} | inner
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value

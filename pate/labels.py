"""The door between private and public: votes go in, a charged answer comes out.

Everything that can be refused is refused first; then the price is committed; then noise is drawn; then the answer is
written whole, and its hash recorded. An answer is written for a charge, from what a mechanism released: there is no
way in for an array.
"""

import hashlib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pate.accounting import Neighbours, PrivacyCost, calibrate
from pate.accounting.conversion import Conversion
from pate.errors import DataError, MissingInput, require
from pate.ledger import Budget, Charge, Ledger, StorageFailed
from pate.mechanisms import Answer, Directions, FixedTopK, Mechanism, StableTopK, Tally, TopStable
from pate.noise import Noise, as_noise
from pate.runs import read_npz, to_npz, write_bytes
from pate.settings import build


@dataclass(frozen=True)
class Labels:
    """Released labels: what a student may see. N queries, K labels.

    Attributes:
        ids: (N,) names of the public records.
        labels: (N, K) bool; all False where nothing was answered.
        answered: (N,) bool; False where the mechanism said bottom, and where the budget ended before the query.
        scores: (N, K) noisy counts, or None; nan where nothing was asked.
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
        return sha256(self.encode())

    @property
    def answered_fraction(self) -> float:
        return float(self.answered.mean())

    def report(self) -> dict[str, Any]:
        """What the released answers look like: how many, how many labels each (k), how often each k."""
        sizes = self.labels[self.answered].sum(axis=1).tolist()
        return {
            "queries": len(self.ids),
            "answered": int(self.answered.sum()),
            "answered_fraction": self.answered_fraction,
            "mean_k": float(np.mean(sizes)) if sizes else None,
            "histogram_k": {str(k): count for k, count in sorted(Counter(sizes).items())},
        }

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
        try:
            file = read_npz(path)
            scores = file["scores"] if file["scores"].size else None
            numbers = (float(file["score_sd"]), int(file["num_teachers"]))
            return cls(file["ids"], file["labels"], file["answered"], scores, *numbers)
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{path} is torn or no file of labels: {error}") from None


def merge(parts: Sequence[Labels], ids: np.ndarray) -> Labels:
    """Labels for all these queries from answers to some of them; the others are not answered."""
    first, place = parts[0], {name: index for index, name in enumerate(ids.tolist())}
    if len(parts) == 1 and np.array_equal(first.ids, ids):
        return first
    where = np.array([place[name] for part in parts for name in part.ids.tolist()])
    labels, answered = np.zeros((len(ids), first.labels.shape[1]), dtype=bool), np.zeros(len(ids), dtype=bool)
    labels[where] = np.concatenate([part.labels for part in parts])
    answered[where] = np.concatenate([part.answered for part in parts])
    scores = None if first.scores is None else np.full(labels.shape, np.nan)
    if scores is not None:
        scores[where] = np.concatenate([part.scores for part in parts])
    return Labels(ids, labels, answered, scores, first.score_sd, first.num_teachers)


@dataclass(frozen=True)
class Request:
    """One release: which mechanism answers which queries from which votes.

    Attributes:
        ids: (N,) the queries' names, in order.
        votes_digest: hash of the votes. Private: the ledger holds it under the run's private salt.
        noise: where the noise will come from.
        repeat: tells apart releases that are meant to be drawn again, as a study does.
        unit: whose data one teacher's ballot depends on, `record` or `person`, where it is known.
    """

    mechanism: Mechanism
    ids: np.ndarray
    votes_digest: str
    noise: Noise
    repeat: int = 0
    unit: str | None = None

    def details(self, votes: str, teachers: int) -> dict[str, Any]:
        """What the ledger stores; equal details are the same request.

        Args:
            votes: the name under which the ledger knows these votes (`Witness.blind`).
        """
        ids = sha256("\n".join(map(str, self.ids)).encode())
        source = {"noise": self.noise.description, "seeded": self.noise.seeded, "repeat": self.repeat}
        return {"mechanism": plain(self.mechanism), "ids": ids, "votes": votes, "teachers": teachers} | source


class Released(NamedTuple):
    """A charged answer: the labels, the file that holds them, and the charge that paid for them."""

    labels: Labels
    path: Path
    charge: Charge


def release(request: Request, votes: np.ndarray, ledger: Ledger, budget: Budget | None = None) -> Released:
    """Answer a request once: charge, draw, write, record. Asked again, the stored answer comes back and costs nothing.

    Args:
        request: what is asked.
        votes: (T, N, K) bool ballots on the request's queries.
        ledger: where the price is committed before anything is drawn.
        budget: what may be spent in all; a budget that the ledger already has holds without it.
    """
    counts, mechanism, queries = _checked(request, votes), request.mechanism, len(request.ids)
    details = request.details(ledger.witness.blind(request.votes_digest), len(votes))
    known = ledger.find(details)
    if known is not None:
        return stored(known, ledger)
    charge = ledger.charge(
        mechanism.cost(queries),
        queries=queries,
        details=details,
        budget=budget,
        price=mechanism.cost,
        unit=request.unit,
    )
    return _write(charge, mechanism.release(counts, request.noise), request, len(votes), ledger)


def stored(charge: Charge, ledger: Ledger) -> Released:
    """The answer to a charge, read back from its file, if that is the file the ledger recorded."""
    path = answer_path(charge, ledger)
    if charge.answer is None or not path.exists() or sha256(path.read_bytes()) != charge.answer:
        raise DataError(f"{path} is not the answer that charge {charge.id} of {ledger.path.name} recorded: restore it")
    return Released(Labels.load(path), path, charge)


def answer_path(charge: Charge, ledger: Ledger) -> Path:
    """Where a charge's answer lies: beside its ledger."""
    return ledger.path.parent / "answers" / f"{charge.id}.npz"


def _checked(request: Request, votes: np.ndarray) -> Tally:
    """The counts of votes that fit the request; whatever does not fit is refused before anything is charged."""
    queries, votes, mechanism = len(request.ids), np.asarray(votes), request.mechanism
    require(queries > 0, "queries", "at least one", 0)
    require(len(set(request.ids.tolist())) == queries, "queries", "different from each other", "duplicate ids")
    require(votes.dtype == np.bool_, "votes", "yes or no (bool)", _values(votes))
    require(votes.ndim == 3, "votes", "of shape (teachers, queries, labels)", votes.shape)
    require(len(votes) > 0, "votes", "of one teacher at least", 0)
    require(votes.shape[1] == queries, "votes", f"on {queries} queries", votes.shape[1])
    require(votes.shape[2] == mechanism.num_labels, "votes", f"on {mechanism.num_labels} labels", votes.shape[2])
    teachers = getattr(mechanism, "num_teachers", None)
    require(teachers in (None, len(votes)), "votes", f"of {teachers} teachers", len(votes))
    as_noise(request.noise, mechanism.exact)
    return mechanism.tally(votes)


def _values(votes: np.ndarray) -> str:
    bad = votes.dtype.kind == "f" and not np.isfinite(votes).all()
    return f"{votes.dtype} with NaN or infinity" if bad else str(votes.dtype)


def _write(charge: Charge, answer: Answer, request: Request, teachers: int, ledger: Ledger) -> Released:
    """Write a charge's answer, sync and rename it, then record it."""
    sd = float("nan") if answer.scores is None else request.mechanism.score_sd
    labels = Labels(request.ids, answer.labels, answer.answered, answer.scores, sd, teachers)
    data, path = labels.encode(), answer_path(charge, ledger)
    try:
        write_bytes(path, data)
    except OSError as error:
        lost = f"the answer to charge {charge.id} could not be written and is lost; its price stays spent"
        raise StorageFailed(f"{lost}: {error}") from error
    ledger.settle(charge, sha256(data), int(labels.answered.sum()))
    return Released(labels, path, charge)


@dataclass(frozen=True)
class Target:
    """An epsilon to spend: the mechanism's noise is calibrated to it instead of being taken from its settings.

    Attributes:
        split: share of the budget for choosing k, where a mechanism has two noises.
        conversion: `tight` Rényi conversion for all; `exact` where all noise is Gaussian: 7 % less of it.
    """

    epsilon: float | None = None
    split: float | None = None
    conversion: Literal["tight", "exact"] = "tight"

    def __post_init__(self) -> None:
        fine = self.epsilon is None or 0 < self.epsilon < np.inf
        require(fine, "target.epsilon", "> 0 and finite", self.epsilon)
        require(self.split is None or 0 < self.split < 1, "target.split", "in (0, 1)", self.split)
        rule = "one of tight, exact"
        require(self.conversion in ("tight", "exact"), "target.conversion", rule, self.conversion)

    def conversion_of(self, cost: PrivacyCost) -> Conversion:
        """What this cost's epsilon is computed by."""
        return "exact" if self.conversion == "exact" and cost.is_gaussian else "tight"


def prepare_mechanism(
    config: Mapping[str, Any],
    *,
    num_labels: int,
    num_teachers: int,
    neighbours: Neighbours,
    queries: int,
    delta: float,
    target: Target,
    directions: Directions | None = None,
) -> Mechanism:
    """The mechanism that a configuration names, with its noise calibrated where a target is given.

    Args:
        directions: of the queries, for a mechanism that projects on them.
    """
    known: dict[str, Any] = {"num_labels": num_labels, "num_teachers": num_teachers, "neighbours": neighbours}
    known |= {"directions": directions} if directions is not None else {}
    mechanism: Mechanism = build(config, "mechanism", **known)
    if target.epsilon is None:
        return mechanism
    two = isinstance(mechanism, (StableTopK, FixedTopK, TopStable))
    require(target.split is None or two, "target.split", "null for a mechanism with one noise", target.split)
    fixed = mechanism.fixed() | ({} if target.split is None else {"split": target.split})
    return calibrate(
        type(mechanism),
        epsilon=target.epsilon,
        delta=delta,
        queries=queries,
        neighbours=neighbours,
        conversion=target.conversion_of(mechanism.cost(queries)),
        **fixed,
    )


def plain(value: Any) -> Any:
    """Settings as JSON values, each class by its name.

    >>> from pate.mechanisms import GumbelChoice
    >>> plain(GumbelChoice(scale=2.0))
    {'kind': 'GumbelChoice', 'scale': 2.0}
    """
    if isinstance(value, Directions):
        return {"kind": "Directions", "source": value.source}
    if is_dataclass(value):
        inner = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__} | inner
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def sha256(data: bytes) -> str:
    """The hash that the ledger records of a file."""
    return hashlib.sha256(data).hexdigest()

"""One run's student: from released labels to a model that may be given away, judged on the test records.

True labels judge, and make the levels to compare with; the student's own training never reads one.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from pate.backbone import Mirrored, mount
from pate.ballots import Ballots, positions
from pate.data.records import Records, Split
from pate.desk import check_release, write_files
from pate.errors import MissingInput
from pate.labels import Labels, sha256
from pate.ledger import Ledger
from pate.metrics import Metrics, all_zeros, compared, evaluate, gain, percent, prior_only
from pate.models import Network
from pate.runs import Run, board, write_json
from pate.student import Student, Targets, predict, targets, train_student
from pate.student.card import card
from pate.student.files import CARD, STUDENT, encode_student, read_meta
from pate.student.training import Log
from pate.teachers import Teachers, View, find_devices, on_features
from pate.teachers.arrays import fingerprint

OWN, PRIOR, ZEROS, TRUE, NOISELESS = "student", "prior-only", "all zeros", "non-private", "student on noiseless votes"
Figures = dict[str, float | None]


@dataclass(frozen=True)
class Lesson:
    """What decides a student, beside the labels and the records.

    Attributes:
        network: what is trained; in `heads` mode its frozen backbone is kept and a linear layer learnt on its features.
        teachers: as the teachers had them: their mode is the student's too.
        references: also train students on the true labels, and on the votes without noise where they are.
    """

    network: Network
    teachers: Teachers
    student: Student
    devices: str
    seed: int
    references: bool = True

    @property
    def heads(self) -> bool:
        return self.teachers.mode == "heads"

    def recipe(self, labels: Labels, split: Split) -> dict[str, Any]:
        """Everything that decides a student; stored with it, so that a rerun knows whether it is this one."""
        shape = list(split.public.inputs.shape[1:])
        augment = self.teachers.augment if self.heads else self.student.augment
        return {
            "network": asdict(self.network),
            "student": asdict(self.student),
            "seed": self.seed,
            "label_names": list(split.label_names),
            "input_shape": shape,
            "labels": labels.digest,
            "public": fingerprint(split.public.inputs, split.public.ids),
            "mode": self.teachers.mode,
            "precision": self.teachers.precision if self.heads else "float32",
            "mirror": augment and len(shape) == 3,
        }


@dataclass(frozen=True)
class Outcome:
    """What a student is worth.

    Attributes:
        rows: name -> four figures, the student's first; nothing here is private.
        private: the student on noiseless votes, or None. It depends on votes without noise: no epsilon covers it.
    """

    rows: dict[str, Figures]
    private: Figures | None

    def __str__(self) -> str:
        if self.private is None:
            return compared(self.rows)
        *public, last = compared({**self.rows, NOISELESS: self.private}).splitlines()
        marked = (
            f"{last}  private: not covered by epsilon\n{self._gain():<{len(last)}}  private: not covered by epsilon"
        )
        return "\n".join([*public, marked])

    def _gain(self) -> str:
        rows = (self.rows[OWN], self.rows[PRIOR], self.private or {})
        share = gain(*(row["mean_accuracy"] or 0.0 for row in rows))
        return f"gain, the share of the way from {PRIOR} to noiseless votes: {percent(share)}"


def make_student(run: Run, labels: Labels, split: Split, lesson: Lesson) -> Outcome:
    """Train, judge and store a run's student with its card, unless it is there already.

    Raises:
        NothingReleased: no query was answered.
        DataError: a file of the release is not what the ledger recorded; it is named.
    """
    if _has_ledger(run):
        with Ledger(run.release / "ledger.sqlite") as ledger:
            check_release(run, ledger)
    room = Room(run, labels, split, lesson)
    files = _kept(room) or _made(room)
    judged = json.loads(files["metrics.json"])
    statement = run.release / "statement.txt"
    text = statement.read_text() if statement.exists() else None
    description = card(room.recipe, judged, text, sha256(files[STUDENT]))
    _publish(run, {CARD: description.encode(), **files})
    return Outcome(judged["rows"], _on_noiseless_votes(room) if lesson.references else None)


def student_path(run: Run) -> Path:
    """Where a run's student is."""
    return run.release / STUDENT


@dataclass(frozen=True)
class Room:
    """Where students of one release are taught and judged: pictures, or a frozen backbone's features of them."""

    run: Run
    labels: Labels
    split: Split
    lesson: Lesson

    @cached_property
    def recipe(self) -> dict[str, Any]:
        return self.lesson.recipe(self.labels, self.split)

    @cached_property
    def key(self) -> str:
        """Names everything that the figures depend on: the recipe, and the records that judge."""
        public, test = self.split.public, self.split.test
        records = fingerprint(public.inputs, public.labels, test.inputs, test.labels)
        return sha256(json.dumps([self.recipe, records], sort_keys=True).encode())

    @cached_property
    def device(self) -> str:
        return find_devices(self.lesson.devices)[0]

    @cached_property
    def view(self) -> View | None:
        if not self.lesson.heads:
            return None
        folder, devices = self.run.private / "features", self.lesson.devices
        return on_features(self.split, self.lesson.network, self.lesson.teachers, folder, devices=devices)

    @cached_property
    def public(self) -> Records:
        """The queries, in the release's order."""
        split = self.view.split if self.view else self.split
        return split.public.take(positions(self.labels.ids, split.public.ids))

    def teach(self, goal: Targets, log: Log | None = None) -> nn.Module:
        """A student of these targets, as it predicts: by mirror images too where the recipe says so."""
        network, student = self.view.network if self.view else self.lesson.network, self.lesson.student
        seed, device = self.lesson.seed, self.device
        model = train_student(
            self.public.inputs, goal, network, student, seed=seed, device=device, log=log, progress=True
        )
        return Mirrored(model) if self.recipe["mirror"] else model

    def judge(self, model: nn.Module) -> Metrics:
        """Its figures on the test records."""
        split, network = (self.view.split, self.view.network) if self.view else (self.split, self.lesson.network)
        return evaluate(predict(model, split.test.inputs, network, self.device), split.test.labels, split.label_names)

    def whole(self, model: nn.Module) -> nn.Module:
        """A student that takes records as they are: a linear layer is joined with its backbone."""
        if self.view is None:
            return model
        inner = model.network if isinstance(model, Mirrored) else model
        joined = mount(self.lesson.network, inner, tuple(self.recipe["input_shape"]), self.view.mean, self.view.spread)
        return Mirrored(joined) if self.recipe["mirror"] else joined

    def goal(self, counts: np.ndarray | None = None) -> Targets:
        """What was released; or, given counts of votes, what would have been without noise."""
        own, student = self.labels, self.lesson.student
        if counts is None:
            return targets(own.labels, own.answered, own.scores, own.num_teachers, student, own.score_sd)
        everything = np.ones(len(counts), dtype=bool)
        return targets(2 * counts > own.num_teachers, everything, counts, own.num_teachers, student, 0.0)


def _kept(room: Room) -> dict[str, bytes] | None:
    """The files of the student that is there, if it and its figures are the ones asked for."""
    paths = {name: room.run.release / name for name in ("metrics.json", "metrics.csv", STUDENT)}
    if not all(path.exists() for path in paths.values()) or read_meta(paths[STUDENT]) != room.recipe:
        return None
    judged = json.loads(paths["metrics.json"].read_text())
    if judged.get("key") != room.key or (room.lesson.references and TRUE not in judged["rows"]):
        return None
    return {name: path.read_bytes() for name, path in paths.items()}


def _made(room: Room) -> dict[str, bytes]:
    """Train and judge; the student last, so that its file says that the others are there."""
    with board(room.run.release / "tensorboard" / "student") as log:
        model = room.teach(room.goal(), log)
    judged, truth = room.judge(model), (room.public.labels, room.split.test.labels)
    rows = {OWN: judged, PRIOR: prior_only(*truth, decision=room.lesson.student.decision), ZEROS: all_zeros(truth[1])}
    if room.lesson.references:
        taught = np.ones(len(truth[0]), np.float32)
        rows[TRUE] = room.judge(room.teach(Targets(truth[0].astype(np.float32), taught)))
    found = json.dumps(_facts(room, judged, rows), indent=2) + "\n"
    student = encode_student(room.whole(model), room.recipe)
    return {"metrics.json": found.encode(), "metrics.csv": judged.csv().encode(), STUDENT: student}


def _facts(room: Room, judged: Metrics, rows: Mapping[str, Metrics]) -> dict[str, Any]:
    """What `metrics.json` holds; figures that are not defined are null."""
    seen, names = room.labels.labels[room.labels.answered], room.split.label_names
    return {
        "key": room.key,
        "rows": {name: _defined(row.scalars()) for name, row in rows.items()},
        "queries": len(room.labels.ids),
        "answered": len(seen),
        "test": len(room.split.test),
        "always": [name for name, every in zip(names, seen.all(0), strict=True) if every],
        "never": [name for name, some in zip(names, seen.any(0), strict=True) if not some],
        "attributes": [_defined(row) for row in judged.table()],
    }


def _defined(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def _on_noiseless_votes(room: Room) -> Figures | None:
    """The same recipe on votes without noise, where the votes are; kept in the private room, which it never leaves."""
    path = room.run.private / "reference.json"
    try:
        ballots = Ballots.load(room.run)
    except MissingInput:
        return None
    key = sha256(f"{room.key} {ballots.digest}".encode())
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("key") != key:
        counts = ballots.votes.sum(0, dtype=np.float32)[positions(room.labels.ids, ballots.ids)]
        figures = _defined(room.judge(room.teach(room.goal(counts))).scalars())
        found = {"key": key, "covered by epsilon": False, NOISELESS: figures}
        write_json(path, found, mode=0o600)
    private: Figures = found[NOISELESS]
    return private


def _has_ledger(run: Run) -> bool:
    """Is this the place whose ledger it is? A release that was handed on is read, and its ledger left alone."""
    return (run.release / "ledger.sqlite").exists() and (run.private / "ledger").is_dir()


def _publish(run: Run, files: Mapping[str, bytes]) -> None:
    """Write what is new, recorded in the ledger if this is its place: a byte that changes later is noticed."""
    if not _has_ledger(run):
        return write_files(run, files, None)
    with Ledger(run.release / "ledger.sqlite") as ledger, ledger.witness.lock("publish"):
        return write_files(run, files, ledger)

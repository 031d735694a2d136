"""Many students at once: in parallel, and each result kept under what it depends on, so that none is taught twice."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pate import metrics
from pate.backbone import Mirrored
from pate.ballots import positions
from pate.data.records import Records, Split
from pate.labels import Labels
from pate.models import Network
from pate.runs import private_folder, write_json
from pate.student import NothingReleased, Student, predict, targets, train_student
from pate.teachers.pool import Mapped, Pool
from pate.whatif import View

Found = dict[str, Any]  # what is known of a student; `nothing` says why there is none


@dataclass(frozen=True)
class Pupil:
    """A student to be.

    Attributes:
        answer: the file of labels that it learns.
        view: which labels these are.
        results: the folder that keeps its result.
        private: whether that is for the owner only.
    """

    answer: Path
    seed: int
    view: View | None
    results: Path
    private: bool = False


@dataclass(frozen=True)
class Classroom:
    """What all students share: inputs as files that workers map, everything small as values."""

    shared: dict[str, Any]
    digest: bytes

    @classmethod
    def furnish(cls, folder: Path, split: Split, network: Network, student: Student) -> "Classroom":
        """Lay out the public and the test records in a private folder."""
        shared: dict[str, Any] = {"network": network, "student": student, "ids": split.public.ids}
        settings = {"network": asdict(network), "student": asdict(student)}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        parts: dict[str, Records] = {"public": split.public, "test": split.test}
        for name, records in parts.items():
            path = private_folder(folder) / f"{name}.npy"
            np.save(path, records.inputs, allow_pickle=False)
            shared |= {name: Mapped(path.absolute()), f"{name}_truth": records.labels}
            digest.update(hashlib.sha256(path.read_bytes()).digest() + np.packbits(records.labels).tobytes())
        return cls(shared, digest.digest())

    def teach(self, groups: Sequence[Sequence[Pupil]], devices: str) -> list[list[Found]]:
        """One student per pupil, in parallel; a rerun trains only those whose results are missing."""
        places = [[pupil.results / f"{self.key(pupil)}.json" for pupil in group] for group in groups]
        pairs = zip(chain(*places), chain(*groups), strict=True)
        missing = list({path: pupil for path, pupil in pairs if not path.exists()}.items())
        if missing:
            done = Pool(devices).run("pate.classroom:teach_one", self.shared, [{"pupil": each} for _, each in missing])
            for result in tqdm(done, total=len(missing), desc="students", unit="student", delay=2):
                path, pupil = missing[result.index]
                write_json(path, result.value(), mode=0o600 if pupil.private else 0o644)
        return [[json.loads(path.read_text()) for path in group] for group in places]

    def key(self, pupil: Pupil) -> str:
        """What a student's result depends on, as a file name."""
        digest = hashlib.sha256(self.digest + pupil.answer.read_bytes())
        digest.update(f"{pupil.seed} {pupil.view}".encode())
        return digest.hexdigest()[:24]


def teach_one(shared: Mapping[str, Any], job: Mapping[str, Any], device: str) -> Found:
    """The pool's job: train and judge one student."""
    pupil: Pupil = job["pupil"]
    student, network, labels = shared["student"], shared["network"], Labels.load(pupil.answer)
    rows = positions(labels.ids, shared["ids"])
    truth, test_truth = shared["public_truth"][rows], shared["test_truth"]
    if pupil.view is not None:
        truth, test_truth = pupil.view.of(truth), pupil.view.of(test_truth)
    found = _judge_labels(labels, truth)
    try:
        goal = targets(labels.labels, labels.answered, labels.scores, labels.num_teachers, student, labels.score_sd)
        model = train_student(
            np.asarray(shared["public"][rows]), goal, network, student, seed=pupil.seed, device=device
        )
    except NothingReleased as error:
        return found | {"nothing": str(error)}
    if student.augment:
        model = Mirrored(model)
    guesses = predict(model, shared["test"], network, device)
    return found | _finite(metrics.evaluate(guesses, test_truth).scalars())


def _judge_labels(labels: Labels, truth: np.ndarray) -> Found:
    """The released labels themselves: accuracy over what was answered, F1 over everything that was asked."""
    answered = labels.answered
    return {
        "answered": labels.answered_fraction,
        "label_accuracy": metrics.label_accuracy(labels.labels, answered, truth) if answered.any() else None,
        "label_f1": metrics.evaluate(labels.labels & answered[:, None], truth).micro_f1,
    }


def _finite(scalars: Mapping[str, float]) -> Found:
    """Scalars as JSON has them: a figure that is not defined is null."""
    return {name: value if np.isfinite(value) else None for name, value in scalars.items()}

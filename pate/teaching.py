"""One run's student: from released labels to a model that may be given away, judged on the test records."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from pate.backbone import mount
from pate.ballots import positions
from pate.data.records import Split
from pate.labels import Labels
from pate.metrics import Metrics, evaluate
from pate.models import Network
from pate.runs import Run, board, write_bytes, write_json
from pate.student import Student, load_student, predict, save_student, targets, train_student
from pate.teachers import Teachers, find_devices, on_features


@dataclass(frozen=True)
class Lesson:
    """What decides a student, beside the labels and the records.

    Attributes:
        network: what is trained; in `heads` mode its frozen backbone is kept and a linear layer learnt on its features.
        teachers: as the teachers had them: their mode is the student's too.
    """

    network: Network
    teachers: Teachers
    student: Student
    devices: str
    seed: int

    def recipe(self, labels: Labels, split: Split) -> dict[str, Any]:
        """Everything that decides a student; stored with it, so that a rerun knows whether it is this one."""
        own = {"network": asdict(self.network), "student": asdict(self.student), "seed": self.seed}
        about = {"label_names": list(split.label_names), "input_shape": list(split.public.inputs.shape[1:])}
        return own | about | {"labels": labels.digest, "mode": self.teachers.mode}


def make_student(run: Run, labels: Labels, split: Split, lesson: Lesson) -> dict[str, float]:
    """Train, judge and store a run's student, unless it is there already; its metrics."""
    path, wanted = student_path(run), lesson.recipe(labels, split)
    if not (path.exists() and load_student(path)[1] == wanted):
        model, judged = _train(run, labels, split, lesson)
        write_json(run.release / "metrics.json", judged.scalars())
        write_bytes(run.release / "metrics.csv", judged.csv().encode())
        save_student(path, model, wanted)
    metrics: dict[str, float] = json.loads((run.release / "metrics.json").read_text())
    return metrics


def student_path(run: Run) -> Path:
    """Where a run's student is."""
    return run.release / "student.safetensors"


def _train(run: Run, labels: Labels, split: Split, lesson: Lesson) -> tuple[nn.Module, Metrics]:
    """A student of pictures, or of a frozen backbone's features, which is then joined with the backbone."""
    network, view, device = lesson.network, None, find_devices(lesson.devices)[0]
    shape = split.public.inputs.shape[1:]
    if lesson.teachers.mode == "heads":
        view = on_features(split, network, lesson.teachers, run.private / "features", devices=lesson.devices)
        split, network = view.split, view.network
    public = split.public.take(positions(labels.ids, split.public.ids))
    goal = targets(labels.labels, labels.answered, labels.scores, labels.num_teachers, lesson.student, labels.score_sd)
    with board(run.release / "tensorboard" / "student") as log:
        model = train_student(
            public.inputs, goal, network, lesson.student, seed=lesson.seed, device=device, log=log, progress=True
        )
    judged = evaluate(predict(model, split.test.inputs, network, device), split.test.labels, split.label_names)
    return (mount(lesson.network, model, shape, view.mean, view.spread) if view else model), judged

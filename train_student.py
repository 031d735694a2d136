"""Stage 3: train the student on the released labels and judge it on the test records.

python train_student.py run=mine
"""

from dataclasses import dataclass

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.commands import command, run_script
from pate.data.records import Source
from pate.labels import Labels
from pate.models import Network
from pate.runs import Run
from pate.settings import pick
from pate.student import Student
from pate.teachers import Teachers
from pate.teaching import Lesson, make_student, student_path


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/train_student.yaml."""

    run: str
    runs: str
    data: Source
    model: Network
    teachers: Teachers
    student: Student
    devices: str
    seed: int


@hydra.main(version_base="1.3", config_path="conf", config_name="train_student")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings = pick(Settings, plain)
    run = Run(settings.runs, settings.run)
    labels = Labels.load(run.release / "labels.npz")
    lesson = Lesson(settings.model, settings.teachers, settings.student, settings.devices, settings.seed)
    run.record("train_student", plain)
    metrics = make_student(run, labels, settings.data.load(), lesson)
    print(", ".join(f"{name.replace('_', ' ')} {100 * value:.1f} %" for name, value in metrics.items()))
    print(f"student in {student_path(run)}; per-attribute table in {run.release / 'metrics.csv'}")


if __name__ == "__main__":
    run_script(main)

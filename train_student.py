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
    references: bool


@hydra.main(version_base="1.3", config_path="conf", config_name="train_student")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings = pick(Settings, plain)
    run = Run(settings.runs, settings.run)
    labels = Labels.load(run.release / "labels.npz")
    given = (settings.model, settings.teachers, settings.student, settings.devices, settings.seed)
    run.record("train_student", plain)
    print(make_student(run, labels, settings.data.load(), Lesson(*given, references=settings.references)))
    student = student_path(run)
    print(
        f"student in {student}, its card in {student.with_suffix('.md')}, each attribute in {run.release}/metrics.csv"
    )
    print(f"use it: python -m pate.student predict --student {student} IMAGE...")


if __name__ == "__main__":
    run_script(main)

"""Stage 3: train the student on the released labels and judge it on the test records.

python train_student.py run=mine
"""

from dataclasses import dataclass

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.commands import run_script
from pate.data.records import Source
from pate.labels import Labels
from pate.models import Network
from pate.runs import Run
from pate.settings import pick
from pate.student import Student, make_student


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/train_student.yaml."""

    run: str
    runs: str
    data: Source
    model: Network
    student: Student
    devices: str
    seed: int


@hydra.main(version_base="1.3", config_path="conf", config_name="train_student")
def main(config: DictConfig) -> None:
    settings = pick(Settings, OmegaConf.to_container(config, resolve=True))
    run = Run(settings.runs, settings.run)
    labels = Labels.load(run.release / "labels.npz")
    metrics = make_student(
        run,
        labels,
        settings.data.load(),
        settings.model,
        settings.student,
        devices=settings.devices,
        seed=settings.seed,
    )
    print(metrics)
    print(f"student in {run.release / 'student.safetensors'}; per-attribute table in {run.release / 'metrics.csv'}")


if __name__ == "__main__":
    run_script(main)

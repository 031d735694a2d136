"""Stage 1: train the teachers on disjoint parts of the private data and store their votes on the public records.

python train_teachers.py run=mine
"""

from dataclasses import dataclass

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.commands import command, run_script
from pate.data.records import Source
from pate.models import Network
from pate.runs import Run
from pate.settings import pick
from pate.teachers import Teachers, train_teachers


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/train_teachers.yaml."""

    run: str
    runs: str
    data: Source
    model: Network
    teachers: Teachers
    devices: str
    seed: int


@hydra.main(version_base="1.3", config_path="conf", config_name="train_teachers")
@command
def main(config: DictConfig) -> None:
    settings = pick(Settings, OmegaConf.to_container(config, resolve=True))
    run = Run(settings.runs, settings.run).create()
    summary = train_teachers(
        run, settings.data, settings.model, settings.teachers, devices=settings.devices, seed=settings.seed
    )
    print(summary)
    print(f"next: python label_student.py run={run.name} mechanism=noisy_counts target.epsilon=8")


if __name__ == "__main__":
    run_script(main)

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
from pate.teachers import Ray, Teachers, estimate_teachers, train_teachers


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
    ray: Ray


@hydra.main(version_base="1.3", config_path="conf", config_name="train_teachers")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings = pick(Settings, plain)
    run = Run(settings.runs, settings.run)
    work = estimate_teachers if settings.teachers.estimate else train_teachers
    done = work(
        run,
        settings.data,
        settings.model,
        settings.teachers,
        devices=settings.devices,
        seed=settings.seed,
        ray=settings.ray,
    )
    print(done)
    if not settings.teachers.estimate:
        run.record("train_teachers", plain)
        print(f"next: python label_student.py run={run.name} mechanism=noisy_counts target.epsilon=8")


if __name__ == "__main__":
    run_script(main)

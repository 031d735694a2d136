"""The whole study: teachers, votes, labels by every mechanism at several epsilons, students, report.

python compare.py
"""

from dataclasses import dataclass
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.accounting import Neighbours
from pate.ballots import Ballots
from pate.commands import command, run_script
from pate.data.records import Source
from pate.ledger import Budget
from pate.models import Network
from pate.report import console_table
from pate.runs import Run
from pate.settings import pick
from pate.student import Student
from pate.study import Study, compare, only, report
from pate.teachers import Teachers, on_features, train_teachers


@dataclass(frozen=True)
class Settings:
    """What the study reads from conf/compare.yaml."""

    run: str
    runs: str
    data: Source
    model: Network
    teachers: Teachers
    mechanisms: dict[str, Any]
    only: tuple[str, ...] | None
    student: Student
    queries: int | None
    neighbours: Neighbours | tuple[Neighbours, ...]
    epsilons: tuple[float, ...]
    seeds: int
    budget: Budget
    noise_seed: int | None
    devices: str
    seed: int


@hydra.main(version_base="1.3", config_path="conf", config_name="compare")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings = pick(Settings, plain)
    relations = settings.neighbours if isinstance(settings.neighbours, tuple) else (settings.neighbours,)
    study = Study(
        mechanisms=only(settings.mechanisms, settings.only),
        epsilons=settings.epsilons,
        neighbours=relations,
        delta=settings.budget.delta,
        seeds=settings.seeds,
        noise_seed=settings.noise_seed,
    )
    run = Run(settings.runs, settings.run).create()
    run.record("compare", plain)
    split = settings.data.load()
    print(train_teachers(run, split, settings.model, settings.teachers, devices=settings.devices, seed=settings.seed))
    ballots, network = Ballots.load(run).first(settings.queries), settings.model
    if settings.teachers.mode == "heads":  # students learn on the same frozen backbone
        view = on_features(split, network, settings.teachers, run.private / "features", devices=settings.devices)
        split, network = view.split, view.network
    rows = compare(run, study, ballots, split, network, settings.student, devices=settings.devices, seed=settings.seed)
    page = report(run, study, ballots, rows, settings.data.describe(), plain)
    print(console_table(rows))
    print(
        "Each epsilon: one labelling, tight Rényi conversion; the report names the theorems and what all cost together."
    )
    print(f"report: {page}")


if __name__ == "__main__":
    run_script(main)

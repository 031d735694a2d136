"""Stage 2: answer the queries with differential privacy. The price is charged before any noise is drawn.

python label_student.py run=mine mechanism=stable_topk_gaussian
"""

from dataclasses import dataclass
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from pate import noise
from pate.accounting import Neighbours
from pate.ballots import Ballots
from pate.commands import command, run_script
from pate.labels import Request, Target, prepare_mechanism, publish, release
from pate.ledger import Budget, Ledger
from pate.runs import Run
from pate.settings import pick


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/label_student.yaml."""

    run: str
    runs: str
    mechanism: dict[str, Any]
    queries: int | None
    neighbours: Neighbours
    noise_seed: int | None
    target: Target
    budget: Budget


@hydra.main(version_base="1.3", config_path="conf", config_name="label_student")
@command
def main(config: DictConfig) -> None:
    settings = pick(Settings, OmegaConf.to_container(config, resolve=True))
    run = Run(settings.runs, settings.run)
    ballots = Ballots.load(run).first(settings.queries)
    mechanism = prepare_mechanism(
        settings.mechanism,
        num_labels=len(ballots.label_names),
        num_teachers=len(ballots.votes),
        neighbours=settings.neighbours,
        queries=len(ballots.ids),
        delta=settings.budget.delta,
        target=settings.target,
    )
    source = noise.system() if settings.noise_seed is None else noise.seeded(settings.noise_seed)
    ledger = Ledger(run.release / "ledger.sqlite")
    request = Request(mechanism, ballots.ids, ballots.digest, source)
    labels, _ = release(request, ballots.votes, ledger, settings.budget)
    statement = publish(run, labels, ledger, delta=settings.budget.delta, unit=ballots.unit)
    print(mechanism)
    print(f"answered {labels.answered.sum()} of {len(labels.ids)} queries; labels in {run.release / 'labels.npz'}")
    print(statement.text)
    print(f"next: python train_student.py run={run.name}")


if __name__ == "__main__":
    run_script(main)

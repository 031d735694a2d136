"""Stage 2: answer the queries with differential privacy. The price is charged before any noise is drawn.

python label_student.py run=mine mechanism=stable_topk_gaussian
python label_student.py run=mine status=true
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hydra
from omegaconf import DictConfig, OmegaConf

from pate import desk
from pate.accounting import Neighbours
from pate.commands import command, run_script
from pate.labels import Target, prepare_mechanism
from pate.ledger import Budget
from pate.runs import Run
from pate.settings import pick

MECHANISMS = Path(__file__).parent / "conf" / "mechanism"


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/label_student.yaml."""

    run: str
    runs: str
    mechanism: dict[str, Any]
    queries: int | Literal["until_budget"] | None
    batch: int
    neighbours: Neighbours
    noise_seed: int | None
    target: Target
    budget: Budget
    status: bool


@hydra.main(version_base="1.3", config_path="conf", config_name="label_student")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings = pick(Settings, plain)
    run = Run(settings.runs, settings.run)
    if settings.status:
        every = {path.stem: OmegaConf.to_container(OmegaConf.load(path)) for path in sorted(MECHANISMS.glob("*.yaml"))}
        print(desk.status(run, every, settings.neighbours, settings.budget.delta))
        return
    run.record("label_student", plain)
    with desk.open_desk(run) as ledger:
        ballots = desk.load_votes(run, ledger)
        chosen = ballots.first(settings.queries if isinstance(settings.queries, int) else None)
        budget = ledger.set_budget(settings.budget, neighbours=settings.neighbours, unit=ballots.unit)
        mechanism = prepare_mechanism(
            settings.mechanism,
            **chosen.facts,
            neighbours=settings.neighbours,
            delta=budget.delta,
            target=settings.target,
        )
        print(*desk.lost(ledger), f"mechanism: {mechanism}", sep="\n")
        answered = desk.answer(
            ballots,
            mechanism,
            ledger,
            budget=budget,
            queries=settings.queries,
            batch=settings.batch,
            noise_seed=settings.noise_seed,
        )
        statement = desk.publish(run, answered, ledger, delta=budget.delta, unit=ballots.unit, weights=ballots.weights)
    follow = f"\nnext: python train_student.py run={run.name}"
    print(answered, f"labels in {run.release / 'labels.npz'}", "", statement.text, follow, sep="\n")


if __name__ == "__main__":
    run_script(main)

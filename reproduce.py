"""The papers' tables and figures, one word each: what we get, what they print.

python reproduce.py experiment=exp1_fixed_k
"""

import sys
from dataclasses import dataclass, replace
from typing import Any, Literal

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.commands import command, run_script
from pate.errors import require
from pate.reproduction import NAMES
from pate.reproduction.experiment import Context, Experiment, conduct
from pate.runs import Run
from pate.settings import pick


@dataclass(frozen=True)
class Settings:
    """What this script reads from conf/reproduce.yaml."""

    run: str
    runs: str
    data: dict[str, Any]  # of which only root is read; quick=true adds keys for the pipeline's data
    reproduction: Experiment | None
    trials: int | None
    seed: int
    size: Literal["full", "quick"]


@hydra.main(version_base="1.3", config_path="conf", config_name="reproduce")
@command
def main(config: DictConfig) -> None:
    settings = pick(Settings, OmegaConf.to_container(config, resolve=True))
    if settings.reproduction is None:
        print("python reproduce.py experiment=NAME, where NAME is one of", *NAMES, sep="\n  ")
        return
    experiment = settings.reproduction.small() if settings.size == "quick" else settings.reproduction
    if settings.trials is not None:
        drawn = hasattr(experiment, "trials") and settings.trials >= 1
        require(drawn, "trials", ">= 1, and given only to what draws noise", settings.trials)
        experiment = replace(experiment, trials=settings.trials)
    folder = Run(settings.runs, settings.run).create().release / "reproduction" / experiment.file
    context = Context(settings.data["root"], settings.seed)
    words = " ".join(sys.argv[1:]).replace("size=quick", "quick=true")
    rows = conduct(experiment, context, folder, f"python reproduce.py {words}")
    print(f"{experiment.title}\n\n{experiment.table(rows)}\n")
    print(f"{experiment.file}.csv and {experiment.file}.png are in {folder}")


if __name__ == "__main__":
    run_script(main)

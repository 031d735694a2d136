"""The whole study: teachers, votes, labels by every mechanism at several epsilons, students, report.

python compare.py
python compare.py recommend=true target.epsilon=1
"""

from dataclasses import dataclass

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.commands import command, run_script
from pate.data.records import Source
from pate.models import Network
from pate.recommend import recommend
from pate.report import console_table
from pate.runs import Run
from pate.settings import pick
from pate.simulation import Assumptions
from pate.student import Student
from pate.study import Study, compare, report
from pate.sweeps import School
from pate.teachers import Ray, Teachers


@dataclass(frozen=True)
class Settings:
    """What the study reads from conf/compare.yaml, beside what it asks (`Study`)."""

    run: str
    runs: str
    data: Source
    model: Network
    teachers: Teachers
    student: Student
    queries: int | None
    devices: str
    ray: Ray
    seed: int
    recommend: bool
    assume: Assumptions


@hydra.main(version_base="1.3", config_path="conf", config_name="compare")
@command
def main(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True)
    settings, study = pick(Settings, plain), pick(Study, plain)
    if settings.recommend:
        asked = {"target": study.target, "delta": study.budget.delta, "neighbours": study.relations[0]}
        advice = recommend(
            study.chosen(study.mechanisms), settings.assume, **asked, run=settings.run, seed=settings.seed
        )
        print(advice.table(), advice.text, sep="\n\n")
        return
    run = Run(settings.runs, settings.run).create()
    run.record("compare", plain)
    split = settings.data.load()
    school = School(run, split, settings.model, settings.teachers, settings.devices, settings.seed, settings.ray)
    print(school.train())
    outcome = compare(school, study, settings.student, settings.queries)
    page, private = report(run, study, outcome, settings.data.describe(), plain)
    print(console_table(outcome.released().rows))
    words = f"{study.target.conversion} conversion"
    print(f"Each epsilon: one labelling, {words}; the report names the theorems and what all cost together.")
    print(f"report: {page}\nprivate, with gains against noiseless votes, not covered by any epsilon: {private}")


if __name__ == "__main__":
    run_script(main)

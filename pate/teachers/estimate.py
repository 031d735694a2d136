"""What a run will need, from three of its teachers; nothing of it is kept."""

import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate.data.records import Source, Split
from pate.runs import Run
from pate.teachers.factory import Plan, make_engine, make_plan, refuse_failures, run_jobs
from pate.teachers.settings import Ray, Teachers

if TYPE_CHECKING:
    from pate.models import Network


@dataclass(frozen=True)
class Estimate:
    """What a whole run will need, about.

    Attributes:
        teachers: how many will be trained, all or a shard's; on slots: how many at a time.
        seconds: from the start of the processes to the last vote.
        memory_mb: of all processes together; of one GPU's memory times its slots, if there are GPUs.
        disk_mb: what the run leaves behind, and what it needs in addition while it goes on.
    """

    teachers: int
    slots: int
    seconds: float
    memory_mb: float
    disk_mb: float

    def __str__(self) -> str:
        return (
            f"estimate: {self.teachers} teachers on {self.slots} slots need about {_duration(self.seconds)}, "
            f"{self.memory_mb:,.0f} MB of memory and {self.disk_mb:,.1f} MB of disk; nothing was kept"
        )


def estimate_teachers(
    run: Run,
    data: Split | Source,
    network: "Network",
    teachers: Teachers,
    *,
    devices: str = "auto",
    seed: int = 0,
    ray: Ray = Ray(),  # noqa: B008 - frozen
) -> Estimate:
    """Time three teachers of ordinary size, one after another, and predict the rest; arguments as for `train_teachers`.

    They work in a folder of their own beside the run, which is then removed: the run is not touched, and may still be
    begun with other settings.
    """
    plan, slots = make_plan(data, network, teachers, seed), make_engine(teachers, devices, ray).slots
    engine = make_engine(replace(teachers, slots_per_device=1), slots[0] if slots else devices, ray)
    mine = [teacher for teacher in plan.store(run).missing() if teachers.mine(teacher)]
    if not mine:
        return Estimate(0, len(slots), 0.0, 0.0, 0.0)
    jobs = [plan.job(teacher) for teacher in _ordinary(plan, mine)]
    run.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".estimate-", dir=run.root) as folder, closing(engine):
        trial, began = Run(Path(folder), run.name).create(), time.perf_counter()
        results, backbone = run_jobs(trial, plan, plan.store(trial), jobs, engine)
        refuse_failures(results, jobs)
        passed, disk = time.perf_counter() - began, _disk(trial, len(jobs), len(mine))
    slots = slots or engine.slots
    stats = [result.value() for result in results]
    rate = np.median([result.outcome["seconds"] / len(jobs[result.index]["index"]) for result in results])
    public = backbone - sum(one.get("backbone_seconds", 0.0) for one in stats)
    start = max(0.0, passed - sum(one["seconds"] for one in stats) - public)
    work = public + rate * sum(len(plan.parts[teacher]) for teacher in mine)
    memory = min(len(slots), len(mine)) * max(one["memory_mb"] for one in stats)
    return Estimate(len(mine), len(slots), start + work / min(len(slots), len(mine)), memory, disk)


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(600), _duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _ordinary(plan: Plan, teachers: list[int]) -> list[int]:
    """Three teachers (or all, if fewer) whose parts are the nearest to the mean in size."""
    mean = np.mean([len(part) for part in plan.parts])
    return sorted(teachers, key=lambda teacher: abs(len(plan.parts[teacher]) - mean))[:3]


def _disk(trial: Run, tried: int, wanted: int) -> float:
    """MB: what grows with the teachers (votes, checkpoints) in proportion, everything else as it is."""
    sizes = {path: path.stat().st_size for path in trial.private.rglob("*") if path.is_file()}
    growing = sum(size for path, size in sizes.items() if path.parent.name in ("votes", "teachers"))
    return (sum(sizes.values()) - growing + growing * wanted / max(1, tried)) / (1 << 20)

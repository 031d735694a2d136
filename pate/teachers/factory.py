"""All teachers: partition, train what is missing on every device there is, keep the votes."""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pate.ballots import write_index, write_views
from pate.data.records import Array, Records, Source, Split
from pate.errors import PateError, require
from pate.partition import partition, sizes
from pate.runs import Run, private_folder, write_json
from pate.teachers.arrays import as_file, fingerprint
from pate.teachers.features import Engine, feature_files, keep_features, missing_chunks
from pate.teachers.pool import Pool, Result
from pate.teachers.settings import Ray, Teachers
from pate.votes import VoteStore

if TYPE_CHECKING:  # the parent leaves torch to its processes as long as it can
    from pate.models import Network

SPEED_ONLY = ("engine", "slots_per_device", "shard", "estimate")  # change no vote, may differ from rerun to rerun


@dataclass(frozen=True)
class Summary:
    """What one call did.

    Attributes:
        teachers: T; voted: how many have, fewer than T while other shards are at work.
        trained: how many by this call; retried: how many lost a process on the way.
        sizes: how many records the parts have (min, median, max, mean).
        accuracies: validation accuracies of the teachers trained by this call. Private.
        images_per_second: pictures (or rows) that went through training, over the whole call.
        backbone_seconds: of CPU, over all processes, that a frozen backbone took; 0 without one.
    """

    teachers: int
    voted: int
    trained: int
    retried: int
    sizes: dict[str, float]
    accuracies: tuple[float, ...]
    images_per_second: float
    backbone_seconds: float
    seconds: float

    def __str__(self) -> str:
        part = self.sizes
        text = (
            f"{self.teachers} teachers of {part['min']} to {part['max']} records (median {part['median']:g}) have voted"
        )
        if self.voted < self.teachers:
            text = f"{self.voted} of {text}; the others are for other shards"
        if not self.trained:
            return f"{text}; nothing was left to do"
        backbone = f" (backbone {self.backbone_seconds:.0f} s of CPU)" if self.backbone_seconds else ""
        low, middle, high = np.percentile(self.accuracies, (0, 50, 100))
        return (
            f"{text}; {self.trained} trained now ({self.retried} retried) in {self.seconds:.1f} s, "
            f"{self.images_per_second:,.0f} images/s{backbone}, "
            f"validation accuracy {low:.3f} to {high:.3f} (median {middle:.3f})"
        )


def train_teachers(
    run: Run,
    data: Split | Source,
    network: "Network",
    teachers: Teachers,
    *,
    devices: str = "auto",
    seed: int = 0,
    ray: Ray = Ray(),  # noqa: B008 - frozen
) -> Summary:
    """Train every teacher that has not voted yet, and store its votes on the public records.

    Can be stopped at any moment, by any means: the same call goes on with what is missing. A teacher's votes
    depend on its own records, the public records, the settings and (seed, teacher); on nothing else.

    Args:
        run: its private folder gets votes/, partition.json, queries.json, tensorboard/ and, if wanted, teachers/; in
            heads mode also features/ (of the public records).
        data: a data set, or settings that can load one.
        devices: see `find_devices`.
        ray: where Ray is, for teachers.engine=ray.

    Raises:
        RunChanged: the run was begun with other settings or other data.
        PateError: some teachers failed; all others have voted.
    """
    require(not teachers.estimate, "teachers.estimate", "false here; train_teachers.py estimates", True)
    began = time.perf_counter()
    plan = make_plan(data, network, teachers, seed)
    engine = make_engine(teachers, devices, ray)
    run.create().settle("teachers", plan.settings)
    write_json(run.private / "partition.json", {"sizes": [len(part) for part in plan.parts]}, mode=0o600)
    write_index(run, plan.split, teachers.count, teachers.unit, plan.token, plan.weights)
    store = plan.store(run)
    jobs = [plan.job(teacher) for teacher in store.missing(plan.token) if teachers.mine(teacher)]
    with closing(engine):
        results, seconds = run_jobs(run, plan, store, jobs, engine) if jobs else ([], 0.0)
        refuse_failures(results, jobs)
        if not (run.private / "views.npy").exists():
            write_views(run, plan.view(run, engine))
    left = len(store.missing(plan.token))
    if not left:  # then no other shard is at work either
        store.sweep()
        shutil.rmtree(run.private / "mapped", ignore_errors=True)
    return _summary(plan, results, jobs, left, seconds, time.perf_counter() - began)


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before any work: data, parts, and the settings that decide the votes."""

    split: Split
    network: "Network"
    teachers: Teachers
    seed: int
    parts: list[Array]
    settings: dict[str, Any]

    @property
    def token(self) -> str:
        """All settings as one word."""
        return hashlib.blake2b(json.dumps(self.settings, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def weights(self) -> str:
        """What the networks started from, for the statement."""
        return self.network.describe() + (", frozen but for the last layer" if self.teachers.mode == "heads" else "")

    def store(self, run: Run) -> VoteStore:
        """Where a run keeps its votes."""
        folder = (run.private / "votes").absolute()
        return VoteStore(folder, self.teachers.count, len(self.split.public), self.split.num_labels)

    def view(self, run: Run, engine: Engine) -> Array:
        """The public records as the teachers see them: features in heads mode, else the inputs."""
        if self.teachers.mode == "finetune":
            return self.split.public.inputs
        return keep_features(self.split.public.inputs, self.network, self.teachers, engine, run.private / "features")

    def job(self, teacher: int) -> dict[str, Any]:
        """What a process must know to train one teacher."""
        return {"teacher": teacher, "index": self.parts[teacher]}


def make_plan(data: Split | Source, network: "Network", teachers: Teachers, seed: int) -> Plan:
    """Load, divide, and try the network once: a mistake shows before any work."""
    split = data if isinstance(data, Split) else data.load()
    parts = _parts(split.private, teachers)
    network.build(split.num_labels, seed, split.private.inputs.shape[1:])
    return Plan(split, network, teachers, seed, parts, _settings(split, network, teachers, seed))


def make_engine(teachers: Teachers, devices: str, ray: Ray) -> Engine:
    """What runs the jobs."""
    if teachers.engine == "local":
        return Pool(devices, teachers.slots_per_device)
    from pate.teachers.cluster import RayPool

    return RayPool(ray, devices, teachers.slots_per_device)


def _parts(private: Records, teachers: Teachers) -> list[Array]:
    """Each teacher's positions, in the order of its own records' names: where others stand must not matter."""
    parts = partition(private, teachers.count, teachers.unit, teachers.salt, teachers.smallest)
    return [part[np.argsort(private.ids[part], kind="stable")] for part in parts]


def _settings(split: Split, network: "Network", teachers: Teachers, seed: int) -> dict[str, Any]:
    """Everything that decides the votes, data included, as plain values."""
    private, public = split.private, split.public
    data = {
        "private_records": fingerprint(private.ids, private.persons, private.labels, private.inputs),
        "public_records": fingerprint(public.ids, public.inputs),
    }
    chosen = {name: value for name, value in asdict(teachers).items() if name not in SPEED_ONLY}
    return {"teachers": chosen, "model": asdict(network), "seed": seed} | data


def run_jobs(
    run: Run, plan: Plan, store: VoteStore, jobs: list[dict[str, Any]], engine: Engine
) -> tuple[list[Result], float]:
    """Every job through the engine, with one bar and TensorBoard beside it; and the backbone's CPU seconds.

    In heads mode the queries' features come first, as far as they are not there yet.
    """
    shared, chunks = _shared(run, plan, store)
    results: list[Result] = []
    seconds = 0.0
    with tqdm(total=len(jobs), desc="teachers", unit="teacher") as bar, _Board(run) as board:
        for result in engine.run("pate.teachers.jobs:work", shared, chunks + jobs, first=len(chunks)):
            if result.index < len(chunks):
                seconds += result.value()
                continue
            results.append(replace(result, index=result.index - len(chunks)))
            board.add(jobs[results[-1].index]["teacher"], result)
            words = f"validation accuracy {board.mean:.3f}, {engine.busy} of {len(engine.slots)} slots busy"
            bar.set_postfix_str(words, refresh=False)
            bar.update()
    return results, seconds + sum(r.outcome.get("backbone_seconds", 0.0) for r in results if r.error is None)


def _shared(run: Run, plan: Plan, store: VoteStore) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all jobs share, arrays as files; and the jobs that come before the teachers."""
    folder, settings, split = private_folder(run.private / "mapped"), plan.teachers, plan.split
    arrays = {"inputs": split.private.inputs, "labels": split.private.labels, "public": split.public.inputs}
    arrays["truth"] = split.public.labels
    shared: dict[str, Any] = {
        "network": plan.network,
        "settings": settings,
        "seed": plan.seed,
        "store": store,
        "token": plan.token,
    }
    shared |= {name: as_file(array, folder) for name, array in arrays.items()}
    shared["checkpoints"] = private_folder(run.private / "teachers").absolute() if settings.keep_checkpoints else None
    if settings.mode == "finetune":
        return shared, []
    files = feature_files(split.public.inputs, plan.network, settings, run.private / "features")
    return shared | {"features": tuple(files.values())}, missing_chunks(files)


class _Board:
    """Each teacher's last numbers in TensorBoard, the teacher's number as step; private like the teachers."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = private_folder(run.private / "tensorboard")
        self.writer = SummaryWriter(str(self.folder))
        self.accuracies: list[float] = []

    @property
    def mean(self) -> float:
        """Validation accuracy so far."""
        return float(np.mean(self.accuracies)) if self.accuracies else float("nan")

    def add(self, teacher: int, result: Result) -> None:
        """One teacher is done."""
        if result.error is None:
            self.accuracies.append(result.outcome["validation_accuracy"])
            for name, value in result.outcome.items():
                self.writer.add_scalar(f"teacher/{name}", value, teacher)

    def __enter__(self) -> "_Board":
        return self

    def __exit__(self, *_: object) -> None:
        if self.accuracies:
            self.writer.add_histogram("teachers/accuracy", np.array(self.accuracies), len(self.accuracies))
        self.writer.close()
        for path in self.folder.iterdir():
            path.chmod(0o600)


def refuse_failures(results: Sequence[Result], jobs: Sequence[Mapping[str, Any]]) -> None:
    """Name the teachers that could not be trained."""
    failed = {jobs[result.index]["teacher"]: result.error for result in results if result.error is not None}
    if failed:
        reasons = "; ".join(f"teacher {teacher}: {failed[teacher]}" for teacher in sorted(failed)[:20])
        more = f"; and {len(failed) - 20} more" if len(failed) > 20 else ""
        raise PateError(f"{len(failed)} of {len(jobs)} teachers failed, the others have voted: {reasons}{more}")


def _summary(
    plan: Plan,
    results: Sequence[Result],
    jobs: Sequence[Mapping[str, Any]],
    left: int,
    backbone_seconds: float,
    seconds: float,
) -> Summary:
    """What was done, in numbers."""
    passes = plan.teachers.epochs if plan.teachers.mode == "finetune" else 1
    return Summary(
        teachers=len(plan.parts),
        voted=len(plan.parts) - left,
        trained=len(jobs),
        retried=sum(result.attempts > 1 for result in results),
        sizes=sizes(plan.parts),
        accuracies=tuple(result.outcome["validation_accuracy"] for result in results),
        images_per_second=passes * sum(len(job["index"]) for job in jobs) / seconds,
        backbone_seconds=backbone_seconds,
        seconds=seconds,
    )

"""All teachers: partition, train what is missing on every device there is, keep the votes."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from pate.ballots import write_index
from pate.data.records import Array, Records, Source, Split
from pate.errors import PateError
from pate.partition import partition, sizes
from pate.runs import Run, private_folder, write_json
from pate.teachers.pool import Mapped, Pool, Result
from pate.teachers.settings import Teachers
from pate.votes import VoteStore

if TYPE_CHECKING:  # the parent leaves torch to its processes as long as it can
    from pate.models import Network

SPEED_ONLY = ("engine", "slots_per_device")  # settings that change no vote and may differ from rerun to rerun


@dataclass(frozen=True)
class Summary:
    """What one call did.

    Attributes:
        teachers: T; trained: how many of them by this call; retried: how many lost a process on the way.
        sizes: how many records the parts have (min, median, max, mean).
        accuracies: of the teachers trained by this call, on their own records. Private.
        images_per_second: pictures (or rows) that went through training, over the whole call.
    """

    teachers: int
    trained: int
    retried: int
    sizes: dict[str, float]
    accuracies: tuple[float, ...]
    images_per_second: float
    seconds: float

    def __str__(self) -> str:
        part = self.sizes
        text = (
            f"{self.teachers} teachers of {part['min']} to {part['max']} records (median {part['median']:g}) have voted"
        )
        if not self.trained:
            return f"{text}; nothing was left to do"
        low, middle, high = np.percentile(self.accuracies, (0, 50, 100))
        return (
            f"{text}; {self.trained} trained now ({self.retried} retried) in {self.seconds:.1f} s, "
            f"{self.images_per_second:,.0f} images/s, training accuracy {low:.3f} to {high:.3f} (median {middle:.3f})"
        )


def train_teachers(
    run: Run,
    data: Split | Source,
    network: "Network",
    teachers: Teachers,
    *,
    devices: str = "auto",
    seed: int = 0,
) -> Summary:
    """Train every teacher that has not voted yet, and store its votes on the public records.

    Can be stopped at any moment, by any means: the same call goes on with what is missing. A teacher's votes
    depend on its own records, the public records, the settings and (seed, teacher); on nothing else.

    Args:
        run: its private folder gets votes/, partition.json, queries.json, tensorboard/ and, if wanted, teachers/.
        data: a data set, or settings that can load one.
        devices: see `find_devices`.

    Raises:
        RunChanged: the run was begun with other settings or other data.
        PateError: some teachers failed; all others have voted.
    """
    began = time.perf_counter()
    split = data if isinstance(data, Split) else data.load()
    parts = _parts(split.private, teachers)
    settings = _settings(split, network, teachers, seed)
    network.build(split.num_labels, seed, split.private.inputs.shape[1:])  # a mistake in it shows before any work
    pool = Pool(devices, teachers.slots_per_device)
    run.create().settle("teachers", settings)
    write_json(run.private / "partition.json", {"sizes": [len(part) for part in parts]}, mode=0o600)
    write_index(run, split, teachers.count, teachers.unit)
    store = VoteStore(run.private / "votes", teachers.count, len(split.public), split.num_labels)
    token = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()
    jobs = [{"teacher": teacher, "index": parts[teacher]} for teacher in store.missing(token)]
    shared = {"network": network, "settings": teachers, "seed": seed, "store": store, "token": token}
    results = _run(run, split, shared, jobs, pool) if jobs else []
    _refuse_failures(results, jobs)
    store.sweep()
    shutil.rmtree(run.private / "mapped", ignore_errors=True)
    return _summary(results, parts, jobs, teachers.epochs, time.perf_counter() - began)


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


def fingerprint(*arrays: Array) -> str:
    """A short hash of arrays; of a memory-mapped one, which has been checked as a file, only some 256 rows."""
    found = hashlib.blake2b(digest_size=8)
    for array in arrays:
        found.update(f"{array.dtype.kind} {array.shape} ".encode())
        sample = array[:: max(1, len(array) // 256)] if isinstance(array, np.memmap) else array
        text = sample.dtype.kind in "UO"
        found.update("\0".join(map(str, sample)).encode() if text else np.ascontiguousarray(sample).view(np.uint8).data)
    return found.hexdigest()


def _run(run: Run, split: Split, shared: dict[str, Any], jobs: list[dict[str, Any]], pool: Pool) -> list[Result]:
    """Every job through the pool, with one bar and TensorBoard beside it; the arrays go to the processes as files."""
    arrays = {"inputs": split.private.inputs, "labels": split.private.labels, "queries": split.public.inputs}
    folder = private_folder(run.private / "mapped")
    shared = shared | {name: Mapped(_as_file(array, folder)) for name, array in arrays.items()}
    count, keep = shared["settings"].count, shared["settings"].keep_checkpoints
    shared["checkpoints"] = private_folder(run.private / "teachers") if keep else None
    results: list[Result] = []
    with tqdm(total=count, initial=count - len(jobs), desc="teachers", unit="teacher") as bar, _Board(run) as board:
        for result in pool.run("pate.teachers.training:teach", shared, jobs):
            results.append(result)
            board.add(jobs[result.index]["teacher"], result)
            bar.set_postfix_str(
                f"accuracy {board.mean:.3f}, {pool.busy} of {len(pool.slots)} slots busy", refresh=False
            )
            bar.update()
    return results


class _Board:
    """Each teacher's last numbers in TensorBoard, the teacher's number as step; private like the teachers."""

    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(private_folder(run.private / "tensorboard")))
        self.accuracies: list[float] = []

    @property
    def mean(self) -> float:
        """Training accuracy so far."""
        return float(np.mean(self.accuracies)) if self.accuracies else float("nan")

    def add(self, teacher: int, result: Result) -> None:
        """One teacher is done."""
        if result.error is None:
            self.accuracies.append(result.outcome["accuracy"])
            for name, value in result.outcome.items():
                self.writer.add_scalar(f"teacher/{name}", value, teacher)

    def __enter__(self) -> "_Board":
        return self

    def __exit__(self, *_: object) -> None:
        if self.accuracies:
            self.writer.add_histogram("teachers/accuracy", np.array(self.accuracies), len(self.accuracies))
        self.writer.close()


def _as_file(array: Array, folder: Path) -> Path:
    """An array as a `.npy` file: the one it is mapped from, or one written here, named by its content."""
    if isinstance(array, np.memmap) and array.filename and Path(array.filename).suffix == ".npy":
        whole = np.load(array.filename, mmap_mode="r")
        if (whole.shape, whole.dtype, whole.strides) == (array.shape, array.dtype, array.strides):
            return Path(array.filename)
    path = folder / f"{fingerprint(np.asarray(array))}.npy"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    return path


def _refuse_failures(results: Sequence[Result], jobs: Sequence[Mapping[str, Any]]) -> None:
    """Name the teachers that could not be trained."""
    failed = {jobs[result.index]["teacher"]: result.error for result in results if result.error is not None}
    if failed:
        reasons = "; ".join(f"teacher {teacher}: {failed[teacher]}" for teacher in sorted(failed)[:20])
        more = f"; and {len(failed) - 20} more" if len(failed) > 20 else ""
        raise PateError(f"{len(failed)} of {len(jobs)} teachers failed, the others have voted: {reasons}{more}")


def _summary(
    results: Sequence[Result], parts: list[Array], jobs: Sequence[Mapping[str, Any]], epochs: int, seconds: float
) -> Summary:
    """What was done, in numbers."""
    images = epochs * sum(len(job["index"]) for job in jobs)
    retried = sum(result.attempts > 1 for result in results)
    accuracies = tuple(result.outcome["accuracy"] for result in results)
    return Summary(len(parts), len(jobs), retried, sizes(parts), accuracies, images / seconds, seconds)

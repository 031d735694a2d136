"""Features of public records by a frozen backbone: on every slot, chunk by chunk, kept for whoever asks again."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from tqdm import tqdm

from pate.data.records import Array, Records, Split
from pate.runs import private_folder
from pate.teachers.arrays import as_file, fingerprint
from pate.teachers.pool import Pool, Result
from pate.teachers.settings import Teachers

if TYPE_CHECKING:
    from pate.models import Network

CHUNK = 64  # rows per file, and what a kill may lose


class Engine(Protocol):
    """What runs jobs: `Pool`, or a cluster."""

    slots: list[str]

    @property
    def busy(self) -> int:
        """How many slots are at work."""
        ...

    def run(
        self, function: str, shared: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], first: int = 0
    ) -> Iterator[Result]:
        """See `Pool.run`."""
        ...

    def close(self) -> None:
        """Leave nothing running."""
        ...


def feature_files(inputs: Array, network: "Network", teachers: Teachers, folder: Path) -> dict[int, Path]:
    """Where the features of records that are not private are kept: the first row of each chunk, and its file.

    Named by inputs, network and settings. Each file is whole or absent, so that any number of processes may work on
    them, be killed and go on.
    """
    settings = {"network": asdict(network), "mirror": teachers.augment, "precision": teachers.precision}
    key = hashlib.blake2b(json.dumps([fingerprint(inputs), settings], sort_keys=True).encode(), digest_size=8)
    home = private_folder(private_folder(folder) / key.hexdigest()).absolute()
    return {start: home / f"{start:09d}.npy" for start in range(0, len(inputs), CHUNK)}


def missing_chunks(files: Mapping[int, Path]) -> list[dict[str, Any]]:
    """The jobs (`pate.teachers.jobs.look`) that are left."""
    return [{"start": start, "path": path} for start, path in files.items() if not path.exists()]


def load_features(paths: Iterable[Path]) -> Array:
    """(N, D) float32."""
    return np.concatenate([np.load(path, allow_pickle=False) for path in paths])


def keep_features(inputs: Array, network: "Network", teachers: Teachers, engine: Engine, folder: Path) -> Array:
    """(N, D) float32 features of records that are not private, kept under the folder for whoever asks again."""
    files = feature_files(inputs, network, teachers, folder)
    jobs = missing_chunks(files)
    if jobs:
        rows = as_file(inputs, private_folder(folder.parent / "mapped"))
        shared = {"public": rows, "network": network, "settings": teachers}
        done = engine.run("pate.teachers.jobs:work", shared, jobs)
        for result in tqdm(done, total=len(jobs), desc="features", unit="chunk"):
            result.value()
    return load_features(files.values())


@dataclass(frozen=True)
class View:
    """Public and test records as a student of a frozen backbone sees them.

    Attributes:
        split: inputs are (features - mean) / spread, (N, D) float32; the private records are as they were.
        network: a linear layer; `pate.backbone.mount` joins it with the backbone when it is trained.
        mean, spread: of the public records' features.
    """

    split: Split
    network: "Network"
    mean: Array
    spread: float


def on_features(
    split: Split, network: "Network", teachers: Teachers, folder: Path, *, devices: str | Sequence[str] = "auto"
) -> View:
    """Let a student learn from features of the teachers' backbone instead of pictures.

    Args:
        teachers: as the teachers had them, so that the features of the public records are there already.
        folder: `run.private / "features"`.
    """
    from pate.models import Network

    pool = Pool(devices, teachers.slots_per_device)
    public, test = (keep_features(each.inputs, network, teachers, pool, folder) for each in (split.public, split.test))
    shutil.rmtree(folder.parent / "mapped", ignore_errors=True)
    mean = public.mean(0, dtype=np.float64)
    spread = float(np.sqrt((public - mean).var())) or 1.0

    def seen(records: Records, rows: Array) -> Records:
        return replace(records, inputs=((rows - mean) / spread).astype(np.float32))

    viewed = replace(split, public=seen(split.public, public), test=seen(split.test, test))
    return View(viewed, Network("linear"), mean, spread)

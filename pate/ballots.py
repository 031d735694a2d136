"""A run's votes together with what they are about: the queries, the labels, the unit that is protected."""

import io
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pate.data.records import Split
from pate.errors import DataError, MissingInput, require
from pate.mechanisms.projected import MOST, Directions
from pate.runs import Run, write_bytes, write_json
from pate.votes import VoteStore

COARSE = 32  # pixels on a side


@dataclass(frozen=True)
class Ballots:
    """Votes on public records. Private.

    Attributes:
        votes: (T, N, K) bool.
        ids: (N,) the public records' names, in a public order.
        label_names: K names.
        unit: `record` or `person`: whose data one teacher's ballot depends on.
        digest: hash of all votes.
        weights: what the teachers' networks started from, in words; None where it was not noted.
        views: (N, D) float32, the public records' principal coordinates; None where they were not noted.
    """

    votes: np.ndarray
    ids: np.ndarray
    label_names: tuple[str, ...]
    unit: str
    digest: str
    weights: str | None = None
    views: np.ndarray | None = None

    @classmethod
    def load(cls, run: Run) -> "Ballots":
        """The votes that `train_teachers.py` stored; says so if it has not run."""
        path = run.private / "queries.json"
        if not path.exists():
            raise MissingInput(f"{path} is missing: make it with `python train_teachers.py run={run.name}`")
        index = json.loads(path.read_text())
        store = VoteStore(run.private / "votes", index["teachers"], len(index["ids"]), len(index["label_names"]))
        ids, names = np.array(index["ids"]), tuple(index["label_names"])
        views = run.private / "views.npy"
        seen = np.load(views, allow_pickle=False) if views.exists() else None
        return cls(store.load(), ids, names, index["unit"], store.digest(), index.get("weights"), seen)

    def first(self, queries: int | None) -> "Ballots":
        """Only the first so many queries; None means all."""
        if queries is None:
            return self
        require(1 <= queries <= len(self.ids), "queries", f"from 1 to the public records ({len(self.ids)})", queries)
        views = None if self.views is None else self.views[:queries]
        return replace(self, votes=self.votes[:, :queries], ids=self.ids[:queries], views=views)

    @property
    def facts(self) -> dict[str, Any]:
        """What a mechanism for these queries must know, all of it public, as `prepare_mechanism` takes it."""
        teachers, queries, labels = self.votes.shape
        size = {"num_teachers": teachers, "queries": queries, "num_labels": labels}
        return size | {"directions": self.directions}

    @cached_property
    def directions(self) -> Directions | None:
        """Along which these queries differ, as far as the public records tell; None without views."""
        if self.views is None:
            return None
        if len(self.views) != len(self.ids):
            raise DataError(f"views.npy must have a row for each of the {len(self.ids)} queries, got {len(self.views)}")
        return Directions.of(self.views)


def write_index(run: Run, split: Split, teachers: int, unit: str, token: str, weights: str | None = None) -> None:
    """Note beside the votes what they are about, and the word that every vote file of this run carries."""
    names = {"ids": [str(name) for name in split.public.ids], "label_names": list(split.label_names)}
    about = {"teachers": teachers, "unit": unit, "token": token, "weights": weights}
    write_json(run.private / "queries.json", names | about, mode=0o600)


def write_views(run: Run, inputs: np.ndarray) -> None:
    """Note how the public records differ: their coordinates along up to 256 principal directions.

    Args:
        inputs: (N, D) features as the teachers saw them, or (N, H, W, 3) pictures, which are looked at coarsely.
    """
    if inputs.ndim == 4:
        step = max(1, inputs.shape[1] // COARSE)
        height, width = (size // step * step for size in inputs.shape[1:3])
        blocks = inputs[:, :height, :width].reshape(len(inputs), height // step, step, width // step, step, -1)
        inputs = blocks.mean(axis=(2, 4), dtype=np.float32)
    rows = inputs.reshape(len(inputs), -1).astype(np.float64)
    left, spread, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    buffer = io.BytesIO()
    np.save(buffer, (left[:, :MOST] * spread[:MOST]).astype(np.float32), allow_pickle=False)
    write_bytes(run.private / "views.npy", buffer.getvalue(), mode=0o600)


def positions(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Where each wanted id stands among the ids."""
    where = {name: place for place, name in enumerate(ids.tolist())}
    missing = [name for name in wanted.tolist() if name not in where]
    if missing:
        raise DataError(
            f"the data must hold every labelled record: {missing[0]!r} and {len(missing) - 1} others are absent"
        )
    return np.array([where[name] for name in wanted.tolist()])

"""A run's votes together with what they are about: the queries, the labels, the unit that is protected."""

import json
from dataclasses import dataclass, replace

import numpy as np

from pate.data.records import Split
from pate.errors import DataError, MissingInput, require
from pate.runs import Run, write_json
from pate.votes import VoteStore


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
    """

    votes: np.ndarray
    ids: np.ndarray
    label_names: tuple[str, ...]
    unit: str
    digest: str
    weights: str | None = None

    @classmethod
    def load(cls, run: Run) -> "Ballots":
        """The votes that `train_teachers.py` stored; says so if it has not run."""
        path = run.private / "queries.json"
        if not path.exists():
            raise MissingInput(f"{path} is missing: make it with `python train_teachers.py run={run.name}`")
        index = json.loads(path.read_text())
        store = VoteStore(run.private / "votes", index["teachers"], len(index["ids"]), len(index["label_names"]))
        ids, names = np.array(index["ids"]), tuple(index["label_names"])
        return cls(store.load(), ids, names, index["unit"], store.digest(), index.get("weights"))

    def first(self, queries: int | None) -> "Ballots":
        """Only the first so many queries; None means all."""
        if queries is None:
            return self
        require(1 <= queries <= len(self.ids), "queries", f"from 1 to the public records ({len(self.ids)})", queries)
        return replace(self, votes=self.votes[:, :queries], ids=self.ids[:queries])


def write_index(run: Run, split: Split, teachers: int, unit: str, token: str, weights: str | None = None) -> None:
    """Note beside the votes what they are about, and the word that every vote file of this run carries."""
    names = {"ids": [str(name) for name in split.public.ids], "label_names": list(split.label_names)}
    about = {"teachers": teachers, "unit": unit, "token": token, "weights": weights}
    write_json(run.private / "queries.json", names | about, mode=0o600)


def positions(wanted: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Where each wanted id stands among the ids."""
    where = {name: place for place, name in enumerate(ids.tolist())}
    missing = [name for name in wanted.tolist() if name not in where]
    if missing:
        raise DataError(
            f"the data must hold every labelled record: {missing[0]!r} and {len(missing) - 1} others are absent"
        )
    return np.array([where[name] for name in wanted.tolist()])

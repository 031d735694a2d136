"""Sweeps: the study's mechanisms at one epsilon, while the number of queries, of teachers or of labels varies."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pate.ballots import Ballots
from pate.data.records import Split
from pate.errors import SettingError, require
from pate.models import Network
from pate.runs import Run, private_folder
from pate.teachers import Ray, Teachers, on_features, train_teachers
from pate.teachers.factory import Summary
from pate.whatif import Scene, label_view


@dataclass(frozen=True)
class School:
    """A run's teachers, and everything that decides them."""

    run: Run
    split: Split
    network: Network
    teachers: Teachers
    devices: str
    seed: int
    ray: Ray = field(default_factory=Ray)

    def train(self) -> Summary:
        """Train the teachers that have not voted yet."""
        return train_teachers(
            self.run, self.split, self.network, self.teachers, devices=self.devices, seed=self.seed, ray=self.ray
        )

    def seen(self) -> tuple[Split, Network]:
        """Records and network as a student has them: pictures, or features of the teachers' frozen backbone."""
        if self.teachers.mode != "heads":
            return self.split, self.network
        folder = self.run.private / "features"
        view = on_features(self.split, self.network, self.teachers, folder, devices=self.devices)
        return view.split, view.network

    def of(self, count: int) -> "School":
        """The same private data cut into another number of parts, in a run of its own inside the private room."""
        if count == self.teachers.count:
            return self
        run = Run(private_folder(self.run.private / "sweep"), f"teachers_{count}").create()
        kept, own = self.run.private / "features", run.private / "features"
        if kept.is_dir() and not own.exists():  # of public records, so the same whoever asks
            shutil.copytree(kept, own, copy_function=os.link)
            own.chmod(0o700)
        return replace(self, run=run, teachers=replace(self.teachers, count=count))


@dataclass(frozen=True)
class Sweep:
    """Settings of `sweep...`.

    Attributes:
        epsilon: what every mechanism is calibrated to spend at each place.
        larger_epsilon: the sweep of labels is made at this one too; None: it is not.
        seeds: labellings and students per point.
        queries: the first so many of the public records; more than there are is left out.
        teachers: numbers of parts that the private data is cut into, each trained anew.
        labels: the first so many of a public order; beyond all of them, conjunctions of two labels.
        label_seed: decides that order.
    """

    epsilon: float = 4.0
    larger_epsilon: float | None = 16.0
    seeds: int = 3
    queries: tuple[int, ...] = (50, 100, 200, 400, 600, 1000, 2000)
    teachers: tuple[int, ...] = (100, 200, 400, 800)
    labels: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 400)
    label_seed: int = 0

    def __post_init__(self) -> None:
        require(self.seeds >= 1, "sweep.seeds", ">= 1", self.seeds)
        for name in ("queries", "teachers", "labels"):
            least = min(getattr(self, name), default=2)
            require(least >= 1, f"sweep.{name}", "numbers >= 1", least)

    def epsilons(self, axis: str) -> tuple[float, ...]:
        """What is spent at each place of an axis."""
        larger = self.larger_epsilon if axis == "labels" else None
        return (self.epsilon,) if larger is None else (self.epsilon, larger)

    def scenes(self, axis: str, school: School, queries: int | None, remarks: list[str]) -> Iterator[Scene]:
        """The places of an axis; what cannot be is left out with a remark.

        Args:
            queries: how many the study asks, where the sweep does not vary that; None: all.
        """
        ballots = Ballots.load(school.run)
        if axis == "queries":
            yield from (Scene(axis, ballots.first(n)) for n in self.queries if n <= len(ballots.ids))
        elif axis == "labels":
            known = len(ballots.label_names)
            most, asked = known * (known + 1) // 2, ballots.first(queries)
            yield from (Scene(axis, asked, label_view(known, k, self.label_seed)) for k in self.labels if k <= most)
        else:
            for count in self.teachers:
                try:
                    other = school.of(count)
                    other.train()
                except SettingError as error:
                    remarks.append(f"No sweep over {count} teachers: {error}.")
                    continue
                yield Scene(axis, Ballots.load(other.run).first(queries))

"""The study: one set of votes, every mechanism at several epsilons, labelled and taught again for each seed.

Its releases are what-ifs. They go to a ledger of their own, which says what they cost together if all of them (or a
choice made after looking at them) were published. The student of noiseless votes, and what is computed from it, is
covered by no epsilon: it stays in the private room.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from pate import metrics
from pate.accounting import Neighbours
from pate.ballots import Ballots, positions
from pate.classroom import Classroom, Found, Pupil
from pate.data.records import Split
from pate.errors import SettingError, require
from pate.labels import Labels, Target, plain, sha256
from pate.ledger import Budget, Ledger
from pate.report import ALL_ZEROS, NOISELESS, NON_PRIVATE, PRIOR_ONLY, Row, released, write_report
from pate.report.board import write_board
from pate.runs import Run, private_folder, versions, write_bytes
from pate.statement import state
from pate.student import Student
from pate.sweeps import School, Sweep
from pate.whatif import Point, Scene, label, make_point

PRIVATE = (
    "PRIVATE: not covered by any epsilon. This page shows a student of the votes themselves, without noise, and gains "
    "that are measured by it. It must not leave the private room; release/report is the page that may."
)
SEEDED = "NOT PRIVATE: the noise was drawn from a seed, for a study that can be repeated."


@dataclass(frozen=True)
class Study:
    """A study's settings.

    Attributes:
        mechanisms: name -> configuration, as in conf/mechanism; calibrated to every epsilon.
        fixed: name -> configuration whose own noise is kept, shown at what it really costs; `note` is for the reader.
        only: some of these names; None: all.
        epsilons: what each is calibrated to spend.
        neighbours: one relation, or several.
        seeds: labellings and students per point.
        target: its conversion decides what calibrated epsilons are computed by; nothing else of it is read.
        sweeps: `queries`, `teachers`, `labels`: what else is varied, one at a time.
    """

    mechanisms: dict[str, Any]
    fixed: dict[str, Any]
    only: tuple[str, ...] | None
    epsilons: tuple[float, ...]
    neighbours: Neighbours | tuple[Neighbours, ...]
    seeds: int
    target: Target
    budget: Budget
    noise_seed: int | None
    sweeps: tuple[Literal["queries", "teachers", "labels"], ...]
    sweep: Sweep

    def __post_init__(self) -> None:
        require(self.seeds >= 1, "seeds", ">= 1", self.seeds)
        require(len(self.relations) >= 1, "neighbours", "at least one relation", self.neighbours)
        both = [name for name in self.fixed if name in self.mechanisms]
        require(not both, "fixed", "names that no calibrated mechanism has", both)
        for name in self.only or ():
            known = [*self.mechanisms, *self.fixed]
            if name not in known:
                raise SettingError("only", f"names out of {', '.join(known)}", name)

    @property
    def relations(self) -> tuple[Neighbours, ...]:
        """Every neighbour relation, once."""
        several = self.neighbours if isinstance(self.neighbours, tuple) else (self.neighbours,)
        return tuple(dict.fromkeys(several))

    def chosen(self, configurations: Mapping[str, Any]) -> dict[str, Any]:
        """Those that `only` leaves."""
        return {name: config for name, config in configurations.items() if self.only is None or name in self.only}

    def points(self, scene: Scene) -> list[Point]:
        """Every mechanism under every relation at every epsilon, and the ones with a given noise."""
        wanted = [*product(self.chosen(self.mechanisms).items(), self.relations, self.epsilons)]
        wanted += product(self.chosen(self.fixed).items(), self.relations, (None,))
        progress = tqdm(wanted, desc="calibrate", unit="point", delay=2)
        points = [self._point(name, config, scene, how, target) for (name, config), how, target in progress]
        require(bool(points), "epsilons", "at least one, or a fixed mechanism", self.epsilons)
        for point in points:
            try:
                point.epsilon(self.budget.delta)  # before any work: a given noise may have no epsilon at this delta
            except SettingError as error:
                raise SettingError(f"budget.{error.name}", f"{error.rule} of {point.name}", error.value) from None
        return points

    def sweep_points(self, scene: Scene, remarks: list[str]) -> list[Point]:
        """Every mechanism at one place of a sweep, under the first relation; one that cannot be there is remarked."""
        points = []
        for (name, config), target in product(self.chosen(self.mechanisms).items(), self.sweep.epsilons(scene.axis)):
            try:
                points.append(self._point(name, config, scene, self.relations[0], target))
            except SettingError as error:
                teachers, queries, labels = scene.size
                place = f"{teachers} teachers, {queries} queries, {labels} labels"
                remarks.append(f"No {name} at {place} and epsilon {target:g}: {error}.")
        return points

    def _point(
        self, name: str, config: Mapping[str, Any], scene: Scene, how: Neighbours, epsilon: float | None
    ) -> Point:
        target = Target() if epsilon is None else Target(epsilon, conversion=self.target.conversion)
        return make_point(name, config, scene, neighbours=how, delta=self.budget.delta, target=target)


@dataclass(frozen=True)
class Outcome:
    """What a study found.

    Attributes:
        rows: of the study itself, references last. Those of noiseless votes are private.
        sweeps: of each sweep, by what it varies.
        remarks: sentences about points that could not be made.
    """

    rows: list[Row]
    sweeps: dict[str, list[Row]]
    remarks: tuple[str, ...]

    def released(self) -> "Outcome":
        """Without what must not leave."""
        return Outcome(released(self.rows), {axis: released(own) for axis, own in self.sweeps.items()}, self.remarks)


def compare(school: School, study: Study, student: Student, queries: int | None) -> Outcome:
    """The whole comparison: label, teach, and one row per point, with the references of every scene."""
    run, remarks = school.run, list[str]()
    scenes = [Scene("", Ballots.load(run).first(queries))]
    scenes += [scene for axis in study.sweeps for scene in study.sweep.scenes(axis, school, queries, remarks)]
    asked = [study.sweep_points(scene, remarks) if scene.axis else study.points(scene) for scene in scenes]
    points = [point for some in asked for point in some]
    seeds = dict.fromkeys(study.sweeps, study.sweep.seeds) | {"": study.seeds}
    paths = label(points, seeds, study.noise_seed, run.release / "study")
    split, network = school.seen()
    room = Classroom.furnish(private_folder(run.private / "study"), split, network, student)
    results = run.release / "study" / "students"
    groups = [
        [Pupil(path, school.seed + n, point.scene.view, results) for n, path in enumerate(own)]
        for point, own in zip(points, paths, strict=True)
    ]
    references = [_references(scene, split, run, seeds[scene.axis], school.seed) for scene in scenes]
    found = iter(room.teach([*groups, *(group for pair in references for group in pair)], school.devices))
    rows = [(point.scene, _row(point, next(found), study.budget.delta)) for point in points]
    rows += [(scene, row) for scene in scenes for row in _levels(scene, split, student, next(found), next(found))]
    by_axis = {axis: [row for scene, row in rows if scene.axis == axis] for axis in ("", *study.sweeps)}
    return Outcome(by_axis.pop(""), by_axis, tuple(remarks))


# --- references --------------------------------------------------------------------------------------------


def _references(scene: Scene, split: Split, run: Run, seeds: int, seed: int) -> list[list[Pupil]]:
    """Students of the truth, and students of the votes without noise; what comes of the latter never leaves."""
    ballots = scene.look()
    truth = _truth(scene, split)
    counts, teachers = ballots.votes.sum(axis=0, dtype=np.int64), len(ballots.votes)
    everything = np.ones(len(truth), bool)
    known = Labels(ballots.ids, truth, everything, None, float("nan"), 1)
    noiseless = Labels(ballots.ids, 2 * counts > teachers, everything, counts.astype(float), 0.0, teachers)
    rooms = ((_keep(known, run), run.release, False), (_keep(noiseless, run), run.private, True))
    return [
        [Pupil(path, seed + n, scene.view, room / "study" / "students", private) for n in range(seeds)]
        for path, room, private in rooms
    ]


def _truth(scene: Scene, split: Split) -> np.ndarray:
    """The queries' true labels, as the scene sees them."""
    truth = split.public.labels[positions(scene.ballots.ids, split.public.ids)]
    return truth if scene.view is None else scene.view.of(truth)


def _keep(labels: Labels, run: Run) -> Path:
    """Write what a reference learns into the private room."""
    data = labels.encode()
    path = private_folder(run.private / "study" / "references") / f"{sha256(data)[:24]}.npz"
    if not path.exists():
        write_bytes(path, data, mode=0o600)
    return path


def _levels(
    scene: Scene, split: Split, student: Student, known: Sequence[Found], noiseless: Sequence[Found]
) -> list[Row]:
    """What no mechanism takes part in: the prior, nothing, the truth, the votes themselves."""
    truth = split.test.labels if scene.view is None else scene.view.of(split.test.labels)
    prior = metrics.prior_only(_truth(scene, split), truth, decision=student.decision).scalars()
    zeros = metrics.all_zeros(truth).scalars()
    levels = {PRIOR_ONLY: [prior], ALL_ZEROS: [zeros], NON_PRIVATE: known, NOISELESS: noiseless}
    return [
        Row(name, None, None, None, None, None, **_scores(found), **_sizes(scene)) for name, found in levels.items()
    ]


# --- rows --------------------------------------------------------------------------------------------------


def _row(point: Point, found: Sequence[Found], delta: float) -> Row:
    """A point's results over its seeds."""
    accuracies = [one["label_accuracy"] for one in found if one["label_accuracy"] is not None]
    return Row(
        mechanism=point.name,
        neighbours=point.neighbours,
        epsilon=point.epsilon(delta),
        delta=delta,
        answered=float(np.mean([one["answered"] for one in found])),
        label_accuracy=float(np.mean(accuracies)) if accuracies else None,
        label_f1=float(np.mean([one["label_f1"] for one in found])),
        settings=plain(point.mechanism),
        note=point.note,
        **_scores(found),
        **_sizes(point.scene),
    )


def _scores(found: Sequence[Found]) -> dict[str, Any]:
    """The students' figures, those that are defined."""
    names = {"mean_accuracy": "accuracy", "macro_f1": "macro_f1", "micro_f1": "micro_f1", "mean_ap": "mean_ap"}
    taught = [one for one in found if "nothing" not in one]
    return {
        field: tuple(one[name] for one in taught if one[name] is not None and np.isfinite(one[name]))
        for name, field in names.items()
    }


def _sizes(scene: Scene) -> dict[str, Any]:
    return dict(zip(("teachers", "queries", "labels"), scene.size, strict=True))


# --- report ------------------------------------------------------------------------------------------------


def report(run: Run, study: Study, outcome: Outcome, data: str, settings: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write the page that may leave, with pictures, CSV and TensorBoard, and the private one with what may not."""
    first, exact = outcome.rows[0], study.target.conversion == "exact"
    ballots = Ballots.load(run)
    facts = {
        "data": data,
        "teachers": str(first.teachers),
        "queries": str(first.queries),
        "seeds": str(study.seeds),
        "conversion": study.target.conversion + (" where all noise is Gaussian" if exact else ""),
        "date": date.today().isoformat(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    common: dict[str, Any] = {
        "title": "How good a student does an honest epsilon buy?",
        "facts": facts,
        "statement": "\n\n".join(_statement(run, study, how, ballots) for how in study.relations),
        "settings": settings,
        "remarks": outcome.remarks,
    }
    seeded = [SEEDED] if study.noise_seed is not None else []
    public = outcome.released()
    page = write_report(run.release / "report", public.rows, sweeps=public.sweeps, warnings=seeded, **common)
    write_board(run.release / "tensorboard" / "compare", public.rows, public.sweeps, page.parent)
    own = private_folder(run.private / "report")
    warnings = [PRIVATE, *seeded]
    secret = write_report(own, outcome.rows, sweeps=outcome.sweeps, warnings=warnings, private=True, **common)
    return page, secret


def _statement(run: Run, study: Study, how: Neighbours, ballots: Ballots) -> str:
    """What all labellings of the study cost together, which is more than any one of its rows."""
    with Ledger(run.release / "study" / how / "ledger.sqlite") as ledger:
        charges = ledger.charges()
    delta = max(study.budget.delta, min(0.5, study.budget.delta * len(charges)))  # each labelling brings its own share
    said = state(charges, delta=delta, unit=ballots.unit, num_teachers=len(ballots.votes), weights=ballots.weights).text
    counts = sorted({charge.details["teachers"] for charge in charges})
    cuts = f" The private data was cut into {', '.join(map(str, counts))} parts; one teacher of each cut may differ."
    parts = cuts if len(counts) > 1 else ""
    alone = (
        f" What follows is about the labellings calibrated for {how} alone. Those for another relation are not in it, "
        f"and no epsilon is stated for both together: a page to be given away is made with neighbours={how}."
    )
    return (
        "Each row's epsilon is that of one labelling (every seed drew another), if it alone is published and was not "
        "chosen by looking at results. Publishing this whole page publishes something of all labellings, and their "
        f"costs add up.{alone if len(study.relations) > 1 else ''}{parts}\n\n{said}"
    )

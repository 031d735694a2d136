"""The study: one set of votes, every mechanism at several epsilons, labelled and taught again for each seed.

Its releases are what-ifs. They go to a ledger of their own, which says what they cost together if all of them (or a
choice made after looking at them) were published.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pate import metrics, noise
from pate.accounting import Neighbours
from pate.ballots import Ballots, positions
from pate.data.records import Records, Split
from pate.errors import SettingError, require
from pate.labels import Labels, Request, Target, plain, prepare_mechanism, release
from pate.ledger import Ledger
from pate.mechanisms import Mechanism
from pate.models import Network
from pate.report import NON_PRIVATE, PRIOR_ONLY, Row, write_report
from pate.runs import Run, private_folder, versions, write_json
from pate.statement import state
from pate.student import NothingReleased, Student, predict, targets, train_student
from pate.teachers.pool import Mapped, Pool

Job = dict[str, Any]  # one student: `answer`, the file of its labels (None: the truth), and `seed`


@dataclass(frozen=True)
class Point:
    """One mechanism at one epsilon under one neighbour relation."""

    name: str
    epsilon: float
    neighbours: Neighbours
    mechanism: Mechanism


@dataclass(frozen=True)
class Study:
    """A study's settings.

    Attributes:
        mechanisms: name -> configuration, as in conf/mechanism.
        epsilons: what each is calibrated to spend.
        seeds: labellings and students per point.
    """

    mechanisms: Mapping[str, Mapping[str, Any]]
    epsilons: Sequence[float]
    neighbours: Sequence[Neighbours]
    delta: float
    seeds: int
    noise_seed: int | None

    def points(self, ballots: Ballots) -> list[Point]:
        """Every combination, calibrated."""
        require(self.seeds >= 1, "seeds", ">= 1", self.seeds)
        combinations = list(product(self.mechanisms, self.neighbours, self.epsilons))
        progress = tqdm(combinations, desc="calibrate", unit="point", delay=2)
        return [
            Point(name, epsilon, how, self._calibrated(name, epsilon, how, ballots)) for name, how, epsilon in progress
        ]

    def _calibrated(self, name: str, epsilon: float, neighbours: Neighbours, ballots: Ballots) -> Mechanism:
        return prepare_mechanism(
            self.mechanisms[name],
            num_labels=len(ballots.label_names),
            num_teachers=len(ballots.votes),
            neighbours=neighbours,
            queries=len(ballots.ids),
            delta=self.delta,
            target=Target(epsilon),
        )


def only(mechanisms: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """The named mechanisms, or all of them."""
    for name in names or ():
        if name not in mechanisms:
            raise SettingError("only", f"names out of {', '.join(mechanisms)}", name)
    return {name: config for name, config in mechanisms.items() if names is None or name in names}


def label(study: Study, points: Sequence[Point], ballots: Ballots, folder: Path) -> list[list[Path]]:
    """Release each point's labels once per seed; answer files, points x seeds. What a ledger has is not drawn again."""
    ledgers = {how: Ledger(folder / how / "ledger.sqlite") for how in study.neighbours}
    progress = tqdm(total=len(points) * study.seeds, desc="label", unit="release", delay=2)
    paths = []
    for number, point in enumerate(points):
        for seed in range(study.seeds):
            source = noise.system() if study.noise_seed is None else noise.seeded(study.noise_seed, number, seed)
            request = Request(point.mechanism, ballots.ids, ballots.digest, source, seed, unit=ballots.unit)
            paths.append(release(request, ballots.votes, ledgers[point.neighbours]).path)
            progress.update()
    progress.close()
    return [paths[start : start + study.seeds] for start in range(0, len(paths), study.seeds)]


def teach(jobs: Sequence[Job], lesson: Mapping[str, Any], results: Path, devices: str) -> list[dict[str, Any]]:
    """One student per job, in parallel; results are kept, so a rerun trains only what is missing."""
    paths = [results / f"{_key(job, lesson)}.json" for job in jobs]
    missing = [place for place, path in enumerate(paths) if not path.exists()]
    if missing:
        done = Pool(devices).run("pate.study:teach_one", lesson, [jobs[place] for place in missing])
        for result in tqdm(done, total=len(missing), desc="students", unit="student", delay=2):
            write_json(paths[missing[result.index]], result.value())
    return [json.loads(path.read_text()) for path in paths]


def teach_one(lesson: Mapping[str, Any], job: Job, device: str) -> dict[str, Any]:
    """The pool's job: train and judge one student. Without an answer file it learns the truth, as the reference."""
    student, network, truth = lesson["student"], lesson["network"], lesson["truth"]
    if job["answer"] is None:
        labels = Labels(np.arange(len(truth)), truth, np.ones(len(truth), bool), None, float("nan"), 1)
    else:
        labels = Labels.load(Path(job["answer"]))
    agreement = metrics.label_accuracy(labels.labels, labels.answered, truth) if labels.answered.any() else None
    found = {"answered": labels.answered_fraction, "label_accuracy": agreement}
    try:
        goal = targets(labels.labels, labels.answered, labels.scores, labels.num_teachers, student, labels.score_sd)
        model = train_student(np.asarray(lesson["public"]), goal, network, student, seed=job["seed"], device=device)
    except NothingReleased as error:
        return found | {"nothing": str(error)}
    guesses = predict(model, lesson["test"], network, device)
    return found | metrics.evaluate(guesses, lesson["test_truth"]).scalars()


def compare(
    run: Run,
    study: Study,
    ballots: Ballots,
    split: Split,
    network: Network,
    student: Student,
    *,
    devices: str,
    seed: int,
) -> list[Row]:
    """The whole comparison: label, teach, and one row per point, with the two references."""
    points = study.points(ballots)
    paths = label(study, points, ballots, run.release / "study")
    public = split.public.take(positions(ballots.ids, split.public.ids))
    lesson = _lesson(private_folder(run.private / "study"), public, split.test, network, student)
    jobs: list[Job] = [{"answer": str(path), "seed": seed + n} for row in paths for n, path in enumerate(row)]
    jobs += [{"answer": None, "seed": seed + n} for n in range(study.seeds)]
    found = teach(jobs, lesson, run.release / "study" / "students", devices)
    groups = [found[start : start + study.seeds] for start in range(0, len(found), study.seeds)]
    rows = [_row(point, group, study, len(ballots.ids)) for point, group in zip(points, groups, strict=False)]
    prior = metrics.prior_only(public.labels, split.test.labels).scalars()
    return [*rows, _reference(PRIOR_ONLY, [prior]), _reference(NON_PRIVATE, groups[-1])]


def _lesson(folder: Path, public: Records, test: Records, network: Network, student: Student) -> dict[str, Any]:
    """What all students share: inputs as files that workers map, everything small as values."""
    for name, records in (("public", public), ("test", test)):
        np.save(folder / f"{name}.npy", records.inputs)
    files = {name: Mapped(folder / f"{name}.npy") for name in ("public", "test")}
    return files | {"truth": public.labels, "test_truth": test.labels, "network": network, "student": student}


def _key(job: Job, lesson: Mapping[str, Any]) -> str:
    """What a student's result depends on, as a file name."""
    digest = hashlib.sha256(b"" if job["answer"] is None else Path(job["answer"]).read_bytes())
    for name in ("public", "test"):
        digest.update(hashlib.sha256(lesson[name].path.read_bytes()).digest())
    for name in ("truth", "test_truth"):
        digest.update(np.packbits(lesson[name]).tobytes())
    settings = {"seed": job["seed"], "network": asdict(lesson["network"]), "student": asdict(lesson["student"])}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def _row(point: Point, found: Sequence[Mapping[str, Any]], study: Study, queries: int) -> Row:
    """A point's results over its seeds."""
    taught = [one for one in found if "nothing" not in one]
    accuracies = [one["label_accuracy"] for one in found if one["label_accuracy"] is not None]
    return Row(
        mechanism=point.name,
        neighbours=point.neighbours,
        epsilon=point.mechanism.cost(queries).epsilon(study.delta),
        delta=study.delta,
        answered=float(np.mean([one["answered"] for one in found])),
        label_accuracy=float(np.mean(accuracies)) if accuracies else None,
        accuracy=tuple(one["mean_accuracy"] for one in taught),
        macro_f1=tuple(one["macro_f1"] for one in taught),
        settings=plain(point.mechanism),
    )


def _reference(name: str, found: Sequence[Mapping[str, Any]]) -> Row:
    """A level that no mechanism takes part in."""
    scores = {key: tuple(one[key] for one in found) for key in ("mean_accuracy", "macro_f1")}
    return Row(name, None, None, None, None, None, scores["mean_accuracy"], scores["macro_f1"])


def report(
    run: Run, study: Study, ballots: Ballots, rows: Sequence[Row], data: str, settings: Mapping[str, Any]
) -> Path:
    """Write page, picture and CSV, and the same to TensorBoard; all of it is post-processing of the releases."""
    statement = "\n\n".join(_statement(run, study, how, ballots) for how in study.neighbours)
    seeded = study.noise_seed is not None
    facts = {
        "data": data,
        "teachers": str(len(ballots.votes)),
        "queries": str(len(ballots.ids)),
        "seeds": str(study.seeds),
        "date": date.today().isoformat(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }
    page = write_report(
        run.release / "report",
        rows,
        title="How good a student does an honest epsilon buy?",
        facts=facts,
        statement=statement,
        settings=settings,
        warnings=["NOT PRIVATE: the noise was drawn from a seed, for a study that can be repeated."] if seeded else [],
    )
    _tensorboard(run.release / "tensorboard" / "compare", rows, page.parent / "frontier.png")
    return page


def _statement(run: Run, study: Study, how: Neighbours, ballots: Ballots) -> str:
    """What all labellings of the study cost together, which is more than any one of its rows."""
    ledger = Ledger(run.release / "study" / how / "ledger.sqlite")
    text = state(
        ledger.charges(), delta=_total_delta(ledger, study.delta), unit=ballots.unit, num_teachers=len(ballots.votes)
    ).text
    return (
        "Each row's epsilon is that of one labelling (every seed drew another), if it alone is published and was not "
        "chosen by looking at results. Publishing this whole page publishes something of all labellings, and their "
        f"costs add up:\n\n{text}"
    )


def _total_delta(ledger: Ledger, delta: float) -> float:
    """delta for everything together: each labelling brings its own share."""
    return max(delta, min(0.5, delta * len(ledger.charges())))


def _tensorboard(folder: Path, rows: Sequence[Row], picture: Path) -> None:
    """Scalars over epsilon (in thousandths, since steps are whole numbers) and the picture."""
    from matplotlib.image import imread
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        for row in rows:
            if row.epsilon is not None and row.mean is not None and np.isfinite(row.epsilon):
                writer.add_scalar(f"accuracy/{row.mechanism} {row.neighbours}", row.mean, round(1000 * row.epsilon))
        writer.add_image("frontier", imread(picture)[..., :3], dataformats="HWC")

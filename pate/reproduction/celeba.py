"""Zhu & Wang 2022, Table 2: 600 queries about 40 attributes to 800 teachers; what its privacy column really costs.

Votes are simulated from the real attributes (`simulator`), or are those of a run of train_teachers.py on pictures.
Accuracy is that of the released labels, where the paper's is that of a student, which needs pictures: `compare.py`.
Both kinds of results have a name of their own, so that neither is written over the other.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure

from pate.accounting import NEIGHBOURS, Neighbours, calibrate, curves, noisy_max
from pate.accounting import conversion as convert
from pate.accounting.conversion import ORDERS, Conversion
from pate.ballots import Ballots, positions
from pate.data.celeba import read_lists
from pate.errors import DataError, MissingInput, require
from pate.mechanisms import GaussianChoice, GaussianTest, GumbelChoice, Mechanism, NoisyCounts, StableTopK, TauBallots
from pate.mechanisms.base import Answer, Bools, Floats, Tally, gap_sensitivity
from pate.mechanisms.stability import Offset
from pate.reproduction.experiment import Context, Experiment, Row, markdown, spread, unique, where
from pate.reproduction.picture import Dash, Panel, Series, chart, lines
from pate.reproduction.simulator import LIKE, TRAIN, Population, Teachers, celeba_folder
from pate.runs import Run

PATE, TAU, STABLE, GUMBEL = "PATE", "PATE-τ", "StableTopK", "StableTopK Gumbel"
LITERAL = "StableTopK, z as printed"
PRINTED = {PATE: 10.0, TAU: 7.7}  # epsilon that their noise is made for, since no noise is printed
BEST, AS_PUBLISHED = "not private", "as published, not a guarantee"
# Printed epsilon, and printed accuracy of the student.
SAID = {BEST: ("", "89.5"), PATE: ("> 10", "85.0 ± 0.1"), TAU: ("7.7", "85.1 ± 0.2"), STABLE: ("3.6", "85.0 ± 0.2")}
OURS, SAME_SPREAD = "valid minimum (ours)", "Gumbel noise of the same deviation"
CONVERSIONS: tuple[Conversion, ...] = ("published", "tight")
CAPTION = """600 queries, tight conversion; dashed: Gumbel noise chooses k. Accuracy is that of released labels, against
the truth. PATE answers every query; StableTopK answers the easier ones, so on the right the others get the usual
labels, known without any query. In the middle only if 0.5 % or more are answered. Dotted: the paper's
noise, sigma 50 and 60, from the printed epsilon to the one that it costs."""
SIMULATED = """ Votes are simulated on real labels: teachers as with 203 pictures each, as in the paper, and as with 14,
as the subset allows."""
OF_RUN = "run "  # begins the name of real teachers
FEW = 0.005  # of the queries
TRAINING = "python train_teachers.py experiment=celeba_paper data.root=PATH"
FULL = f"""These votes are simulated. With CelebA's pictures and lists in PATH, the paper's protocol takes two commands:
`{TRAINING} run=paper`, its 800 ResNet50 teachers, for which plan GPUs; then
`python reproduce.py experiment=exp3_celeba data.root=PATH reproduction.run=runs/paper`, all of this from their votes.
(`python compare.py experiment=celeba_paper data.root=PATH run=paper` goes on from the same teachers to students.)"""
SHOWN = {
    "answered": "queries answered",
    "accuracy": "label accuracy where answered",
    "filled": "label accuracy, others filled",
}


@dataclass(frozen=True)
class Questions:
    """One trial's queries: the truth, and the counts with and without ballots scaled to tau.

    Attributes:
        one_teacher: label accuracy of a single teacher, on average.
        usual: (K,) what is more often true than not, whatever the picture.
    """

    truth: Bools
    plain: Tally
    scaled: Tally
    one_teacher: float
    usual: Bools

    @property
    def majority(self) -> Bools:
        return np.asarray(self.plain) * 2 > (self.plain.num_teachers or 0)

    def counts(self, mechanism: Mechanism) -> Tally:
        return self.scaled if isinstance(mechanism, TauBallots) else self.plain

    def filled(self, answer: Answer) -> float:
        """Label accuracy over all queries, those not answered getting the usual labels."""
        return float((np.where(answer.answered[:, None], answer.labels, self.usual) == self.truth).mean())


@dataclass(frozen=True)
class Celeba(Experiment):
    """The table's three methods at the printed noise, its prices by every accounting, all at equal epsilon.

    Attributes:
        pictures: per teacher, of the real teachers that the simulated ones are like.
        tau: of PATE-τ; the paper does not say. The mean face has 9 attributes.
        sigma1, sigma2, delta_t: StableTopK's choice and test.
        run: folder of a run of train_teachers.py, whose votes are used instead; evaluation, not a release.
    """

    name: ClassVar[str] = "exp3_celeba"
    title: ClassVar[str] = "CelebA: Zhu & Wang Table 2"

    pictures: tuple[int, ...] = (203, 14)
    teachers: int = 800
    queries: int = 600
    epsilons: tuple[float, ...] = (1.0, 2.0, 3.6, 7.7, 16.0)
    tau: float = 8.0
    sigma1: float = 50.0
    sigma2: float = 60.0
    delta_t: float = 1e-9
    delta: float = 1e-6
    trials: int = 5
    run: str | None = None

    @property
    def file(self) -> str:
        return f"{self.name}_votes" if self.run else self.name

    def __post_init__(self) -> None:
        known = set(self.pictures) <= set(LIKE) and len(self.pictures) > 0
        require(known, "pictures", f"some of {', '.join(map(str, LIKE))}", self.pictures)

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 1), pictures=self.pictures[:1], epsilons=(3.6, 16.0))

    def rows(self, context: Context) -> list[Row]:
        asked = self.real(context.data()) if self.run else self.simulated(context)
        queries, labels = next(iter(asked.values()))[0].truth.shape
        found = [row for who, trials in asked.items() for row in self._printed(context, who, trials)]
        found += [row for near in NEIGHBOURS for row in self.prices(near, labels, queries)]
        cells = list(product(NEIGHBOURS, self.epsilons, (PATE, TAU, STABLE, GUMBEL)))
        for near, epsilon, method in context.track(cells, self.name):
            mechanism = self.calibrated(method, epsilon, near, labels, queries)
            said = {"part": "equal epsilon", "method": method, "epsilon": epsilon}
            for who, trials in asked.items():
                found.append(said | {"teachers": who} | self._released(context, mechanism, trials))
        return found

    def simulated(self, context: Context) -> dict[str, list[Questions]]:
        """Fresh queries and fresh teachers in every trial."""
        crowd, asked = Population.load(context.data()), {}
        for pictures in self.pictures:
            sources = [np.random.default_rng([context.seed, pictures, trial]) for trial in range(self.trials)]
            tracked = context.track(sources, f"votes of teachers with {pictures} pictures")
            asked[f"{pictures} pictures"] = [self._simulated(crowd, LIKE[pictures], rng) for rng in tracked]
        return asked

    def _simulated(self, crowd: Population, teachers: Teachers, rng: np.random.Generator) -> Questions:
        truth = crowd.queries(self.queries, rng)
        return self._questions(truth, teachers.votes(truth, crowd, self.teachers, rng), crowd.prior > 0.5)

    def real(self, root: Path) -> dict[str, list[Questions]]:
        """A run's votes in every trial, the truth from CelebA's lists in `<root>/celeba` or `<root>`."""
        folder = Path(str(self.run)).expanduser().resolve()
        if not (folder / "private" / "queries.json").is_file():
            raise MissingInput(f"{folder} has no votes: {TRAINING} run={folder.name} runs={folder.parent} makes them")
        ballots = Ballots.load(Run(folder.parent, folder.name))
        ballots = ballots.first(min(self.queries, len(ballots.ids)))
        lists = read_lists(celeba_folder(root))
        if ballots.label_names != lists.label_names:
            raise DataError(f"the votes in {folder} are about other labels than CelebA's lists in {root}")
        truth = np.asarray(lists.labels[positions(ballots.ids, lists.names)])
        usual = lists.labels[lists.partition == TRAIN].mean(axis=0) > 0.5
        return {f"{OF_RUN}{folder.name}": [self._questions(truth, ballots.votes, usual)] * self.trials}

    def _questions(self, truth: Bools, votes: Bools, usual: Bools) -> Questions:
        labels = truth.shape[1]
        plain = NoisyCounts(num_labels=labels, sigma=1.0).tally(votes)
        scaled = TauBallots(num_labels=labels, sigma=1.0, tau=self.tau).tally(votes)
        return Questions(truth, plain, scaled, float((votes == truth).mean()), usual)

    def paper(self, near: Neighbours, labels: int, offset: Offset = "exact") -> StableTopK:
        """StableTopK with the paper's noise; `published` with its larger quantile too."""
        test = GaussianTest(self.sigma2, self.delta_t, offset)
        return StableTopK(labels, GaussianChoice(self.sigma1), test=test, neighbours=near)

    def calibrated(self, method: str, epsilon: float, near: Neighbours, labels: int, queries: int) -> Mechanism:
        """A method with the noise that spends epsilon."""
        kinds: dict[str, tuple[type[Mechanism], dict[str, Any]]] = {
            PATE: (NoisyCounts, {}),
            TAU: (TauBallots, {"tau": self.tau}),
            STABLE: (StableTopK, {"choose": "gaussian"}),
            GUMBEL: (StableTopK, {"choose": "gumbel"}),
        }
        kind, fixed = kinds[method]
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": self.delta, "queries": queries, "neighbours": near}
        return calibrate(kind, num_labels=labels, **budget, **fixed)

    def _printed(self, context: Context, who: str, trials: list[Questions]) -> Iterator[Row]:
        """Table 2 as it stands: PATE at the printed epsilon, StableTopK at the printed noise."""
        queries, labels = trials[0].truth.shape
        shared = {"part": "printed noise", "teachers": who}
        right = spread("accuracy", np.array([(one.majority == one.truth).mean() for one in trials]))
        others = {"one_teacher": float(np.mean([one.one_teacher for one in trials]))}
        others["usual"] = float(np.mean([(one.usual == one.truth).mean() for one in trials]))
        yield shared | {"method": BEST, "answered": 1.0, "trials": self.trials} | right | others
        for near in NEIGHBOURS:
            kept: dict[str, Mechanism] = {
                method: self.calibrated(method, PRINTED[method], near, labels, queries) for method in (PATE, TAU)
            }
            kept |= {STABLE: self.paper(near, labels), LITERAL: self.paper(near, labels, "published")}
            for method, mechanism in kept.items():
                released = self._released(context, mechanism, trials)
                yield shared | {"method": method, "epsilon": released["charged"]} | released

    def _released(self, context: Context, mechanism: Mechanism, trials: Sequence[Questions]) -> Row:
        """What a mechanism answers, over the trials, and what it is charged; a trial's noise is the same for all."""
        queries = len(trials[0].truth)
        made = [mechanism.release(one.counts(mechanism), context.source(i)) for i, one in enumerate(trials)]
        row = spread("answered", np.array([answer.answered.mean() for answer in made]))
        row |= spread("filled", np.array([one.filled(answer) for one, answer in zip(trials, made, strict=True)]))
        got = [(one, answer) for one, answer in zip(trials, made, strict=True) if answer.answered.any()]
        if got:  # accuracy and k of what is answered; of nothing there is none
            right = [(answer.labels == one.truth)[answer.answered].mean() for one, answer in got]
            majority = [(one.majority == one.truth)[answer.answered].mean() for one, answer in got]
            sizes = [answer.labels[answer.answered].sum(axis=1).mean() for _, answer in got]
            row |= spread("accuracy", np.array(right))
            row |= {"majority_there": float(np.mean(majority)), "k": float(np.mean(sizes))}
        charged = mechanism.cost(queries).epsilon(self.delta)
        paid = {"charged": charged, "delta": self.delta, "neighbours": mechanism.neighbours, "conversion": "tight"}
        return row | paid | {"queries": queries, "trials": self.trials, "settings": _settings(mechanism)}

    def prices(self, near: Neighbours, labels: int, queries: int) -> Iterator[Row]:
        """The paper's StableTopK by every accounting; the first reproduces the printed epsilon and is no guarantee."""
        mechanism = self.paper(near, labels)
        left = self.delta - queries * self.delta_t
        require(left > 0, "delta", f"> {queries} delta_t", self.delta)
        gumbel = replace(mechanism, choose=GumbelChoice(self.sigma1 * math.sqrt(6) / math.pi))
        for conversion in CONVERSIONS:
            rule = convert.published_epsilon if conversion == "published" else convert.tight_epsilon
            found = {name: rule(queries * curve, left) for name, curve in self._curves(near, labels).items()}
            found |= {OURS: mechanism.cost(queries).epsilon(self.delta, conversion)}
            found |= {SAME_SPREAD: gumbel.cost(queries).epsilon(self.delta, conversion)}
            if near == "teacher_added":  # the relation that the paper analyses
                found = {AS_PUBLISHED: mechanism.as_published(queries).epsilon(self.delta, conversion)} | found
            for name, epsilon in found.items():
                said = {"part": "price", "accounting": name, "epsilon": epsilon, "delta": self.delta}
                said |= {"valid": "no" if name == AS_PUBLISHED else "yes", "neighbours": near}
                yield said | {"conversion": conversion, "queries": queries}

    def _curves(self, near: Neighbours, labels: int) -> dict[str, Floats]:
        """One query's Rényi curve by bounds that the library has and does not need."""
        reach = gap_sensitivity(near)
        ratio, gaps, test = reach / self.sigma1, labels - 1, curves.gaussian(ORDERS, reach / self.sigma2)
        return {
            f"Corollary 9 with log {labels}": noisy_max.union(ORDERS, labels, ratio) + test,
            f"Corollary 9 with log {gaps}": noisy_max.union(ORDERS, gaps, ratio) + test,
            "whole gap vector": noisy_max.gap_vector(ORDERS, gaps * ratio**2) + test,
        }

    def picture(self, rows: Sequence[Row]) -> Figure:
        own = where(rows, part="equal epsilon", neighbours="teacher_changed")
        panels = []
        for who, column in product(unique(own, "teachers"), SHOWN):
            drawn = [row | {column: _height(row, column)} for row in where(own, teachers=who)]
            series = [*lines(drawn, "method", "epsilon", column, dash=_dash, marker=True), _paid(rows, who, column)]
            limits = (-0.03, 1.05) if column == "answered" else None
            titles = (f"teachers: {who}", "epsilon, log scale", SHOWN[column])
            panels.append(Panel(*titles, series, "x", limits, at=unique(own, "epsilon")))
        below = f"{rows[0]['trials']} trials, δ = {self.delta:g}, one ballot may change · {says(rows)}"
        words = CAPTION + ("" if own[0]["teachers"].startswith(OF_RUN) else SIMULATED)
        return chart("CelebA: what 40 labels cost", below, panels, len(SHOWN), words, height=2.3)

    def table(self, rows: Sequence[Row]) -> str:
        simulated = not rows[0]["teachers"].startswith(OF_RUN)
        parts = [_table_2(rows), _price_table(rows), _equal_table(rows), *([FULL] if simulated else [])]
        return "\n\n".join(parts)


def says(rows: Sequence[Row]) -> str:
    """What the printed 3.6 costs, in one line."""
    price = {row["neighbours"]: row["epsilon"] for row in where(rows, accounting=OURS, conversion="tight")}
    return "the printed ε 3.6 costs {teacher_added:.2f} (ballot added), {teacher_changed:.2f} (changed)".format(**price)


def _table_2(rows: Sequence[Row]) -> str:
    """Printed noise: what is printed, what it costs, what is answered, how right that is."""
    body = []
    for row in where(rows, part="printed noise"):
        near, method = row.get("neighbours", ""), row["method"]
        paid = f"{row['charged']:.2f}" if "charged" in row else "∞"
        printed, size = SAID.get(method, ("", "")), f"{row['k']:.1f}" if "k" in row else ""
        body.append([row["teachers"], near, method, *(f"*{word}*" if word else "" for word in printed), paid])
        body[-1] += [_share(row, "answered"), _share(row, "accuracy", spread=True)]
        body[-1] += [_share(row, "majority_there"), _share(row, "filled"), size]
    heading = ["teachers", "neighbours", "method", "*printed ε*", "*student*", "true ε", "answered, %"]
    return markdown([*heading, "label accuracy there, %", "majority's there, %", "others filled, %", "mean k"], body)


def _price_table(rows: Sequence[Row]) -> str:
    """Every accounting, both relations, both conversions."""
    own, cells = where(rows, part="price"), list(product(NEIGHBOURS, CONVERSIONS))
    body = []
    for name in unique(own, "accounting"):
        found = [where(own, accounting=name, neighbours=near, conversion=conversion) for near, conversion in cells]
        body.append([name, *(f"{row[0]['epsilon']:.2f}" if row else "" for row in found)])
    return markdown(["ε of StableTopK's 600 queries", *(f"{near}, {conversion}" for near, conversion in cells)], body)


def _equal_table(rows: Sequence[Row]) -> str:
    """At equal epsilon, teacher_changed: how many are answered, how right these are, how right all are when filled."""
    own, body = where(rows, part="equal epsilon", neighbours="teacher_changed"), []
    epsilons = unique(own, "epsilon")
    for who, method in product(unique(own, "teachers"), unique(own, "method")):
        found = [where(own, teachers=who, method=method, epsilon=each)[0] for each in epsilons]
        body.append([who, method, *(" / ".join(_told(row, name) for name in SHOWN) for row in found)])
    heading = ["teachers", "answered / accuracy there / others filled, %", *(f"ε = {each:g}" for each in epsilons)]
    return markdown(heading, body)


def _told(row: Row, name: str) -> str:
    """A share, if it is that of more than a handful of answers."""
    return "–" if math.isnan(_height(row, name)) else _share(row, name)


def _share(row: Row, name: str, spread: bool = False) -> str:
    """A share in percent, with its standard deviation over the trials if asked for."""
    if name not in row:
        return "–"
    return f"{100 * row[name]:.1f}" + (f" ± {100 * row[f'{name}_sd']:.1f}" if spread else "")


def _settings(mechanism: Mechanism) -> str:
    """The noise in words."""
    if isinstance(mechanism, StableTopK):
        parts: tuple[Any, Any] = mechanism.choose, mechanism.stability
        choice, test = (next(iter(vars(part).values())) for part in parts)
        return f"choice {choice:.4g}, test {test:.4g}"
    return ", ".join(f"{name} {getattr(mechanism, name):.4g}" for name in mechanism.noise_fields)


def _dash(row: Row) -> Dash:
    return "dashed" if row["method"] == GUMBEL else "solid"


def _paid(rows: Sequence[Row], who: str, column: str) -> Series:
    """The paper's noise: from the printed epsilon to the true one."""
    near = "teacher_changed"
    row = where(rows, part="printed noise", teachers=who, method=STABLE, neighbours=near)[0]
    name, height = "StableTopK, printed noise: printed to true ε", _height(row, column)
    return Series(name, [3.6, row["charged"]], [height] * 2, None, "dotted", True)


def _height(row: Row, column: str) -> float:
    """A point's height; an accuracy only where it is that of more than a handful of answers."""
    few = column == "accuracy" and row["answered"] < FEW
    return math.nan if few else float(row[column])

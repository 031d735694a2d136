"""Zhu & Wang 2022, Figure 1(a): the fifteen states with most new COVID-19 cases, day by day, ten days to a budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pate.accounting import PrivacyCost, calibrate
from pate.data.covid import load_daily_cases
from pate.errors import DataError
from pate.mechanisms import FixedTopK, LimitedDomain, Mechanism, PeelingExponential, TopStable
from pate.mechanisms.base import Bools
from pate.mechanisms.order import largest
from pate.noise import FloatNoise
from pate.reproduction.contenders import stable_then_em
from pate.reproduction.experiment import NEIGHBOURS, Context, Experiment, Row, markdown, spread, unique, where
from pate.reproduction.picture import Dash, Panel, chart, lines

Ints = NDArray[np.int64]
Answers = tuple[Bools, PrivacyCost]
FIRST_DAY = "2020-03-12"
CAPTION = """New York Times' cases by state; a person is added or removed. Gap: median difference between the
15th and the 16th state. TS then EM: half of the budget for TS and, where it answers nothing, half for the
exponential mechanism, as the paper describes; TS alone answers nothing there. StableTopK halves: half of the
budget for the exponential mechanism, as printed; StableTopK: nine tenths."""


@dataclass(frozen=True)
class Question:
    """What is asked of every day of an interval, and what may be spent on the interval."""

    k: int
    days: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Covid(Experiment):
    """Mean recall of the top 15 by interval. A person counts once a day and may count every day."""

    name: ClassVar[str] = "exp2_covid"
    title: ClassVar[str] = "Daily top 15 states: Zhu & Wang Figure 1(a)"

    k: int = 15
    days: int = 10
    intervals: int = 4
    epsilon: float = 0.1
    delta: float = 1e-6
    trials: int = 100

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 5))

    def rows(self, context: Context) -> list[Row]:
        cases = load_daily_cases(context.data())
        if FIRST_DAY not in cases.dates:
            raise DataError(f"the cases by state must have the day {FIRST_DAY} and the one before it")
        start = cases.dates.index(FIRST_DAY)
        question = Question(self.k, self.days, self.epsilon, self.delta)
        cells = [(interval, method) for interval in range(self.intervals) for method in METHODS]
        found = []
        for place, (interval, method) in enumerate(context.track(cells, self.name)):
            first = start + interval * self.days
            counts = np.tile(cases.counts[first : first + self.days], (self.trials, 1))
            labels, cost = METHODS[method](question, counts, context.source(place))
            recall = hits(counts, labels, self.k).reshape(self.trials, self.days).mean(axis=1) / self.k
            gaps = np.diff(-largest(counts[: self.days], self.k + 1)[:, -2:], axis=1)
            said = {"days": f"{1 + interval * self.days}-{(interval + 1) * self.days}", "method": method}
            paid = {"epsilon": self.epsilon, "delta": self.delta, "neighbours": NEIGHBOURS, "conversion": "tight"}
            paid["charged"] = cost.epsilon(self.delta)
            measured = spread("recall", recall) | {"median_gap": float(np.median(gaps))}
            found.append(said | measured | paid | {"k": self.k, "trials": self.trials})
        return found

    def picture(self, rows: Sequence[Row]) -> Figure:
        days = unique(rows, "days")
        placed = [row | {"place": days.index(row["days"])} for row in rows]
        series = lines(placed, "method", "place", "recall", "recall_sd", _dash, marker=True)
        ticks = _headings(rows, "day {}\ngap {:g}")
        panel = Panel("", "", f"recall of the top {self.k} states", series, ylim=(0, 1.02), ticks=ticks)
        budget = f"({self.epsilon:g}, {self.delta:.0e})-DP over {self.days} days from {FIRST_DAY}"
        below = f"{budget} · {rows[0]['trials']} trials, mean and standard deviation"
        return chart(f"Daily top {self.k} states by new COVID-19 cases", below, [panel], 1, CAPTION, height=3.2)

    def table(self, rows: Sequence[Row]) -> str:
        body = [
            [method, *(f"{row['recall']:.3f} ± {row['recall_sd']:.3f}" for row in where(rows, method=method))]
            for method in unique(rows, "method")
        ]
        return markdown(["recall", *_headings(rows, "days {} (gap {:g})")], body)


def _headings(rows: Sequence[Row], words: str) -> list[str]:
    """Each interval with the median gap between the last state inside and the first outside."""
    return [words.format(days, where(rows, days=days)[0]["median_gap"]) for days in unique(rows, "days")]


def _dash(row: Row) -> Dash:
    return "dashed" if row["method"] in ("TS", "StableTopK halves") else "solid"


def hits(counts: Ints, labels: Bools, k: int) -> Ints:
    """How many of each row's labels are among its k largest counts; labels that tie for the last places share them.

    >>> hits(np.array([[5, 3, 3, 1]]), np.array([[True, False, True, True]]), k=2).tolist()
    [2]
    """
    last = largest(counts, k)[:, -1:]
    tied = k - np.count_nonzero(counts > last, axis=1)
    certain, even = labels & (counts > last), labels & (counts == last)
    return np.asarray(certain.sum(axis=1) + np.minimum(even.sum(axis=1), tied))


def _one(kind: type[Mechanism], question: Question, counts: Ints, source: FloatNoise, **fixed: Any) -> Answers:
    """One mechanism, calibrated so that all days of an interval together spend the budget."""
    budget: dict[str, Any] = {"epsilon": question.epsilon, "delta": question.delta, "queries": question.days}
    asked = {"num_labels": counts.shape[1], "k": question.k, "neighbours": NEIGHBOURS}
    mechanism = calibrate(kind, **budget, **asked, **fixed)
    return mechanism.release(counts, source).labels, mechanism.cost(question.days)


def _stable_then_em(question: Question, counts: Ints, source: FloatNoise) -> Answers:
    return stable_then_em(counts, question.k, question.epsilon, question.delta, source, question.days)


METHODS: dict[str, Callable[[Question, Ints, FloatNoise], Answers]] = {
    "EM-CDP": partial(_one, PeelingExponential),
    "TS": partial(_one, TopStable),
    "TS then EM": _stable_then_em,
    "LD": partial(_one, LimitedDomain, max_k=30, private_k_bar=True),
    "StableTopK halves": partial(_one, FixedTopK, em_split=0.5, delta_share=0.5, max_k=30),
    "StableTopK": partial(_one, FixedTopK, em_split=0.9, delta_share=0.1, max_k=30),
}

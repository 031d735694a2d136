"""Zhu & Wang 2022, Table 1, and Carvalho et al. 2020, Tables 2 and 3: the most visited venues for a fixed k."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pate.data.checkins import Visits
from pate.report.canvas import COLOURS, MARKERS
from pate.reproduction import published
from pate.reproduction.contenders import METHODS, Case, visits
from pate.reproduction.experiment import NEIGHBOURS, Context, Experiment, Row, markdown, unique, where
from pate.reproduction.picture import legend, sheet, style

CAPTION = """Proportion of the true top k returned. As coded: what the TS authors' code does, not valid.
Printed: Carvalho et al. for TS and LD, Zhu & Wang for StableTopK; on other histograms of the same kind, so not
to be met exactly. A user is added or removed; delta = 1/users."""
# Which of our rows a paper's row is to be read beside.
BESIDE = {"TS as coded": "TS", "LD as coded": "LD", "StableTopK as printed": "StableTopK"}


@dataclass(frozen=True)
class FixedK(Experiment):
    """All cells: P, the proportion of the true top k, and S, the sum of the chosen counts over that of the true top k.

    Attributes:
        data: data sets, of `pate.data.checkins`.
        epsilons: delta is 1/users, with the papers' numbers of users.
    """

    name: ClassVar[str] = "exp1_fixed_k"
    title: ClassVar[str] = "Fixed k: Zhu & Wang Table 1, Carvalho et al. Tables 2 and 3"

    data: tuple[str, ...] = ("Foursquare", "Gowalla")
    epsilons: tuple[float, ...] = (0.4, 0.8, 1.0)
    ks: tuple[int, ...] = (3, 10, 50)
    trials: int = 2000

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 40))

    def rows(self, context: Context) -> list[Row]:
        root = context.data()
        given = [visits(root, name, 5 * max(self.ks) + 1) for name in self.data]
        printed = published.notebooks(root)
        cells = list(product(given, self.epsilons, self.ks, METHODS))
        found = []
        for place, (of, epsilon, k, method) in enumerate(context.track(cells, self.name)):
            case = Case(of.counts, k, epsilon, 1 / published.USERS[of.name])
            outcome = METHODS[method](case, self.trials, context.source(place))
            beside = _printed(printed, (of.name, BESIDE.get(method, ""), epsilon, k))
            found.append(_cell(of, case, method) | outcome.row() | beside | {"trials": self.trials})
        return found

    def picture(self, rows: Sequence[Row]) -> Figure:
        data, epsilons, ks = (unique(rows, name) for name in ("data", "epsilon", "k"))
        names = [f"k = {k}" for k in ks] + ["hollow: printed in the paper"]
        origins = [f"{name}: {where(rows, data=name)[0]['origin']}" for name in data]
        below = f"{rows[0]['trials']} trials per cell · {' · '.join(origins)}"
        figure, grid = sheet("Top k of visited venues", below, CAPTION, len(data), len(epsilons), 2.3, left=1.0)
        for axes, (name, epsilon) in zip(grid, product(data, epsilons), strict=True):
            _dots(axes, where(rows, data=name, epsilon=epsilon), ks, epsilon == epsilons[0])
            style(axes, f"{name}, ε = {epsilon:g}", "proportion of the true top k", "")
        handles = [Line2D([], [], color=COLOURS[i], marker=MARKERS[i], linestyle="") for i in range(len(ks))]
        legend(
            figure, [*handles, Line2D([], [], color="#666666", marker="o", linestyle="", markerfacecolor="none")], names
        )
        return figure

    def table(self, rows: Sequence[Row]) -> str:
        parts = []
        for data, measure in product(unique(rows, "data"), ("P", "S")):
            own = where(rows, data=data)
            cells = list(product(unique(own, "epsilon"), unique(own, "k")))
            heading = [f"{data}, {measure}", *(f"ε {epsilon:g}, k {k}" for epsilon, k in cells)]
            parts.append(markdown(heading, _lines(own, cells, measure)))
        return "\n\n".join(parts)


def _cell(of: Visits, case: Case, method: str) -> Row:
    asked = {"epsilon": case.epsilon, "delta": case.delta, "k": case.k, "method": method}
    return {"data": of.name, "origin": of.origin, "neighbours": NEIGHBOURS} | asked


def _printed(notebooks: dict[published.Cell, tuple[float, float]], cell: published.Cell) -> Row:
    """What papers and notebooks print for a cell, as far as they do."""
    code = notebooks.get(cell, (None, None))
    tables = {
        "zhu_wang_P": published.ZHU_WANG_P,
        "carvalho_P": published.CARVALHO_P,
        "carvalho_S": published.CARVALHO_S,
    }
    found = {name: table.get(cell) for name, table in tables.items()}
    best = published.best_p(cell[0], *cell[2:])
    every = found | {"notebook_P": code[0], "notebook_S": code[1], "best_printed_P": best}
    return {name: value for name, value in every.items() if value is not None}


def _lines(rows: Sequence[Row], cells: Sequence[tuple[float, int]], measure: str) -> list[list[str]]:
    """A line per method, and after those as coded or as printed the papers' own."""
    lines = []
    for method in unique(rows, "method"):
        own = [where(rows, method=method, epsilon=epsilon, k=k)[0] for epsilon, k in cells]
        mark = "" if own[0]["valid"] == "yes" else " (not valid)"
        lines.append([method + mark, *(f"{row[measure]:.2f}" for row in own)])
        for column, source in (
            ("carvalho", "Carvalho et al."),
            ("notebook", "their notebook"),
            ("zhu_wang", "Zhu & Wang"),
        ):
            name = f"{column}_{measure}"
            if any(name in row for row in own):
                lines.append([f"*{BESIDE[method]}, {source}*", *(_italic(row, name) for row in own)])
    if measure == "P":
        best = [where(rows, epsilon=epsilon, k=k)[0] for epsilon, k in cells]
        lines.append(["*best printed*", *(_italic(row, "best_printed_P") for row in best)])
    return lines


def _italic(row: Row, name: str) -> str:
    """What is printed for a cell, if anything is."""
    return f"*{row[name]:.2f}*" if name in row else ""


def _dots(axes: Axes, rows: Sequence[Row], ks: Sequence[int], labelled: bool) -> None:
    """Methods from top to bottom, a mark for each k; the papers' marks are hollow."""
    methods = unique(rows, "method")
    axes.set_yticks(range(len(methods)), methods if labelled else [""] * len(methods))
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.04)
    for row in rows:
        i, y = ks.index(row["k"]), methods.index(row["method"])
        face: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 9 - 2 * i, "clip_on": False}
        axes.plot(row["P"], y, **face)
        printed = row.get("zhu_wang_P") if row["method"].startswith("StableTopK") else row.get("carvalho_P")
        if printed is not None:
            axes.plot(printed, y + 0.36, markerfacecolor="none", **face)

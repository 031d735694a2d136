"""Carvalho et al. 2020, Figure 1: the relative sum S as k grows, where TS is better, worse, or better again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from matplotlib.figure import Figure

from pate.data.checkins import has_visits
from pate.reproduction import published
from pate.reproduction.contenders import METHODS, Case, visits
from pate.reproduction.experiment import NEIGHBOURS, Context, Experiment, Row, markdown, unique, where
from pate.reproduction.picture import Dash, Panel, chart, lines

SHOWN = ("TS", "TS as coded", "LD", "LD as coded", "StableTopK")
# Panel, data set, epsilon, largest k. Panel d is panel c carried on: its own rows begin at k = 101.
PANELS = (
    ("a", "Gowalla", 0.8, 100),
    ("b", "BrightKite", 0.4, 100),
    ("c", "Foursquare", 1.0, 100),
    ("d", "Foursquare", 1.0, 300),
)
STAND_IN = {"BrightKite": "Gowalla"}
CAPTION = """Sum of the chosen counts over the sum of the true top k, on stand-in histograms. Dotted: as the TS
authors' code does it, not valid for the privacy claimed. (b) is BrightKite in the paper; without that file,
Gowalla's stand-in at its epsilon."""
# What the text says beside the figure (their section 6.2, Table 4): words, panel, method, ks, mean S. It says more of
# panel b, whose data set is not to be had.
SAID = (
    ("(a) Gowalla, ε 0.8, mean over k = 1..60", "a", "TS", 1, 60, 0.78),
    ("(a) Gowalla, ε 0.8, mean over k = 1..60", "a", "LD", 1, 60, 0.73),
    ("(a) Gowalla, ε 0.8, mean over k = 61..100", "a", "TS", 61, 100, 0.44),
    ("(a) Gowalla, ε 0.8, mean over k = 61..100", "a", "LD", 61, 100, 0.47),
    ("(c) Foursquare, ε 1, k = 9", "c", "TS", 9, 9, 1.00),
    ("(c) Foursquare, ε 1, k = 9", "c", "LD", 9, 9, 0.80),
    ("(c) Foursquare, ε 1, k = 32", "c", "TS", 32, 32, 0.51),
    ("(c) Foursquare, ε 1, k = 32", "c", "LD", 32, 32, 0.66),
)
TELLING = (1, 3, 10, 30, 60, 100, 200, 300)


@dataclass(frozen=True)
class RangeOfK(Experiment):
    """The four panels; where BrightKite is not to be had, panel b shows Gowalla at its epsilon.

    Attributes:
        step: every so many k beyond 100.
        largest: no k beyond this one.
    """

    name: ClassVar[str] = "exp1_range_of_k"
    title: ClassVar[str] = "Range of k: Carvalho et al. Figure 1"

    trials: int = 300
    step: int = 10
    largest: int = 300

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 10), largest=15)

    def ks(self, first: int, last: int) -> list[int]:
        """Every k from first to last, only some beyond 100."""
        every = (*range(first, 101), *range(100 + self.step, 301, self.step))
        return [k for k in every if first <= k <= min(last, self.largest)]

    def rows(self, context: Context) -> list[Row]:
        root = context.data()
        found: list[Row] = []
        for panel, wanted, epsilon, last in PANELS:
            name = wanted if has_visits(root, wanted) else STAND_IN.get(wanted, wanted)
            of = visits(root, name, 5 * min(last, self.largest) + 1)
            asked: Row = {"panel": panel, "data": name, "origin": of.origin, "neighbours": NEIGHBOURS}
            for k in context.track(self.ks(101 if panel == "d" else 1, last), f"{self.name} {panel}"):
                case = Case(of.counts, k, epsilon, 1 / published.USERS[name])
                found += [self._cell(context, asked, case, method) for method in SHOWN]
        return found

    def _cell(self, context: Context, asked: Row, case: Case, method: str) -> Row:
        source = context.source(ord(asked["panel"]), case.k, SHOWN.index(method))
        outcome = METHODS[method](case, self.trials, source).row()
        kept = {name: outcome[name] for name in ("S", "P", "P_error", "size", "valid", "charged", "conversion")}
        told = {"epsilon": case.epsilon, "delta": case.delta, "k": case.k, "method": method}
        return asked | told | kept | {"trials": self.trials}

    def picture(self, rows: Sequence[Row]) -> Figure:
        panels = []
        for panel in unique(rows, "panel"):
            own = _rows(rows, panel)
            title = f"({panel}) {own[0]['data']}, ε = {own[0]['epsilon']:g}"
            series = lines(own, "method", "k", "S", dash=_dash)
            panels.append(Panel(title, "k", "relative sum S", series, ylim=(0, 1.03)))
        below = f"{rows[0]['trials']} trials per point · delta = 1/users, a user is added or removed"
        return chart("Relative sum as k grows", below, panels, 2, CAPTION)

    def table(self, rows: Sequence[Row]) -> str:
        shown = [k for k in TELLING if any(row["k"] == k for row in rows)]
        body = []
        for panel in unique(rows, "panel"):
            for method in SHOWN:
                own = {row["k"]: row for row in where(_rows(rows, panel), method=method)}
                one = next(iter(own.values()))
                mark = "" if one["valid"] == "yes" else " (not valid)"
                label = f"({panel}) {one['data']}, ε {one['epsilon']:g}, {method}{mark}"
                body.append([label, *(f"{own[k]['S']:.2f}" if k in own else "" for k in shown)])
        parts = [markdown(["S", *(f"k = {k}" for k in shown)], body)]
        heading = ["what the paper's text says of S", "method", "printed", "as coded", "corrected"]
        facts = [line for line in (_fact(rows, *fact) for fact in SAID) if line]
        return "\n\n".join([*parts, markdown(heading, facts)] if facts else parts)


def _rows(rows: Sequence[Row], panel: str) -> list[Row]:
    """A panel's rows; panel d begins with those of panel c."""
    return (where(rows, panel="c") if panel == "d" else []) + where(rows, panel=panel)


def _dash(row: Row) -> Dash:
    return "solid" if row["valid"] == "yes" else "dotted"


def _fact(
    rows: Sequence[Row], words: str, panel: str, method: str, first: int, last: int, said: float
) -> list[str] | None:
    """A figure from the text beside ours, the mean over a range of k; None unless all of the range is there."""
    found = []
    for variant in (f"{method} as coded", method):
        own = [row["S"] for row in where(rows, panel=panel, method=variant) if first <= row["k"] <= last]
        if len(own) < last - first + 1:
            return None
        found.append(sum(own) / len(own))
    return [words, method, f"{said:.2f}", *(f"{value:.2f}" for value in found)]

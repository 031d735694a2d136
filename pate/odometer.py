"""The odometer: what a ledger has spent, what is left, a line per release, and what the next queries would cost."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pate.accounting.conversion import Conversion
from pate.accounting.cost import PrivacyCost
from pate.budget import Running, Terms
from pate.entries import Charge
from pate.errors import SettingError
from pate.ledger import Ledger
from pate.mechanisms import Mechanism

MANY = 32  # different events, of which adding up all for every line would be felt
INK, FAINT, TIGHT, PUBLISHED, LIMIT = "#222222", "#6b6b6b", "#0072B2", "#D55E00", "#444444"


@dataclass(frozen=True)
class Line:
    """One charge.

    Attributes:
        row: its row in the ledger.
        answered: queries that got an answer; None if the charge has none.
        epsilon: what it costs by itself; total, published: everything up to it, by either conversion.
    """

    row: int
    time: str
    mechanism: str
    queries: int
    answered: int | None
    epsilon: float
    total: float
    published: float


@dataclass(frozen=True)
class Next:
    """What more queries would cost with one mechanism: by themselves, and with what is spent.

    Attributes:
        total: epsilon in all; inf where the mechanism cannot be made or its failure probabilities pass delta.
        fits: within the budget; remark: why not, where it is not the epsilon.
    """

    mechanism: str
    queries: int
    epsilon: float
    total: float
    fits: bool
    remark: str = ""


@dataclass(frozen=True)
class Status:
    """A ledger at a glance; `str` is for people.

    Attributes:
        terms: the budget in force and what it is about.
        delta: where epsilons are read off.
        spent: epsilon by conversion: tight, published, and exact where all noise is Gaussian.
        left: the budget less what is spent, by conversion; empty without a budget. The tight one is enforced.
        lines, ahead: the releases so far, and the prices of the next.
        remarks: sentences about published files that are not up to date.
    """

    terms: Terms
    delta: float
    spent: dict[str, float]
    left: dict[str, float]
    lines: tuple[Line, ...]
    ahead: tuple[Next, ...]
    remarks: tuple[str, ...] = ()

    @property
    def unanswered(self) -> tuple[Line, ...]:
        """Charges without an answer: a crash fell between; they stay spent."""
        return tuple(line for line in self.lines if line.answered is None)

    def __str__(self) -> str:
        parts = [_summary(self), _releases(self.lines), _lost(self.unanswered), *self.remarks, _ahead(self.ahead)]
        return "\n\n".join(part for part in parts if part)


def read(ledger: Ledger, delta: float, mechanisms: Mapping[str, Mechanism | str], queries: int) -> Status:
    """A ledger's status.

    Args:
        delta: used if the ledger has no budget; its budget's delta otherwise.
        mechanisms: name -> mechanism, or the sentence why it cannot be made.
        queries: how many the next ones are.
    """
    charges, terms = ledger.charges(), ledger.terms()
    delta = delta if terms.epsilon is None else terms.delta
    lines, spent = _lines(charges, delta)
    by: dict[str, float] = {how: epsilon(spent, delta, how) for how in _conversions(spent)}
    left = {} if terms.epsilon is None else {how: max(0.0, terms.epsilon - value) for how, value in by.items()}
    ahead = tuple(_next(name, made, spent, queries, terms, delta) for name, made in mechanisms.items())
    return Status(terms, delta, by, left, lines, ahead)


@lru_cache(maxsize=4096)
def epsilon(cost: PrivacyCost, delta: float, conversion: Conversion = "tight") -> float:
    """Epsilon at delta; inf where the queries' own failure probabilities use delta up."""
    try:
        return cost.epsilon(delta, conversion)
    except SettingError:
        return math.inf


def _conversions(cost: PrivacyCost) -> tuple[Conversion, ...]:
    return ("tight", "published", "exact") if cost.is_gaussian else ("tight", "published")


def _lines(charges: Sequence[Charge], delta: float) -> tuple[tuple[Line, ...], PrivacyCost]:
    """A line per charge, and what all cost together."""
    running, lines = Running(), []
    for charge in charges:
        running.add(charge.cost)
        lines.append(_line(charge, running, delta))
    return tuple(lines), running.cost


def _line(charge: Charge, running: Running, delta: float) -> Line:
    kind = charge.details.get("mechanism", {})
    name = kind.get("kind", "?") if isinstance(kind, Mapping) else str(kind)
    answered = charge.answered if charge.answered is not None else (None if charge.answer is None else charge.queries)
    totals = _total(running, delta, "tight"), _total(running, delta, "published")
    return Line(charge.id, charge.time, name, charge.queries, answered, epsilon(charge.cost, delta), *totals)


def _total(running: Running, delta: float, conversion: Conversion) -> float:
    """Epsilon so far; of many different events that have no pure epsilon by their running sum, which is as good."""
    quick = len(running.counted) > MANY and math.isinf(running.pure)
    return running.bound(delta, conversion=conversion) if quick else epsilon(running.cost, delta, conversion)


def _next(name: str, made: Mechanism | str, spent: PrivacyCost, queries: int, terms: Terms, delta: float) -> Next:
    if isinstance(made, str):
        return Next(name, queries, math.inf, math.inf, False, made)
    cost = made.cost(queries)
    own = epsilon(cost, delta)
    try:
        total = epsilon(spent + cost, delta)
    except SettingError as error:  # other neighbours than the ledger's
        return Next(name, queries, own, math.inf, False, str(error))
    remark = f"failure probabilities of {cost.delta:.2g} pass delta" if math.isinf(total) else ""
    return Next(name, queries, own, total, terms.epsilon is None or total <= terms.epsilon, remark)


def _summary(status: Status) -> str:
    terms = status.terms
    limit = "no budget set" if terms.epsilon is None else f"budget epsilon {terms.epsilon:g}"
    about = f", for {terms.neighbours}, unit {terms.unit or 'not stated'}" if terms.neighbours else ""
    rows = [
        f"{limit} at delta {status.delta:g}{about}",
        f"{'epsilon':<12}{'spent':>10}" + (f"{'left':>10}" if status.left else ""),
    ]
    for how, value in status.spent.items():
        rows.append(f"  {how:<10}{value:>10.4g}" + (f"{status.left[how]:>10.4g}" if status.left else ""))
    return "\n".join(rows)


def _releases(lines: Sequence[Line]) -> str:
    if not lines:
        return "nothing has been charged yet"
    rows = [f"{'row':>5}  {'time':<25}  {'mechanism':<20}{'queries':>8}{'answered':>10}{'epsilon':>10}{'in all':>10}"]
    for line in lines:
        share = "lost" if line.answered is None else f"{100 * line.answered / max(line.queries, 1):.1f} %"
        rows.append(
            f"{line.row:>5}  {line.time:<25}  {line.mechanism:<20}{line.queries:>8}{share:>10}"
            f"{line.epsilon:>10.4g}{line.total:>10.4g}"
        )
    return "\n".join(rows)


def _lost(lines: Sequence[Line]) -> str:
    """What a person should know about charges without an answer."""
    if not lines:
        return ""
    rows = ", ".join(str(line.row) for line in lines)
    return (
        f"charges without an answer: row{'s' if len(lines) > 1 else ''} {rows}. The process ended between charge and "
        "answer; their price stays spent, and the same request is charged anew."
    )


def _ahead(ahead: Sequence[Next]) -> str:
    if not ahead:
        return ""
    head = f"the next {ahead[0].queries} queries, at the configured noise"
    rows = [f"{head:<51}{'epsilon':>10}{'in all':>10}"]
    for one in ahead:
        verdict = one.remark or ("" if one.fits else "does not fit")
        rows.append(f"  {one.mechanism:<49}{one.epsilon:>10.4g}{one.total:>10.4g}  {verdict}".rstrip())
    return "\n".join(rows)


def picture(status: Status) -> bytes:
    """A PNG: epsilon spent against queries answered, by either conversion, under the budget's line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # a second that a refusal need not pay
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _curves(axes, status)
    about = f"{status.terms.neighbours}, delta {status.delta:g}"
    axes.set(xlabel="queries answered", ylabel=f"epsilon spent ({about})")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.14), ncols=3)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _curves(axes: Any, status: Status) -> None:
    """Both totals, which jump when a release is charged, before it is answered; a cross where a crash lost it."""
    answered = [0]
    for line in status.lines:
        answered.append(answered[-1] + (line.answered or 0))
    marker = "o" if len(answered) <= 60 else ""
    for name, colour, how in (("tight", TIGHT, "total"), ("published", PUBLISHED, "published")):
        values = [0.0, *(getattr(line, how) for line in status.lines)]
        style = {"color": colour, "marker": marker, "markersize": 3.5, "linestyle": "-" if name == "tight" else "--"}
        axes.plot(answered, values, label=f"{name} conversion", drawstyle="steps-pre", **style)
    lost = [(x, line.total) for x, line in zip(answered[1:], status.lines, strict=True) if line.answered is None]
    if lost:
        axes.plot(*zip(*lost, strict=True), "x", color=INK, label="answer lost in a crash")
    if status.terms.epsilon is not None:
        axes.axhline(status.terms.epsilon, color=LIMIT, linewidth=1.1, dashes=(2, 2))
        axes.annotate(
            f"budget {status.terms.epsilon:g}",
            (0, status.terms.epsilon),
            (6, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            color=LIMIT,
        )

"""One row per student that was compared, and what is read from rows: console table, CSV, one sentence."""

import csv
import io
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import ROUND_CEILING, Context
from statistics import fmean, stdev
from typing import Any

from pate.errors import require

PRIOR_ONLY, NON_PRIVATE = "prior-only", "non-private"
NOT_A_GUARANTEE = "not a guarantee"  # a note with these words keeps its row from winning anything
NOTHING = "–"
WIDTH = 120

HEADINGS = (
    "mechanism",
    "neighbours",
    "epsilon",
    "delta",
    "answered %",
    "label accuracy",
    "student accuracy",
    "macro F1",
)


@dataclass(frozen=True)
class Row:
    """A mechanism at one epsilon, or (epsilon None) a reference that no mechanism takes part in.

    Attributes:
        mechanism: `noisy_counts`, ..., or a reference: `prior-only`, `non-private`.
        neighbours: the relation that epsilon is about.
        epsilon: None for references; may be infinite.
        delta: None for references.
        answered: share of the queries that got labels.
        label_accuracy: share of the released labels that are true.
        accuracy: the student's mean attribute accuracy, one per seed; empty when no student was trained.
        macro_f1: likewise.
        settings: the mechanism's exact parameters, JSON-able.
        note: what a reader must know about this row, e.g. `not a guarantee`.
    """

    mechanism: str
    neighbours: str | None
    epsilon: float | None
    delta: float | None
    answered: float | None
    label_accuracy: float | None
    accuracy: tuple[float, ...]
    macro_f1: tuple[float, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        require(bool(self.mechanism), "mechanism", "a name", self.mechanism)
        require(self.epsilon is None or self.epsilon >= 0, "epsilon", ">= 0", self.epsilon)
        for name in ("accuracy", "macro_f1"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        for name in ("delta", "answered", "label_accuracy", "accuracy", "macro_f1"):
            value = getattr(self, name)
            shares = value if isinstance(value, tuple) else () if value is None else (value,)
            require(all(0 <= share <= 1 for share in shares), name, "within 0..1", value)

    @property
    def mean(self) -> float | None:
        """Student accuracy, averaged over seeds."""
        return _mean(self.accuracy)

    @property
    def sd(self) -> float | None:
        """Its sample standard deviation (n - 1); None when there are fewer than two seeds."""
        return _sd(self.accuracy)

    @property
    def f1_mean(self) -> float | None:
        return _mean(self.macro_f1)

    @property
    def f1_sd(self) -> float | None:
        return _sd(self.macro_f1)

    @property
    def is_reference(self) -> bool:
        return self.epsilon is None

    @property
    def is_partial(self) -> bool:
        """Whether some queries were answered and some were not."""
        return self.answered is not None and 0 < self.answered < 1

    @property
    def is_guarantee(self) -> bool:
        """Whether its epsilon is one that holds."""
        return not self.is_reference and NOT_A_GUARANTEE not in self.note.lower()


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _sd(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Mechanisms in the order they first appear, each by relation and rising epsilon; references last."""
    rows = list(rows)
    names = list(dict.fromkeys(row.mechanism for row in rows))
    relations = list(dict.fromkeys(row.neighbours for row in rows))

    def key(row: Row) -> tuple[bool, int, int, float]:
        place = names.index(row.mechanism), relations.index(row.neighbours)
        return row.is_reference, *place, row.epsilon or 0.0

    return sorted(rows, key=key)


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order of appearance, without those that are None or empty."""
    return [value for value in dict.fromkeys(values) if value]


def footnotes(rows: Iterable[Row]) -> dict[str, int]:
    """A number for each distinct note, from 1, in the order of the table."""
    return {note: i for i, note in enumerate(unique(row.note for row in ordered(rows)), start=1)}


# --- numbers as text ---------------------------------------------------------------------------------------


def show_cost(value: float | None, digits: int = 3) -> str:
    """An epsilon or delta in a few digits, rounded up: what is printed never understates what is spent.

    >>> show_cost(3.6049), show_cost(0.9999999), show_cost(1e-6), show_cost(math.inf), show_cost(None)
    ('3.61', '1', '1e-6', '∞', '–')
    """
    if value is None:
        return NOTHING
    if math.isinf(value):
        return "∞"
    # One part in a million is the accuracy of calibration, not a cost: 4.0000001 is 4.
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value * (1 - 1e-6))
    return f"{float(up):g}".replace("e-0", "e-").replace("e+0", "e")


def show_percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f}"


def show_answered(share: float | None) -> str:
    """Percent of the queries; `100` and `nothing` mean exactly that.

    >>> show_answered(1), show_answered(0.9999), show_answered(0.62), show_answered(1e-5), show_answered(0)
    ('100', '99.9', '62.0', '<0.1', 'nothing')
    """
    if share is None:
        return NOTHING
    if share in (0, 1):
        return "nothing" if share == 0 else "100"
    return "<0.1" if share < 0.001 else f"{min(100 * share, 99.9):.1f}"


def show_spread(mean: float | None, sd: float | None) -> str:
    """`88.1 ± 0.3`; one seed has no spread, which is not a spread of zero."""
    if mean is None:
        return NOTHING
    return f"{show_percent(mean)} ± {'n/a' if sd is None else show_percent(sd)}"


def cells(row: Row) -> tuple[str, ...]:
    """The row as text under `HEADINGS`."""
    return (
        printable(row.mechanism),
        printable(row.neighbours or NOTHING),
        show_cost(row.epsilon),
        show_cost(row.delta),
        show_answered(row.answered),
        show_percent(row.label_accuracy),
        show_spread(row.mean, row.sd),
        show_spread(row.f1_mean, row.f1_sd),
    )


def printable(text: str) -> str:
    """Text without control characters, so that a name can neither break a line nor steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def legend(rows: Sequence[Row]) -> str:
    """What the ± of these rows is."""
    seeds = sorted({len(row.accuracy) for row in rows if row.accuracy})
    if not seeds or seeds == [1]:
        return "one seed, so no spread is known" if seeds else "no student was trained"
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"mean ± sample standard deviation over {count} seeds"


# --- forms -------------------------------------------------------------------------------------------------


def summary_csv(rows: Iterable[Row]) -> str:
    """Every row in full precision: shares as fractions, seeds joined by `;`, settings as JSON."""
    out = io.StringIO()
    names = [item.name for item in fields(Row)]
    moments = ["accuracy_mean", "accuracy_sd", "macro_f1_mean", "macro_f1_sd", "seeds"]
    names[names.index("accuracy") : names.index("accuracy")] = moments
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_record(row) for row in ordered(rows))
    return out.getvalue()


def _record(row: Row) -> dict[str, Any]:
    """One line of the CSV."""
    record = {item.name: getattr(row, item.name) for item in fields(Row)}
    seeds = {name: ";".join(map(repr, getattr(row, name))) for name in ("accuracy", "macro_f1")}
    moments = {"accuracy_mean": row.mean, "accuracy_sd": row.sd, "seeds": len(row.accuracy)}
    f1 = {"macro_f1_mean": row.f1_mean, "macro_f1_sd": row.f1_sd}
    settings = json.dumps(plain(row.settings), sort_keys=True)
    return record | seeds | moments | f1 | {"settings": settings}


def plain(value: Any) -> Any:
    """Settings as strict JSON allows them: infinity and objects become their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, str | bool | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def console_table(rows: Iterable[Row]) -> str:
    """An aligned table for a terminal of 120 columns; references stand last, notes below."""
    rows = ordered(rows)
    require(bool(rows), "rows", "at least one", rows)
    lines = _aligned([HEADINGS, *_marked(rows)])
    rule = "-" * max(map(len, lines))
    private = sum(not row.is_reference for row in rows)
    parts = [lines[:1], lines[1 : private + 1], lines[private + 1 :]]
    table = f"\n{rule}\n".join("\n".join(part) for part in parts if part)
    notes = [f"Accuracy and F1 in percent: {legend(rows)}."]
    notes += [f"[{i}] {printable(note)}" for note, i in footnotes(rows).items()]
    return "\n".join([table, *(line for note in notes for line in textwrap.wrap(note, WIDTH))])


def _marked(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Cells cut to the width of a terminal, with the number of a note behind the mechanism."""
    numbers = footnotes(rows)
    table = []
    for row in rows:
        name, relation, *rest = cells(row)
        mark = f" [{numbers[row.note]}]" if row.note else ""
        table.append((shorten(name, 26 - len(mark)) + mark, shorten(relation, 16), *rest))
    return table


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Lines of equal width; words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def line(row: Sequence[str]) -> str:
        padded = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(padded)

    return [line(row) for row in table]


# --- the finding -------------------------------------------------------------------------------------------


def finding(rows: Iterable[Row]) -> str:
    """What the rows say, a sentence per neighbour relation: epsilons of two relations do not compare."""
    rows = list(rows)
    trained = [r for r in rows if r.is_guarantee and r.accuracy and r.answered != 0 and r.epsilon != math.inf]
    relations = list(dict.fromkeys(row.neighbours for row in trained))
    if not relations:
        return "There is no private student to judge: none was trained on answers with a finite, valid epsilon."
    references = {row.mechanism: row for row in rows if row.is_reference and row.accuracy}
    found = [_finding([r for r in trained if r.neighbours == name], references) for name in relations]
    return " ".join(found + ["One seed: no spread is known."] * all(row.sd is None for row in trained))


def best(rows: Iterable[Row]) -> Row:
    """The row with the most accurate student."""
    return max(rows, key=lambda row: row.mean or 0.0)


def _finding(rows: Sequence[Row], references: Mapping[str, Row]) -> str:
    """The best mechanism at the largest epsilon, and how little epsilon is enough to beat the prior."""
    budget = show_cost(max(row.epsilon or 0.0 for row in rows))
    top = best(row for row in rows if show_cost(row.epsilon) == budget)
    prior = references.get(PRIOR_ONLY)
    where = f"At epsilon {budget}" + (f" ({printable(top.neighbours)})" if top.neighbours else "")
    levels = " and ".join(
        f"{_score(references[name])} {name}" for name in (PRIOR_ONLY, NON_PRIVATE) if name in references
    )
    reached = f"{_score(top)}{f' against {levels}' if levels else ''}{_answered(top)}"
    name = printable(top.mechanism)
    if prior is not None and not beats(top, prior):
        rule = "clearly beats" if (top.mean or 0) > (prior.mean or 0) else "beats"
        return f"{where} no mechanism {rule} the prior-only student; the best, {name}, reaches {reached}."
    return f"{where} the best mechanism is {name}: {reached}{_enough(rows, prior, budget)}."


def beats(row: Row, other: Row) -> bool:
    """Whether row is ahead by more than the seeds' spread and by more than rounding hides."""
    ahead = (row.mean or 0.0) - (other.mean or 0.0)
    return ahead > max(math.hypot(row.sd or 0.0, other.sd or 0.0), 0.0005)


def _enough(rows: Sequence[Row], prior: Row | None, budget: str) -> str:
    """The smallest epsilon that beats the prior, where it is smaller than the budget just named."""
    winners = [row for row in rows if prior is not None and beats(row, prior)]
    least = show_cost(min((row.epsilon or 0.0 for row in winners), default=0.0))
    if not winners or least == budget:
        return ""
    row = best(row for row in winners if show_cost(row.epsilon) == least)
    return f"; epsilon {least} is enough to beat the prior ({printable(row.mechanism)}, {_score(row)})"


def _score(row: Row) -> str:
    return f"{show_percent(row.mean)}{'' if row.sd is None else f' ± {show_percent(row.sd)}'} %"


def _answered(row: Row) -> str:
    return f", with {show_answered(row.answered)} % of the queries answered" if row.is_partial else ""

"""One row per student that was compared: a mechanism at one epsilon, or a reference; and its numbers as text."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from statistics import fmean, stdev
from typing import Any

from pate import metrics
from pate.errors import require

PRIOR_ONLY, ALL_ZEROS, NON_PRIVATE = "prior-only", "all-zeros", "non-private"
NOISELESS = "noiseless votes"  # a student of the votes themselves: such a row, and what follows from it, is private
NOT_A_GUARANTEE = "not a guarantee"  # a note with these words keeps its row from winning anything
NOTHING = "–"
SCORES = ("accuracy", "macro_f1", "micro_f1", "mean_ap")  # of the student, one value per seed
SHARES = ("delta", "answered", "label_accuracy", "label_f1", *SCORES)


@dataclass(frozen=True)
class Row:
    """A mechanism at one epsilon, or (epsilon None) a reference that no mechanism takes part in.

    Attributes:
        mechanism: `noisy_counts`, ..., or a reference: `prior-only`, `all-zeros`, `non-private`, `noiseless votes`.
        neighbours: the relation that epsilon is about.
        epsilon: None for references; may be infinite.
        delta: None for references.
        answered: share of the queries that got labels.
        label_accuracy: share of the released labels that are true, over the answered queries.
        accuracy: the student's mean attribute accuracy, one per seed; empty when no student was trained.
        macro_f1, micro_f1, mean_ap: likewise.
        label_f1: micro F1 of the released labels over all queries: what is not answered is missed.
        teachers, queries, labels: T, N and K of the votes, where they are known.
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
    micro_f1: tuple[float, ...] = ()
    mean_ap: tuple[float, ...] = ()
    label_f1: float | None = None
    teachers: int | None = None
    queries: int | None = None
    labels: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        require(bool(self.mechanism), "mechanism", "a name", self.mechanism)
        require(self.epsilon is None or self.epsilon >= 0, "epsilon", ">= 0", self.epsilon)
        for name in SCORES:
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        for name in SHARES:
            value = getattr(self, name)
            shares = value if isinstance(value, tuple) else () if value is None else (value,)
            require(all(0 <= share <= 1 for share in shares), name, "within 0..1", value)

    @property
    def mean(self) -> float | None:
        """Student accuracy, averaged over seeds."""
        return average(self.accuracy)

    @property
    def sd(self) -> float | None:
        """Its sample standard deviation (n - 1); None when there are fewer than two seeds."""
        return deviation(self.accuracy)

    @property
    def size(self) -> tuple[int | None, ...]:
        """T, N and K."""
        return self.teachers, self.queries, self.labels

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


def average(values: Sequence[float]) -> float | None:
    """Mean, None of nothing."""
    return fmean(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1); None of fewer than two values."""
    return stdev(values) if len(values) > 1 else None


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Mechanisms in the order they first appear, each by relation, rising epsilon, T, N and K; references last."""
    rows = list(rows)
    names = list(dict.fromkeys(row.mechanism for row in rows))
    relations = list(dict.fromkeys(row.neighbours for row in rows))

    def key(row: Row) -> tuple[float, ...]:
        place = names.index(row.mechanism), relations.index(row.neighbours)
        return row.is_reference, *place, row.epsilon or 0.0, *(number or 0 for number in row.size)

    return sorted(rows, key=key)


def released(rows: Iterable[Row]) -> list[Row]:
    """The rows that may leave: all but those of a student that saw the votes."""
    return [row for row in rows if row.mechanism != NOISELESS]


def gain(row: Row, rows: Iterable[Row]) -> float | None:
    """Share of the way from the prior to the student of noiseless votes that a row went; private, as these votes are.

    None for references, without a student, and where the votes teach nothing.
    """
    level = {other.mechanism: other.mean for other in rows if other.is_reference and other.size == row.size}
    low, high = level.get(PRIOR_ONLY), level.get(NOISELESS)
    if row.is_reference or row.mean is None or low is None or high is None or high <= low:
        return None
    return metrics.gain(row.mean, low, high)


def unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in order of appearance, without those that are None or empty."""
    return [value for value in dict.fromkeys(values) if value]


def footnotes(rows: Iterable[Row]) -> dict[str, int]:
    """A number for each distinct note, from 1, in the order of the table."""
    return {note: i for i, note in enumerate(unique(row.note for row in ordered(rows)), start=1)}


# --- numbers as text ---------------------------------------------------------------------------------------


def show_cost(value: float | None) -> str:
    """An epsilon or delta in three digits, or four where three would add 0.1 %; rounded up, so never understated.

    >>> show_cost(3.9996), show_cost(15.9471), show_cost(0.9999999), show_cost(1e-6), show_cost(math.inf)
    ('4', '15.95', '1', '1e-6', '∞')
    """
    if value is None:
        return NOTHING
    if math.isinf(value) or value == 0:
        return "∞" if value else "0"
    # One part in a million is the accuracy of calibration, not a cost: 4.0000001 is 4.
    short, long = (
        float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value * (1 - 1e-6))) for digits in (3, 4)
    )
    return f"{short if short < 1.001 * value else long:g}".replace("e-0", "e-").replace("e+0", "e")


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


def show_spread(values: Sequence[float]) -> str:
    """`88.1 ± 0.3`; one seed has no spread, which is not a spread of zero."""
    mean, sd = average(values), deviation(values)
    if mean is None:
        return NOTHING
    return f"{show_percent(mean)} ± {'n/a' if sd is None else show_percent(sd)}"


def printable(text: str) -> str:
    """Text without control characters, so that a name can neither break a line nor steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def legend(rows: Sequence[Row]) -> str:
    """What the ± of these rows is."""
    trained = [row for row in rows if row.mechanism not in (PRIOR_ONLY, ALL_ZEROS)]
    seeds = sorted({len(row.accuracy) for row in trained if row.accuracy})
    if not seeds or seeds == [1]:
        return "one seed, so no spread is known" if seeds else "no student was trained"
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"mean ± sample standard deviation over {count} seeds"


def plain(value: Any) -> Any:
    """Settings as strict JSON allows them: infinity and objects become their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, str | bool | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)

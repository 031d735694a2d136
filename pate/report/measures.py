"""What is measured of a row: a name, the words on its axis, its values (one, or one per seed)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pate.report.rows import Row, gain


@dataclass(frozen=True)
class Measure:
    """A quantity in 0..1 that is drawn in percent.

    Attributes:
        of_student: references have it too.
    """

    name: str
    heading: str
    values: Callable[[Row], Sequence[float]]
    of_student: bool = False


def _one(name: str) -> Callable[[Row], Sequence[float]]:
    """A field that is one number or None, as a tuple."""

    def values(row: Row) -> Sequence[float]:
        value = getattr(row, name)
        return () if value is None else (value,)

    return values


def _all(name: str) -> Callable[[Row], Sequence[float]]:
    """A field with a number per seed."""
    return lambda row: getattr(row, name)


_KNOWN = (
    Measure("accuracy", "student accuracy", _all("accuracy"), True),
    Measure("micro_f1", "student micro F1", _all("micro_f1"), True),
    Measure("answered", "answered queries", _one("answered")),
    Measure("label_accuracy", "accuracy of answered labels", _one("label_accuracy")),
    Measure("label_f1", "micro F1 of released labels", _one("label_f1")),
)
MEASURES = {measure.name: measure for measure in _KNOWN}


def gain_among(rows: Sequence[Row]) -> Measure:
    """The gain of each row, which the references among the rows decide; private."""

    def values(row: Row) -> Sequence[float]:
        share = gain(row, rows)
        return () if share is None else (share,)

    return Measure("gain", "gain", values)

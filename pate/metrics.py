"""How good are predictions of many labels: the paper's mean accuracy, F1, average precision, and each label's share."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pate.errors import DataError, require

Array = np.ndarray

SCALARS = ("mean_accuracy", "macro_f1", "micro_f1", "mean_ap")
TITLES = dict(zip(SCALARS, ("mean accuracy", "macro F1", "micro F1", "mAP"), strict=True))
COLUMNS = ("accuracy", "precision", "recall", "f1", "ap", "prevalence")


@dataclass(frozen=True, eq=False)
class Metrics:
    """Predictions of K labels judged; a label is predicted where its probability is at least 1/2.

    A ratio without a denominator (precision where nothing was predicted, recall where nothing was true, F1 where
    neither) counts as 0. Average precision is not defined for a label that is never true: nan in `ap`, left out of
    `mean_ap` (nan if no label is left), and counted in `without_positive`.

    Attributes:
        names: The K labels; each array below has one value for each.
        mean_accuracy: Mean over labels of the share of predictions that are right.
        macro_f1: Mean of the labels' F1.
        micro_f1: F1 of all N x K predictions taken as one label.
        mean_ap: Mean average precision.
        without_positive: How many labels `mean_ap` leaves out.
    """

    names: tuple[str, ...]
    mean_accuracy: float
    macro_f1: float
    micro_f1: float
    mean_ap: float
    without_positive: int
    accuracy: Array
    precision: Array
    recall: Array
    f1: Array
    ap: Array
    prevalence: Array

    def scalars(self) -> dict[str, float]:
        """The four figures that sum it up, by name."""
        return {name: getattr(self, name) for name in SCALARS}

    def table(self) -> list[dict[str, str | float]]:
        """One row per label: `attribute` and its figures."""
        columns = zip(*(getattr(self, column).tolist() for column in COLUMNS), strict=True)
        return [
            {"attribute": name, **dict(zip(COLUMNS, row, strict=True))}
            for name, row in zip(self.names, columns, strict=True)
        ]

    def csv(self) -> str:
        """The table as CSV text, six decimals."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("attribute", *COLUMNS))
        for row in self.table():
            writer.writerow((row["attribute"], *(f"{row[column]:.6f}" for column in COLUMNS)))
        return text.getvalue()


def evaluate(probabilities: Array, truth: Array, names: Sequence[str] = ()) -> Metrics:
    """Judge probabilities (N, K) by the truth (N, K); labels without names are called 0 .. K-1.

    >>> evaluate(np.array([[0.9, 0.2], [0.4, 0.1]]), np.array([[True, False], [True, False]])).scalars()
    {'mean_accuracy': 0.75, 'macro_f1': 0.3333333333333333, 'micro_f1': 0.6666666666666666, 'mean_ap': 1.0}
    """
    probabilities, truth = np.asarray(probabilities, dtype=float), np.asarray(truth, dtype=bool)
    names = tuple(names) or tuple(str(k) for k in range(truth.shape[-1] if truth.ndim else 0))
    _check(probabilities, truth, names)
    predicted = probabilities >= 0.5
    hits, said, real = (mask.sum(0) for mask in (predicted & truth, predicted, truth))
    accuracy, f1 = (predicted == truth).mean(0), _ratio(2 * hits, said + real)
    ap = average_precision(probabilities, truth)
    defined = real > 0
    return Metrics(
        names=names,
        mean_accuracy=float(accuracy.mean()),
        macro_f1=float(f1.mean()),
        micro_f1=float(_ratio(2 * hits.sum(), said.sum() + real.sum())),
        mean_ap=float(ap[defined].mean()) if defined.any() else float("nan"),
        without_positive=int((~defined).sum()),
        accuracy=accuracy,
        precision=_ratio(hits, said),
        recall=_ratio(hits, real),
        f1=f1,
        ap=ap,
        prevalence=truth.mean(0),
    )


def average_precision(scores: Array, truth: Array) -> Array:
    """Each label's mean, over its true records, of the precision among all records scored at least as high.

    Equal scores stand or fall together, so a constant score earns the label's prevalence, in whatever order the
    records come. nan for a label that is never true.

    Args:
        scores: (N, K), higher is more likely.
        truth: (N, K) bool.

    Returns:
        (K,) values in (0, 1] or nan.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked, hits = np.take_along_axis(scores, order, 0), np.take_along_axis(truth, order, 0)
    rows = np.arange(len(scores))[:, None]
    ends = np.where(np.diff(ranked, axis=0, append=np.nan) != 0, rows, len(scores))
    last = np.minimum.accumulate(ends[::-1], axis=0)[::-1]  # where each record's group of equal scores ends
    precision = np.take_along_axis(hits.cumsum(0), last, 0) / (last + 1)
    positives = hits.sum(0)
    return np.where(positives > 0, (hits * precision).sum(0) / np.maximum(positives, 1), np.nan)


def label_accuracy(labels: Array, answered: Array, truth: Array) -> float:
    """Share of the released labels (N, K) that are right, over answered queries (N,); nan if none was answered."""
    labels, answered, truth = np.asarray(labels), np.asarray(answered, dtype=bool), np.asarray(truth)
    if labels.shape != truth.shape or answered.shape != labels.shape[:1]:
        raise DataError(
            f"labels {labels.shape}, answered {answered.shape} and truth {truth.shape} must be (N, K), (N,), (N, K)"
        )
    return float((labels[answered] == truth[answered]).mean()) if answered.any() else float("nan")


def prior_only(labels: Array, truth: Array, names: Sequence[str] = (), decision: str = "half") -> Metrics:
    """The reference that never looks at a picture: each label's share in `labels` (M, K) is its probability.

    At the threshold 1/2 that predicts each label's majority class in `labels` for every record of `truth` (N, K). The
    labels are true ones: this is a level to compare with, and nothing that a release could be made of. Where students
    decide by `matched`, so does it: yes to the most frequent labels, as many as a record has on average.
    """
    labels, truth = np.asarray(labels, dtype=bool), np.asarray(truth, dtype=bool)
    require(len(labels) > 0, "prior", "learned from at least one record", len(labels))
    rates = labels.mean(0)
    if decision == "matched":
        ranked = np.sort(np.concatenate([[2.0], rates, [-1.0]]))[::-1]  # between two that no rate reaches
        yes = round(float(rates.sum()))
        rates = np.clip(rates - (ranked[yes] + ranked[yes + 1]) / 2 + 0.5, 0, 1)
    return evaluate(np.broadcast_to(rates, (len(truth), labels.shape[1])), truth, names)


def all_zeros(truth: Array, names: Sequence[str] = ()) -> Metrics:
    """The reference that says no to every label: with rare labels, its accuracy is high and its F1 is 0."""
    return evaluate(np.zeros(np.shape(truth)), truth, names)


def gain(student: float, prior: float, best: float) -> float:
    """Share of the way from prior-only to the best possible that a student goes; nan where there is no way to go.

    >>> round(gain(0.85, 0.80, 0.90), 6)
    0.5
    """
    return (student - prior) / (best - prior) if best > prior else math.nan


def percent(value: float | None) -> str:
    """A figure as people read it; a dash where it is not defined."""
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def compared(rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """Several students' four figures as an aligned table, a line each.

    >>> print(compared({"student": evaluate(np.eye(2), np.eye(2)).scalars()}))
             mean accuracy  macro F1  micro F1       mAP
    student        100.0 %   100.0 %   100.0 %   100.0 %
    """
    width = max(map(len, rows))
    lines = [f"{'':{width}}  {'  '.join(f'{title:>8}' for title in TITLES.values())}"]
    for name, row in rows.items():
        lines.append(
            f"{name:{width}}  " + "  ".join(f"{percent(row[key]):>{max(8, len(TITLES[key]))}}" for key in SCALARS)
        )
    return "\n".join(lines)


def _check(probabilities: Array, truth: Array, names: tuple[str, ...]) -> None:
    """Refuse what has no honest figure."""
    if probabilities.shape != truth.shape or truth.ndim != 2 or len(names) != truth.shape[1]:
        raise DataError(
            f"probabilities {probabilities.shape}, truth {truth.shape} and {len(names)} names "
            "must be (N, K), (N, K) and K"
        )
    if truth.size == 0:
        raise DataError(f"nothing to judge: there are {truth.shape[0]} records of {truth.shape[1]} labels")
    bad = ~((probabilities >= 0) & (probabilities <= 1))
    require(not bad.any(), "probabilities", "between 0 and 1", probabilities[bad][:1].tolist())


def _ratio(top: Array, bottom: Array) -> Array:
    """top / bottom, 0 where bottom is 0."""
    return np.where(bottom > 0, top / np.maximum(bottom, 1), 0.0)

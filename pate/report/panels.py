"""Small multiples: several measures of the same rows against epsilon, queries, teachers or labels."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pate.errors import require
from pate.report.canvas import (
    FAINT,
    INK,
    WIDTH,
    blank,
    caption_height,
    dress,
    look,
    put_ticks,
    quiet,
    save,
    subtitle,
    title_height,
    write_caption,
    write_title,
)
from pate.report.measures import Measure
from pate.report.rows import (
    NOISELESS,
    NON_PRIVATE,
    PRIOR_ONLY,
    Row,
    average,
    deviation,
    legend,
    ordered,
    printable,
    shorten,
    show_cost,
    unique,
)

PANEL, GAP, MARGIN = 1.75, 0.62, 0.78  # inches
REFERENCES: dict[str, Any] = {PRIOR_ONLY: (0, (1, 1.5)), NON_PRIVATE: (0, (6, 3)), NOISELESS: (0, (6, 2, 1, 2))}
AXES = {
    "epsilon": "privacy loss ε, log scale",
    "queries": "queries N, log scale",
    "teachers": "teachers T, log scale",
    "labels": "labels K, log scale",
}


Triple = tuple[float, float, float]  # x; y and its deviation, both in percent


@dataclass(frozen=True)
class Case:
    """The rows of a column of panels, and what they have in common."""

    name: str
    rows: list[Row]


def panels(
    rows: Iterable[Row],
    path: Path,
    *,
    axis: str,
    measures: Sequence[Measure],
    heading: str,
    facts: Mapping[str, str] | None = None,
    mode: int = 0o644,
) -> None:
    """Draw each measure in panels of its own and write the picture, whole or not at all.

    Args:
        rows: what was measured; references are drawn where a measure is of the student.
        axis: `epsilon` (a column per neighbour relation), or `queries`, `teachers`, `labels` (a column per epsilon).
        measures: a row of panels each; two beside each other where there is one column only.
        mode: of the file.
    """
    rows = ordered(rows)
    require(bool(rows), "rows", "at least one", rows)
    require(axis in AXES, "axis", f"one of {', '.join(AXES)}", axis)
    figure = blank()
    with quiet():
        _draw(figure, rows, axis, measures, heading, facts or {})
    save(figure, path, mode)


def cases(rows: Sequence[Row], axis: str) -> list[Case]:
    """The columns; references stand in each."""
    about = (lambda row: row.neighbours) if axis == "epsilon" else (lambda row: f"ε = {show_cost(row.epsilon)}")
    private, references = ([r for r in rows if r.is_reference == kind] for kind in (False, True))
    names = unique(map(about, private))
    return [Case(name, [row for row in private if about(row) == name] + references) for name in names]


def _draw(
    figure: Figure, rows: Sequence[Row], axis: str, measures: Sequence[Measure], heading: str, facts: Mapping[str, str]
) -> None:
    columns = cases(rows, axis)
    grid = [(measure, case) for measure in measures for case in columns]
    across = max(2, len(columns))
    down = math.ceil(len(grid) / across)
    names = unique(row.mechanism for row in rows if not row.is_reference)
    handles = _handles(names, unique(row.mechanism for row in rows if row.is_reference))
    about, below = subtitle(rows, {key: text for key, text in facts.items() if key != axis}), _caption(rows)
    strip = 0.2 * math.ceil(len(handles) / 4) + 0.4  # the legend and the first titles
    figure.set_figheight(height := title_height(about) + strip + down * (PANEL + GAP) - GAP + caption_height(below))
    top, bottom = write_title(figure, heading, about), write_caption(figure, below)
    style: dict[str, Any] = {"frameon": False, "fontsize": 8, "handlelength": 2.6, "columnspacing": 1.6}
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.05 / WIDTH, top / height), ncols=4, **style)
    places = _places(rows, axis)
    width = (WIDTH - 0.25 - across * MARGIN) / across
    for number, (measure, case) in enumerate(grid):
        line, column = divmod(number, across)
        low = bottom + (down - 1 - line) * (PANEL + GAP)
        left = MARGIN + column * (width + MARGIN)
        axes = figure.add_axes((left / WIDTH, low / height, width / WIDTH, PANEL / height))
        _panel(axes, case, measure, axis, names, places, columns)
        if line == down - 1 or number + across >= len(grid):
            axes.set_xlabel(AXES[axis], fontsize=8, color=INK)


def _places(rows: Iterable[Row], axis: str) -> dict[str, float]:
    """Each tick's words and where they stand; epsilons that read the same share a place."""
    values = sorted({getattr(row, axis) for row in rows if not row.is_reference})
    shown = show_cost if axis == "epsilon" else str
    return {shown(value): math.log10(value) for value in values if 0 < value < math.inf}


def _panel(
    axes: Axes,
    case: Case,
    measure: Measure,
    axis: str,
    names: Sequence[str],
    places: Mapping[str, float],
    columns: Sequence[Case],
) -> None:
    """One measure of one column; all columns have the same scale."""
    levels = REFERENCES if measure.of_student else {}
    put_ticks(axes, places)
    shown = [row for each in columns for row in each.rows if not row.is_reference or row.mechanism in levels]
    dress(axes, [(y, sd) for _, y, sd in _points(shown, measure, axis)], size=7.5)
    for name in names:
        points = _points([row for row in case.rows if row.mechanism == name], measure, axis)
        _curve(axes, points, *look(names, name))
    for name, dash in levels.items():
        points = _points([row for row in case.rows if row.mechanism == name], measure, axis)
        if axis == "epsilon":  # the same at every epsilon
            points = [(x, y, sd) for _, y, sd in points for x in axes.get_xlim()]
        axes.plot([x for x, *_ in points], [y for _, y, _ in points], color=FAINT, linewidth=1.1, linestyle=dash)
    words = f"{measure.heading}, {printable(case.name)}" if len(columns) > 1 else measure.heading
    axes.set_title(shorten(words, 58), fontsize=8, color=INK, loc="left", pad=5, parse_math=False)


def _points(rows: Sequence[Row], measure: Measure, axis: str) -> list[Triple]:
    """Points from left to right; a row without a value, or outside the scale, has none."""
    found = []
    for row in rows:
        value, mean = getattr(row, axis), average(measure.values(row))
        place = 0.0 if row.is_reference and axis == "epsilon" else math.log10(value) if value else math.nan
        if mean is not None and math.isfinite(place):
            found.append((place, 100 * mean, 100 * (deviation(measure.values(row)) or 0.0)))
    return sorted(found)


def _curve(axes: Axes, points: Sequence[Triple], colour: str, marker: str) -> None:
    """A line in its band."""
    xs, ys, sd = np.array(points).reshape(-1, 3).T
    axes.fill_between(xs, ys - sd, ys + sd, color=colour, alpha=0.13, linewidth=0)
    axes.plot(xs, ys, color=colour, linewidth=1.5, marker=marker, markersize=4)


def _handles(names: Sequence[str], references: Sequence[str]) -> list[Line2D]:
    """What the legend shows."""
    drawn = []
    for name in names:
        colour, marker = look(names, name)
        words = shorten(printable(name), 26).replace("$", r"\$")
        drawn.append(Line2D([], [], color=colour, marker=marker, markersize=4, label=words))
    dashes = [(name, REFERENCES[name]) for name in references if name in REFERENCES]
    return drawn + [Line2D([], [], color=FAINT, linestyle=dash, linewidth=1.1, label=name) for name, dash in dashes]


def _caption(rows: Sequence[Row]) -> str:
    """What a reader must know."""
    said = [f"Lines and bands: {legend(rows)}."]
    if any(row.mechanism == NOISELESS for row in rows):
        said.append("Gain: the share of the way from prior-only to noiseless votes.")
    if any(row.answered == 0 for row in rows):
        said.append("Where nothing was answered there is no student and no labels to judge: a line has no point there.")
    said.append("F1 of released labels counts what was not answered as missed; accuracy is of answered labels only.")
    return " ".join(said)

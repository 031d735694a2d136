"""The privacy frontier: student accuracy against epsilon, a line per mechanism between two references."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from pate.errors import require
from pate.report.canvas import (
    COLOURS,
    DASHES,
    DPI,
    FAINT,
    HEIGHT,
    INK,
    MARKERS,
    NO_GUARANTEE,
    WIDTH,
    blank,
    dark,
    dress,
    look,
    put_ticks,
    quiet,
    save,
    subtitle,
    superscript,
    write_caption,
    write_title,
)
from pate.report.rows import (
    ALL_ZEROS,
    NOT_A_GUARANTEE,
    PRIOR_ONLY,
    Row,
    footnotes,
    legend,
    ordered,
    printable,
    shorten,
    show_answered,
    show_cost,
    show_percent,
    unique,
)

__all__ = ["COLOURS", "DASHES", "DPI", "FAINT", "INK", "MARKERS", "NO_GUARANTEE", "caption", "frontier", "spread"]


@dataclass(frozen=True)
class Point:
    """Where a row stands: x on the axis, y in percent."""

    row: Row
    x: float
    y: float


@dataclass(frozen=True)
class Line:
    """A mechanism under one relation, with its look and its points from left to right."""

    label: str
    colour: str
    marker: str
    dash: Any
    points: tuple[Point, ...]

    @property
    def path(self) -> list[Point]:
        """The points that it joins: between no answers and some, or up to infinity, there is nothing to read."""
        return [p for p in self.points if p.row.answered != 0 and p.row.epsilon not in (0.0, math.inf)]


def frontier(rows: Iterable[Row], path: Path, *, facts: Mapping[str, str] | None = None, mode: int = 0o644) -> None:
    """Draw the picture and write it, whole or not at all.

    Args:
        rows: what was compared; references become horizontal lines.
        path: the PNG to write.
        facts: `data`, `teachers` and `queries` are said in the title.
        mode: of the file.
    """
    rows = ordered(rows)
    require(bool(rows), "rows", "at least one", rows)
    figure = blank()
    with quiet():
        _draw(figure, rows, facts or {})
    save(figure, path, mode)


def _draw(figure: Figure, rows: Sequence[Row], facts: Mapping[str, str]) -> None:
    places = _places(rows)
    lines = _lines(rows, places)
    figure.set_figheight(max(HEIGHT, 2.2 + 0.15 * sum(line.label.count("\n") + 1.2 for line in lines)))
    references = [row for row in rows if row.is_reference and row.mechanism != ALL_ZEROS]  # far below the others
    levels = [Point(row, math.nan, 100 * row.mean) for row in references if row.mean is not None]
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    top = write_title(figure, "Student accuracy against privacy", subtitle(rows, facts))
    bottom = write_caption(figure, caption(rows))
    labels = _margin_labels(axes, lines, levels)
    right = max((label.get_window_extent().width / DPI for label in labels), default=0.0) + 0.32
    height = figure.get_figheight()
    axes.set_position((0.78 / WIDTH, bottom / height, 1 - (0.78 + right) / WIDTH, (top - bottom) / height))
    _axis(axes, places, lines, levels)
    for level in levels:
        axes.axhline(level.y, color=FAINT, linewidth=1.1, dashes=(6, 3), zorder=1)
    for line in lines:
        _series(axes, line)
    _spread_labels(axes, labels, lines, levels)
    _point_labels(axes, lines, levels, footnotes(rows))


# --- what is drawn where -----------------------------------------------------------------------------------


def _places(rows: Iterable[Row]) -> dict[str, float]:
    """Where each epsilon stands: its logarithm; 0 and infinity have none and stand a step outside."""
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    logs = [math.log10(epsilon) for epsilon in epsilons if 0 < epsilon < math.inf] or [0.0]
    step = max(0.3, 0.18 * (logs[-1] - logs[0]))
    ends = {0.0: logs[0] - step, math.inf: logs[-1] + step}
    # Epsilons that read the same (4 and 3.99999, both calibrated to 4) share a place.
    return {show_cost(e): ends[e] if e in ends else math.log10(e) for e in epsilons}


def _lines(rows: Sequence[Row], places: Mapping[str, float]) -> list[Line]:
    private = [row for row in rows if not row.is_reference]
    names = unique(row.mechanism for row in private)
    relations = list(dict.fromkeys(row.neighbours for row in private))
    keys = list(dict.fromkeys((row.mechanism, row.neighbours) for row in private))
    numbers, prior, span = footnotes(rows), _prior(rows), np.ptp(list(places.values()) or [0.0])
    lines = []
    for place, (name, relation) in enumerate(keys):
        own = [row for row in private if (row.mechanism, row.neighbours) == (name, relation)]
        dodge = min(0.012, 0.06 / len(keys)) * (place - (len(keys) - 1) / 2) * max(1.0, span)
        points = [(row, places[show_cost(row.epsilon)] + dodge, _level(row, prior)) for row in own]
        shown = tuple(Point(row, x, 100 * y) for row, x, y in points if y is not None)
        holds = any(row.is_guarantee for row in own)
        label = [shorten(printable(name), 26) + _shared_mark([p.row for p in shown], numbers)]
        label += [shorten(printable(relation or "relation unknown"), 26)] * (len(relations) > 1)
        label += [NOT_A_GUARANTEE] * (not holds)
        dash = DASHES[relations.index(relation) % len(DASHES)] if holds else NO_GUARANTEE
        lines.append(Line("\n".join(label), *look(names, name), dash, shown))
    return [line for line in lines if line.points]


def _prior(rows: Iterable[Row]) -> float | None:
    return next((row.mean for row in rows if row.is_reference and row.mechanism == PRIOR_ONLY), None)


def _level(row: Row, prior: float | None) -> float | None:
    """A row's measured accuracy; where nothing was answered or measured, what the prior alone gives."""
    return prior if row.mean is None and row.answered == 0 else row.mean


def _shared_mark(rows: Sequence[Row], numbers: Mapping[str, int]) -> str:
    """The footnote of a line, when all its rows carry the same note."""
    notes = {row.note for row in rows}
    return _mark(rows[0], numbers) if len(notes) == 1 else ""


def _mark(row: Row, numbers: Mapping[str, int]) -> str:
    return superscript(numbers[row.note]) if row.note else ""


# --- words below it ---------------------------------------------------------------------------------------


def caption(rows: Iterable[Row]) -> str:
    """What a reader must know to read the picture truthfully; only what applies."""
    rows = ordered(rows)
    private, prior = [row for row in rows if not row.is_reference], _prior(rows)
    said = [f"{superscript(i)} {printable(note).rstrip('.')}." for note, i in footnotes(rows).items()]
    said.append(f"Points and bars: {legend(rows)}.")
    if any(row.is_partial for row in private):
        said.append("Hollow: only the share written beside it was answered.")
    silent = [row for row in private if row.answered == 0]
    for mine, words in (
        ([row for row in silent if row.accuracy], "the measured student is shown"),
        ([row for row in silent if not row.accuracy and prior is not None], "drawn on the prior, not measured"),
    ):
        said += [f"Cross: nothing was answered ({_names(mine)}); {words}."] if mine else []
    if missing := [row for row in private if _level(row, prior) is None]:
        said.append(f"Not drawn, for want of a student: {_names(missing)}.")
    if any(row.epsilon == math.inf for row in private):
        said.append("∞: no privacy.")
    return " ".join(said)


def _names(rows: Sequence[Row]) -> str:
    """`stable_topk at ε 0.5, 1; tau_ballots at ε 1`."""
    names = unique(row.mechanism for row in rows)
    parts = {name: unique(show_cost(row.epsilon) for row in rows if row.mechanism == name) for name in names}
    return "; ".join(f"{shorten(printable(name), 26)} at ε {', '.join(parts[name])}" for name in names)


# --- axes and lines ----------------------------------------------------------------------------------------


def _axis(axes: Axes, places: Mapping[str, float], lines: Sequence[Line], levels: Sequence[Point]) -> None:
    put_ticks(axes, places)
    dress(axes, [(p.y, 100 * (p.row.sd or 0.0)) for p in [*levels, *(p for line in lines for p in line.points)]])
    axes.set_xlabel("privacy loss ε, log scale (to the left: more private)", fontsize=9, color=INK)
    axes.set_ylabel("student accuracy", fontsize=9, color=INK)


def _series(axes: Axes, line: Line) -> None:
    """The line in its band; every point with its spread and its own face."""
    xs, ys = [p.x for p in line.path], np.array([p.y for p in line.path])
    sd = np.array([100 * (p.row.sd or 0.0) for p in line.path])
    axes.fill_between(xs, ys - sd, ys + sd, color=line.colour, alpha=0.13, linewidth=0, zorder=2)
    axes.plot(xs, ys, color=line.colour, linestyle=line.dash, linewidth=1.7, zorder=3)
    for p in line.points:
        bar = 100 * p.row.sd if p.row.sd is not None else None
        axes.errorbar(p.x, p.y, bar, color=line.colour, elinewidth=1.1, capsize=2.5, zorder=4, **_face(p, line))


def _face(point: Point, line: Line) -> dict[str, Any]:
    """Filled: all answered. Hollow: a part. Cross: nothing."""
    if point.row.answered == 0:
        return {"marker": "x", "markersize": 6.5, "markeredgewidth": 1.8}
    face = "white" if point.row.is_partial else line.colour
    return {"marker": line.marker, "markersize": 6, "markerfacecolor": face, "markeredgewidth": 1.4}


# --- labels ------------------------------------------------------------------------------------------------


def _margin_labels(axes: Axes, lines: Sequence[Line], levels: Sequence[Point]) -> list[Text]:
    """A label per line and per reference, not yet placed."""
    names = [f"{shorten(printable(p.row.mechanism), 26)}  {show_percent(p.y / 100)} %" for p in levels]
    labels = [(line.label, dark(line.colour)) for line in lines] + [(name, FAINT) for name in names]
    style: dict[str, Any] = {"va": "center", "linespacing": 1.05, "parse_math": False, "clip_on": False}
    return [
        axes.text(1, 0, text, transform=axes.transAxes, color=colour, fontsize=8.5, **style) for text, colour in labels
    ]


def _spread_labels(axes: Axes, labels: Sequence[Text], lines: Sequence[Line], levels: Sequence[Point]) -> None:
    """Put every label beside the end of its line, moved up or down just enough that none touches another."""
    right = axes.get_xlim()[1]
    ends = [(line.points[-1].x, line.points[-1].y) for line in lines] + [(right, p.y) for p in levels]
    wanted = np.array([axes.transData.transform(end)[1] for end in ends])
    heights = np.array([label.get_window_extent().height + 4 for label in labels])
    box, inverse = axes.get_window_extent(), axes.transAxes.inverted()
    gap = 0.17 * DPI
    middles = spread(wanted, heights, box.y0 - 0.3 * DPI, box.y1 + 0.1 * DPI)
    for label, end, middle in zip(labels, ends, middles, strict=True):
        x, y = inverse.transform((box.x1 + gap, middle))
        label.set_position((x + 0.006, y))
        corner = inverse.transform(axes.transData.transform((right, end[1])))
        start = inverse.transform(axes.transData.transform(end))
        path = np.array([start, corner, (x, y)])
        style: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.55, "clip_on": False, "zorder": 1}
        axes.plot(path[:, 0], path[:, 1], transform=axes.transAxes, color=label.get_color(), **style)


def spread(wanted: np.ndarray, heights: np.ndarray, low: float, high: float) -> np.ndarray:
    """Middles nearest to those wanted, for boxes of these heights, in that order, apart, inside low..high.

    >>> spread(np.array([10.0, 10.0, 50.0]), np.array([4.0, 4.0, 4.0]), 0, 51)
    array([ 8., 12., 49.])
    """
    order = np.argsort(wanted, kind="stable")
    heights = heights[order]
    offsets = np.cumsum(heights) - heights / 2
    # Without the offsets the middles need only be non-decreasing: pool neighbours that are not.
    pools: list[tuple[float, int]] = []
    for value in wanted[order] - offsets:
        pool = (float(value), 1)
        while pools and pools[-1][0] > pool[0]:
            mean, size = pools.pop()
            pool = ((mean * size + pool[0] * pool[1]) / (size + pool[1]), size + pool[1])
        pools.append(pool)
    result = np.empty(len(wanted))
    bases = np.repeat([mean for mean, _ in pools], [size for _, size in pools])
    result[order] = np.clip(bases, low, max(low, high - heights.sum())) + offsets
    return result


def _point_labels(axes: Axes, lines: Sequence[Line], levels: Sequence[Point], numbers: Mapping[str, int]) -> None:
    """`62 % answered` beside each hollow point, where it covers least; only `62 %` where there are many."""
    taken = _ink(axes, lines, levels)
    many = sum(p.row.is_partial for line in lines for p in line.points) > 8
    for line in lines:
        lone = not _shared_mark([p.row for p in line.points], numbers)
        for p in line.points:
            share = show_answered(p.row.answered).removesuffix(".0")
            words = f"{share} %{'' if many else ' answered'}" if p.row.is_partial else ""
            if text := words + (_mark(p.row, numbers) if lone else ""):
                taken = np.vstack([taken, _place(axes, text, p, line.colour, taken)])


def _ink(axes: Axes, lines: Sequence[Line], levels: Sequence[Point]) -> np.ndarray:
    """Pixels that lines, bars, points and references cover, sampled."""
    steps = np.linspace(0, 1, 40)[:, None]
    across = np.linspace(*axes.get_xlim(), 100)
    parts = [np.empty((0, 2)), *(np.column_stack([across, np.full(100, p.y)]) for p in levels)]
    for line in lines:
        parts += [np.array([(p.x, p.y + 100 * (p.row.sd or 0.0) * side) for p in line.points for side in (-1, 1)])]
        parts += [(1 - steps) * (a.x, a.y) + steps * (b.x, b.y) for a, b in pairwise(line.path)]
    points = axes.transData.transform([(p.x, p.y) for line in lines for p in line.points] or np.empty((0, 2)))
    discs = [points + (dx, dy) for dx in (-7, 0, 7) for dy in (-7, 0, 7)]  # noqa: RUF005 (a sum of arrays)
    return np.vstack([axes.transData.transform(np.vstack(parts)), *discs])


def _place(axes: Axes, text: str, point: Point, colour: str, taken: np.ndarray) -> np.ndarray:
    """Write text at the offset that hits least; the pixels it then covers."""
    style: dict[str, Any] = {"fontsize": 6.8, "zorder": 6, "textcoords": "offset points", "va": "center"}
    halo = [withStroke(linewidth=2, foreground="white")]
    label = axes.annotate(text, (point.x, point.y), (0, 0), color=dark(colour), path_effects=halo, **style)
    frame = axes.get_window_extent()

    def cost(offset: tuple[float, float, str]) -> float:
        label.set(position=offset[:2], ha=offset[2])
        box = label.get_window_extent().padded(2)
        hits = np.all((taken >= box.min) & (taken <= box.max), axis=1).sum()
        inside = np.all(frame.min <= box.min) and np.all(box.max <= frame.max + np.array([20, 0]))
        return float(hits + 100 * (not inside) + 0.1 * math.hypot(*offset[:2]))

    sides = [(dx, dy, ha) for dy in (0, 9, -9, 16, -16, 24, -24) for dx, ha in ((8, "left"), (-8, "right"))]
    best = min([*sides, *((0.0, dy, "center") for dy in (11, -11, 20, -20, 30, -30))], key=cost)
    cost(best)
    box = label.get_window_extent()
    grid = np.meshgrid(np.linspace(box.x0, box.x1, 24), np.linspace(box.y0, box.y1, 6))
    return np.stack(grid, axis=-1).reshape(-1, 2)

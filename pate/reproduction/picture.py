"""Panels of lines or dots in the look of the report's picture: a heading, one legend for all, a caption that wraps."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from pate.report.canvas import COLOURS, DASHES, DPI, FAINT, INK, MARKERS, NO_GUARANTEE
from pate.reproduction.experiment import Row, unique, where

Dash = Literal["solid", "dashed", "dotted"]
# One colour per method in all pictures; variants of a method share it and differ by dash.
FAMILIES = ("StableTopK", "EM-CDP", "TS", "LD")
WIDTH, MARGIN, GAP, BETWEEN = 10.0, 0.72, 0.74, 0.82  # inches


@dataclass(frozen=True)
class Series:
    """A line with a name: of a method (coloured by family) or of anything else (coloured in order of appearance).

    Attributes:
        spread: half the width of a band around a share, which stays within 0 and 1.
        dash: dotted means no guarantee, as in the report.
        marker: mark the points.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    spread: ArrayLike | None = None
    dash: Dash = "solid"
    marker: bool = False


@dataclass(frozen=True)
class Panel:
    """Axes with a title and their series.

    Attributes:
        ticks: words below x = 0, 1, ...
        at: where x has ticks, if not where they fall by themselves.
    """

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log: str = ""
    ylim: tuple[float, float] | None = None
    ticks: Sequence[str] = ()
    at: Sequence[float] = ()


def chart(title: str, below: str, panels: Sequence[Panel], columns: int, caption: str, height: float = 2.7) -> Figure:
    """Panels of lines, row after row."""
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    figure, grid = sheet(title, below, caption, -(-len(panels) // columns), columns, height)
    shown: dict[str, Line2D] = {}
    for axes, panel in zip(grid, panels, strict=False):
        style(axes, panel.title, panel.xlabel, panel.ylabel)
        for series in panel.series:
            shown[series.name] = _line(axes, series, look(series.name, names))
        for axis in panel.log:
            axes.set(**{f"{axis}scale": "log"})
            getattr(axes, f"{axis}axis").set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if panel.ylim:
            axes.set_ylim(*panel.ylim)
        if panel.ticks:
            axes.set_xticks(range(len(panel.ticks)), panel.ticks)
        if panel.at:
            axes.set_xticks(panel.at)
            axes.minorticks_off()
    legend(figure, [shown[name] for name in names], names)
    return figure


def lines(
    rows: Sequence[Row],
    by: str,
    x: str,
    y: str,
    spread: str | None = None,
    dash: Callable[[Row], Dash] = lambda row: "solid",
    marker: bool = False,
) -> list[Series]:
    """A series for each value of a column."""
    found = []
    for name in unique(rows, by):
        own = where(rows, **{by: name})
        across, up, band = ([row[column] for row in own] if column else None for column in (x, y, spread))
        found.append(Series(name, across or [], up or [], band, dash(own[0]), marker))
    return found


def sheet(
    title: str,
    below: str,
    caption: str,
    rows: int,
    columns: int,
    height: float,
    left: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """A figure with its words written and a grid of empty axes between them."""
    said = textwrap.wrap(caption, 180)
    top, bottom = 1.16, 0.62 + 0.14 * len(said)
    full = top + bottom + rows * height + (rows - 1) * BETWEEN
    figure = Figure(figsize=(WIDTH, full), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    write: dict[str, Any] = {"x": 0.14 / WIDTH, "linespacing": 1.35, "parse_math": False}
    figure.text(y=1 - 0.12 / full, s=title, va="top", size=12.5, weight="bold", color=INK, **write)
    figure.text(y=1 - 0.40 / full, s=below, va="top", size=8.5, color=FAINT, **write)
    figure.text(y=0.10 / full, s="\n".join(said), va="bottom", size=7.2, color=FAINT, **write)
    wide = (WIDTH - MARGIN - left - 0.2 - (columns - 1) * GAP) / columns
    places = [(row, column) for row in range(rows) for column in range(columns)]
    boxes = [(MARGIN + left + j * (wide + GAP), full - top - height - i * (height + BETWEEN)) for i, j in places]
    return figure, [figure.add_axes((x / WIDTH, y / full, wide / WIDTH, height / full)) for x, y in boxes]


def style(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Light frame, quiet grid."""
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel(xlabel, fontsize=8.5, color=INK)
    axes.set_ylabel(ylabel, fontsize=8.5, color=INK)
    axes.tick_params(labelsize=8, colors=INK, length=3)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")


def look(name: str, names: Sequence[str]) -> tuple[str, str]:
    """Colour and marker: those of the method's family, or the next that are free."""
    family = next((place for place, family in enumerate(FAMILIES) if name.startswith(family)), None)
    if family is None:
        others = [other for other in names if not other.startswith(FAMILIES)]
        used = len(FAMILIES) if len(others) < len(names) else 0
        family = used + others.index(name)
    return COLOURS[family % len(COLOURS)], MARKERS[family % len(MARKERS)]


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """One legend below the heading, for all panels."""
    place = (0.06 / WIDTH, 1 - 0.57 / figure.get_figheight())
    words: dict[str, Any] = {"fontsize": 8.5, "labelcolor": INK, "frameon": False, "borderpad": 0.2}
    words |= {"handlelength": 3.0}  # room for a dash beside a marker
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=place, ncols=min(len(names), 8), **words)


def _line(axes: Axes, series: Series, face: tuple[str, str]) -> Line2D:
    x, y = np.asarray(series.x, dtype=float), np.asarray(series.y, dtype=float)
    if series.spread is not None:
        half = np.asarray(series.spread, dtype=float)
        band = np.maximum(y - half, 0), np.minimum(y + half, 1)
        axes.fill_between(x, *band, color=face[0], alpha=0.15, linewidth=0)
    dash = {"solid": "-", "dashed": DASHES[1], "dotted": NO_GUARANTEE}[series.dash]
    points: dict[str, Any] = {"marker": face[1], "markersize": 4.5} if series.marker else {}
    return axes.plot(x, y, color=face[0], linestyle=dash, linewidth=1.6, **points)[0]

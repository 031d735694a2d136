"""The look that all pictures share: colours, words around the axes, grid, and how a PNG is written."""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pate.report.rows import Row, printable, show_cost, unique
from pate.runs import write_bytes

WIDTH, HEIGHT, DPI = 8.0, 5.0, 150
# Told apart under every common colour blindness, the first four most of all.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA3377", "#E69F00", "#56B4E9", "#444444", "#8C564B")
MARKERS = "os^DvPhp"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (3, 1.5, 1, 1.5)))
NO_GUARANTEE: tuple[Any, ...] = (0, (1, 1.4))
INK, FAINT = "#222222", "#6b6b6b"


def blank() -> Figure:
    """A white figure of the usual size that needs no window."""
    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path, mode: int = 0o644) -> None:
    """Write the PNG, whole or not at all."""
    buffer = io.BytesIO()
    with quiet():
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    write_bytes(path, buffer.getvalue(), mode)


def quiet() -> warnings.catch_warnings:
    """A name in letters that the font lacks shows as boxes; that is no reason for a warning."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def look(names: Sequence[str], name: str) -> tuple[str, str]:
    """Colour and marker of a mechanism, by its place among all of them."""
    place = names.index(name)
    return COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]


def dark(colour: str) -> tuple[float, ...]:
    """A colour deep enough to be read as text."""
    return tuple(0.78 * part for part in to_rgb(colour))


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


# --- words around the axes ---------------------------------------------------------------------------------


def subtitle(rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """Data set, teachers, queries, delta and relation, as far as they are known."""
    counted = [(facts.get(key, ""), key) for key in ("teachers", "queries")]
    said = [facts.get("data", "")]
    said += [f"{text} {key}" if text.isdecimal() else f"{key}: {text}" for text, key in counted if text]
    deltas = unique(show_cost(row.delta) for row in rows if row.delta is not None)
    relations = unique(row.neighbours for row in rows)
    said += ["δ = " + " or ".join(deltas)] if deltas else []
    said += ["neighbours: " + " and ".join(relations)] if relations else []
    return " · ".join(printable(text) for text in said if text)


def write_title(figure: Figure, heading: str, below: str) -> float:
    """Write the heading; the height in inches below which the axes may begin."""
    height = figure.get_figheight()
    write(figure, height - 0.14, heading, va="top", size=12.5, color=INK, weight="bold")
    write(figure, height - 0.40, "\n".join(_wrapped(below)), va="top", size=8.5, color=FAINT)
    return height - title_height(below)


def title_height(below: str) -> float:
    """Inches that a heading takes with the lines below it."""
    return 0.55 + 0.17 * len(_wrapped(below))


def _wrapped(below: str) -> list[str]:
    return textwrap.wrap(below, 116, max_lines=3, placeholder=" …")


def write_caption(figure: Figure, text: str) -> float:
    """Write the caption; the height in inches above which the axes may stand."""
    write(figure, 0.10, "\n".join(_folded(text)), va="bottom", size=7.2, color=FAINT)
    return caption_height(text)


def caption_height(text: str) -> float:
    """Inches that a caption takes, with the axis's words above it."""
    return 0.58 + 0.14 * len(_folded(text))


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, 136, max_lines=7, placeholder=" …")


def write(figure: Figure, height: float, text: str, **style: Any) -> None:
    """Text from the left margin on; names are not formulas, whatever their dollar signs say."""
    figure.text(0.14 / WIDTH, height / figure.get_figheight(), text, linespacing=1.35, parse_math=False, **style)


# --- axes --------------------------------------------------------------------------------------------------


def dress(axes: Axes, spreads: Sequence[tuple[float, float]], size: float = 8.5) -> None:
    """Limits that show every (percent, deviation), a grid, and nothing that is not needed."""
    low, high = min((y - s for y, s in spreads), default=0), max((y + s for y, s in spreads), default=100)
    room = max(0.08 * (high - low), 0.5)
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.tick_params(labelsize=size, colors=INK, length=3)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")


def put_ticks(axes: Axes, places: Mapping[str, float]) -> None:
    """A tick at each place; of words that would touch each other the shorter stay, the others' marks remain."""
    xs = list(places.values()) or [0.0]
    pad = 0.05 * (max(xs) - min(xs)) or 0.3
    axes.set_xlim(min(xs) - pad, max(xs) + 1.8 * pad)
    inches = axes.get_position().width * WIDTH / np.ptp(axes.get_xlim())
    kept: dict[str, float] = {}
    for text in sorted(places, key=lambda text: (len(text), places[text])):
        room = [0.045 * (len(text) + len(other)) + 0.06 for other in kept]
        if all(abs(places[text] - x) * inches >= least for x, least in zip(kept.values(), room, strict=True)):
            kept[text] = places[text]
    axes.set_xticks(list(places.values()), [text if text in kept else "" for text in places])

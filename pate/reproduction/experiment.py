"""What an experiment is: settings that give rows, and a picture and a table made from rows alone."""

import csv
import io
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from pate import noise
from pate.accounting import Neighbours
from pate.errors import DataError
from pate.noise import FloatNoise
from pate.runs import write_bytes, write_json

T = TypeVar("T")
Row = dict[str, Any]
DATA = Path("..") / "shared" / "data"
NEIGHBOURS: Neighbours = "teacher_added"  # the papers' relation: one user is added or removed


@dataclass(frozen=True)
class Context:
    """Where an experiment finds its data and its randomness.

    Attributes:
        root: the data folder; None for $PATE_DATA, or ../shared/data if that is there.
        seed: of all noise.
    """

    root: str | None = None
    seed: int = 0

    def data(self) -> Path:
        """The data folder, which must exist."""
        folder = Path(self.root or os.environ.get("PATE_DATA") or DATA).expanduser()
        if not folder.is_dir():
            raise DataError(
                f"data folder {folder} not found: give data.root=PATH or set PATE_DATA; it holds checkins/, covid/ "
                "and celeba/"
            )
        return folder

    def source(self, *stream: int) -> FloatNoise:
        """Seeded noise, a stream of its own for each cell."""
        return noise.seeded(self.seed, *stream)

    def track(self, items: Sequence[T], name: str) -> Iterator[T]:
        """The items, with a progress bar."""
        yield from tqdm(items, desc=name, unit="cell", delay=2, leave=False)


@dataclass(frozen=True)
class Experiment(ABC):
    """Public settings of a table or figure; subclasses are frozen dataclasses, named by conf/experiment/*.yaml."""

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    def file(self) -> str:
        """What the results are called; the name, unless there are results of two kinds."""
        return self.name

    @abstractmethod
    def small(self) -> Self:
        """The same in seconds: a few trials, to see that everything runs."""

    @abstractmethod
    def rows(self, context: Context) -> list[Row]:
        """One row per cell: plain values, what was set, what was found, what the paper prints."""

    @abstractmethod
    def picture(self, rows: Sequence[Row]) -> Figure:
        """The paper's figure, or the table as one."""

    @abstractmethod
    def table(self, rows: Sequence[Row]) -> str:
        """The rows side by side, in Markdown."""


def conduct(experiment: Experiment, context: Context, folder: Path, command: str) -> list[Row]:
    """Run an experiment and write FILE.csv, FILE.png and FILE.json (command, CPU seconds, seed, date) into a folder."""
    began = time.process_time()  # of CPU, so that other work on the machine does not count
    rows = experiment.rows(context)
    figure = experiment.picture(rows)
    seconds = time.process_time() - began
    path = folder / experiment.file
    write_bytes(path.with_suffix(".csv"), to_csv(rows).encode())
    write_bytes(path.with_suffix(".png"), to_png(figure))
    about = {"command": command, "seconds": round(seconds, 1), "seed": context.seed, "date": date.today().isoformat()}
    write_json(path.with_suffix(".json"), about)
    return rows


def to_png(figure: Figure) -> bytes:
    """A figure in few colours, as drawn lines need: a third of the size."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=figure.dpi, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    return small.getvalue()


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV under the union of their columns, in order of appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _shown(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def from_csv(text: str) -> list[Row]:
    """The rows that `to_csv` wrote; empty cells are left out.

    >>> from_csv(to_csv([{"k": 3, "method": "TS", "P": 0.25}, {"k": 10}]))
    [{'k': 3, 'method': 'TS', 'P': 0.25}, {'k': 10}]
    """
    rows = csv.DictReader(io.StringIO(text))
    return [{name: _read(value) for name, value in row.items() if value} for row in rows]


def read_about(path: Path) -> Row:
    """What `conduct` wrote beside the CSV."""
    about: Row = json.loads(path.read_text())
    return about


def markdown(heading: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown(["method", "k = 3"], [["TS", "1.00"]]))
    | method | k = 3 |
    |---|---|
    | TS | 1.00 |
    """
    rule = ["---"] * len(heading)
    body = [f"| {' | '.join(line)} |" for line in (heading, *lines)]
    return "\n".join([body[0], f"|{'|'.join(rule)}|", *body[1:]])


def unique(rows: Iterable[Row], name: str) -> list[Any]:
    """The different values of a column, in order of appearance."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def spread(name: str, values: NDArray[np.float64]) -> Row:
    """A column's mean and standard deviation over trials.

    >>> spread("recall", np.array([0.5, 1.0]))
    {'recall': 0.75, 'recall_sd': 0.25}
    """
    return {name: float(np.mean(values)), f"{name}_sd": float(np.std(values))}


def _shown(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

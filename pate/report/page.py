"""One page that carries everything: no script, no font, no address, nothing to fetch."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pate.errors import require
from pate.report.findings import finding, sweep_findings
from pate.report.markup import alarm, bullets, document, listing, numbers, paragraphs, text
from pate.report.measures import MEASURES, gain_among
from pate.report.panels import panels
from pate.report.picture import caption, frontier
from pate.report.rows import NOISELESS, Row, ordered, released
from pate.report.sheet import all_settings, results, row_settings
from pate.report.tables import summary_csv
from pate.runs import write_bytes

SWEEPS = {
    "queries": "How many queries?",
    "teachers": "How many teachers?",
    "labels": "How many labels?",
}


@dataclass(frozen=True)
class Figure:
    """A picture in the report folder; beside `NAME.png` stands `NAME.csv` with the rows that it shows."""

    name: str
    rows: list[Row]
    words: str


def write_report(
    folder: Path,
    rows: Iterable[Row],
    *,
    title: str,
    facts: Mapping[str, str],
    statement: str,
    settings: Mapping[str, Any],
    warnings: Sequence[str] = (),
    sweeps: Mapping[str, Sequence[Row]] | None = None,
    remarks: Sequence[str] = (),
    private: bool = False,
) -> Path:
    """Write `index.html`, `summary.csv` and each picture as `NAME.png` with its `NAME.csv` into a folder.

    Args:
        folder: made if it is not there.
        rows: what was compared.
        title: the page's.
        facts: data, teachers, queries (these three also title the pictures), seeds, date, versions.
        statement: what is guaranteed, in plain words; a blank line ends a paragraph.
        settings: everything the study was run with, nested.
        warnings: shown in a box above all else.
        sweeps: `queries`, `teachers` or `labels`, whatever was varied, and the rows of that.
        remarks: sentences about points that could not be made.
        private: files for their owner only. Rows that must not leave are refused otherwise.

    Returns:
        The path of `index.html`.
    """
    rows, varied = ordered(rows), {axis: ordered(own) for axis, own in (sweeps or {}).items()}
    every = [row for part in (rows, *varied.values()) for row in part]
    require(private or released(every) == every, "rows", f"without {NOISELESS}, which must not leave", NOISELESS)
    mode = 0o600 if private else 0o644
    main = _frontiers(folder, rows, facts, mode)
    swept = {axis: _sweep(folder, own, axis, facts, mode) for axis, own in varied.items()}
    write_bytes(folder / "summary.csv", summary_csv(rows).encode(errors="replace"), mode)
    body = [
        alarm(warnings),
        f"<h1>{text(title)}</h1>",
        f'<p class="finding">{numbers(finding(rows))}</p>',
        "".join(_figure(folder, figure) for figure in main),
        listing(facts),
        f"<h2>Results</h2>{results(rows)}",
        *(_sweep_section(folder, axis, figure) for axis, figure in swept.items()),
        bullets(remarks),
        f"<h2>What is guaranteed</h2>{paragraphs(statement)}",
        f"<h2>Settings</h2>{row_settings(rows)}{all_settings(settings)}",
    ]
    path = folder / "index.html"
    write_bytes(path, document(title, "\n".join(part for part in body if part)).encode(errors="replace"), mode)
    return path


# --- pictures ----------------------------------------------------------------------------------------------


def _frontiers(folder: Path, rows: Sequence[Row], facts: Mapping[str, str], mode: int) -> list[Figure]:
    """Accuracy against epsilon, a picture per relation; then everything else that was measured."""
    relations = list(dict.fromkeys(row.neighbours for row in rows if not row.is_reference)) or [None]
    figures = []
    for number, relation in enumerate(relations):
        own = [row for row in rows if row.is_reference or row.neighbours == relation]
        words = f"Student accuracy against epsilon, a line per mechanism. {finding(own)} {caption(own)}"
        figures.append(Figure("frontier" if not number else f"frontier_{_file_name(relation)}", own, words))
        frontier(own, folder / f"{figures[-1].name}.png", facts=facts, mode=mode)
    if any(not row.is_reference for row in rows):
        names = ("answered", "label_accuracy", "label_f1", "micro_f1")
        measures = [MEASURES[name] for name in names]
        measures += [gain_among(rows)] * any(row.mechanism == NOISELESS for row in rows)
        heading = "Answers, labels and F1 against privacy"
        words = f"{heading}: {'; '.join(measure.heading for measure in measures)}. The table below has the numbers."
        figures.append(Figure("details", list(rows), words))
        place = folder / "details.png"
        panels(rows, place, axis="epsilon", measures=measures, heading=heading, facts=facts, mode=mode)
    _write_rows(folder, figures, mode)
    return figures


def _sweep(folder: Path, rows: list[Row], axis: str, facts: Mapping[str, str], mode: int) -> Figure:
    """All measures against what was varied."""
    heading = SWEEPS[axis]
    measures = list(MEASURES.values())
    words = f"{heading}: {'; '.join(measure.heading for measure in measures)}. {' '.join(sweep_findings(rows, axis))}"
    figure = Figure(axis, rows, words)
    panels(rows, folder / f"{axis}.png", axis=axis, measures=measures, heading=heading, facts=facts, mode=mode)
    _write_rows(folder, [figure], mode)
    return figure


def _write_rows(folder: Path, figures: Sequence[Figure], mode: int) -> None:
    for figure in figures:
        write_bytes(folder / f"{figure.name}.csv", summary_csv(figure.rows).encode(errors="replace"), mode)


def _file_name(name: str | None) -> str:
    """Letters, digits and underscores of a name."""
    return re.sub(r"\W+", "_", name or "unknown", flags=re.ASCII)[:40]


def _figure(folder: Path, figure: Figure) -> str:
    """The picture inside the page, and in words for who cannot see it."""
    png = base64.b64encode((folder / f"{figure.name}.png").read_bytes()).decode()
    return f'<figure><img alt="{text(figure.words)}" src="data:image/png;base64,{png}"></figure>'


def _sweep_section(folder: Path, axis: str, figure: Figure) -> str:
    """A sweep: what it says, its picture, its table and its settings."""
    table = f"<details><summary>Results of this sweep</summary>{results(figure.rows, axis)}</details>"
    said = bullets(sweep_findings(figure.rows, axis))
    return f"<h2>{SWEEPS[axis]}</h2>{said}{_figure(folder, figure)}{table}{row_settings(figure.rows)}"

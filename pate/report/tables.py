"""Rows as tables: aligned text for a terminal, CSV for programs."""

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from pate.errors import require
from pate.report.rows import (
    NOISELESS,
    NOTHING,
    SCORES,
    Row,
    average,
    deviation,
    footnotes,
    gain,
    legend,
    ordered,
    plain,
    printable,
    shorten,
    show_answered,
    show_cost,
    show_percent,
    show_spread,
)

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


def cells(row: Row) -> tuple[str, ...]:
    """The row as text under `HEADINGS`."""
    return (
        printable(row.mechanism),
        printable(row.neighbours or NOTHING),
        show_cost(row.epsilon),
        show_cost(row.delta),
        show_answered(row.answered),
        show_percent(row.label_accuracy),
        show_spread(row.accuracy),
        show_spread(row.macro_f1),
    )


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


def summary_csv(rows: Iterable[Row]) -> str:
    """Every row in full precision: shares as fractions, seeds joined by `;`, settings as JSON.

    With the student of noiseless votes among the rows, and only then, there is a last column `gain`.
    """
    rows = ordered(rows)
    out = io.StringIO()
    records = [_record(row) for row in rows]
    if any(row.mechanism == NOISELESS for row in rows):
        records = [record | {"gain": gain(row, rows)} for row, record in zip(rows, records, strict=True)]
    names = [item.name for item in fields(Row)]
    moments = [f"{name}_{moment}" for name in SCORES for moment in ("mean", "sd")]
    names[names.index("accuracy") : names.index("accuracy")] = [*moments, "seeds"]
    writer = csv.DictWriter(out, names + ["gain"] * ("gain" in (records or [{}])[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _record(row: Row) -> dict[str, Any]:
    """One line of the CSV."""
    record = {item.name: getattr(row, item.name) for item in fields(Row)} | {"seeds": len(row.accuracy)}
    for name in SCORES:
        values = getattr(row, name)
        record |= {f"{name}_mean": average(values), f"{name}_sd": deviation(values), name: ";".join(map(repr, values))}
    return record | {"settings": json.dumps(plain(row.settings), sort_keys=True)}

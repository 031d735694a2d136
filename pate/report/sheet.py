"""Rows as HTML: the table of results, and the settings behind them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pate.report.findings import best
from pate.report.markup import folding_pairs, text
from pate.report.rows import (
    NOISELESS,
    NOT_A_GUARANTEE,
    NOTHING,
    Row,
    footnotes,
    gain,
    legend,
    ordered,
    plain,
    shorten,
    show_answered,
    show_cost,
    show_percent,
    show_spread,
    unique,
)
from pate.runs import flatten


@dataclass(frozen=True)
class Column:
    """A heading, as markup, and a row's text under it."""

    heading: str
    cell: Callable[[Row], str]
    style: str = ""


def _columns(rows: Sequence[Row], axis: str) -> list[Column]:
    """Behind the mechanism's name; what a sweep varies has a column, and the gain where it can be known."""
    columns = [
        Column("Neighbours", lambda row: row.neighbours or NOTHING, "text"),
        Column('<abbr title="privacy loss">ε</abbr>', lambda row: show_cost(row.epsilon)),
        Column('<abbr title="additive slack of the guarantee">δ</abbr>', lambda row: show_cost(row.delta)),
        Column("Answered %", lambda row: show_answered(row.answered), "answer"),
        Column("Label accuracy", lambda row: show_percent(row.label_accuracy), "answer"),
        Column("Label F1", lambda row: show_percent(row.label_f1), "answer"),
        Column("Student accuracy", lambda row: show_spread(row.accuracy), "student"),
        Column("Macro F1", lambda row: show_spread(row.macro_f1), "answer"),
        Column("Micro F1", lambda row: show_spread(row.micro_f1), "answer"),
        Column('<abbr title="mean average precision">mAP</abbr>', lambda row: show_spread(row.mean_ap), "answer"),
    ]
    if len(_deltas(rows)) < 2:  # the caption says it
        del columns[2]
    if axis:
        columns.insert(1, Column(axis.capitalize(), lambda row: str(getattr(row, axis))))
    if any(row.mechanism == NOISELESS for row in rows):
        columns.append(Column("Gain %", lambda row: show_percent(gain(row, rows)), "answer"))
    return columns


def _deltas(rows: Sequence[Row]) -> list[str]:
    return unique(show_cost(row.delta) for row in rows if row.delta is not None)


def results(rows: Sequence[Row], axis: str = "") -> str:
    """The table, mechanisms and references in a body each, with its notes.

    Args:
        axis: `queries`, `teachers` or `labels`, if the rows are those of a sweep.
    """
    rows = ordered(rows)
    columns, marks, winners = _columns(rows, axis), footnotes(rows), _winners(rows, axis)
    head = "".join(f'<th scope="col">{heading}</th>' for heading in ("Mechanism", *(c.heading for c in columns)))
    parts = ([row for row in rows if row.is_reference == kind] for kind in (False, True))
    bodies = "".join(
        f"<tbody>{''.join(_row(row, before, columns, marks, row in winners) for row, before in _follow(part))}</tbody>"
        for part in parts
        if part
    )
    deltas = _deltas(rows)
    fixed = f" δ = {deltas[0]}." if len(deltas) == 1 else ""
    shaded = " Shaded: the best student at its ε and neighbours." if winners else ""
    about = f"<caption>Accuracy, F1 and mAP in percent: {text(legend(rows))}.{fixed}{shaded}</caption>"
    notes = "".join(f"<li>{text(note)}</li>" for note in marks)
    table = f'<table class="results">{about}<thead><tr>{head}</tr></thead>{bodies}</table>'
    return f'<div class="scroll">{table}</div>' + (f'<ol class="notes">{notes}</ol>' if notes else "")


def _follow(rows: Sequence[Row]) -> list[tuple[Row, Row | None]]:
    """Each row with the one before it."""
    return list(zip(rows, [None, *rows], strict=False))


def _winners(rows: Iterable[Row], axis: str) -> list[Row]:
    """The most accurate student at each relation, epsilon and place of a sweep where there is a choice."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.is_guarantee and row.accuracy and row.epsilon != math.inf:
            place = getattr(row, axis) if axis else None
            groups.setdefault((row.neighbours, show_cost(row.epsilon), place), []).append(row)
    return [best(group) for group in groups.values() if len(group) > 1]


def _row(row: Row, before: Row | None, columns: Sequence[Column], marks: Mapping[str, int], wins: bool) -> str:
    mark = f"<sup>{marks[row.note]}</sup>" if row.note else ""
    mark += "" if row.is_reference or row.is_guarantee else f"<br><small>{NOT_A_GUARANTEE}</small>"
    first = before is None or (before.mechanism, before.neighbours) != (row.mechanism, row.neighbours)
    start = '<tr class="first">' if first else "<tr>"
    cells = "".join(f"<td{_look(c, wins, row.answered == 0)}>{text(shorten(c.cell(row), 32))}</td>" for c in columns)
    return f'{start}<th scope="row">{text(shorten(row.mechanism, 32))}{mark}</th>{cells}</tr>'


def _look(column: Column, wins: bool, silent: bool) -> str:
    if column.style == "text":
        return ' class="text"'
    if column.style == "student" and wins:
        return ' class="best"'
    return ' class="none"' if silent and column.style else ""


def row_settings(rows: Sequence[Row]) -> str:
    """The exact parameters of each row that has some."""
    lines = [(_about(row), _assignments(row.settings)) for row in ordered(rows) if row.settings]
    return folding_pairs("Exact parameters of every row", ("Row", "Parameters"), lines)


def _about(row: Row) -> str:
    """A row's name, price and sizes."""
    sizes = {"teachers": row.teachers, "queries": row.queries, "labels": row.labels}
    known = ", ".join(f"{number} {name}" for name, number in sizes.items() if number is not None)
    price = f"{text(row.neighbours or NOTHING)}, ε {show_cost(row.epsilon)}, δ {show_cost(row.delta)}"
    return "<br>".join(part for part in (text(row.mechanism), price, known) if part)


def _assignments(settings: Mapping[str, Any]) -> str:
    flat = flatten(plain(settings))
    return ", ".join(f"<code>{text(name)}={text(value)}</code>" for name, value in flat.items())


def all_settings(settings: Mapping[str, Any]) -> str:
    """Everything that a study was run with."""
    flat = flatten(plain(settings)) if settings else {}
    lines = [(f"<code>{text(name)}</code>", f"<code>{text(value)}</code>") for name, value in flat.items()]
    return folding_pairs("All settings of the study", ("Name", "Value"), lines)

"""One page that carries everything: no script, no font, no address, nothing to fetch."""

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pate.report.picture import caption, frontier
from pate.report.rows import (
    NOT_A_GUARANTEE,
    Row,
    best,
    cells,
    finding,
    footnotes,
    legend,
    ordered,
    plain,
    printable,
    shorten,
    show_cost,
    summary_csv,
)
from pate.runs import flatten, write_bytes

HEADINGS = (
    "Mechanism",
    "Neighbours",
    '<abbr title="privacy loss">ε</abbr>',
    '<abbr title="additive slack of the guarantee">δ</abbr>',
    "Answered %",
    "Label accuracy %",
    "Student accuracy %",
    "Macro F1 %",
)

STYLE = """
:root { color-scheme: light dark; --ink: #1d2228; --soft: #5b6570; --line: #dde2e7; --page: #f5f6f8;
  --card: #fff; --accent: #0062a3; --best: #e9f3fb; --alarm: #a31621; --alarm-page: #fdeeee; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa5b1; --line: #333b45;
  --page: #14181d; --card: #1c2128; --accent: #6cb6f0; --best: #16324a; --alarm: #ff9a9a;
  --alarm-page: #3b1a1d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto,
  "Liberation Sans", "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
main { max-width: 66rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .7rem; }
p { margin: 0 0 .8rem; max-width: 46rem; }
.finding { font-size: 1.15rem; line-height: 1.5; max-width: 56rem; }
.warning { border: 2px solid; border-radius: 8px; background: var(--alarm-page); color: var(--alarm);
  padding: .8rem 1.1rem; margin: 0 0 1.6rem; font-weight: 600; }
.warning p { margin: 0; max-width: none; } .warning p + p { margin-top: .4rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem 1.6rem;
  margin: 1.4rem 0 0; padding: 1rem 0; border: solid var(--line); border-width: 1px 0; }
.facts dt { font-size: .8rem; color: var(--soft); } .facts dd { margin: 0; font-size: .95rem; }
figure { margin: 1.6rem 0 0; padding: .8rem; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; }
figure img { display: block; width: 100%; max-width: 60rem; height: auto; margin: 0 auto; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding: .8rem .75rem .5rem; }
th, td { padding: .38rem .75rem; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); color: var(--soft); font-weight: 600; font-size: .82rem;
  vertical-align: bottom; }
.results tbody th, .results td { white-space: nowrap; } small { color: var(--alarm); }
tbody th { font-weight: 500; } tbody th, .text, thead th:nth-child(-n+2) { text-align: left; }
tbody tr.first > * { border-top: 1px solid var(--line); }
tbody + tbody tr:first-child > * { border-top: 2px solid var(--line); }
.best { background: var(--best); font-weight: 650; } .none { color: var(--soft); }
abbr { text-decoration: none; } sup { color: var(--accent); line-height: 0; }
.notes { font-size: .88rem; color: var(--soft); margin: .7rem 0 0; padding-left: 1.4rem; }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
summary { cursor: pointer; padding: .65rem .9rem; font-weight: 600; }
details table { table-layout: fixed; } details th, details td { text-align: left; overflow-wrap: anywhere; }
details tbody tr > * { border-top: 1px solid var(--line); } details col.wide { width: 62%; }
code { font: .86em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 40rem) { th, td { padding: .35rem .55rem; } h1 { font-size: 1.5rem; } }
@media print { body { background: #fff; font-size: 10pt; } main { max-width: none; padding: 0; }
  figure, tr, .warning { break-inside: avoid; } h2 { break-after: avoid; } .scroll { overflow: visible; }
  th, td { padding: .2rem .4rem; } }
"""


def write_report(
    folder: Path,
    rows: Iterable[Row],
    *,
    title: str,
    facts: Mapping[str, str],
    statement: str,
    settings: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> Path:
    """Write `frontier.png`, `summary.csv` and `index.html` into a folder.

    Args:
        folder: made if it is not there.
        rows: what was compared.
        title: the page's.
        facts: data, teachers, queries (these three also title the picture), seeds, date, versions.
        statement: what is guaranteed, in plain words; a blank line ends a paragraph.
        settings: everything the study was run with, nested.
        warnings: shown in a box above all else.

    Returns:
        The path of `index.html`.
    """
    rows = ordered(rows)
    frontier(rows, folder / "frontier.png", facts=facts)
    write_bytes(folder / "summary.csv", summary_csv(rows).encode(errors="replace"))
    body = [
        _warnings(warnings),
        f"<h1>{_text(title)}</h1>",
        f'<p class="finding">{_numbers(finding(rows))}</p>',
        _figure(rows, (folder / "frontier.png").read_bytes()),
        _facts(facts),
        f"<h2>Results</h2>{_results(rows)}",
        f"<h2>What is guaranteed</h2>{_paragraphs(statement)}",
        f"<h2>Settings</h2>{_row_settings(rows)}{_all_settings(settings)}",
    ]
    path = folder / "index.html"
    write_bytes(path, _document(title, "\n".join(part for part in body if part)).encode(errors="replace"))
    return path


def _figure(rows: Sequence[Row], png: bytes) -> str:
    """The picture inside the page, and in words for who cannot see it."""
    alt = _text(f"Student accuracy against epsilon, a line per mechanism. {finding(rows)} {caption(rows)}")
    return f'<figure><img alt="{alt}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></figure>'


def _document(title: str, body: str) -> str:
    """The frame; its policy makes the browser itself refuse scripts and fetches."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{_text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _text(value: object) -> str:
    """Any text, harmless: on one line, no control characters, escaped for content and attributes."""
    return escape(printable(str(value)))


def _numbers(text: str) -> str:
    """Text whose numbers stay in one piece with their spread and sign."""
    return _text(text).replace(" ± ", "&nbsp;±&nbsp;").replace(" %", "&nbsp;%")


def _paragraphs(text: str) -> str:
    parts = (part for part in re.split(r"\n\s*\n", text) if part.strip())
    return "".join(f"<p>{_text(part)}</p>" for part in parts)


def _warnings(warnings: Sequence[str]) -> str:
    lines = "".join(f"<p>{_text(line)}</p>" for line in warnings)
    return f'<div class="warning" role="alert">{lines}</div>' if lines else ""


def _facts(facts: Mapping[str, str]) -> str:
    items = "".join(f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{items}</dl>' if items else ""


# --- the table ---------------------------------------------------------------------------------------------


def _results(rows: Sequence[Row]) -> str:
    """The table, mechanisms and references in a body each, with its notes."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in HEADINGS)
    numbers, winners = footnotes(rows), _winners(rows)
    bodies = "".join(
        f"<tbody>{''.join(_row(row, before, numbers, row in winners) for row, before in part)}</tbody>"
        for part in (
            _follow(r for r in rows if not r.is_reference),
            _follow(r for r in rows if r.is_reference),
        )
        if part
    )
    shaded = " Shaded: the best student at its ε and neighbours." if winners else ""
    about = f"<caption>Accuracy and F1 in percent: {_text(legend(rows))}.{shaded}</caption>"
    notes = "".join(f"<li>{_text(note)}</li>" for note in numbers)
    table = f'<table class="results">{about}<thead><tr>{head}</tr></thead>{bodies}</table>'
    return f'<div class="scroll">{table}</div>' + (f'<ol class="notes">{notes}</ol>' if notes else "")


def _follow(rows: Iterable[Row]) -> list[tuple[Row, Row | None]]:
    """Each row with the one before it."""
    rows = list(rows)
    return list(zip(rows, [None, *rows], strict=False))


def _winners(rows: Iterable[Row]) -> list[Row]:
    """The most accurate student at each relation and epsilon where there is a choice."""
    groups: dict[tuple[str | None, str], list[Row]] = {}
    for row in rows:
        if row.is_guarantee and row.accuracy and row.epsilon != math.inf:
            groups.setdefault((row.neighbours, show_cost(row.epsilon)), []).append(row)
    return [best(group) for group in groups.values() if len(group) > 1]


def _row(row: Row, before: Row | None, numbers: Mapping[str, int], wins: bool) -> str:
    name, *rest = (_text(shorten(cell, 32)) for cell in cells(row))
    mark = f"<sup>{numbers[row.note]}</sup>" if row.note else ""
    mark += "" if row.is_reference or row.is_guarantee else f"<br><small>{NOT_A_GUARANTEE}</small>"
    first = before is None or (before.mechanism, before.neighbours) != (row.mechanism, row.neighbours)
    start = '<tr class="first">' if first else "<tr>"
    columns = "".join(f"<td{_look(i, wins, row.answered == 0)}>{cell}</td>" for i, cell in enumerate(rest))
    return f'{start}<th scope="row">{name}{mark}</th>{columns}</tr>'


def _look(column: int, wins: bool, silent: bool) -> str:
    if column == 0:
        return ' class="text"'
    return ' class="best"' if wins and column == 5 else ' class="none"' if silent and column > 2 else ""


# --- settings ----------------------------------------------------------------------------------------------


def _row_settings(rows: Sequence[Row]) -> str:
    """The exact parameters of each row that has some."""
    lines = [
        (f"{_text(name)}<br>{relation}, ε {epsilon}, δ {delta}", _assignments(row.settings))
        for row in rows
        if row.settings
        for name, relation, epsilon, delta, *_ in [tuple(map(_text, cells(row)))]
    ]
    return _details("Exact parameters of every row", ("Row", "Parameters"), lines)


def _assignments(settings: Mapping[str, Any]) -> str:
    flat = flatten(plain(settings))
    return ", ".join(f"<code>{_text(name)}={_text(value)}</code>" for name, value in flat.items())


def _all_settings(settings: Mapping[str, Any]) -> str:
    flat = flatten(plain(settings)) if settings else {}
    lines = [(f"<code>{_text(name)}</code>", f"<code>{_text(value)}</code>") for name, value in flat.items()]
    return _details("All settings of the study", ("Name", "Value"), lines)


def _details(summary: str, headings: tuple[str, str], lines: Sequence[tuple[str, str]]) -> str:
    """A table of two columns that opens on a click."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    body = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in lines)
    columns = '<colgroup><col><col class="wide"></colgroup>'
    table = f"<table>{columns}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>{summary}</summary>{table}</details>" if lines else ""

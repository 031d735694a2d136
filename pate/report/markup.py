"""HTML from plain text: harmless words, the frame of a page and its look."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from pate.report.rows import printable

LONG = 1500  # characters of a paragraph that is not shown at once

STYLE = """
:root { color-scheme: light dark; --ink: #1d2228; --soft: #5b6570; --line: #dde2e7; --page: #f5f6f8;
  --card: #fff; --accent: #0062a3; --best: #e9f3fb; --alarm: #a31621; --alarm-page: #fdeeee; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa5b1; --line: #333b45;
  --page: #14181d; --card: #1c2128; --accent: #6cb6f0; --best: #16324a; --alarm: #ff9a9a;
  --alarm-page: #3b1a1d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto,
  "Liberation Sans", "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
main { max-width: 72rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .7rem; }
p { margin: 0 0 .8rem; max-width: 46rem; }
.finding { font-size: 1.15rem; line-height: 1.5; max-width: 56rem; }
.warning { border: 2px solid; border-radius: 8px; background: var(--alarm-page); color: var(--alarm);
  padding: .8rem 1.1rem; margin: 0 0 1.6rem; font-weight: 600; }
.warning p { margin: 0; max-width: none; } .warning p + p { margin-top: .4rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem 1.6rem;
  margin: 1.4rem 0 0; padding: 1rem 0; border: solid var(--line); border-width: 1px 0; }
.facts div:last-child { grid-column: span 2; }
.facts dt { font-size: .8rem; color: var(--soft); } .facts dd { margin: 0; font-size: .95rem; }
figure { margin: 1.6rem 0 0; padding: .8rem; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; }
figure img { display: block; width: 100%; max-width: 60rem; height: auto; margin: 0 auto; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding: .8rem .45rem .5rem; }
th, td { padding: .34rem .45rem; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); color: var(--soft); font-weight: 600; font-size: .82rem;
  vertical-align: bottom; }
.results tbody th, .results td { white-space: nowrap; } small { color: var(--alarm); }
tbody th { font-weight: 500; } tbody th, .text, thead th:nth-child(-n+2) { text-align: left; }
tbody tr.first > * { border-top: 1px solid var(--line); }
tbody + tbody tr:first-child > * { border-top: 2px solid var(--line); }
.best { background: var(--best); font-weight: 650; } .none { color: var(--soft); }
abbr { text-decoration: none; } sup { color: var(--accent); line-height: 0; }
.findings { margin: 0 0 .8rem; padding-left: 1.2rem; max-width: 60rem; } .findings li { margin: 0 0 .3rem; }
.notes { font-size: .88rem; color: var(--soft); margin: .7rem 0 0; padding-left: 1.4rem; }
details { margin: .8rem 0; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
summary { cursor: pointer; padding: .65rem .9rem; font-weight: 600; }
details p, details .notes { margin: 0 .9rem .9rem; max-width: none; font-size: .9rem; }
details .scroll { border-width: 1px 0 0; border-radius: 0 0 8px 8px; }
.pairs { table-layout: fixed; } .pairs th, .pairs td { text-align: left; overflow-wrap: anywhere; }
.pairs tbody tr > * { border-top: 1px solid var(--line); } .pairs col.wide { width: 62%; }
code { font: .86em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 40rem) { th, td { padding: .35rem .55rem; } h1 { font-size: 1.5rem; } }
@media print { body { background: #fff; font-size: 10pt; } main { max-width: none; padding: 0; }
  figure, tr, .warning { break-inside: avoid; } h2 { break-after: avoid; } .scroll { overflow: visible; }
  th, td { padding: .2rem .4rem; } }
"""


def document(title: str, body: str) -> str:
    """The frame; its policy makes the browser itself refuse scripts and fetches."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def text(value: object) -> str:
    """Any text, harmless: on one line, no control characters, escaped for content and attributes."""
    return escape(printable(str(value)))


def numbers(words: str) -> str:
    """Text whose numbers stay in one piece with their spread and sign."""
    return text(words).replace(" ± ", "&nbsp;±&nbsp;").replace(" %", "&nbsp;%")


def paragraphs(words: str) -> str:
    """A blank line ends a paragraph; a very long one opens on a click."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", words) if part.strip()]
    return "".join(f"<p>{text(part)}</p>" if len(part) < LONG else _folded(part) for part in parts)


def _folded(words: str) -> str:
    first = words.partition(". ")[0]
    return f"<details><summary>{text(first)} …</summary><p>{text(words)}</p></details>"


def bullets(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{numbers(line)}</li>" for line in lines)
    return f'<ul class="findings">{items}</ul>' if items else ""


def folding_pairs(summary: str, headings: tuple[str, str], lines: Sequence[tuple[str, str]]) -> str:
    """A table of two columns, given as markup, that opens on a click."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    body = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in lines)
    columns = '<colgroup><col><col class="wide"></colgroup>'
    table = f'<table class="pairs">{columns}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"<details><summary>{summary}</summary>{table}</details>" if lines else ""


def alarm(warnings: Sequence[str]) -> str:
    lines = "".join(f"<p>{text(line)}</p>" for line in warnings)
    return f'<div class="warning" role="alert">{lines}</div>' if lines else ""


def listing(facts: Mapping[str, str]) -> str:
    items = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{items}</dl>' if items else ""

"""`python -m pate.report.results docs/results.md`: fill the page's tables from the CSV files that they name.

A table stands between `<!-- table FILE MEASURE RELATION [BY] [EPSILON] -->` and `<!-- end -->`. FILE is relative to the
page; MEASURE is one of `MEASURES`; BY is epsilon (default), or queries, teachers, labels, for a sweep at one EPSILON.
Everything else on the page is left alone.
"""

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pate.commands import run_script
from pate.errors import DataError, MissingInput, SettingError

Cell = Mapping[str, str]

SPREAD = ("accuracy", "macro_f1", "micro_f1", "mean_ap")
MEASURES = (*SPREAD, "gain", "answered", "label_accuracy", "label_f1")
PLACES = ("epsilon", "queries", "teachers", "labels")
BLOCK = re.compile(r"(<!-- table (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: Path) -> str:
    """The page's text with every table made anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{_table(page.parent, block[2].split())}{block[3]}", page.read_text())


def _table(folder: Path, words: Sequence[str]) -> str:
    """One table as Markdown."""
    name, measure, relation, *more = words
    by, epsilon = (more[0] if more else "epsilon"), (float(more[1]) if len(more) > 1 else None)
    for word, known in ((measure, MEASURES), (by, PLACES)):
        if word not in known:
            raise SettingError("table", f"made of {', '.join(known)}", word)
    rows = [row for row in _read(folder / name) if row["neighbours"] in ("", relation)]
    released = [row for row in rows if row["neighbours"] and (epsilon is None or _near(row["epsilon"], epsilon))]
    if not released:
        raise DataError(f"{name} must have rows of {relation}{'' if epsilon is None else f' at epsilon {epsilon:g}'}")
    places = sorted({_place(row, by) for row in released})
    lines = [[f"{by}", *(f"{place:g}" for place in places)], ["---"] * (len(places) + 1)]
    for mechanism in dict.fromkeys(row["mechanism"] for row in rows):
        own = {_place(row, by): row for row in (released if by == "epsilon" else rows) if row["mechanism"] == mechanism}
        reference = by == "epsilon" and not own
        row = next(row for row in rows if row["mechanism"] == mechanism)
        lines.append([mechanism, *(_cell(row if reference else own.get(place), measure, rows) for place in places)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines if set(line[1:]) != {""})


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        raise MissingInput(f"{path} is missing: it is a table of a comparison's report")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _near(text: str, epsilon: float) -> bool:
    return text != "" and abs(float(text) - epsilon) <= 0.002 * epsilon


def _place(row: Cell, by: str) -> float:
    """Where a row stands; calibrated epsilons lie just below their target."""
    return float(f"{float(row[by]):.3g}") if row[by] else float("nan")


def _cell(row: Cell | None, measure: str, rows: Sequence[Cell]) -> str:
    """Percent, with the standard deviation over seeds where there are several; empty where there is nothing."""
    if row is None:
        return ""
    value, sd = row[f"{measure}_mean" if measure in SPREAD else measure], ""
    if measure in SPREAD:
        sd = row[f"{measure}_sd"]
    elif measure == "gain" and value:
        sd = _gain_sd(row, rows)
    if not value:
        return "nothing" if row["answered"] == "0.0" else ""
    return f"{100 * float(value):.1f}" + (f" ± {100 * float(sd):.1f}" if sd else "")


def _gain_sd(row: Cell, rows: Sequence[Cell]) -> str:
    """The accuracy's deviation in units of the way that gains are measured by."""
    levels = [
        next((float(one["accuracy_mean"]) for one in rows if one["mechanism"] == name and _alike(one, row)), None)
        for name in ("prior-only", "noiseless votes")
    ]
    if not row["accuracy_sd"] or None in levels:
        return ""
    low, high = levels
    return str(float(row["accuracy_sd"]) / (high - low)) if low is not None and high is not None else ""


def _alike(one: Cell, other: Cell) -> bool:
    return all(one[name] == other[name] for name in ("teachers", "queries", "labels"))


def main() -> None:
    """Rewrite the page."""
    if len(sys.argv) != 2:
        raise SettingError("arguments", "one page, e.g. docs/results.md", " ".join(sys.argv[1:]))
    page = Path(sys.argv[1])
    if not page.exists():
        raise MissingInput(f"{page} is missing")
    page.write_text(fill(page))


if __name__ == "__main__":
    run_script(main)

"""New York Times' COVID-19 cases by state: cumulative counts as published, daily counts as asked for.

The file is `us-states.csv` (date, state, fips, cases, ...) of github.com/nytimes/covid-19-data, or a part of it.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate.errors import DataError

ORIGIN = "https://github.com/nytimes/covid-19-data (us-states.csv; non-commercial use)"


@dataclass(frozen=True)
class DailyCases:
    """New cases by day and state.

    Attributes:
        dates: (D,) ISO dates, one after another.
        states: (S,) names, sorted; every state or territory that the file knows.
        counts: (D, S) whole numbers >= 0.
    """

    dates: tuple[str, ...]
    states: tuple[str, ...]
    counts: NDArray[np.int64]


def load_daily_cases(root: Path) -> DailyCases:
    """Daily cases: each day's cumulative count less the day before's; the first day of the file has none before it.

    A state without a line has no cases yet. Corrections that lower a cumulative count are counted as no new cases.

    Raises:
        DataError: if the file is absent or does not look as published; says which line.
    """
    path = _find(root)
    totals: dict[tuple[str, str], int] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if not {"date", "state", "cases"} <= set(reader.fieldnames or ()):
            raise DataError(f"{path} must have the columns date, state and cases")
        for row in reader:
            if not (row["cases"] or "").isdecimal():
                raise DataError(f"{path}: line {reader.line_num} must have a whole number of cases")
            totals[row["date"], row["state"]] = int(row["cases"])
    dates, states = (tuple(sorted({key[i] for key in totals})) for i in (0, 1))
    cumulative = np.array([[totals.get((date, state), 0) for state in states] for date in dates], dtype=np.int64)
    return DailyCases(dates[1:], states, np.maximum(np.diff(cumulative, axis=0), 0))


def _find(root: Path) -> Path:
    folders = [folder for folder in (root, root / "covid") if folder.is_dir()]
    found = [path for folder in folders for path in sorted(folder.glob("us-states*.csv"))]
    if not found:
        raise DataError(f"us-states.csv not found in {root}: the public original is at {ORIGIN}")
    return found[0]

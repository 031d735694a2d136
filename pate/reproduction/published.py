"""What the papers print, as facts to stand beside what we get."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KS = (3, 10, 50)
Cell = tuple[str, str, float, int]  # data set, method, epsilon, k

# Users and delta = 1/users as the papers have them (Carvalho et al. 2020, Table 1).
USERS = {"BrightKite": 51_406, "Foursquare": 2_293, "Gowalla": 107_092}

_ZHU_WANG_TABLE_1 = {
    ("BrightKite", "TS"): ((1.00, 0.77, 0.14), (1.00, 0.80, 0.16), (1.00, 0.80, 0.18)),
    ("BrightKite", "LD"): ((1.00, 0.47, 0.10), (1.00, 0.79, 0.25), (1.00, 0.88, 0.28)),
    ("BrightKite", "StableTopK"): ((1.00, 0.91, 0.61), (1.00, 1.00, 0.67), (1.00, 1.00, 0.67)),
    ("Foursquare", "TS"): ((1.00, 0.64, 0.11), (1.00, 0.90, 0.18), (1.00, 0.90, 0.18)),
    ("Foursquare", "LD"): ((0.68, 0.62, 0.13), (0.75, 0.85, 0.24), (0.91, 0.94, 0.28)),
    ("Foursquare", "StableTopK"): ((1.00, 0.72, 0.48), (1.00, 1.00, 0.67), (1.00, 1.00, 0.67)),
}
_CARVALHO_TABLE_2 = {
    ("BrightKite", "TS"): ((1.00, 0.77, 0.14), (1.00, 0.80, 0.16), (1.00, 0.80, 0.18)),
    ("BrightKite", "LD"): ((1.00, 0.47, 0.10), (1.00, 0.79, 0.25), (1.00, 0.88, 0.28)),
    ("Foursquare", "TS"): ((1.00, 0.64, 0.11), (1.00, 0.90, 0.18), (1.00, 0.90, 0.18)),
    ("Foursquare", "LD"): ((0.67, 0.64, 0.13), (0.72, 0.85, 0.23), (0.86, 0.98, 0.25)),
    ("Gowalla", "TS"): ((0.98, 1.00, 0.20), (1.00, 1.00, 0.40), (1.00, 1.00, 0.45)),
    ("Gowalla", "LD"): ((0.79, 0.76, 0.24), (1.00, 0.90, 0.38), (1.00, 0.90, 0.45)),
}
_CARVALHO_TABLE_3 = {
    ("BrightKite", "TS"): ((1.00, 0.86, 0.38), (1.00, 0.89, 0.42), (1.00, 0.89, 0.44)),
    ("BrightKite", "LD"): ((1.00, 0.67, 0.32), (1.00, 0.88, 0.51), (1.00, 0.94, 0.56)),
    ("Foursquare", "TS"): ((1.00, 0.75, 0.28), (1.00, 0.94, 0.39), (1.00, 0.94, 0.40)),
    ("Foursquare", "LD"): ((0.70, 0.78, 0.32), (0.75, 0.91, 0.46), (0.87, 0.97, 0.50)),
    ("Gowalla", "TS"): ((0.98, 1.00, 0.39), (1.00, 1.00, 0.59), (1.00, 1.00, 0.63)),
    ("Gowalla", "LD"): ((0.81, 0.80, 0.44), (1.00, 0.92, 0.56), (1.00, 0.92, 0.63)),
}


def _cells(table: Mapping[tuple[str, str], tuple[tuple[float, ...], ...]]) -> dict[Cell, float]:
    return {
        (*key, epsilon, k): value
        for key, lines in table.items()
        for epsilon, line in zip((0.4, 0.8, 1.0), lines, strict=True)
        for k, value in zip(KS, line, strict=True)
    }


ZHU_WANG_P = _cells(_ZHU_WANG_TABLE_1)
CARVALHO_P = _cells(_CARVALHO_TABLE_2)
CARVALHO_S = _cells(_CARVALHO_TABLE_3)


def best_p(data: str, epsilon: float, k: int) -> float | None:
    """The best proportion of the true top k that any of the papers prints for a cell.

    >>> best_p("Foursquare", 0.4, 50)
    0.48
    """
    tables = (ZHU_WANG_P, CARVALHO_P)
    found = [value for table in tables for cell, value in table.items() if (cell[0], *cell[2:]) == (data, epsilon, k)]
    return max(found, default=None)


def notebooks(root: Path) -> dict[Cell, tuple[float, float]]:
    """P and S in the TS authors' notebooks, where the data folder has them."""
    path = root / "checkins" / "published_ts_ld.json"
    if not path.is_file():
        return {}
    tables: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    cells = ((data, line) for data, lines in tables.items() for line in lines)
    return {(data, line["mech"], line["eps"], line["k"]): (line["P"], line["S"]) for data, line in cells}

"""Rows in TensorBoard: accuracy over epsilon, the pictures, and every row's settings beside its figures (hparams)."""

import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pate.report.rows import Row, average, ordered


def write_board(folder: Path, rows: Sequence[Row], sweeps: Mapping[str, Sequence[Row]], pictures: Path) -> None:
    """Begin the board anew.

    Args:
        folder: of the event files.
        pictures: a report's folder; its PNGs are shown.
    """
    from matplotlib.image import imread
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        for row in ordered(rows):
            if row.epsilon is not None and row.mean is not None and math.isfinite(row.epsilon):
                # in thousandths, since steps are whole numbers
                writer.add_scalar(f"accuracy/{row.mechanism} {row.neighbours}", row.mean, round(1000 * row.epsilon))
        for path in sorted(pictures.glob("*.png")):
            writer.add_image(path.stem, imread(path)[..., :3], dataformats="HWC")
        for row in [row for part in (rows, *sweeps.values()) for row in part if not row.is_reference]:
            writer.add_hparams(_settings(row), _figures(row), run_name=_name(row))


def _settings(row: Row) -> dict[str, str | float]:
    known = {"teachers": row.teachers, "queries": row.queries, "labels": row.labels}
    sizes = {name: float(number) for name, number in known.items() if number is not None}
    return {"mechanism": row.mechanism, "neighbours": str(row.neighbours), "epsilon": row.epsilon or 0.0, **sizes}


def _figures(row: Row) -> dict[str, float]:
    """What was measured; a student that there is not has no figures."""
    scores = {name: average(getattr(row, name)) for name in ("accuracy", "macro_f1", "micro_f1", "mean_ap")}
    found = scores | {"answered": row.answered, "label_accuracy": row.label_accuracy}
    return {f"hparam/{name}": value for name, value in found.items() if value is not None}


def _name(row: Row) -> str:
    """A folder's name for a row."""
    sizes = " ".join(f"{number}" for number in row.size if number is not None)
    return re.sub(r"[^\w.-]+", "_", f"{row.mechanism} {row.neighbours} {row.epsilon:.4g} {sizes}")

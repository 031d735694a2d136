"""`python -m pate.student predict --run NAME IMAGE...` prints each picture's attributes with probabilities."""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from pate.commands import run_script
from pate.errors import DataError, require
from pate.runs import Run
from pate.student.files import STUDENT, load_student, network_of, read_image
from pate.student.training import predict

Row = tuple[Path, np.ndarray]
BATCH = 64  # pictures in memory at a time
EPILOG = """\
examples:
  python -m pate.student predict --run mine face.jpg
  python -m pate.student predict --student student.safetensors photos/ --threshold 0.5
  python -m pate.student predict --run mine photos/ --csv > predictions.csv
Pictures are turned upright, cut to their centre square and resized to the student's input.
Exit codes: 0 done, 2 bad input.
"""


def main() -> None:
    """Print each picture's attributes with probabilities, the likeliest first."""
    options = _parser().parse_args()
    path = options.student if options.run is None else Run(options.runs, options.run).release / STUDENT
    limit = options.threshold
    require(limit is None or 0 <= limit <= 1, "--threshold", "from 0 to 1", limit)
    model, meta = load_student(path)
    pictures, network = iter(_expanded(options.images)), network_of(meta)

    def predicted() -> Iterator[Row]:
        while batch := list(islice(pictures, BATCH)):
            inputs = np.stack([read_image(each, meta["input_shape"]) for each in batch])
            yield from zip(batch, predict(model, inputs, network), strict=True)

    (_write_csv if options.csv else _write_text)(predicted(), meta["label_names"], limit)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pate.student", description="Use a student that a run released.")
    command = parser.add_subparsers(required=True, metavar="predict").add_parser(
        "predict", description=main.__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument("--run", metavar="NAME", help="the student of this run: RUNS/NAME/release/student.safetensors")
    which.add_argument("--student", type=Path, metavar="FILE", help="a student.safetensors, wherever it is")
    command.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders are (default: runs)")
    command.add_argument("--threshold", type=float, metavar="P", help="only attributes of probability P or more")
    command.add_argument("--csv", action="store_true", help="a line per picture, a column per attribute (0/1 under P)")
    command.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="picture files, or folders of them")
    return parser


def _expanded(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, folders as the picture files in them, by name."""
    known = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    found = list[Path]()
    for path in paths:
        inside = sorted(each for each in path.iterdir() if each.suffix.lower() in known) if path.is_dir() else [path]
        if not inside:
            raise DataError(f"{path} must hold pictures, got a folder without any")
        found += inside
    return found


def _write_text(rows: Iterable[Row], names: Sequence[str], limit: float | None) -> None:
    for path, row in rows:
        print(path)
        shown = [k for k in np.argsort(-row, kind="stable") if limit is None or row[k] >= limit]
        print(*(f"  {row[k]:.3f}  {names[k]}" for k in shown), sep="\n", end="\n" if shown else "")


def _write_csv(rows: Iterable[Row], names: Sequence[str], limit: float | None) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("image", *names))
    for path, row in rows:
        writer.writerow((path, *(f"{value:.6f}" if limit is None else int(value >= limit) for value in row)))


if __name__ == "__main__":
    run_script(main)

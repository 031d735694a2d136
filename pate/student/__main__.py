"""`python -m pate.student predict --student runs/NAME/release/student.safetensors IMAGE...` prints attributes."""

import argparse
from pathlib import Path

import numpy as np

from pate.commands import run_script
from pate.student.files import load_student, network_of, read_image
from pate.student.training import predict


def main() -> None:
    """Print each picture's attributes with probabilities, the likeliest first."""
    parser = argparse.ArgumentParser(prog="python -m pate.student", description=main.__doc__)
    command = parser.add_subparsers(required=True, metavar="predict").add_parser("predict", description=main.__doc__)
    command.add_argument("--student", type=Path, required=True, metavar="runs/NAME/release/student.safetensors")
    command.add_argument("images", type=Path, nargs="+", metavar="IMAGE")
    options = parser.parse_args()
    model, meta = load_student(options.student)
    pictures = np.stack([read_image(path, meta["input_shape"]) for path in options.images])
    for path, row in zip(options.images, predict(model, pictures, network_of(meta)), strict=True):
        print(path)
        for k in np.argsort(-row, kind="stable"):
            print(f"  {row[k]:.3f}  {meta['label_names'][k]}")


if __name__ == "__main__":
    run_script(main)

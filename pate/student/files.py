"""A student as one file that may be given away: weights, and in its header what they are."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from pate.backbone import Mirrored
from pate.data.cache import UNREADABLE, decode
from pate.errors import DataError, MissingInput, PateError, require
from pate.models import Network
from pate.runs import write_bytes
from pate.settings import make

Array = np.ndarray
STUDENT, CARD = "student.safetensors", "student.md"  # in a run's release folder


def encode_student(model: nn.Module, meta: Mapping[str, Any]) -> bytes:
    """The bytes of a student's file: the weights, and in the header the meta data as JSON; equal ones, equal bytes.

    Args:
        model: A trained student; one that is `Mirrored` is stored without its mirror, which `mirror` says.
        meta: JSON values, with at least `network` (the fields of `Network`), `label_names` and `input_shape`; `mirror`
            if it predicts by a picture and its mirror image together.
    """
    missing = [key for key in ("network", "label_names", "input_shape") if key not in meta]
    require(not missing, "meta", "with network, label_names and input_shape", sorted(meta))
    inner = model.network if isinstance(model, Mirrored) else model
    meta = {**meta, "mirror": isinstance(model, Mirrored)}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in inner.state_dict().items()}
    return save(tensors, metadata={"pate": json.dumps(meta, sort_keys=True)})  # one entry: maps come in any order


def save_student(path: Path, model: nn.Module, meta: Mapping[str, Any]) -> None:
    """Write a student's file, whole or not at all; `encode_student` says what is in it."""
    write_bytes(path, encode_student(model, meta))


def read_meta(path: Path) -> dict[str, Any]:
    """What a student's file says about itself."""
    with _student_file(path), safe_open(path, framework="pt") as file:
        meta: dict[str, Any] = json.loads(file.metadata()["pate"])
    return meta


def load_student(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The model, ready for `predict`, and the meta data of its file; nothing is unpickled, nothing downloaded."""
    meta = read_meta(path)
    with _student_file(path), safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        model = network_of(meta).build(len(meta["label_names"]), 0, tuple(meta["input_shape"]))
        if hasattr(model, "transform_input"):  # googlenet and inception rescale if they began with public weights
            model.transform_input = meta["network"]["weights"] is not None  # type: ignore[assignment]
        model.load_state_dict(tensors)
        return (Mirrored(model) if meta["mirror"] else model).eval(), meta


@contextmanager
def _student_file(path: Path) -> Iterator[None]:
    """Reading a file that is absent, torn or something else is a sentence."""
    if not path.exists():
        raise MissingInput(
            f"{path} is missing: make it with `python train_student.py run={path.absolute().parent.parent.name}`"
        )
    try:
        yield
    except (PateError, SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} must be a student written by train_student.py; {reason}") from error


def network_of(meta: Mapping[str, Any]) -> Network:
    """The network a student was built from, without the public weights it started with."""
    return replace(make(Network, meta["network"], "network"), weights=None)


def read_image(path: Path, input_shape: Sequence[int]) -> Array:
    """A picture file as (S, S, 3) uint8 of the student's input size, as data sets of image files are read."""
    if len(input_shape) != 3:
        raise DataError(f"this student takes rows of {input_shape[0]} features, not pictures such as {path}")
    require(input_shape[0] == input_shape[1], "input_shape", "of square pictures", tuple(input_shape))
    try:
        return decode(path, input_shape[0])
    except UNREADABLE as error:
        raise DataError(f"{path} must be a picture that can be read; {error}") from error

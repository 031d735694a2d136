"""A student as one file that may be given away: weights, and in its header what they are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from pate.errors import DataError, MissingInput, PateError, require
from pate.models import Network
from pate.runs import write_bytes
from pate.settings import make

Array = np.ndarray


def save_student(path: Path, model: nn.Module, meta: Mapping[str, Any]) -> None:
    """Write the weights, and in the file's header the meta data as JSON; the file is whole or absent.

    Args:
        path: `release/student.safetensors`.
        model: A trained student.
        meta: JSON values, with at least `network` (the fields of `Network`), `label_names` and `input_shape`.
    """
    missing = [key for key in ("network", "label_names", "input_shape") if key not in meta]
    require(not missing, "meta", "with network, label_names and input_shape", sorted(meta))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(path, save(tensors, metadata={"format": "pt", "pate": json.dumps(meta)}))


def load_student(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The model and the meta data that `save_student` wrote; nothing is unpickled, nothing downloaded."""
    if not path.exists():
        raise MissingInput(
            f"{path} is missing: make it with `python train_student.py run={path.absolute().parent.parent.name}`"
        )
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads(file.metadata()["pate"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        model = network_of(meta).build(len(meta["label_names"]), 0, tuple(meta["input_shape"]))
        if hasattr(model, "transform_input"):  # googlenet and inception rescale if they began with public weights
            model.transform_input = meta["network"]["weights"] is not None  # type: ignore[assignment]
        model.load_state_dict(tensors)
    except (PateError, SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} must be a student written by train_student.py; {reason}") from error
    return model.eval(), meta


def network_of(meta: Mapping[str, Any]) -> Network:
    """The network a student was built from, without the public weights it started with."""
    return replace(make(Network, meta["network"], "network"), weights=None)


def read_image(path: Path, input_shape: Sequence[int]) -> Array:
    """A picture file as (H, W, 3) uint8 of the student's input size."""
    if len(input_shape) != 3:
        raise DataError(f"this student takes rows of {input_shape[0]} features, not pictures such as {path}")
    try:
        with Image.open(path) as image:
            resized = image.convert("RGB").resize((input_shape[1], input_shape[0]), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # PIL raises all of them
        raise DataError(f"{path} must be a picture that can be read; {error}") from error
    return np.asarray(resized)

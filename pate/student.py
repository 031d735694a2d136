"""The student: public pictures in, released labels as targets, a model that may be given away out.

Nothing here sees a vote, a count or a true label of a public picture: `targets` takes what a mechanism released,
`train_student` takes targets. All of it is post-processing and costs no privacy.

Which targets? Student accuracy in %, 300 faces (seed 1), 250 teachers, mean of 5 seeds, at noise of 0.1, 0.3, 0.5, 1, 2
in the shares of votes; prior-only 80.2, without noise 85.9.
    shares as they are                         85.7 85.1 84.5 82.9 80.7    (without `_caution` 85.7 85.0 84.3 82.5 79.4)
    clipped to [0, 1]                          85.8 85.3 84.4 80.6 74.5
    shrunk to each label's mean by the noise's
    part of the label's variance               85.6 84.0 82.3 80.7 79.9
    hard labels                                85.6 85.2 84.0 80.0 74.3

`python -m pate.student predict --student runs/NAME/release/student.safetensors IMAGE...` prints attributes.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from pate.commands import run_script
from pate.errors import DataError, MissingInput, PateError, require
from pate.models import Network, prepare, start_from_rates
from pate.runs import write_bytes
from pate.settings import make

Array = np.ndarray
Log = Callable[[int, Mapping[str, float]], None]
CAUTION = 600.0  # see `_caution`
Batch = tuple[Array, Tensor, Tensor]  # inputs, values, weight


class NothingReleased(PateError):
    """Too few queries were answered to train on; a comparison shows that row as `no student: 0 % answered`."""


@dataclass(frozen=True)
class Student:
    """How a student is trained; fixed beforehand, so that nothing is spent on choosing.

    Attributes:
        epochs: Passes over the answered queries.
        batch_size: Queries per step, about.
        learning_rate: AdamW's highest; it is reached after a tenth of the steps and then falls along a cosine.
        weight_decay: AdamW's.
        soft: Learn the released scores where there are any, instead of the 0/1 labels.
        augment: Mirror half of the pictures, others in every pass.
        on_bottom: Queries without an answer: `unlabelled` and `drop` leave them out of the loss, `prior` gives them
            the mean of the answered targets.
        min_answered: Fewer answers than this raise `NothingReleased`.
    """

    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 0.003
    weight_decay: float = 0.05
    soft: bool = True
    augment: bool = True
    on_bottom: Literal["unlabelled", "prior", "drop"] = "unlabelled"
    min_answered: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "min_answered"):
            require(getattr(self, name) >= 1, f"student.{name}", ">= 1", getattr(self, name))
        require(0 < self.learning_rate < math.inf, "student.learning_rate", "> 0", self.learning_rate)
        require(0 <= self.weight_decay < math.inf, "student.weight_decay", ">= 0", self.weight_decay)
        options = ("unlabelled", "prior", "drop")
        require(self.on_bottom in options, "student.on_bottom", f"one of {', '.join(options)}", self.on_bottom)


@dataclass(frozen=True, eq=False)
class Targets:
    """What a student learns: N queries, K labels.

    Attributes:
        values: (N, K) float32, the wanted probabilities; noisy ones may lie below 0 or above 1 (see `targets`).
        weight: (N,) float32; a query of weight 0 is never looked at.
        noise_sd: Standard deviation of the noise in the values, 0 if they are labels.
    """

    values: Array
    weight: Array
    noise_sd: float = 0.0

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.weight.shape != self.values.shape[:1]:
            raise DataError(f"targets {self.values.shape} and weight {self.weight.shape} must be (N, K) and (N,)")
        require(bool(np.isfinite(self.values[self.weight > 0]).all()), "targets", "finite", "nan or inf")
        require(0 <= self.noise_sd < math.inf, "noise_sd", ">= 0", self.noise_sd)


def targets(
    labels: Array,
    answered: Array,
    scores: Array | None,
    num_teachers: int,
    student: Student,
    score_sd: float | None = None,
) -> Targets:
    """Turn a release into targets; rows of queries without an answer are never read.

    Scores become shares of votes, not clipped: the loss is linear in its target, so noise of mean 0 leaves
    the expected gradient as it is, while clipping pulls every label towards 1/2.

    Args:
        labels: (N, K) bool, the released labels.
        answered: (N,) bool.
        scores: (N, K) noisy counts, or None if the mechanism released labels only.
        num_teachers: T.
        student: Decides between scores and labels, and what becomes of queries without an answer.
        score_sd: Standard deviation of the noise in the scores, in votes: a public setting; None or nan if unknown.
    """
    labels, answered = np.asarray(labels), np.asarray(answered, dtype=bool)
    shape = labels.shape if scores is None else np.shape(scores)
    if labels.ndim != 2 or shape != labels.shape or answered.shape != labels.shape[:1]:
        raise DataError(
            f"labels {labels.shape}, answered {answered.shape}, scores {shape} must be (N, K), (N,), (N, K)"
        )
    require(num_teachers >= 1, "num_teachers", ">= 1", num_teachers)
    released, sd = labels[answered].astype(np.float32), 0.0
    if student.soft and scores is not None:
        released = np.asarray(scores, dtype=np.float32)[answered] / num_teachers
        sd = 0.0 if score_sd is None or math.isnan(score_sd) else score_sd / num_teachers
    values, weight = np.zeros(labels.shape, np.float32), answered
    if student.on_bottom == "prior" and answered.any():
        values, weight = values + released.mean(0), np.ones_like(answered)
    values[answered] = released
    return Targets(values, weight.astype(np.float32), sd)


def train_student(
    inputs: Array,
    targets: Targets,
    network: Network,
    student: Student,
    *,
    seed: int,
    device: str = "cpu",
    log: Log | None = None,
    progress: bool = False,
) -> nn.Module:
    """Train on public inputs and released targets; the same arguments give the same weights.

    Args:
        inputs: (N, H, W, 3) uint8 pictures or (N, D) float features.
        targets: What to learn; queries of weight 0 are removed before anything else happens.
        seed: Of the first weights, the order, the mirroring, the dropout; global random states stay as they are.
        log: Called after each epoch with its number and its scalars.

    Returns:
        The model, on the device, ready to predict.

    Raises:
        NothingReleased: if fewer than `student.min_answered` queries were answered.
    """
    rows = _answered(inputs, targets, student)
    inputs, taught = inputs[rows], Targets(targets.values[rows], targets.weight[rows], targets.noise_sd)
    with _seeded(seed, device) as rng:
        model = network.build(taught.values.shape[1], seed, inputs.shape[1:]).to(device).train()
        start_from_rates(model, torch.as_tensor(taught.values.mean(0)).clamp(0.01, 0.99))
        optimiser, schedule = _optimiser(model, student, taught)
        epochs = range(student.epochs)
        for epoch in tqdm(epochs, desc="student", unit="epoch", delay=2) if progress else epochs:
            batches = _batches(inputs, taught, student, rng)
            loss = _epoch(model, network, batches, optimiser, schedule, device)
            if not math.isfinite(loss):
                raise PateError(f"student diverged: use a smaller student.learning_rate than {student.learning_rate}")
            if log:
                log(epoch, {"loss": loss, "learning_rate": float(schedule.get_last_lr()[0])})
    return model.eval()


def predict(model: nn.Module, inputs: Array, network: Network, device: str = "cpu", batch_size: int = 256) -> Array:
    """Probabilities (N, K) float32 of N pictures or rows of features."""
    model.eval()
    with torch.inference_mode():
        parts = [
            model(prepare(inputs[start : start + batch_size], network, device)).sigmoid().cpu().numpy()
            for start in range(0, len(inputs), batch_size)
        ]
    require(len(parts) > 0, "inputs", "at least one record", 0)
    return np.concatenate(parts)


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


def _answered(inputs: Array, targets: Targets, student: Student) -> Array:
    """Positions of the queries to learn from."""
    if len(inputs) != len(targets.weight):
        raise DataError(f"inputs and targets must have equal lengths, got {len(inputs)} and {len(targets.weight)}")
    rows = np.flatnonzero(targets.weight > 0)
    if len(rows) < student.min_answered:
        raise NothingReleased(
            f"answered queries must be >= {student.min_answered} to train a student, got {len(rows)} of {len(inputs)}; "
            "a larger epsilon, fewer queries or another mechanism answers more"
        )
    return rows


@contextmanager
def _seeded(seed: int, device: str) -> Iterator[torch.Generator]:
    """A generator for the loop; dropout draws from torch's own state, which is seeded inside and put back after."""
    cuda = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def _caution(taught: Targets) -> float:
    """The part of the learning rate that noisy targets leave: N / (N + 600 sd^2).

    A shorter way to go keeps a student from learning noise by heart, as a ridge penalty growing with sd^2 / N does.
    """
    return len(taught.weight) / (len(taught.weight) + CAUTION * taught.noise_sd**2)


def _optimiser(
    model: nn.Module, student: Student, taught: Targets
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW, a short rise and a cosine to nearly 0."""
    steps = student.epochs * _num_batches(student, len(taught.weight))
    rise = max(1, steps // 10)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=student.learning_rate * _caution(taught),
        weight_decay=student.weight_decay,
        fused=True,
    )
    return optimiser, torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / rise) * (1 + math.cos(math.pi * step / steps)) / 2
    )


def _num_batches(student: Student, queries: int) -> int:
    return max(1, round(queries / student.batch_size))


def _batches(inputs: Array, taught: Targets, student: Student, rng: torch.Generator) -> Iterator[Batch]:
    """One pass in random order, in batches of nearly equal size."""
    order = torch.randperm(len(inputs), generator=rng)
    if len(order) == 1:
        order = order.repeat(2)  # batch normalisation cannot learn from a single record
    for rows in order.tensor_split(_num_batches(student, len(inputs))):
        picked = inputs[rows.numpy()]
        if student.augment and inputs.ndim == 4:
            mirrored = (torch.rand(len(rows), generator=rng) < 0.5).numpy()
            picked[mirrored] = picked[mirrored, :, ::-1]
        yield picked, torch.as_tensor(taught.values[rows]), torch.as_tensor(taught.weight[rows])


def _epoch(
    model: nn.Module,
    network: Network,
    batches: Iterator[Batch],
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    device: str,
) -> float:
    """Learn from each batch once; the mean loss."""
    losses = []
    for inputs, values, weight in batches:
        logits = model(prepare(inputs, network, device))
        each = binary_cross_entropy_with_logits(logits, values.to(device), reduction="none").mean(1)
        loss = (each * weight.to(device)).sum() / weight.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


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

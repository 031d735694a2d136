"""A network learns released targets step by step."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from pate.backbone import Mirrored
from pate.errors import DataError, PateError, require
from pate.models import Network, prepare, start_from_rates
from pate.student import ridge
from pate.student.decision import match
from pate.student.settings import NothingReleased, Student, Targets

Array = np.ndarray
Log = Callable[[int, Mapping[str, float]], None]
CAUTION = 600.0  # see `_caution`
TRUST = 0.3  # what a student's own guess weighs beside an answer
Batch = tuple[Array, Tensor, Tensor]  # inputs, values, weight


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
        targets: What to learn; values of queries of weight 0 are never read, and their inputs only where
            `student.self_training` guesses them.
        seed: Of the first weights, the order, the mirroring, the dropout; global random states stay as they are.
        log: Called after each epoch with its number and its scalars; in self-training, of the second student alone.

    Returns:
        The model, on the device, ready to predict.

    Raises:
        NothingReleased: if fewer than `student.min_answered` queries were answered.
    """
    rows = _answered(inputs, targets, student)
    answers = Targets(targets.values[rows], targets.weight[rows], targets.noise_sd)
    flat = network.name == "linear" and inputs.ndim == 2
    require(flat or student.solver != "ridge", "student.solver", "auto or steps, but for heads", student.solver)
    if flat and student.solver != "steps":
        model = network.build(answers.values.shape[1], seed, inputs.shape[1:])
        model = ridge.fit(inputs[rows], answers, model).to(device).eval()
    else:
        learn = partial(_learn, network=network, student=student, seed=seed, device=device, progress=progress)
        guess = student.self_training and student.on_bottom == "unlabelled" and len(rows) < len(inputs)
        model = learn(inputs[rows], answers, log=None if guess else log)
        if guess:
            model = learn(inputs, _completed(targets, model, inputs, network, student, device), log=log)
    return match(model, inputs[rows], answers, network, device) if student.decision == "matched" else model


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


def _completed(
    targets: Targets, model: nn.Module, inputs: Array, network: Network, student: Student, device: str
) -> Targets:
    """Put a student's own guesses in the place of the answers that are missing."""
    silent, values, weight = targets.weight == 0, targets.values.copy(), targets.weight.copy()
    guesser = Mirrored(model) if student.augment else model
    values[silent], weight[silent] = predict(guesser, inputs[silent], network, device), TRUST
    return Targets(values, weight, targets.noise_sd)


def _learn(
    inputs: Array,
    taught: Targets,
    network: Network,
    student: Student,
    seed: int,
    device: str,
    log: Log | None,
    progress: bool,
) -> nn.Module:
    """Train a network from its first weights on."""
    with _seeded(seed, device) as rng:
        model = network.build(taught.values.shape[1], seed, inputs.shape[1:]).to(device).train()
        rates = np.average(taught.values, axis=0, weights=taught.weight)
        start_from_rates(model, torch.as_tensor(rates).clamp(0.01, 0.99))
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
    """The part of the learning rate that noisy targets leave: N / (N + 600 sd^2), N the sum of the weights.

    A shorter way to go keeps a student from learning noise by heart, as a ridge penalty growing with sd^2 / N does. It
    pays on faces, where a mean says much; where each label is one plain pattern, less caution would be better.
    """
    answers = float(taught.weight.sum())
    return answers / (answers + CAUTION * taught.noise_sd**2)


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
    """One pass in random order, in batches of nearly equal size; weights are 1 on average over the pass."""
    weight = taught.weight / taught.weight.mean()
    order = torch.randperm(len(inputs), generator=rng)
    if len(order) == 1:
        order = order.repeat(2)  # batch normalisation cannot learn from a single record
    for rows in (part.numpy() for part in order.tensor_split(_num_batches(student, len(inputs)))):
        picked = inputs[rows]
        if student.augment and inputs.ndim == 4:
            mirrored = (torch.rand(len(rows), generator=rng) < 0.5).numpy()
            picked[mirrored] = picked[mirrored, :, ::-1]
        yield picked, torch.as_tensor(taught.values[rows]), torch.as_tensor(weight[rows])


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
        loss = (each * weight.to(device)).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())

"""One teacher: trained on its own records, from its own seed, alone; what leaves is one bit per query and label."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pate.data.records import Array, Records
from pate.errors import PateError
from pate.models import Network, alone, half, prepare, start_from_rates
from pate.runs import write_bytes
from pate.teachers.settings import Teachers

Stats = dict[str, float]
OnStep = Callable[[int, int, float], None]
loss_of = nn.functional.binary_cross_entropy_with_logits


def train_teacher(
    records: Records,
    queries_inputs: Array,
    network: Network,
    settings: Teachers,
    num_labels: int,
    seed: int,
    teacher: int,
    device: str,
    on_step: OnStep | None = None,
    checkpoint: Path | None = None,
) -> tuple[Array, Stats]:
    """Train one teacher and let it vote.

    The votes are a function of the arguments alone: bit-identical on the same kind of device, whatever was
    computed before in the same process, by whom, and in which order.

    Args:
        records: the teacher's own, (n, ...) in memory.
        queries_inputs: (N, ...) public inputs, maybe memory-mapped.
        seed: of the whole run; together with `teacher` it decides every random draw.
        device: cpu, cuda or cuda:I.
        on_step: called with (step, steps, loss).
        checkpoint: where to write the weights, if anywhere.

    Returns:
        (N, K) bool, true where a logit is positive; and loss, accuracy (both on its own records), images_per_second.
    """
    start, order, layers = np.random.SeedSequence(seed, spawn_key=(teacher,)).generate_state(3, np.uint64).tolist()
    with alone(device, layers):
        model = network.build(num_labels, start, records.inputs.shape[1:]).to(device)
        stats = _fit(model, records, network, settings, device, order, on_step)
        if not math.isfinite(stats["loss"]):
            rate = settings.learning_rate
            raise PateError(f"teacher {teacher} diverged: use a smaller teachers.learning_rate than {rate}")
        own = decide(_logits(model, records.inputs, network, settings, device), records.labels, settings)
        stats["accuracy"] = float((own == records.labels).mean())
        if checkpoint is not None:
            save_weights(model.state_dict(), checkpoint)
        return decide(_logits(model, queries_inputs, network, settings, device), records.labels, settings), stats


def _fit(
    model: nn.Module,
    records: Records,
    network: Network,
    settings: Teachers,
    device: str,
    seed: int,
    on_step: OnStep | None,
) -> Stats:
    """AdamW on the multi-label loss; batches and blends are drawn on the CPU, the same for every device."""
    began, count, draw = time.perf_counter(), len(records), torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(np.array(records.inputs)).to(device)
    labels = torch.from_numpy(np.array(records.labels, dtype=np.float32)).to(device)
    start_from_rates(model, (labels.sum(0) + 0.5) / (count + 1))
    steps = settings.epochs * _batches(count, settings.batch_size)
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _pace(step, steps))
    scaler = torch.amp.GradScaler("cuda", enabled=device.startswith("cuda") and settings.precision == "float16")
    model.train()
    losses: list[Tensor] = []
    for index in (batch.to(device) for _ in range(settings.epochs) for batch in _epoch(count, settings, draw)):
        x, y = _vary(prepare(inputs[index], network, device), labels[index], settings, draw)
        with half(device, settings.precision):
            loss = loss_of(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.detach())
        if on_step is not None:
            on_step(len(losses), steps, float(losses[-1]))
    _settle_norms(model, inputs, network, settings, draw)
    last = torch.stack(losses[-(steps // settings.epochs) :]).mean().item()
    return {"loss": last, "images_per_second": settings.epochs * count / (time.perf_counter() - began)}


@torch.no_grad()
def _settle_norms(
    model: nn.Module, inputs: Tensor, network: Network, settings: Teachers, draw: torch.Generator
) -> None:
    """Let batch norms count anew over the finished network: few steps are too few for their running averages."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over the batches that follow
    for index in _epoch(len(inputs), settings, draw) if norms else ():
        model(prepare(inputs[index.to(inputs.device)], network, inputs.device))


def _batches(count: int, batch_size: int) -> int:
    """How many batches an epoch has; none is ever a single record, which batch norms cannot take."""
    return min(math.ceil(count / batch_size), max(1, count // 2))


def _epoch(count: int, settings: Teachers, draw: torch.Generator) -> tuple[Tensor, ...]:
    """The positions of one epoch's batches."""
    return torch.randperm(count, generator=draw).tensor_split(_batches(count, settings.batch_size))


def _pace(step: int, steps: int) -> float:
    """A tenth of warm-up, then half a cosine down to zero."""
    return min((step + 1) / max(1.0, 0.1 * steps), 0.5 + 0.5 * math.cos(math.pi * step / steps))


def _vary(x: Tensor, y: Tensor, settings: Teachers, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mirror some pictures; blend each record, and its labels, with another one of the batch."""
    count = len(x)
    if settings.augment and x.ndim == 4:
        mirrored = (torch.rand(count, generator=draw) < 0.5).to(x.device)
        x = torch.where(mirrored.view(-1, 1, 1, 1), x.flip(3), x)
    if settings.mixup:
        other = torch.randperm(count, generator=draw).to(x.device)
        share = torch.rand(count, generator=draw).to(x.device)
        x = torch.lerp(x[other], x, share.view(-1, *[1] * (x.ndim - 1)))
        y = torch.lerp(y[other], y, share.view(-1, 1))
    return x, y


@torch.inference_mode()
def _logits(model: nn.Module, inputs: Array, network: Network, settings: Teachers, device: str) -> Tensor:
    """(N, K), of a picture or (augment) of it and its mirror image together."""
    model.eval()
    rows = []
    for start in range(0, len(inputs), settings.batch_size):
        x = prepare(inputs[start : start + settings.batch_size], network, device)
        with half(device, settings.precision):
            logits = model(x)
            if settings.augment and x.ndim == 4:
                logits = logits + model(x.flip(3))
        rows.append(logits.cpu())
    return torch.cat(rows)


def decide(logits: Tensor, labels: Array, settings: Teachers) -> Array:
    """(N, K) bool votes from logits (N, K), by `settings.decision`.

    Args:
        labels: (n, K) bool, of the teacher's own records: how often it says yes is its own affair.
    """
    if settings.decision == "half":
        return (logits > 0).numpy()
    wanted = round(float(labels.mean()) * logits.numel())
    votes = torch.zeros(logits.numel(), dtype=torch.bool)
    votes[logits.flatten().argsort(descending=True, stable=True)[:wanted]] = True
    return votes.view(logits.shape).numpy()


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Tensors in a file, whole or absent, for the owner's eyes."""
    from safetensors.torch import save

    write_bytes(path, save({name: value.contiguous() for name, value in weights.items()}), mode=0o600)

"""What the processes of an engine do: one teacher, or the features of some public records."""

import io
import resource
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pate.backbone import features, trunk
from pate.data.records import Records
from pate.models import alone
from pate.runs import write_bytes
from pate.teachers.features import CHUNK, load_features
from pate.teachers.heads import spread, train_head
from pate.teachers.training import Stats, train_teacher

MEGABYTE = 1 << 20


def work(shared: Mapping[str, Any], job: Mapping[str, Any], device: str) -> Any:
    """One teacher, or, before all teachers, a chunk of what they share."""
    return teach(shared, job, device) if "teacher" in job else look(shared, job, device)


def teach(shared: Mapping[str, Any], job: Mapping[str, Any], device: str) -> Stats:
    """One teacher's records out of the mapped arrays, its votes into the store, statistics back."""
    teacher, index, folder = job["teacher"], job["index"], shared["checkpoints"]
    network, settings, labels = shared["network"], shared["settings"], shared["labels"]
    heads = settings.mode == "heads" and _prepare_heads(shared, device)
    began, names = time.perf_counter(), index.astype(str)
    records = Records(shared["inputs"][index], labels[index], names, names)
    checkpoint = folder and folder / f"teacher-{teacher:05d}.safetensors"
    if heads:
        votes, stats = train_head(records, *heads, network, settings, teacher, device, checkpoint)
    else:
        common = (network, settings, labels.shape[1], shared["seed"], teacher, device)
        votes, stats = train_teacher(records, shared["public"], *common, checkpoint=checkpoint)
        stats["validation_accuracy"] = float((votes == shared["truth"]).mean())  # told to the owner, used for nothing
    shared["store"].save(teacher, votes, shared["token"])
    return stats | {"seconds": time.perf_counter() - began, "memory_mb": _memory(device)}


def look(shared: Mapping[str, Any], job: Mapping[str, Any], device: str) -> float:
    """The features of some public rows, into a file of their own; the CPU seconds it took."""
    rows, settings = shared["public"][job["start"] : job["start"] + CHUNK], shared["settings"]
    trunk(shared["network"], rows.shape[1:], device)
    began, buffer = time.process_time(), io.BytesIO()
    found = features(shared["network"], rows, device=device, mirror=settings.augment, precision=settings.precision)
    seconds = time.process_time() - began
    np.save(buffer, found, allow_pickle=False)
    write_bytes(job["path"], buffer.getvalue(), mode=0o600)
    return seconds


def _prepare_heads(shared: Mapping[str, Any], device: str) -> tuple[Tensor, float]:
    """What all heads need, made once per process: the backbone, the queries' features and their spread."""
    trunk(shared["network"], shared["inputs"].shape[1:], device)
    return _queries(shared["features"])


@lru_cache(maxsize=1)
def _queries(paths: tuple[Path, ...]) -> tuple[Tensor, float]:
    with alone("cpu"):
        rows = torch.from_numpy(load_features(paths))
        return rows, spread(rows)


def _memory(device: str) -> float:
    """The most that this process has used so far, in MB: of a GPU's memory if it has one."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved() / MEGABYTE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

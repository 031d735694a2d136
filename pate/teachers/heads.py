"""A teacher that is a linear layer on a frozen public backbone, found in closed form from its own records alone.

Every private picture belongs to one teacher, so its features are computed once, by that teacher, in batches of its
own pictures: no bit of them can depend on another teacher's records, and none of them is ever stored.
"""

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pate.backbone import features
from pate.data.records import Array, Records
from pate.errors import PateError
from pate.models import Network, alone
from pate.teachers.settings import Teachers
from pate.teachers.training import Stats, decide, save_weights


def train_head(
    records: Records,
    queries: Tensor,
    unit: float,
    network: Network,
    settings: Teachers,
    teacher: int,
    device: str,
    checkpoint: Path | None = None,
) -> tuple[Array, Stats]:
    """Fit one teacher's head and let it vote.

    Args:
        records: the teacher's own, pictures and labels.
        queries: (N, D) float32 features of the public records, by the same backbone.
        unit: what the ridge is measured in: `spread(queries)`.
        checkpoint: where to write weight (K, D) and bias (K), if anywhere.

    Returns:
        (N, K) bool votes; and loss, accuracy (both on its own records), validation_accuracy
        (of each own record by the head of the others), images_per_second, backbone_seconds (of CPU).
    """
    began, cpu = time.perf_counter(), time.process_time()
    own = features(network, records.inputs, device=device, mirror=settings.augment, precision=settings.precision)
    cpu = time.process_time() - cpu
    with alone("cpu"):
        x, labels = (torch.from_numpy(np.array(array, np.float64)) for array in (own, records.labels))
        wanted = 2 * labels - 1
        penalty = settings.ridge * unit * len(x)
        weight, bias = ridge(x, wanted, penalty)
        scores = x @ weight + bias
        unseen = leave_one_out(x, wanted, scores, penalty)
        votes = decide(queries @ weight.float() + bias.float(), records.labels, settings)
    if not bool(scores.isfinite().all()):
        raise PateError(f"teacher {teacher} has features that are not finite: its inputs or model.weights are damaged")
    if checkpoint is not None:
        save_weights({"weight": weight.T.float(), "bias": bias.float()}, checkpoint)
    stats = {"loss": float((scores - wanted).square().mean()), "backbone_seconds": cpu}
    for name, given in (("accuracy", scores), ("validation_accuracy", unseen)):
        stats[name] = float((decide(given, records.labels, settings) == records.labels).mean())
    stats["images_per_second"] = len(records) / (time.perf_counter() - began)
    return votes, stats


def ridge(x: Tensor, y: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Least squares with a penalty on the weights and none on the intercept: (D, K) and (K,).

    minimises |y - x w - b|^2 + penalty |w|^2, in whichever of n records and D features is smaller.
    """
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    if len(x) <= x.shape[1]:
        weight = x.T @ torch.linalg.solve(x @ x.T + penalty * torch.eye(len(x), dtype=x.dtype), y)
    else:
        weight = torch.linalg.solve(x.T @ x + penalty * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)
    return weight, mean_y - mean_x @ weight


def leave_one_out(x: Tensor, y: Tensor, scores: Tensor, penalty: float) -> Tensor:
    """What each record would get from the ridge of all others with the same penalty: (n, K), exactly, from one fit.

    y_i - (y_i - scores_i) / (1 - h_i), where h_i is how much record i's own y counts in its score.
    """
    x = x - x.mean(0)
    if len(x) <= x.shape[1]:
        own = torch.linalg.solve(x @ x.T + penalty * torch.eye(len(x), dtype=x.dtype), x @ x.T).diagonal()
    else:
        own = (x * torch.linalg.solve(x.T @ x + penalty * torch.eye(x.shape[1], dtype=x.dtype), x.T).T).sum(1)
    return y - (y - scores) / (1 - 1 / len(x) - own).unsqueeze(1)


def spread(rows: Tensor) -> float:
    """Mean squared distance of rows from their mean: the unit that a ridge is given in. Of public rows only."""
    return float((rows - rows.mean(0)).square().sum(1).mean(dtype=torch.float64)) or 1.0

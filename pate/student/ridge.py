"""A linear student in closed form: ridge regression on features, its penalty found on the released targets alone.

Each label has its own penalty, the one that predicts left-out queries best (leave-one-out in closed form). Noise on a
left-out target adds the same to the error at every penalty, so noisy targets choose rightly, on average: the more
noise, the larger the penalty. No true label takes part, nothing is spent.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pate.models import find_head
from pate.student.settings import Targets

Floats = NDArray[np.float64]

PENALTIES: Floats = np.geomspace(10.0, 1e-6, 36)  # in units of the features' total variance; of equals the largest wins
STEEPNESS = 4.0  # a share p becomes the logit 4 (p - 1/2): the sigmoid's tangent at 1/2


def solve(features: Floats, targets: Targets) -> tuple[Floats, Floats]:
    """Weights (D, K) and intercepts (K,) that turn features (N, D) into shares of votes (N, K).

    Args:
        targets: values to learn; rows of weight 0 are left out.
    """
    rows = targets.weight > 0
    weight = targets.weight[rows].astype(np.float64)
    inputs, values = features[rows].astype(np.float64), targets.values[rows].astype(np.float64)
    middle, mean = np.average(inputs, axis=0, weights=weight), np.average(values, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    left, spread, right = np.linalg.svd(root * (inputs - middle), full_matrices=False)
    aim = root * (values - mean)
    along, kept = left.T @ aim, kept_parts(spread)
    errors = [_left_out(left, kept[:, [place]] * along, kept[:, place], aim, weight) for place in range(len(PENALTIES))]
    best = kept[:, np.argmin(errors, axis=0)]
    scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * spread.max(initial=1.0))
    weights = right.T @ (scale[:, None] * best * along)
    return weights, mean - middle @ weights


def kept_parts(spread: Floats) -> Floats:
    """What each penalty leaves of each principal direction: (directions, penalties) in 0..1."""
    squares = spread[:, None] ** 2
    return np.asarray(squares / (squares + PENALTIES * max(float(squares.sum()), 1e-300)))


def fit(features: Floats, targets: Targets, model: nn.Module) -> nn.Module:
    """Give a linear model the weights that `solve` finds; its sigmoid is above 1/2 where the predicted share is."""
    weights, intercepts = solve(features, targets)
    layer = {"weight": torch.as_tensor(STEEPNESS * weights.T), "bias": torch.as_tensor(STEEPNESS * (intercepts - 0.5))}
    find_head(model)[1].load_state_dict(layer)
    return model


def _left_out(left: Floats, along: Floats, kept: Floats, aim: Floats, weight: Floats) -> Floats:
    """Each label's mean squared error on queries that were left out, one at a time."""
    leverage = np.minimum(left**2 @ kept + weight / weight.sum(), 1 - 1e-9)
    return np.asarray((((aim - left @ along) / (1 - leverage)[:, None]) ** 2).mean(0))

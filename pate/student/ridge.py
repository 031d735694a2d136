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

PENALTIES: Floats = np.geomspace(10.0, 1e-6, 36)  # in units of the features' total variance; of equals the first wins
EQUAL = 1e-6  # errors that differ by less than this part of them are equal: rounding must not choose
STEEPNESS = 4.0  # a share p becomes the logit 4 (p - 1/2): the sigmoid's tangent at 1/2


def solve(features: Floats, targets: Targets) -> tuple[Floats, Floats]:
    """Weights (D, K) and intercepts (K,) that turn features (N, D) into shares of votes (N, K).

    Args:
        targets: values to learn; rows of weight 0 are never read. At a given penalty weight 2 is the row twice; it is
            left out as one, though, while of two equal rows one stays behind.
    """
    rows = targets.weight > 0
    weight = targets.weight[rows].astype(np.float64)
    inputs, values = features[rows].astype(np.float64), targets.values[rows].astype(np.float64)
    middle, mean = np.average(inputs, axis=0, weights=weight), np.average(values, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    left, spread, right = np.linalg.svd(root * (inputs - middle), full_matrices=False)
    aim = root * (values - mean)
    along, kept = left.T @ aim, kept_parts(spread)
    best = kept[:, _largest_best([_left_out(left, part[:, None] * along, part, aim, weight) for part in kept.T])]
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


def _largest_best(errors: list[Floats]) -> NDArray[np.intp]:
    """For each label the place of the largest penalty that no other beats; two queries cannot tell any apart."""
    return np.asarray(np.argmax(np.array(errors) <= (1 + EQUAL) * np.min(errors, axis=0), axis=0))

"""When a student says yes: at 1/2, or as often as what it learnt from."""

import numpy as np
import torch
from torch import nn

from pate.models import Network, find_head, prepare
from pate.student.settings import Targets

Array = np.ndarray


def match(model: nn.Module, inputs: Array, targets: Targets, network: Network, device: str) -> nn.Module:
    """Shift all logits alike, so that on the queries the student says yes as often as its targets do.

    Where labels are rare no probability may reach 1/2, and a student would say no to everything. The sum of noisy
    counts is nearly free of noise, so this much is known even where single labels are not.

    Args:
        inputs, targets: the answered queries, and what was learnt from them.
    """
    wanted = int(np.clip(round(float(targets.values.sum())), 0, targets.values.size))
    with torch.inference_mode():
        batches = (inputs[start : start + 256] for start in range(0, len(inputs), 256))
        logits = torch.cat([model.eval()(prepare(batch, network, device)).flatten().cpu() for batch in batches])
    ranked = logits.sort(descending=True).values
    below, above = ranked[min(wanted, len(ranked) - 1)], ranked[max(wanted - 1, 0)]
    ends = {0: ranked[0] + 1, len(ranked): ranked[-1] - 1}  # all no, all yes
    bias = find_head(model)[1].bias
    if bias is not None:
        bias.data -= float(ends.get(wanted, (below + above) / 2))
    return model

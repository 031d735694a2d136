"""Frozen public backbones: a network without its last layer, and what it says about pictures.

A backbone's weights are public and never change, so its features of a picture are a function of that picture; what a
teacher or a student learns is a linear layer on top of them.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from pate.data.records import Array
from pate.models import Network, Shape, alone, find_head, half, prepare, replace_layer

BATCH = {"cpu": 16, "cuda": 128}  # pictures at a time: larger batches leave a CPU's caches


def features(
    network: Network, inputs: Array, *, device: str = "cpu", mirror: bool = False, precision: str = "float32"
) -> Array:
    """What the network's last layer would see, (N, D) float32.

    Evaluation mode, one thread, batches in the given order: the same inputs give the same bits on the same kind of
    device. A row is computed from its own picture, but its last bits may depend on its place in a batch: compute what
    must not know of each other in separate calls.

    Args:
        inputs: (N, H, W, 3) uint8 pictures or (N, D) rows, maybe memory-mapped.
        mirror: the mean over a picture and its mirror image.
        precision: float32, or bfloat16, float16 on a GPU.
    """
    model, size = trunk(network, tuple(inputs.shape[1:]), device), BATCH[device.partition(":")[0]]
    with alone(device), torch.inference_mode(), half(device, precision):
        starts = range(0, len(inputs), size)
        rows = [_look(model, prepare(inputs[start : start + size], network, device), mirror) for start in starts]
    return torch.cat(rows).numpy()


@lru_cache(maxsize=2)
def trunk(network: Network, input_shape: Shape, device: str = "cpu") -> nn.Module:
    """The network without its last layer, frozen, on the device; made once per process.

    Without public weights it is random, from seed 0: public too, and poor.
    """
    model = network.build(1, 0, input_shape)
    replace_layer(model, find_head(model)[0], nn.Identity())
    return model.eval().requires_grad_(False).to(device)


def mount(network: Network, linear: nn.Module, input_shape: Shape, mean: Array, spread: float) -> nn.Module:
    """One network from a backbone and a linear layer that was trained on (features - mean) / spread.

    Args:
        linear: a `Network("linear")` that was built for the D features.
        input_shape: of one record as the backbone takes it.
        mean, spread: (D,) and a number, both from public records.
    """
    top = find_head(linear)[1]
    model = network.build(len(top.weight), 0, input_shape)
    head, weight = find_head(model)[1], top.weight.detach().cpu().double() / spread
    bias = torch.zeros(len(weight)) if top.bias is None else top.bias.detach().cpu()
    if head.bias is None:
        raise RuntimeError(f"{network.name} has no bias in its last layer")
    with torch.no_grad():
        head.weight.copy_(weight.reshape(head.weight.shape))
        head.bias.copy_(bias - weight @ torch.as_tensor(mean, dtype=torch.float64))
    return model.eval()


class Mirrored(nn.Module):
    """A network that says the mean of what it says about a picture and about its mirror image; rows pass as they are.

    The one definition of a student's prediction over augmentations: a mean of logits is what a linear layer makes of
    the mean of two rows of features, so a mounted head says it too.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K), or whatever the network makes of a batch."""
        seen: Tensor = self.network(x).float()
        return (seen + self.network(x.flip(3)).float()) / 2 if x.ndim == 4 else seen


def _look(model: nn.Module, x: Tensor, mirror: bool) -> Tensor:
    seen: Tensor = (Mirrored(model) if mirror else model)(x)
    return seen.float().flatten(1).cpu()

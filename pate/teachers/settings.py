"""How teachers are trained; all of it public, none of it chosen by looking at private data."""

from dataclasses import dataclass
from typing import Literal

from pate.errors import require

UNITS = ("record", "person")
MODES = ("finetune",)
ENGINES = ("local",)


@dataclass(frozen=True)
class Teachers:
    """Settings of `teachers=...`.

    Attributes:
        count: how many teachers, each on its own part of the private data.
        unit: what one teacher keeps to itself, and so what is protected: a record or a person.
        mode: finetune trains the whole network.
        engine: local is a pool of processes on this machine.
        epochs, batch_size, learning_rate, weight_decay: of AdamW, with a short warm-up and a cosine.
        augment: mirror pictures at random; a vote is then the mean over a picture and its mirror image.
        mixup: train on random blends of two records and their labels; the best single help for small parts.
        smallest: a part with fewer records is refused.
        slots_per_device: processes per device; 0 is one per CPU core, one per GPU.
        keep_checkpoints: keep each teacher's weights under private/teachers.
        salt: a public word that decides, with a unit's own id, which teacher it goes to.
    """

    count: int = 250
    unit: Literal["record", "person"] = "record"
    mode: str = "finetune"
    engine: str = "local"
    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 0.05
    augment: bool = True
    mixup: bool = True
    smallest: int = 8
    slots_per_device: int = 0
    keep_checkpoints: bool = False
    salt: str = "pate"

    def __post_init__(self) -> None:
        for name, choices in (("unit", UNITS), ("mode", MODES), ("engine", ENGINES)):
            rule = f"one of {', '.join(choices)}" if len(choices) > 1 else f"{choices[0]} (the only one available)"
            require(getattr(self, name) in choices, f"teachers.{name}", rule, getattr(self, name))
        for name, least in (("count", 1), ("epochs", 1), ("batch_size", 2), ("smallest", 2), ("slots_per_device", 0)):
            require(getattr(self, name) >= least, f"teachers.{name}", f">= {least}", getattr(self, name))
        require(0 < self.learning_rate < 10, "teachers.learning_rate", "> 0 and < 10", self.learning_rate)
        require(0 <= self.weight_decay < 100, "teachers.weight_decay", ">= 0 and < 100", self.weight_decay)

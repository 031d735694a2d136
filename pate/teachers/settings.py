"""How teachers are trained; all of it public, none of it chosen by looking at private data."""

import re
from dataclasses import dataclass
from typing import Literal

from pate.errors import require

CHOICES = {
    "unit": ("record", "person"),
    "mode": ("finetune", "heads"),
    "engine": ("local", "ray"),
    "precision": ("float32", "bfloat16", "float16"),
    "decision": ("half", "matched"),
}
LEAST = {"count": 1, "epochs": 1, "batch_size": 2, "smallest": 2, "slots_per_device": 0}


@dataclass(frozen=True)
class Teachers:
    """Settings of `teachers=...`.

    Attributes:
        count: how many teachers, each on its own part of the private data.
        unit: what one teacher keeps to itself, and so what is protected: a record or a person.
        mode: finetune trains the whole network; heads leaves it as it is (give it public weights) and finds a last
            layer for each teacher in closed form.
        engine: local is a pool of processes on this machine; ray runs the same jobs on a Ray cluster.
        shard: I/N lets this process train teachers I-1, I-1+N, I-1+2N, ... only; others take the other shares.
        epochs, batch_size, learning_rate, weight_decay: of AdamW, with a short warm-up and a cosine (finetune).
        augment: mirror pictures at random; a vote is then the mean over a picture and its mirror image. In heads
            mode all features are means over a picture and its mirror image.
        mixup: train on random blends of two records and their labels; the best single help for small parts (finetune).
        ridge: penalty on a head's weights beside the mean squared error, in units of the public features' mean squared
            distance from their mean (heads). More makes teachers agree, less makes their majority better.
        decision: a teacher says yes where a label is likelier than not (half), or to the likeliest pairs of query and
            label, as many as in its own records (matched): where labels are rare, half would be no to everything.
        precision: float32, or bfloat16, float16 where it pays: on a GPU. A CPU always computes in float32.
        smallest: a part with fewer records is refused.
        slots_per_device: processes per device; 0 is one per CPU core, one per GPU.
        keep_checkpoints: keep each teacher's weights under private/teachers.
        estimate: time three teachers, say what the whole run will need, and stop.
        salt: a public word that decides, with a unit's own id, which teacher it goes to.
    """

    count: int = 250
    unit: Literal["record", "person"] = "record"
    mode: str = "finetune"
    engine: str = "local"
    shard: str = "1/1"
    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 5e-3
    weight_decay: float = 0.05
    augment: bool = True
    mixup: bool = True
    ridge: float = 0.01
    decision: str = "half"
    precision: str = "float32"
    smallest: int = 8
    slots_per_device: int = 0
    keep_checkpoints: bool = False
    estimate: bool = False
    salt: str = "pate"

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            require(
                getattr(self, name) in choices, f"teachers.{name}", f"one of {', '.join(choices)}", getattr(self, name)
            )
        for name, least in LEAST.items():
            require(getattr(self, name) >= least, f"teachers.{name}", f">= {least}", getattr(self, name))
        require(0 < self.learning_rate < 10, "teachers.learning_rate", "> 0 and < 10", self.learning_rate)
        require(0 <= self.weight_decay < 100, "teachers.weight_decay", ">= 0 and < 100", self.weight_decay)
        require(0 < self.ridge < 1e6, "teachers.ridge", "> 0 and < 1000000", self.ridge)
        parsed = re.fullmatch(r"(\d+)/(\d+)", self.shard)
        fine = parsed is not None and 1 <= int(parsed[1]) <= int(parsed[2])
        require(fine, "teachers.shard", "I/N with I from 1 to N, e.g. 3/16", self.shard)

    def mine(self, teacher: int) -> bool:
        """Whether a teacher (0, 1, ...) belongs to this shard."""
        share, of = map(int, self.shard.split("/"))
        return teacher % of == share - 1


@dataclass(frozen=True)
class Ray:
    """Settings of `ray...`, for teachers.engine=ray.

    Attributes:
        address: None starts Ray on this machine for the run; auto finds the one that runs here; host:port of another.
    """

    address: str | None = None

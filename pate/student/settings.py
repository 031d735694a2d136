"""What a student learns from a release, and how."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pate.errors import DataError, PateError, require

Array = np.ndarray


class NothingReleased(PateError):
    """Too few queries were answered to train on; a comparison shows that row as `no student: 0 % answered`."""


@dataclass(frozen=True)
class Student:
    """How a student is trained; fixed beforehand, so that nothing is spent on choosing.

    Attributes:
        solver: `steps` trains by AdamW; `ridge` finds a linear layer on features in closed form (`pate.student.ridge`)
            and heeds only soft, decision, on_bottom and min_answered; `auto` is ridge wherever the network is linear.
        epochs: Passes over the answered queries.
        batch_size: Queries per step, about.
        learning_rate: AdamW's highest; it is reached after a tenth of the steps and then falls along a cosine.
        weight_decay: AdamW's.
        soft: Learn the released scores where there are any, instead of the 0/1 labels.
        augment: Mirror half of the pictures, others in every pass.
        decision: Say yes from a probability of 1/2 on (`half`), or as often as the targets do (`matched`), which suits
            rare labels (`pate.student.decision`).
        on_bottom: Queries without an answer: `unlabelled` and `drop` leave them out of the loss, `prior` gives them the
            mean of the answered targets.
        self_training: A first student guesses what is `unlabelled`, and a second learns answers and guesses together.
            Off, because it did not pay: see `pate.student`.
        min_answered: Fewer answers than this raise `NothingReleased`.
    """

    solver: Literal["auto", "steps", "ridge"] = "auto"
    epochs: int = 12
    batch_size: int = 32
    learning_rate: float = 0.003
    weight_decay: float = 0.05
    soft: bool = True
    augment: bool = True
    decision: Literal["half", "matched"] = "half"
    on_bottom: Literal["unlabelled", "prior", "drop"] = "unlabelled"
    self_training: bool = False
    min_answered: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "min_answered"):
            value = getattr(self, name)
            require(value >= 1 and value % 1 == 0, f"student.{name}", "a whole number >= 1", value)
        require(0 < self.learning_rate < math.inf, "student.learning_rate", "> 0", self.learning_rate)
        require(0 <= self.weight_decay < math.inf, "student.weight_decay", ">= 0", self.weight_decay)
        require(self.solver in ("auto", "steps", "ridge"), "student.solver", "one of auto, steps, ridge", self.solver)
        require(self.decision in ("half", "matched"), "student.decision", "one of half, matched", self.decision)
        options = ("unlabelled", "prior", "drop")
        require(self.on_bottom in options, "student.on_bottom", f"one of {', '.join(options)}", self.on_bottom)


@dataclass(frozen=True, eq=False)
class Targets:
    """What a student learns: N queries, K labels.

    Attributes:
        values: (N, K) float32, the wanted probabilities; noisy ones may lie below 0 or above 1 (see `targets`).
        weight: (N,) float32; a query of weight 0 is never looked at.
        noise_sd: Standard deviation of the noise in the values, 0 if they are labels.
    """

    values: Array
    weight: Array
    noise_sd: float = 0.0

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.weight.shape != self.values.shape[:1]:
            raise DataError(f"targets {self.values.shape} and weight {self.weight.shape} must be (N, K) and (N,)")
        require(bool(np.isfinite(self.values[self.weight > 0]).all()), "targets", "finite", "nan or inf")
        require(0 <= self.noise_sd < math.inf, "noise_sd", ">= 0", self.noise_sd)


def targets(
    labels: Array,
    answered: Array,
    scores: Array | None,
    num_teachers: int,
    student: Student,
    score_sd: float | None = None,
) -> Targets:
    """Turn a release into targets; rows of queries without an answer are never read.

    Scores become shares of votes, not clipped: the loss is linear in its target, so noise of mean 0 leaves
    the expected gradient as it is, while clipping pulls every label towards 1/2.

    Args:
        labels: (N, K) bool, the released labels.
        answered: (N,) bool.
        scores: (N, K) noisy counts, or None if the mechanism released labels only.
        num_teachers: T.
        student: Decides between scores and labels, and what becomes of queries without an answer.
        score_sd: Standard deviation of the noise in the scores, in votes: a public setting; None or nan if unknown.
    """
    labels, answered = np.asarray(labels), np.asarray(answered, dtype=bool)
    shape = labels.shape if scores is None else np.shape(scores)
    if labels.ndim != 2 or shape != labels.shape or answered.shape != labels.shape[:1]:
        raise DataError(
            f"labels {labels.shape}, answered {answered.shape}, scores {shape} must be (N, K), (N,), (N, K)"
        )
    require(num_teachers >= 1, "num_teachers", ">= 1", num_teachers)
    released, sd = labels[answered].astype(np.float32), 0.0
    if student.soft and scores is not None:
        released = np.asarray(scores, dtype=np.float32)[answered] / num_teachers
        sd = 0.0 if score_sd is None or math.isnan(score_sd) else score_sd / num_teachers
    values, weight = np.zeros(labels.shape, np.float32), answered
    if student.on_bottom == "prior" and answered.any():
        values, weight = values + released.mean(0), np.ones_like(answered)
    values[answered] = released
    return Targets(values, weight.astype(np.float32), sd)

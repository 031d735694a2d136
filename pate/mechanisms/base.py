"""What every mechanism is: public settings, a cost, a release. T teachers, N queries, K labels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pate.accounting.cost import NEIGHBOURS, Neighbours, PrivacyCost
from pate.errors import require
from pate.noise import Noise, as_noise

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Counts = NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """What leaves a mechanism, and nothing else does.

    Attributes:
        labels: (N, K) bool, the released label sets; all False where nothing was answered.
        answered: (N,) bool, False where the mechanism said bottom.
        scores: (N, K) released noisy counts, or None where the mechanism releases sets only.
        seeded: True if the noise can be repeated, which makes the answer not private.
        noise: where the noise came from, for statements.
    """

    labels: Bools
    answered: Bools
    scores: Floats | None
    seeded: bool
    noise: str


class Tally(np.ndarray):
    """Counts that remember how many teachers voted, which is public.

    >>> Tally(np.zeros((2, 3), int), num_teachers=5)[:1].num_teachers
    5
    """

    num_teachers: int | None

    def __new__(cls, counts: Counts, num_teachers: int) -> Self:
        tally = np.asarray(counts).view(cls)
        tally.num_teachers = num_teachers
        return tally

    def __array_finalize__(self, parent: Any) -> None:
        self.num_teachers = getattr(parent, "num_teachers", None)


class Mechanism(ABC):
    """Public settings that price and answer queries; subclasses are frozen dataclasses.

    Formal guarantees, each a contract test:
        * noise and price are made from the same fields, so they cannot be configured apart;
        * `release` lets counts through the priced noise only: everything in `Answer` is post-processing of it;
        * `cost(0)` costs 0, no noise costs inf, more queries never cost less, more noise never costs more.
    """

    num_labels: int
    neighbours: Neighbours
    theorem: ClassVar[str]
    whole_counts: ClassVar[bool] = True
    lowest_count: ClassVar[float] = 0
    exact: bool = False
    noise_fields: ClassVar[tuple[str, ...]] = ("sigma",)

    @abstractmethod
    def cost(self, queries: int = 1) -> PrivacyCost:
        """The price of this many queries under `neighbours`."""

    @classmethod
    @abstractmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """The mechanism whose query costs about rho of zCDP: the one knob that calibration turns."""

    @property
    def score_sd(self) -> float:
        """Standard deviation of the noise in released scores, which is public; nan where none are released."""
        return float("nan")

    def fixed(self) -> dict[str, Any]:
        """The settings that calibration keeps: everything but noise and neighbours, as `at_rho` takes them."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names if name not in (*self.noise_fields, "neighbours")}

    @abstractmethod
    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        """labels, answered, scores for checked (N, K) counts."""

    def release(self, counts: Counts, rng: Noise | np.random.Generator | None = None) -> Answer:
        """Answer every query once.

        Args:
            counts: (N, K) or (K,) counts as `tally` makes them.
            rng: a `pate.noise` source or a numpy generator; None draws from the operating system. Anything
                that can be repeated makes the answer `seeded`, which is not private. Must be None if `exact`.
        """
        noise = as_noise(rng, self.exact)
        labels, answered, scores = self._answer(self._checked(counts), noise)
        return Answer(labels, answered, scores, noise.seeded, noise.description)

    def tally(self, votes: Bools) -> Tally:
        """(T, N, K) ballots to (N, K) counts."""
        votes = self._checked_votes(votes)
        return Tally(votes.sum(axis=0, dtype=np.int64), len(votes))

    def _checked(self, counts: Counts) -> Counts:
        counts = np.atleast_2d(np.asanyarray(counts))
        rule = f"an array of shape (queries, {self.num_labels})"
        require(counts.ndim == 2 and counts.shape[1] == self.num_labels, "counts", rule, counts.shape)
        require(counts.dtype.kind in "iufb", "counts", "numbers", str(counts.dtype))
        if counts.dtype.kind == "f":
            require(bool(np.isfinite(counts).all()), "counts", "finite", "NaN or infinity")
            whole = not self.whole_counts or bool((counts == np.floor(counts)).all())
            require(whole, "counts", "whole numbers", "fractions")
        if counts.size and counts.dtype.kind in "if":
            require(counts.min() >= self.lowest_count, "counts", f">= {self.lowest_count:g}", counts.min())
        return counts.astype(np.int64) if counts.dtype.kind in "ub" else counts

    def _checked_votes(self, votes: Bools) -> Bools:
        votes = np.asarray(votes)
        rule = f"a bool array of shape (teachers, queries, {self.num_labels})"
        require(votes.ndim == 3 and votes.shape[2] == self.num_labels, "votes", rule, votes.shape)
        require(votes.dtype == np.bool_, "votes", rule, str(votes.dtype))
        return votes


def check_common(num_labels: int, neighbours: str, at_least: int = 1) -> None:
    """The checks that every mechanism's construction begins with."""
    check_whole("num_labels", num_labels, at_least)
    require(neighbours in NEIGHBOURS, "neighbours", f"one of {', '.join(NEIGHBOURS)}", neighbours)


def check_whole(name: str, value: Any, at_least: int = 1, at_most: int | None = None) -> None:
    """A whole number within its range."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    rule = f"a whole number >= {at_least}" + ("" if at_most is None else f" and <= {at_most}")
    require(whole and value >= at_least and (at_most is None or value <= at_most), name, rule, value)


def check_scale(name: str, value: Any) -> None:
    """A noise scale: a positive number, infinity allowed (all noise, no cost)."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    require(number and value > 0, name, "> 0", value)


def check_probability(name: str, value: Any) -> None:
    """A failure probability."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    require(number and 0 < value < 1, name, "in (0, 1)", value)


def gap_sensitivity(neighbours: Neighbours) -> int:
    """By how much one gap between sorted counts can move: 1 when a ballot is added, 2 when it changes.

    >>> gap_sensitivity("teacher_changed")
    2
    """
    return 1 if neighbours == "teacher_added" else 2

"""Noise where the signal is: whole ballots projected on few public directions, cut to a length, summed, noised.

A student that learns from features of the public records sees a label only through the features' main directions. What
teachers agree on lies there too, and most of what they disagree on does not. So a teacher's ballots on all N queries
become (R, K) coordinates along R public directions, whose length is cut once for all queries together: noise is needed
for these coordinates only, and for the length of a typical teacher instead of the longest thinkable one.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import gaussian_event
from pate.errors import require
from pate.mechanisms.base import Bools, Counts, Floats, Tally, check_scale, check_whole
from pate.mechanisms.counts import GaussianNoise
from pate.noise import Noise

# Squared length of a teacher's coordinates per label, in units of N rate (1 - rate): along the constant direction;
# along the first principal one, falling from there with the features' variance to the power 1.5; what is in all others.
# Measured once on 800 teachers of 14 pictures: wrong guesses make more noise than need be, never less privacy.
CONSTANT, FIRST, DECAY, FLOOR = 0.4, 0.1, 1.5, 3e-4
MOST = 256  # principal directions
WORTH = 3.0  # T / (WORTH sigma) directions are worth their noise
LITTLE = 2.0  # below this sigma, ballots may be longer: bending them would cost more than the noise does


@dataclass(frozen=True, eq=False)
class Directions:
    """Public directions in the space of N queries: the constant one, then the principal ones of public features.

    Attributes:
        vectors: (N, R) orthonormal columns.
        energy: (R,) relative squared length that a teacher's ballots are expected to have along each.
        source: names what they were made from; of the features and not of the vectors, whose last bits differ between
            machines.

    >>> Directions.of(np.eye(4))
    Directions(4 of 4 queries)
    """

    vectors: Floats
    energy: Floats
    source: str

    def __post_init__(self) -> None:
        fine = self.vectors.ndim == 2 and self.energy.shape == self.vectors.shape[1:]
        require(fine, "directions", "of shape (queries, R) with R energies", self.vectors.shape)
        wrong = float(np.abs(self.vectors.T @ self.vectors - np.eye(len(self.energy))).max(initial=0.0))
        require(wrong < 1e-9, "directions", "orthonormal", wrong)
        require(bool((self.energy > 0).all()), "energy", "> 0", self.energy.min(initial=1.0))
        for array in (self.vectors, self.energy):
            array.flags.writeable = False

    @classmethod
    def of(cls, features: Floats) -> Self:
        """From (N, D) features of the public records, which nothing private may have touched."""
        features = np.asarray(features, dtype=np.float64)
        require(features.ndim == 2 and len(features) > 0, "features", "of shape (queries, D)", features.shape)
        require(bool(np.isfinite(features).all()), "features", "finite", "NaN or infinity")
        left, spread, _ = np.linalg.svd(features - features.mean(0), full_matrices=False)
        kept = min(MOST, int((spread > 1e-6 * spread.max(initial=1e-300)).sum()), len(features) - 1)
        whole = np.column_stack([np.full(len(features), 1.0), left[:, :kept]])
        vectors, _ = np.linalg.qr(whole)
        energy = FIRST * (spread[:kept] / spread[:1]) ** (2 * DECAY) + FLOOR
        source = hashlib.sha256(np.ascontiguousarray(features).tobytes()).hexdigest()[:32]
        signs, profile = np.sign((vectors * whole).sum(0)), np.concatenate([[CONSTANT], energy])
        return cls(vectors * signs, profile, f"{len(features)}x{features.shape[1]} sha256 {source}")

    def __repr__(self) -> str:
        return f"Directions({self.vectors.shape[1]} of {len(self.vectors)} queries)"


@dataclass(frozen=True, kw_only=True)
class ProjectedBallots(GaussianNoise):
    """Soft labels for all queries at once from ballots projected on public directions.

    A teacher's ballots b (N, K) become coordinates w_j <direction_j, b - rate> for `used` directions, with weights
    w_j = energy_j^(-1/4), which makes the noise's total variance least for a given typical length; coordinates longer
    than `length` are scaled down to it. Their sum gets noise N(0, (sigma length)^2); released is the sum's image
    among the queries' counts.

    Guarantee, each line a test:
        * teacher_added: the sum moves by at most `length`; teacher_changed: by at most 2 `length`, a ball's width;
        * so one release, of all N queries, is exactly (1 or 2)/sigma-Gaussian-DP, whatever N, K and the directions;
        * T enters as the public `num_teachers`, never as the number of ballots found.

    Attributes:
        directions: from the public records; one release answers exactly their N queries.
        sigma: standard deviation of the noise in units of `length`.
        num_teachers: T.
        rate: a public guess of the share of yes among all votes. A bad one costs accuracy, not privacy.
        clip: `length` in units of the expected length; a smaller one needs less noise and bends long ballots more.
            Where sigma is below 2 the length grows by sqrt(2 / sigma), so that less noise also bends less.
        rank: how many directions beside the constant one; None: T / (3 sigma), so that each is worth its noise.

    >>> ProjectedBallots(
    ...     num_labels=40, directions=Directions.of(np.eye(600)), sigma=9.1, num_teachers=800
    ... ).cost(600).epsilon(1e-6)  # doctest: +ELLIPSIS
    0.995...
    """

    theorem: ClassVar[str] = (
        "Gaussian mechanism: Mironov 2017, Corollary 3; L2 sensitivity 1 (added) or 2 (changed) of sums of cut ballots"
    )
    whole_counts: ClassVar[bool] = False
    lowest_count: ClassVar[float] = -math.inf

    directions: Directions
    num_teachers: int
    rate: float = 0.25
    clip: float = 0.9
    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = isinstance(self.directions, Directions)
        require(kinds, "directions", "made by Directions.of from public features", type(self.directions).__name__)
        require(0 < self.rate < 1, "rate", "in (0, 1)", self.rate)
        check_scale("clip", self.clip)
        require(self.clip < math.inf, "clip", "finite", self.clip)
        require(not self.exact, "exact", "false for projected ballots, which are not whole numbers", self.exact)
        if self.rank is not None:
            check_whole("rank", self.rank, 0, len(self.directions.energy) - 1)

    @property
    def sensitivity(self) -> float:
        """By how much a neighbour can move the sum, in units of `length`."""
        return 1.0 if self.neighbours == "teacher_added" else 2.0

    @property
    def used(self) -> int:
        """Directions in use, the constant one included."""
        fits = 0 if math.isinf(self.sigma) else int(min(self.num_teachers / (WORTH * self.sigma), 1e9))
        return 1 + (self.rank if self.rank is not None else min(max(1, fits), len(self.directions.energy) - 1))

    @property
    def length(self) -> float:
        """What coordinates are cut to, in votes."""
        queries = len(self.directions.vectors)
        typical = queries * self.num_labels * self.rate * (1 - self.rate)
        stretch = math.sqrt(max(1.0, LITTLE / self.sigma))
        return self.clip * stretch * math.sqrt(typical * np.sqrt(self._energy).sum())

    @property
    def score_sd(self) -> float:
        """Of a count, on average over queries; the noise of different queries is not independent."""
        inverse = np.sqrt(self._energy).sum() / len(self.directions.vectors)
        return float(self.sigma * self.length * np.sqrt(inverse))

    def cost(self, queries: int = 1) -> PrivacyCost:
        """alpha sensitivity^2 / (2 sigma^2) for each release of up to N queries."""
        event = gaussian_event(self.sensitivity / self.sigma, self.exact)
        return PrivacyCost.of(event, neighbours=self.neighbours) * self._releases(queries, self.directions)

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        each = rho * queries / cls._releases(queries, fixed["directions"])
        unit = cls(sigma=1.0, neighbours=neighbours, **fixed)
        return cls(sigma=unit.sensitivity / math.sqrt(2 * each), neighbours=neighbours, **fixed)

    def tally(self, votes: Bools) -> Tally:
        """(T, N, K) ballots, each teacher's coordinates cut to `length`, as (N, K) counts; some may be negative."""
        votes = self._checked_votes(votes)
        self._check_queries(votes.shape[1])
        basis, weights, length = self._basis, self._weights[:, None], self.length
        total = np.zeros((self.used, self.num_labels))
        for ballots in votes:
            coordinates = weights * (basis.T @ (ballots - self.rate))
            total += coordinates * min(1.0, length / max(float(np.linalg.norm(coordinates)), 1e-300))
        return Tally(basis @ (total / weights) + self.num_teachers * self.rate, self.num_teachers)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        self._check_queries(len(counts))
        drawn = noise.gaussian(self.sigma * self.length, (self.used, self.num_labels)) / self._weights[:, None]
        basis = self._basis[: len(counts)]  # all rows, or none for no query
        scores = basis @ (basis.T @ np.asarray(counts, dtype=np.float64) + drawn)
        return scores > self.num_teachers / 2, np.ones(len(counts), dtype=np.bool_), scores

    @property
    def _basis(self) -> Floats:
        return self.directions.vectors[:, : self.used]

    @property
    def _energy(self) -> Floats:
        return self.directions.energy[: self.used]

    @property
    def _weights(self) -> Floats:
        return np.asarray(self._energy**-0.25)

    @staticmethod
    def _releases(queries: int, directions: Directions) -> int:
        """How often all N queries must be released to answer this many."""
        return -(-queries // len(directions.vectors))

    def _check_queries(self, found: int) -> None:
        needed = len(self.directions.vectors)
        require(found in (0, needed), "queries", f"all {needed} that the directions were made from, at once", found)

"""Top-k by the exponential mechanism, one candidate after another (EM-CDP)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import BoundedRange
from pate.mechanisms.base import Bools, Counts, Floats, Mechanism, check_common, check_scale, check_whole
from pate.mechanisms.order import members
from pate.noise import Noise


def count_range(neighbours: Neighbours) -> int:
    """How far apart two counts' changes can be: 1 if all move one way (monotone), 2 if they may part.

    >>> count_range("teacher_added")
    1
    """
    return 1 if neighbours == "teacher_added" else 2


@dataclass(frozen=True, kw_only=True)
class PeelingExponential(Mechanism):
    """The k largest of counts + Gumbel(scale) noise: k rounds of the exponential mechanism in one draw.

    Guarantee per query: k rounds of bounded range eta = 1/scale (teacher_added: counts move one way, so the scores are
    monotone) or 2/scale (teacher_changed), hence RDP at most alpha k eta^2 / 8. One draw equals peeling: Durfee &
    Rogers, Lemma 4.2; the curve: Cesar & Rogers 2021, Lemma 17. The k labels may be released in their noisy order.

    >>> m = PeelingExponential(num_labels=3, k=1, scale=2.0, neighbours="teacher_added")
    >>> round(m.cost(1).epsilon(1e-6), 3), m.release(np.array([[90, 10, 20]]), np.random.default_rng(0)).labels.tolist()
    (0.5, [[True, False, False]])
    """

    theorem: ClassVar[str] = "Durfee & Rogers 2019, Lemma 4.2; Cesar & Rogers 2021, Lemma 17"
    noise_fields: ClassVar[tuple[str, ...]] = ("scale",)

    num_labels: int
    k: int
    scale: float
    neighbours: Neighbours = "teacher_changed"
    exact: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours)
        check_whole("k", self.k, 1, self.num_labels)
        check_scale("scale", self.scale)

    def cost(self, queries: int = 1) -> PrivacyCost:
        # Choosing k of k reveals an order at most, and the set is certain; the order is charged like any other.
        event = BoundedRange(count_range(self.neighbours) / self.scale)
        return PrivacyCost.of(*[event] * self.k, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        scale = count_range(neighbours) / float(np.sqrt(8 * rho / fixed["k"]))
        return cls(scale=scale, neighbours=neighbours, **fixed)

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        best = noise.gumbel_top(np.asarray(counts, dtype=np.float64), self.k, self.scale)
        return members(best, self.num_labels), np.ones(len(counts), dtype=np.bool_), None

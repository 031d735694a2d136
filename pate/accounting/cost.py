"""What queries cost: a multiset of events and a sum of failure probabilities, which composes by addition."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pate.accounting import composition
from pate.accounting import conversion as convert
from pate.accounting import events as kinds
from pate.accounting.conversion import ORDERS, Conversion
from pate.accounting.events import Event, Gaussian
from pate.errors import SettingError, require

Floats = NDArray[np.float64]
Neighbours = Literal["teacher_added", "teacher_changed"]
NEIGHBOURS: tuple[Neighbours, ...] = ("teacher_added", "teacher_changed")


@dataclass(frozen=True)
class PrivacyCost:
    """The cost of queries asked so far: delta-approximate Rényi DP with the sum of the events' curves.

    Guarantee: (epsilon(delta), delta)-DP for the stated neighbour relation, whatever the order of the queries and
    however each depends on earlier answers (Zhu & Wang, Lemmas 16 and 17).

    Formal guarantees:
        * `a + b` is the cost of asking both; `cost * n` of asking n times the same, in the time of one.
        * No query costs 0; no noise costs inf; more queries never cost less.
        * Costs for different neighbour relations do not add: that is an error.

    Attributes:
        counted: (event, how often) pairs.
        delta: the sum of the queries' own delta_t.
        neighbours: the relation that all of them protect; None for the empty cost.

    >>> one = PrivacyCost.of(Gaussian(0.01), neighbours="teacher_changed")
    >>> round((one * 600).epsilon(delta=1e-6), 3)
    1.118
    """

    counted: tuple[tuple[Event, int], ...] = ()
    delta: float = 0.0
    neighbours: Neighbours | None = None

    @classmethod
    def of(cls, *events: Event, delta: float = 0.0, neighbours: Neighbours) -> "PrivacyCost":
        """The cost of one query that consists of these events."""
        require(neighbours in NEIGHBOURS, "neighbours", f"one of {NEIGHBOURS}", neighbours)
        require(0 <= delta < 1, "delta_t", "in [0, 1)", delta)
        return cls(tuple(Counter(events).items()), delta, neighbours)

    def __add__(self, other: "PrivacyCost") -> "PrivacyCost":
        if not isinstance(other, PrivacyCost):
            return NotImplemented
        counts: dict[Event, int] = dict(self.counted)
        for event, count in other.counted:
            counts[event] = counts.get(event, 0) + count
        return PrivacyCost(tuple(counts.items()), self.delta + other.delta, self._common(other))

    def __mul__(self, times: int) -> "PrivacyCost":
        require(isinstance(times, (int, np.integer)) and times >= 0, "queries", "a whole number >= 0", times)
        if times == 0:
            return PrivacyCost(neighbours=self.neighbours)
        counted = tuple((event, count * int(times)) for event, count in self.counted)
        return PrivacyCost(counted, self.delta * int(times), self.neighbours)

    def rdp(self, alpha: Floats) -> Floats:
        """The composed curve at any orders alpha > 1."""
        total = np.zeros_like(np.asarray(alpha, dtype=np.float64))
        for event, count in self.counted:
            total = total + count * event.rdp(np.asarray(alpha, dtype=np.float64))
        return total

    @property
    def pure_epsilon(self) -> float:
        """Epsilon by basic composition (with the summed delta); inf where an event has none."""
        return float(sum(count * event.pure_epsilon for event, count in self.counted))

    def epsilon(self, delta: float, conversion: Conversion = "tight") -> float:
        """Epsilon at this delta for everything asked.

        Args:
            delta: total failure probability, larger than the sum of the queries' delta_t.
            conversion: `tight` (default: the best of the tight Rényi conversion and, where every event has a pure
                epsilon, the theorems of `composition`), `published` (the papers' looser rule), or `exact`, for which
                every event must be Gaussian.
        """
        left = self._left(delta)
        if not self.counted:
            return 0.0
        if conversion == "exact":
            return convert.gaussian_epsilon(self.gaussian_mu, left)
        if left == 0:
            return self.pure_epsilon
        if conversion == "published":
            return min(convert.published_epsilon(self._curve, left), self.pure_epsilon)
        require(conversion == "tight", "conversion", "one of tight, published, exact", conversion)
        epsilon = convert.tight_epsilon(self._curve, left)
        if np.isinf(self.pure_epsilon):
            return epsilon
        return min(epsilon, self.pure_epsilon, composition.best(self.counted, left))

    @property
    def is_gaussian(self) -> bool:
        """True if the composition is exactly Gaussian-DP, so that `exact` can be asked for."""
        return all(isinstance(event, Gaussian) for event, _ in self.counted)

    @property
    def gaussian_mu(self) -> float:
        """mu of the composed Gaussian-DP: the root of the summed squares (Dong, Roth & Su 2022, Corollary 3.3)."""
        if not self.is_gaussian:
            raise SettingError("conversion", "tight or published unless every event is Gaussian", "exact")
        squares = (count * event.ratio**2 for event, count in self.counted if isinstance(event, Gaussian))
        return float(np.sqrt(sum(squares)))

    @cached_property
    def _curve(self) -> Floats:
        total = np.zeros_like(ORDERS)
        for event, count in self.counted:
            total += count * _on_orders(event)
        return total

    def _left(self, delta: float) -> float:
        """What of delta remains for the conversion; exactly 0 only where a pure epsilon exists."""
        require(0 < delta < 1, "delta", "in (0, 1)", delta)
        left = delta - self.delta
        if abs(left) <= 1e-12 * delta:
            left = 0.0
        if left < 0 or (left == 0 and np.isinf(self.pure_epsilon)):
            relation = ">=" if np.isfinite(self.pure_epsilon) else ">"
            raise SettingError("delta", f"{relation} {self.delta:.6g}, the sum of the queries' delta_t", delta)
        return left

    def _common(self, other: "PrivacyCost") -> Neighbours | None:
        if self.neighbours and other.neighbours and self.neighbours != other.neighbours:
            raise SettingError("neighbours", f"the same in costs that are added ({self.neighbours})", other.neighbours)
        return self.neighbours or other.neighbours

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the ledger."""
        counted = [[kinds.to_json(event), count] for event, count in self.counted]
        return {"counted": counted, "delta": self.delta, "neighbours": self.neighbours}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "PrivacyCost":
        counted = tuple((kinds.from_json(event), int(count)) for event, count in value["counted"])
        return cls(counted, float(value["delta"]), value["neighbours"])


def total(costs: Iterable[PrivacyCost]) -> PrivacyCost:
    """The cost of all of them.

    >>> total([]).epsilon(1e-6)
    0.0
    """
    result = PrivacyCost()
    for cost in costs:
        result = result + cost
    return result


@lru_cache(maxsize=4096)
def _on_orders(event: Event) -> Floats:
    curve = event.rdp(ORDERS)
    curve.flags.writeable = False
    return curve

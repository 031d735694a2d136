"""The filter: a budget, set once, that a request either fits or is refused with numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pate.accounting.conversion import ORDERS, Conversion, published_epsilon, tight_epsilon
from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Event
from pate.errors import BudgetExceeded, SettingError, require

Price = Callable[[int], PrivacyCost]  # n -> the cost of n queries
Floats = NDArray[np.float64]

NOTHING = PrivacyCost()
SLACK = 1e-9  # more than the roundings of a sum of a million numbers >= 0 can take away, in whatever order it is made


@dataclass(frozen=True)
class Budget:
    """What may be spent in all; epsilon None means no limit of one's own (a stored one still holds)."""

    epsilon: float | None = None
    delta: float = 1e-6

    def __post_init__(self) -> None:
        limit = self.epsilon
        require(limit is None or limit > 0, "budget.epsilon", "> 0", limit)
        require(0 < self.delta < 1, "budget.delta", "in (0, 1)", self.delta)


@dataclass(frozen=True)
class Terms(Budget):
    """The budget in force and what its epsilon is about; None where nothing has decided it yet."""

    neighbours: Neighbours | None = None
    unit: str | None = None

    def about(self, neighbours: Neighbours | None, unit: str | None) -> "Terms":
        """The same terms about these neighbours and this unit; other ones than before are refused."""
        for name, old, new in (("neighbours", self.neighbours, neighbours), ("unit", self.unit, unit)):
            require(None in (old, new) or old == new, name, f"{old}, as in this ledger's earlier rows", new)
        return replace(self, neighbours=self.neighbours or neighbours, unit=self.unit or unit)

    def under(self, budget: Budget) -> "Terms":
        """These terms with a budget: set once, then only ever lowered, since a higher one breaks what was promised."""
        if budget.epsilon is None:
            return self
        if self.epsilon is not None:
            rule = f"<= {self.epsilon:g}, the budget that was set: it can be lowered, never raised"
            require(budget.epsilon <= self.epsilon, "budget.epsilon", rule, budget.epsilon)
            require(budget.delta == self.delta, "budget.delta", f"{self.delta:g}, as it was set", budget.delta)
        return replace(self, epsilon=budget.epsilon, delta=budget.delta)


class Running:
    """The sum of costs, kept so that adding one, or asking whether one more surely fits, takes as long as the first.

    The events and delta are those of the same sum of `PrivacyCost`s. Beside them goes the sum of the curves, which is
    rounded in another order than theirs: raised by `SLACK` it is nowhere below theirs, nor is its epsilon. An interrupt
    in the middle can make a cost count twice, never be left out.
    """

    def __init__(self) -> None:
        self.counted: dict[Event, int] = {}
        self.delta, self.pure = 0.0, 0.0
        self.neighbours: Neighbours | None = None
        self._curve, self._waiting = np.zeros_like(ORDERS), list[PrivacyCost]()

    def add(self, cost: PrivacyCost) -> None:
        """One more."""
        self._waiting.append(cost)
        for event, count in cost.counted:
            self.counted[event] = self.counted.get(event, 0) + count
        self.delta, self.pure = self.delta + cost.delta, self.pure + cost.pure_epsilon
        self.neighbours = self.neighbours or cost.neighbours

    @property
    def cost(self) -> PrivacyCost:
        """The sum itself; takes longer the more different events there are."""
        return PrivacyCost(tuple(self.counted.items()), self.delta, self.neighbours)

    def bound(self, delta: float, more: PrivacyCost = NOTHING, conversion: Conversion = "tight") -> float:
        """At least the epsilon of the sum and more, by a hair without pure epsilons; inf where delta is used up."""
        while self._waiting:
            self._curve += _curve(self._waiting[-1])
            self._waiting.pop()
        left = delta - (self.delta + more.delta)
        if left <= 1e-9 * delta:
            return math.inf
        convert = tight_epsilon if conversion == "tight" else published_epsilon
        by_curve = convert((self._curve + _curve(more)) * (1 + SLACK), left)
        return min(by_curve, (self.pure + more.pure_epsilon) * (1 + SLACK))


def _curve(cost: PrivacyCost) -> Floats:
    """A cost's curve on the orders of the conversion."""
    return sum((count * _on_orders(event) for event, count in cost.counted), np.zeros_like(ORDERS))


@lru_cache(maxsize=4096)
def _on_orders(event: Event) -> Floats:
    curve = event.rdp(ORDERS)
    curve.flags.writeable = False
    return curve


def check_budget(before: Running, cost: PrivacyCost, queries: int, budget: Budget, price: Price | None = None) -> None:
    """Refuse with numbers a cost that does not fit: what it needs, what is left, how many queries would fit.

    Without a limit on epsilon, there must be some epsilon at delta: the queries' own failure probabilities leave room.
    """
    if before.bound(budget.delta, cost) < _limit(budget) or _within(before.cost + cost, budget):
        return
    try:
        text = _numbers(before.cost, cost, queries, _limit(budget), budget.delta)
    except SettingError as error:
        text = f"{queries} queries do not fit a budget of delta {budget.delta:g}: {error}"
    fit = "" if price is None else f"; {fitting(before.cost, price, queries, budget)} fit"
    raise BudgetExceeded(f"{text}{fit}.")


def _numbers(before: PrivacyCost, cost: PrivacyCost, queries: int, limit: float, delta: float) -> str:
    """What is needed, spent and left, with as many digits as tell need and limit apart."""
    needed, spent = (before + cost).epsilon(delta), before.epsilon(delta)
    digits = ".6g" if f"{needed:.2f}" == f"{limit:.2f}" or limit < 0.1 else ".2f"
    text = f"{queries} queries need epsilon {needed:{digits}} at delta {delta:g}"
    if not before.counted:
        return f"{text}, budget {limit:{digits}}"
    left = max(0.0, limit - spent)
    return f"{text} with the {spent:{digits}} spent, budget {limit:{digits}} ({left:{digits}} left)"


def fitting(before: PrivacyCost, price: Price, queries: int, budget: Budget) -> int:
    """How many of these queries fit after what is spent, by bisection: more never cost less."""
    if _within(before + price(queries), budget):
        return queries
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _within(before + price(middle), budget) else (low, middle)
    return low


def _within(cost: PrivacyCost, budget: Budget) -> bool:
    try:
        return cost.epsilon(budget.delta) <= _limit(budget)
    except SettingError:  # the queries' own failure probabilities pass delta
        return False


def _limit(budget: Budget) -> float:
    return math.inf if budget.epsilon is None else budget.epsilon

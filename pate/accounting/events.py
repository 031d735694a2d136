"""One query's privacy loss, as a value: what kind of noise, and how large beside what it hides.

An event knows its Rényi curve, and the epsilon of pure differential privacy where there is one. Mechanisms make events
from the same fields that they draw noise with.
"""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.accounting import curves, noisy_max
from pate.errors import SettingError

Floats = NDArray[np.float64]


class Event(Protocol):
    """A frozen dataclass with a Rényi curve."""

    def __hash__(self) -> int: ...

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of pure differential privacy; inf where there is none."""

    def rdp(self, alpha: Floats) -> Floats:
        """Rényi divergence bound at each order."""


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise on a vector; ratio = L2 sensitivity / sigma. Exactly ratio-Gaussian-DP."""

    ratio: float

    @property
    def pure_epsilon(self) -> float:
        return 0.0 if self.ratio == 0 else np.inf

    def rdp(self, alpha: Floats) -> Floats:
        return curves.gaussian(alpha, self.ratio)


@dataclass(frozen=True)
class Laplace:
    """Laplace noise; ratio = L1 sensitivity / scale."""

    ratio: float

    @property
    def pure_epsilon(self) -> float:
        return self.ratio

    def rdp(self, alpha: Floats) -> Floats:
        return curves.laplace(alpha, self.ratio)


@dataclass(frozen=True)
class BoundedRange:
    """An exponential mechanism whose log-probabilities move within a range eta."""

    eta: float

    @property
    def pure_epsilon(self) -> float:
        return self.eta

    def rdp(self, alpha: Floats) -> Floats:
        return curves.bounded_range(alpha, self.eta)


@dataclass(frozen=True)
class Pure:
    """Anything epsilon-DP; with a delta beside it in the cost, anything (epsilon, delta)-DP.

    Bun & Steinke 2016, Lemma 8.2: (epsilon, delta)-DP is the same as delta-approximate epsilon-DP in the sense in which
    approximate Rényi DP composes.
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def rdp(self, alpha: Floats) -> Floats:
        return curves.pure(alpha, self.epsilon)


@dataclass(frozen=True)
class Concentrated:
    """Anything rho-zCDP (Bun & Steinke 2016, Definition 1.1): the curve alpha rho."""

    rho: float

    @property
    def pure_epsilon(self) -> float:
        return 0.0 if self.rho == 0 else np.inf

    def rdp(self, alpha: Floats) -> Floats:
        return np.asarray(alpha * self.rho, dtype=np.float64)


@dataclass(frozen=True)
class NoisyMax:
    """Index of the largest of several scores under Gaussian noise; ratio = a score's sensitivity / sigma."""

    candidates: int
    ratio: float

    @property
    def pure_epsilon(self) -> float:
        return 0.0 if self.candidates == 1 or self.ratio == 0 else np.inf

    def rdp(self, alpha: Floats) -> Floats:
        return noisy_max.valid_minimum(alpha, self.candidates, self.ratio)


def gaussian_event(ratio: float, exact: bool) -> Event:
    """Gaussian noise, or exact discrete Gaussian noise, which has the same Rényi curve but is not Gaussian-DP.

    >>> gaussian_event(0.1, exact=True)
    Concentrated(rho=0.005000000000000001)
    """
    return Concentrated(ratio * ratio / 2) if exact else Gaussian(ratio)


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (Gaussian, Laplace, BoundedRange, Pure, Concentrated, NoisyMax)
}


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain values.

    >>> to_json(Gaussian(0.5))
    {'kind': 'Gaussian', 'ratio': 0.5}
    """
    fields: dict[str, Any] = asdict(event)  # type: ignore[call-overload]
    return {"kind": type(event).__name__} | fields


def from_json(value: dict[str, Any]) -> Event:
    """The event that `to_json` wrote.

    >>> from_json({"kind": "Pure", "epsilon": 0.1})
    Pure(epsilon=0.1)
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise SettingError("event kind", f"one of {sorted(KINDS)}", kind)
    return KINDS[kind](**fields)

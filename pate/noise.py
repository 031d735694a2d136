"""The only place that draws noise.

Uniform 64-bit words come from the operating system (or, on request and then marked, from a seeded generator); every
distribution is one formula applied to them, so a seeded run and a private run go through the same code.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pate.errors import SettingError, require

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


class Noise(Protocol):
    """What a mechanism asks of a source of noise. `scale` is the distribution's own parameter."""

    @property
    def seeded(self) -> bool:
        """True if the draws can be repeated, which makes a release not private."""

    @property
    def exact(self) -> bool:
        """True if the draws are exact samples on a grid, out of reach of floating-point attacks."""

    @property
    def description(self) -> str:
        """One phrase for statements."""

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> Floats:
        """Normal draws with standard deviation `scale`."""

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Floats:
        """Laplace draws with density exp(-|x| / scale) / (2 scale)."""

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> Floats:
        """Gumbel draws with distribution function exp(-exp(-x / scale))."""


@dataclass(frozen=True)
class FloatNoise:
    """Noise in double precision from a stream of random words.

    The magnitude of a draw comes from 63 bits near zero and the sign from one more, so tails reach a
    probability of 1e-19 instead of ending where ordinary uniform doubles do.
    """

    words: Callable[[int], Words]
    seeded: bool
    description: str
    exact: bool = False

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> Floats:
        sign, tail = self._signed_tail(shape)
        return np.asarray(sign * ndtri(tail * 0.5) * -scale, dtype=np.float64)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Floats:
        sign, tail = self._signed_tail(shape)
        return np.asarray(sign * np.log(tail) * -scale, dtype=np.float64)

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> Floats:
        # -log(1 - u) is exponential and exact for tiny u, where the large Gumbel draws come from.
        return np.asarray(-scale * np.log(-np.log1p(-self._open_unit(shape))), dtype=np.float64)

    def _signed_tail(self, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        words = self.words(int(np.prod(shape))).reshape(shape)
        sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        return sign, ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63

    def _open_unit(self, shape: tuple[int, ...]) -> Floats:
        """Uniform on (0, 1), never 0 and never 1."""
        words = self.words(int(np.prod(shape))).reshape(shape)
        unit = (words.astype(np.float64) + 0.5) * 2.0**-64
        return np.asarray(np.minimum(unit, 1.0 - 2.0**-53), dtype=np.float64)


def system() -> FloatNoise:
    """Noise from the operating system's entropy: the default, and the only kind that is private.

    >>> system().seeded
    False
    """
    return FloatNoise(_system_words, seeded=False, description="operating system entropy, double precision")


def seeded(seed: int) -> FloatNoise:
    """Repeatable noise for tests and studies. A release drawn from it is not private and says so.

    >>> bool((seeded(7).gaussian(2.0, (3,)) == seeded(7).gaussian(2.0, (3,))).all())
    True
    """
    require(isinstance(seed, int) and seed >= 0, "noise_seed", "a whole number >= 0", seed)
    return from_generator(np.random.default_rng(seed), f"seeded generator (seed {seed})")


def from_generator(generator: np.random.Generator, description: str = "a given generator") -> FloatNoise:
    """Noise from a numpy generator; counted as seeded, since nobody can show that it is not."""

    def words(count: int) -> Words:
        return np.frombuffer(generator.bytes(8 * count), dtype="<u8").astype(np.uint64)

    return FloatNoise(words, seeded=True, description=description)


def as_noise(rng: "Noise | np.random.Generator | None") -> Noise:
    """Any accepted source as `Noise`; None means the operating system.

    >>> as_noise(np.random.default_rng(0)).seeded
    True
    """
    if rng is None:
        return system()
    if isinstance(rng, np.random.Generator):
        return from_generator(rng)
    if not all(hasattr(rng, name) for name in ("gaussian", "laplace", "gumbel", "seeded")):
        raise SettingError("rng", "a pate.noise source, a numpy Generator or None", rng)
    return rng


def _system_words(count: int) -> Words:
    return np.frombuffer(os.urandom(8 * count), dtype="<u8").astype(np.uint64)

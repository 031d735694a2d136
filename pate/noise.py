"""The only place that draws noise.

Uniform 64-bit words come from the operating system (or, on request and then marked, from a seeded generator); every
distribution is one formula applied to them, so a seeded run and a private run go through the same code.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pate.errors import SettingError, require

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Indices = NDArray[np.int64]


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

    def gumbel_top(self, scores: Floats, k: int, scale: float) -> Indices:
        """(N, k) positions of the k largest of each row's scores + Gumbel(scale) noise, the largest first."""


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

    def gumbel_top(self, scores: Floats, k: int, scale: float) -> Indices:
        noisy = scores + self.gumbel(scale, scores.shape)
        if k == 1:
            return np.asarray(noisy.argmax(axis=1)[:, None], dtype=np.int64)
        return top_positions(noisy, k)

    def _signed_tail(self, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        words = self.words(int(np.prod(shape))).reshape(shape)
        sign = 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)
        return sign, ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63

    def _open_unit(self, shape: tuple[int, ...]) -> Floats:
        """Uniform on (0, 1), never 0 and never 1."""
        words = self.words(int(np.prod(shape))).reshape(shape)
        unit = (words.astype(np.float64) + 0.5) * 2.0**-64
        return np.asarray(np.minimum(unit, 1.0 - 2.0**-53), dtype=np.float64)


@dataclass(frozen=True)
class ExactNoise:
    """Exact samples from OpenDP (the extra `exact`): discrete Gaussian, discrete Laplace, exact exponential mechanism.

    Whole-number scores get whole-number noise, so nothing can be read from the low bits of a release. The entropy is
    the operating system's; there is no seeded form.

    >>> ExactNoise().exact, ExactNoise().seeded
    (True, False)
    """

    seeded: ClassVar[bool] = False
    exact: ClassVar[bool] = True
    description: ClassVar[str] = "operating system entropy, exact discrete sampling (OpenDP)"

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> Floats:
        """Discrete Gaussian: the Gaussian mechanism's curve holds (Canonne, Kamath & Steinke 2020, Theorem 14)."""
        dp = _opendp()
        return self._vector(dp.m.make_gaussian, dp.l2_distance(T=float), scale, shape)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Floats:
        """Discrete Laplace: pure DP as for Laplace noise on whole numbers (Ghosh, Roughgarden & Sundararajan 2012)."""
        dp = _opendp()
        return self._vector(dp.m.make_laplace, dp.l1_distance(T=float), scale, shape)

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> Floats:
        raise SettingError("exact", "false where Gumbel draws themselves are needed", True)

    def gumbel_top(self, scores: Floats, k: int, scale: float) -> Indices:
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
        pick = dp.m.make_noisy_top_k(*space, dp.zero_concentrated_divergence(), k=k, scale=scale)
        return np.array([pick(row) for row in scores.tolist()], dtype=np.int64).reshape(len(scores), k)

    def _vector(self, maker: Any, metric: Any, scale: float, shape: tuple[int, ...]) -> Floats:
        dp = _opendp()
        measure = maker(dp.vector_domain(dp.atom_domain(T=int)), metric, scale=float(scale))
        return np.asarray(measure([0] * int(np.prod(shape))), dtype=np.float64).reshape(shape)


def top_positions(scores: Floats, k: int) -> Indices:
    """(N, k) positions of each row's k largest scores, the largest first.

    >>> top_positions(np.array([[0.5, 2.0, 1.0]]), 2).tolist()
    [[1, 2]]
    """
    width = scores.shape[1]
    best = np.argpartition(scores, width - k, axis=1)[:, width - k :] if k < width else np.argsort(scores, axis=1)
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(best, order, axis=1), dtype=np.int64)


def system() -> FloatNoise:
    """Noise from the operating system's entropy: the default, and the only kind that is private.

    >>> system().seeded
    False
    """
    return FloatNoise(_system_words, seeded=False, description="operating system entropy, double precision")


def seeded(seed: int, *stream: int) -> FloatNoise:
    """Repeatable noise for tests and studies, one stream per further number. A release drawn from it is not private.

    >>> bool((seeded(7).gaussian(2.0, (3,)) == seeded(7).gaussian(2.0, (3,))).all())
    True
    """
    require(isinstance(seed, int) and seed >= 0, "noise_seed", "a whole number >= 0", seed)
    return from_generator(np.random.default_rng([seed, *stream]), f"seeded generator (seed {seed})")


def from_generator(generator: np.random.Generator, description: str = "a given generator") -> FloatNoise:
    """Noise from a numpy generator; counted as seeded, since nobody can show that it is not."""

    def words(count: int) -> Words:
        return np.frombuffer(generator.bytes(8 * count), dtype="<u8").astype(np.uint64)

    return FloatNoise(words, seeded=True, description=description)


def as_noise(rng: "Noise | np.random.Generator | None", exact: bool = False) -> Noise:
    """Any accepted source as `Noise`; None means the operating system. Exact noise has no other source.

    >>> as_noise(np.random.default_rng(0)).seeded
    True
    """
    if exact:
        require(rng is None or getattr(rng, "exact", False), "rng", "None where noise is exact", rng)
        return ExactNoise()
    require(not getattr(rng, "exact", False), "rng", "continuous noise unless the mechanism is exact", rng)
    if rng is None:
        return system()
    if isinstance(rng, np.random.Generator):
        return from_generator(rng)
    if not all(hasattr(rng, name) for name in ("gaussian", "laplace", "gumbel", "seeded")):
        raise SettingError("rng", "a pate.noise source, a numpy Generator or None", rng)
    return rng


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise SettingError("exact", "false unless OpenDP is installed (pip install 'pate[exact]')", True) from None
    dp.enable_features("contrib")
    return dp


def _system_words(count: int) -> Words:
    return np.frombuffer(os.urandom(8 * count), dtype="<u8").astype(np.uint64)

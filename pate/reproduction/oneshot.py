"""Qiao, Su & Zhang 2021: one draw of Laplace noise against k rounds of it: scales, recall and time as k grows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from pate.accounting import Neighbours, calibrate, composition
from pate.mechanisms import OneshotLaplace, PeelingExponential
from pate.mechanisms.base import Bools
from pate.noise import FloatNoise
from pate.reproduction.experiment import Context, Experiment, Row, markdown, spread, unique, where
from pate.reproduction.picture import Dash, Panel, chart, lines

Ints = NDArray[np.int64]
Answer = Callable[[Ints, FloatNoise], Bools]
NEIGHBOURS: Neighbours = "teacher_changed"  # this paper's relation: every count moves by at most 1, either way
# Each method and how its epsilon is reached.
METHODS = {
    "oneshot, pure": "none: Theorem 2.1",
    "oneshot, approximate": "none: Theorem 2.2",
    "peeling Laplace, pure": "sum of the rounds",
    "peeling Laplace, approximate": "optimal composition",
    "EM-CDP": "tight",
}

CAPTION = """Every count moves by at most 1, either way (teacher_changed). Oneshot: Theorem 2.1 (pure, 2k/ε) and
Theorem 2.2 (approximate, 8 sqrt(k log(m/δ))/ε). Peeling Laplace: k rounds of report-noisy-max, each with fresh
noise, composed by summation (pure, drawn on the line of oneshot, pure) or optimally (Kairouz et al.). EM-CDP:
one draw of Gumbel noise, which equals k rounds of the exponential mechanism, composed as Rényi DP."""


@dataclass(frozen=True)
class Oneshot(Experiment):
    """Counts of `labels` labels that fall like a power of the rank, from `height` on.

    Attributes:
        epsilon: at most 0.2, where Theorem 2.2 ends.
        delta: for what is approximate; what is pure does without.
    """

    name: ClassVar[str] = "oneshot"
    title: ClassVar[str] = "Oneshot Laplace: Qiao et al. section 2"

    ks: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    labels: int = 10_000
    height: float = 2e5
    power: float = 0.5
    epsilon: float = 0.2
    delta: float = 1e-6
    trials: int = 20

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 3), ks=(1, 10, 100))

    def counts(self) -> Ints:
        """The histogram, the largest first."""
        return np.rint(self.height * np.arange(1, self.labels + 1) ** -self.power).astype(np.int64)

    def rows(self, context: Context) -> list[Row]:
        counts = self.counts()
        found = []
        for k, method in context.track(list(product(self.ks, METHODS)), self.name):
            answer, scale = self.method(method, k)
            source = context.source(k, list(METHODS).index(method))
            labels = answer(np.broadcast_to(counts, (self.trials, self.labels)), source)
            seconds = [_seconds(answer, counts[None], source) for _ in range(3)]
            said = {"k": k, "method": method, "scale": scale} | spread("recall", labels[:, :k].sum(axis=1) / k)
            delta = 0.0 if method.endswith("pure") else self.delta
            paid = {"epsilon": self.epsilon, "delta": delta, "neighbours": NEIGHBOURS, "conversion": METHODS[method]}
            found.append(said | {"milliseconds": 1000 * min(seconds)} | paid | {"trials": self.trials})
        return found

    def method(self, name: str, k: int) -> tuple[Answer, float]:
        """How to answer (N, K) counts, and the scale of the noise."""
        common: dict[str, Any] = {"num_labels": self.labels, "k": k, "neighbours": NEIGHBOURS}
        delta = None if name.endswith("pure") else self.delta
        if name.startswith("oneshot"):
            once = OneshotLaplace(epsilon=self.epsilon, delta=delta, **common)
            return lambda counts, source: once.release(counts, source).labels, once.scale
        if name == "EM-CDP":
            em = calibrate(PeelingExponential, epsilon=self.epsilon, delta=self.delta, queries=1, **common)
            return lambda counts, source: em.release(counts, source).labels, em.scale
        scale = 2 / round_epsilon(self.epsilon, k, delta or 0.0)
        return lambda counts, source: peel(counts, k, scale, source), scale

    def picture(self, rows: Sequence[Row]) -> Figure:
        shown = (
            ("scale", "scale of the noise", "xy"),
            ("recall", "recall", "x"),
            ("milliseconds", "ms of CPU per query", "xy"),
        )
        panels = [Panel("", "k", up, lines(rows, "method", "k", y, dash=_dash), log=log) for y, up, log in shown]
        below = f"epsilon = {self.epsilon:g}, delta = {self.delta:.0e} where approximate · {self.labels:,} labels"
        words = f"{below} · {rows[0]['trials']} trials · log scales"
        return chart("Top k with one draw of noise", words, panels, 3, CAPTION, height=2.6)

    def table(self, rows: Sequence[Row]) -> str:
        ks = [k for k in (1, 10, 100, 500, 1000) if where(rows, k=k)]
        body = []
        for method in unique(rows, "method"):
            own = [where(rows, method=method, k=k)[0] for k in ks]
            cells = [f"{row['scale']:.0f} / {row['recall']:.2f} / {row['milliseconds']:.3g}" for row in own]
            body.append([method, *cells])
        return markdown(["scale / recall / ms", *(f"k = {k}" for k in ks)], body)


def _dash(row: Row) -> Dash:
    return "dashed" if row["method"].endswith("pure") else "solid"


def round_epsilon(epsilon: float, rounds: int, delta: float) -> float:
    """What each round of report-noisy-max may spend.

    >>> round_epsilon(0.2, 10, 0.0), round(round_epsilon(0.2, 100, 1e-6), 5)
    (0.02, 0.00532)
    """
    if delta == 0 or rounds == 1:
        return epsilon / rounds
    excess = lambda each: composition.optimal_homogeneous(each, rounds, delta) - epsilon  # noqa: E731
    return float(brentq(excess, epsilon / rounds, epsilon)) if excess(epsilon / rounds) < 0 else epsilon / rounds


def peel(counts: Ints, k: int, scale: float, source: FloatNoise) -> Bools:
    """k rounds of report-noisy-max with fresh Lap(scale) noise, each without the labels chosen before."""
    left = np.array(counts, dtype=np.float64)
    rows = np.arange(len(left))
    for _ in range(k):
        left[rows, np.argmax(left + source.laplace(scale, left.shape), axis=1)] = -np.inf
    return np.asarray(np.isinf(left))


def _seconds(answer: Answer, counts: Ints, source: FloatNoise) -> float:
    """Of CPU, so that other work on the machine does not count."""
    began = time.process_time()
    answer(counts, source)
    return time.process_time() - began

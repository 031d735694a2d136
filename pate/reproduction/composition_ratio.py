"""Durfee & Rogers 2019, Figure 1: the optimal composition of epsilon-DP mechanisms over that of bounded ranges."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from matplotlib.figure import Figure
from scipy.special import gammaln, logsumexp

from pate.accounting.composition import bounded_range, optimal_homogeneous
from pate.reproduction.experiment import Context, Experiment, Row, markdown, unique, where
from pate.reproduction.picture import Panel, chart, lines

CAPTION = """Optimal: Kairouz, Oh & Viswanath (Lemma 4.5), the best that holds for all epsilon-DP mechanisms.
Bounded range: Lemma 4.4. The jags on the left are the lemma's grid, as the paper says: its next point may spend
far less of delta than 1e-6. Solved between grid points, they shrink."""
TELLING = (10, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class CompositionRatio(Experiment):
    """Both ways: as the paper computes it, at the grid point of Lemma 4.5 below delta, and at delta itself.

    Attributes:
        epsilons: of one mechanism.
        most: compositions are 1..most.
    """

    name: ClassVar[str] = "composition_ratio"
    title: ClassVar[str] = "Composition: Durfee & Rogers Figure 1"

    epsilons: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2, 0.5)
    most: int = 1000
    delta: float = 1e-6

    def small(self) -> Self:
        return replace(self, most=min(self.most, 100))

    def rows(self, context: Context) -> list[Row]:
        cells = [(epsilon, count) for epsilon in self.epsilons for count in self.counts()]
        found = []
        for epsilon, count in context.track(cells, self.name):
            optimal, delta = lemma_4_5(epsilon, count, self.delta)
            row = {"epsilon": epsilon, "k": count, "delta_i": delta, "optimal": optimal}
            row["bounded_range"] = bounded_range(epsilon, count, delta)
            row["ratio"] = optimal / row["bounded_range"]
            smooth = optimal_homogeneous(epsilon, count, self.delta) / bounded_range(epsilon, count, self.delta)
            found.append(row | {"delta": self.delta, "ratio_at_delta": smooth})
        return found

    def counts(self) -> list[int]:
        """Every count up to 100, then every 25th."""
        return [*range(1, min(self.most, 100) + 1), *range(125, self.most + 1, 25)]

    def picture(self, rows: Sequence[Row]) -> Figure:
        named = [row | {"one": f"ε = {row['epsilon']:g}"} for row in rows]
        shown = {"ratio": "as in the paper: at the δᵢ of Lemma 4.5", "ratio_at_delta": "at δ = 1e-6 itself"}
        across, up = "compositions k, log scale", "optimal / bounded range"
        panels = [Panel(shown[y], across, up, lines(named, "one", "k", y), log="x") for y in shown]
        below = "above 1: knowing that the range is bounded makes the total epsilon that much smaller"
        return chart("Optimal composition over bounded-range composition", below, panels, 2, CAPTION, height=3.0)

    def table(self, rows: Sequence[Row]) -> str:
        counts = [k for k in TELLING if where(rows, k=k)]
        body = []
        for epsilon in unique(rows, "epsilon"):
            own = [where(rows, epsilon=epsilon, k=k)[0] for k in counts]
            body.append([f"{epsilon:g}", *(f"{row['ratio']:.3f} / {row['ratio_at_delta']:.3f}" for row in own)])
        return markdown(["ε; ratio at δᵢ / at δ", *(f"k = {k}" for k in counts)], body)


def lemma_4_5(epsilon: float, count: int, delta: float) -> tuple[float, float]:
    """The smallest (k - 2i) epsilon of Lemma 4.5 whose delta_i is at most delta, and that delta_i.

    delta_i = sum over l < i of C(k, l) (e^((k-l) epsilon) - e^((k-2i+l) epsilon)) / (1 + e^epsilon)^k.

    >>> [round(value, 8) for value in lemma_4_5(0.1, 100, 1e-6)]
    [4.8, 8.1e-07]
    """
    best = count * epsilon, 0.0
    flipped = np.arange(count // 2 + 1)
    ways = gammaln(count + 1) - gammaln(flipped + 1) - gammaln(count - flipped + 1) - count * np.logaddexp(0, epsilon)
    for i in range(1, count // 2 + 1):
        ell = flipped[:i]
        terms = ways[:i] + (count - ell) * epsilon + np.log(-np.expm1((2 * ell - 2 * i) * epsilon))
        failure = float(np.exp(logsumexp(terms)))
        if failure > delta:
            break
        best = (count - 2 * i) * epsilon, failure
    return best

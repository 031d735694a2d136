"""Qiao, Su & Zhang 2021, section 3: the best items by pairwise comparisons, privately, as epsilon grows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pate.mechanisms.oneshot import MOST_EPSILON
from pate.ranking import private_spectral_ranking, spectral_ranking
from pate.reproduction.experiment import Context, Experiment, Row, markdown, spread, unique, where
from pate.reproduction.picture import Dash, Panel, chart, lines

Ints = NDArray[np.int64]
METHODS: dict[str, dict[str, Any]] = {
    "whole distribution (ours)": {"method": "whole"},
    "oneshot, pure": {"method": "oneshot"},
    "oneshot, approximate": {"method": "oneshot", "delta": 1e-6},
}
BEST = "not private"
CAPTION = """Neighbours: one comparison has another outcome. Oneshot: Algorithm 3, pure (Theorem 2.1) and with
delta = 1e-6 (Theorem 3.5, proved up to epsilon 0.2). Whole distribution: Laplace noise at the L1 sensitivity,
which is no larger than the paper's bound on a single entry and is paid once for all items."""


@dataclass(frozen=True)
class Spectral(Experiment):
    """Bradley-Terry-Luce comparisons of items whose weights fall geometrically; recall of the k heaviest.

    Attributes:
        met: which share of the pairs met (an Erdős-Rényi graph), one panel each.
        comparisons: L, of each pair that met.
        ratio: of the heaviest item's weight to the lightest's.
        rho: public bound on the walk's ergodicity coefficient.
    """

    name: ClassVar[str] = "spectral"
    title: ClassVar[str] = "Private spectral ranking: Qiao et al. section 3"

    items: int = 50
    k: int = 10
    comparisons: int = 300
    met: tuple[float, ...] = (1.0, 0.5)
    ratio: float = 20.0
    rho: float = 0.7
    epsilons: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    trials: int = 100

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 4), epsilons=(0.05, 0.2, 5.0))

    def rows(self, context: Context) -> list[Row]:
        cells = [cell for cell in product(self.met, (BEST, *METHODS), self.epsilons) if _proved(*cell[1:])]
        found = []
        for share, method, epsilon in context.track(cells, self.name):
            sources = [np.random.default_rng([context.seed, trial]) for trial in range(self.trials)]
            recalls = np.array([self._recall(share, method, epsilon, source) for source in sources])
            said = {"met": share, "method": method, "epsilon": epsilon} | spread("recall", recalls)
            delta = METHODS.get(method, {}).get("delta", 0.0)
            paid = {"delta": delta, "neighbours": "one comparison's outcome", "conversion": "none: by theorem"}
            found.append(said | ({} if method == BEST else paid) | {"k": self.k, "trials": self.trials})
        return found

    def _recall(self, share: float, method: str, epsilon: float, rng: np.random.Generator) -> float:
        """Of one graph with its outcomes; the same ones for every method and epsilon."""
        wins = self.draw(share, rng)
        if method == BEST:
            chosen = spectral_ranking(wins)[: self.k]
        else:
            chosen = private_spectral_ranking(wins, self.k, epsilon, rng=rng, rho=self.rho, **METHODS[method]).items
        return float((chosen < self.k).sum()) / self.k

    def draw(self, share: float, rng: np.random.Generator) -> Ints:
        """(items, items) wins of i over j; items are sorted, the heaviest first."""
        weights = self.ratio ** -(np.arange(self.items) / (self.items - 1))
        chance = weights[:, None] / (weights[:, None] + weights)
        upper = np.triu(rng.random(chance.shape) < share, 1)
        wins = rng.binomial(self.comparisons, chance) * upper
        return np.asarray(wins + (self.comparisons * upper - wins).T, dtype=np.int64)

    def picture(self, rows: Sequence[Row]) -> Figure:
        panels = []
        for share in unique(rows, "met"):
            series = lines(where(rows, met=share), "method", "epsilon", "recall", "recall_sd", _dash)
            words = (f"{share:.0%} of the pairs met", "epsilon, log scale", f"recall of the best {self.k}")
            panels.append(Panel(*words, series, log="x", ylim=(0, 1.03)))
        below = f"{self.items} items, {self.comparisons} comparisons of each pair that met, rho = {self.rho:g}"
        said = f"{below} · {rows[0]['trials']} trials, mean and standard deviation"
        return chart("Best items by pairwise comparisons", said, panels, 2, CAPTION, height=2.8)

    def table(self, rows: Sequence[Row]) -> str:
        epsilons = unique(rows, "epsilon")
        body = []
        for share, method in product(unique(rows, "met"), unique(rows, "method")):
            own = {row["epsilon"]: row for row in where(rows, met=share, method=method)}
            cells = [f"{own[epsilon]['recall']:.2f}" if epsilon in own else "" for epsilon in epsilons]
            body.append([f"{share:.0%} met, {method}", *cells])
        return markdown(["recall", *(f"ε = {epsilon:g}" for epsilon in epsilons)], body)


def _proved(method: str, epsilon: float) -> bool:
    """Theorem 2.2 ends at epsilon 0.2."""
    return "delta" not in METHODS.get(method, {}) or epsilon <= MOST_EPSILON


def _dash(row: Row) -> Dash:
    return "dashed" if row["method"] == BEST else "solid"

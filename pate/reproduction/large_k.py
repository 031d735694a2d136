"""Zhu & Wang 2022, Figure 1(b): what k costs, on a histogram whose only gap is at k."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure

from pate.accounting import calibrate
from pate.mechanisms import FixedTopK, Mechanism, PeelingExponential, StableTopK, TopStable
from pate.reproduction.contenders import stable_then_em
from pate.reproduction.experiment import NEIGHBOURS, Context, Experiment, Row, markdown, spread, unique, where
from pate.reproduction.picture import Dash, Panel, chart, lines

# Public settings beside k. Fixed k: the analyst knows k, so any other must have a gap larger by its distance from k.
METHODS: dict[str, tuple[type[Mechanism], dict[str, Any]]] = {
    "EM-CDP": (PeelingExponential, {}),
    "TS": (TopStable, {}),
    "StableTopK": (StableTopK, {}),
    "StableTopK fixed k": (FixedTopK, {"pull": 1.0}),
}
THEN_EM = "TS then EM"
CAPTION = """a user is added or removed. StableTopK chooses k itself among all bins; with k given (fixed k),
half of the budget is kept for an exponential mechanism. TS then EM: half of the budget for TS and half for an
exponential mechanism that stands in where TS answers nothing, and with that TS falls behind."""


@dataclass(frozen=True)
class LargeK(Experiment):
    """Recall of one query against k: `bins` bins, the first k of them at `height`, the others at 0."""

    name: ClassVar[str] = "exp2_large_k"
    title: ClassVar[str] = "Large k: Zhu & Wang Figure 1(b)"

    ks: tuple[int, ...] = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 400, 500, 700, 1000, 1250, 1500)
    bins: int = 15_000
    height: int = 700
    epsilon: float = 0.15
    delta: float = 1e-6
    trials: int = 100

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 10), ks=(self.ks[0], 50, 200, self.ks[-1]))

    def rows(self, context: Context) -> list[Row]:
        cells = list(product(self.ks, (*METHODS, THEN_EM)))
        return [self._cell(context, *cell) for cell in context.track(cells, self.name)]

    def _cell(self, context: Context, k: int, method: str) -> Row:
        source = context.source(k, [*METHODS, THEN_EM].index(method))
        counts = np.broadcast_to(np.where(np.arange(self.bins) < k, self.height, 0), (self.trials, self.bins))
        if method == THEN_EM:
            labels, cost = stable_then_em(counts, k, self.epsilon, self.delta, source)
        else:
            mechanism = self.mechanism(method, k)
            labels, cost = mechanism.release(counts, source).labels, mechanism.cost(1)
        recall = labels[:, :k].sum(axis=1) / k
        paid = {"epsilon": self.epsilon, "delta": self.delta, "charged": cost.epsilon(self.delta)}
        said = {"k": k, "method": method} | spread("recall", recall)
        return said | paid | {"neighbours": NEIGHBOURS, "conversion": "tight", "trials": self.trials}

    def mechanism(self, method: str, k: int) -> Mechanism:
        """The method at this k, calibrated to the budget."""
        kind, fixed = METHODS[method]
        asked = {"num_labels": self.bins} | ({} if kind is StableTopK else {"k": k}) | fixed
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "queries": 1, "neighbours": NEIGHBOURS}
        return calibrate(kind, **budget, **asked)

    def picture(self, rows: Sequence[Row]) -> Figure:
        series = lines(rows, "method", "k", "recall", "recall_sd", _dash)
        panel = Panel("", "k, log scale", "recall", series, log="x", ylim=(-0.02, 1.04))
        below = f"({self.epsilon:g}, {self.delta:.0e})-DP · {rows[0]['trials']} trials, mean and standard deviation"
        words = f"{self.bins:,} bins, the first k at {self.height}, the others at 0; {CAPTION}"
        return chart("One query as k grows", f"{below} · {crossing(rows)}", [panel], 1, words, height=3.2)

    def table(self, rows: Sequence[Row]) -> str:
        ks = [k for k in (10, 30, 50, 100, 200, 500, 1000, 1500) if where(rows, k=k)]
        body = [
            [method, *(f"{where(rows, method=method, k=k)[0]['recall']:.2f}" for k in ks)]
            for method in unique(rows, "method")
        ]
        return markdown(["recall", *(f"k = {k}" for k in ks)], body) + f"\n\n{crossing(rows)}."


def _dash(row: Row) -> Dash:
    return "dashed" if row["method"] in (THEN_EM, "StableTopK fixed k") else "solid"


def crossing(rows: Sequence[Row]) -> str:
    """From which k on StableTopK finds more than EM-CDP."""
    recalls = ({row["k"]: row["recall"] for row in where(rows, method=name)} for name in ("StableTopK", "EM-CDP"))
    stable, em = recalls
    behind = [k for k in stable if stable[k] <= em[k]]
    ahead = [k for k in stable if k > max(behind, default=0)]
    return f"StableTopK passes EM-CDP at k = {ahead[0]}" if ahead else "StableTopK does not pass EM-CDP"

"""Durfee & Rogers 2019, Theorem 2: queries that pay for what they get, against queries that pay for what they ask."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import brentq

from pate.accounting import calibrate
from pate.errors import BudgetExceeded
from pate.mechanisms import LimitedDomain, PayWhatYouGet
from pate.noise import FloatNoise
from pate.reproduction import published
from pate.reproduction.contenders import visits
from pate.reproduction.experiment import NEIGHBOURS, Context, Experiment, Row, markdown, unique, where
from pate.reproduction.picture import Panel, chart, lines

Ints = NDArray[np.int64]

CAPTION = """Venues of the stand-in histograms, shuffled into {regions} regions; each query asks for the top {k}
of the next region. A query whose labels end at the threshold after j uses j + 1 of k*, else k; charged for what
it asks, always k."""


@dataclass(frozen=True)
class Stream(Experiment):
    """Top-k queries about one region after another, until a budget of labels is used up.

    Regions are drawn: venues are shuffled and dealt out, a user may have been everywhere. Both ways spend epsilon at
    delta = 1/users on k_star labels; paying for what was asked, that is k_star / k queries. Nothing decides but public
    numbers: k_star, ell_star = k_star queries at most, k and max_k.

    Attributes:
        budgets: values of k_star.
    """

    name: ClassVar[str] = "pay_what_you_get"
    title: ClassVar[str] = "Pay what you get: Durfee & Rogers Theorem 2"

    data: tuple[str, ...] = ("Foursquare", "Gowalla")
    regions: int = 400
    k: int = 10
    max_k: int = 50
    epsilon: float = 1.0
    budgets: tuple[int, ...] = (50, 100, 200, 400)
    trials: int = 50

    def small(self) -> Self:
        return replace(self, trials=min(self.trials, 3), budgets=self.budgets[:2])

    def rows(self, context: Context) -> list[Row]:
        root = context.data()
        found = []
        for place, name in enumerate(self.data):
            of = visits(root, name, self.regions * (self.max_k + 1))
            delta = 1 / published.USERS[name]
            for k_star in context.track(self.budgets, f"{self.name} {name}"):
                sources = [context.source(place, k_star, trial) for trial in range(self.trials)]
                streams = [regions(of.counts, self.regions, source) for source in sources]
                asked = {"data": name, "origin": of.origin, "k_star": k_star, "k": self.k, "max_k": self.max_k}
                paid = {"epsilon": self.epsilon, "delta": delta, "neighbours": NEIGHBOURS, "conversion": "tight"}
                for way, ask in (("pays for what it gets", self._gets), ("pays for what it asks", self._asks)):
                    outcome = ask(streams, sources, k_star, delta)
                    found.append(asked | {"way": way} | outcome | paid | {"trials": self.trials})
        return found

    def _gets(self, streams: Sequence[Ints], sources: Sequence[FloatNoise], k_star: int, delta: float) -> Row:
        """Means over streams that `PayWhatYouGet` answers until it refuses."""
        fixed: dict[str, Any] = {"k_star": k_star, "ell_star": k_star, "neighbours": NEIGHBOURS}
        fixed["delta_t"] = delta / 2 / k_star

        def excess(each: float) -> float:
            return PayWhatYouGet(epsilon=each, **fixed).cost.epsilon(delta) - self.epsilon

        each = float(brentq(excess, self.epsilon / k_star / 10, 10 * self.epsilon))
        answers = []
        for stream, source in zip(streams, sources, strict=True):
            budget = PayWhatYouGet(epsilon=each, **fixed)
            answers.append(list(self._until_refused(budget, stream, source)))
        return self._means(answers) | {"label_epsilon": each, "delta_t": fixed["delta_t"]}

    def _until_refused(self, budget: PayWhatYouGet, stream: Ints, source: FloatNoise) -> Iterator[Ints]:
        for region in stream:
            try:
                yield budget.ask(region, k=self.k, max_k=self.max_k, rng=source)
            except BudgetExceeded:
                return

    def _asks(self, streams: Sequence[Ints], sources: Sequence[FloatNoise], k_star: int, delta: float) -> Row:
        """Means over streams of `LimitedDomain` queries that are charged k labels each."""
        queries = k_star // self.k
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": delta, "queries": queries, "neighbours": NEIGHBOURS}
        fixed = {"num_labels": streams[0].shape[1], "k": self.k, "max_k": self.max_k}
        mechanism = calibrate(LimitedDomain, **budget, **fixed)
        pairs = zip(streams, sources, strict=True)
        answers = [mechanism.ranked(stream[:queries], source) for stream, source in pairs]
        return self._means(answers) | {"label_epsilon": mechanism.epsilon, "delta_t": mechanism.delta_t}

    def _means(self, answers: Sequence[Sequence[Ints]]) -> Row:
        """Queries answered, labels returned, and true ones among them, per stream."""
        measures = {"queries": lambda _: 1, "labels": len, "true": lambda answer: int((answer < self.k).sum())}
        return {name: float(np.mean([sum(map(of, stream)) for stream in answers])) for name, of in measures.items()}

    def picture(self, rows: Sequence[Row]) -> Figure:
        shown = {"queries": "queries answered", "true": f"true top-{self.k} labels found"}
        panels = []
        for data, column in product(unique(rows, "data"), shown):
            own = where(rows, data=data)
            series = lines(own, "way", "k_star", column, marker=True)
            top = 1.05 * max(row[column] for row in own)
            panels.append(Panel(data, "k*, the labels that the budget pays for", shown[column], series, ylim=(0, top)))
        below = f"epsilon = {self.epsilon:g} at delta = 1/users in all, a user is added or removed"
        words = f"{below} · k-bar = {self.max_k} · {rows[0]['trials']} streams"
        caption = CAPTION.format(regions=self.regions, k=self.k)
        return chart(f"A stream of top-{self.k} queries", words, panels, 2, caption, height=2.3)

    def table(self, rows: Sequence[Row]) -> str:
        measures = ("queries", "labels", "true")
        heading = ["data", "k*", "ε of a label", *(f"{name}: {way}" for name in measures for way in ("gets", "asks"))]
        body = []
        for data, k_star in product(unique(rows, "data"), unique(rows, "k_star")):
            gets, asks = where(rows, data=data, k_star=k_star)
            pairs = [f"{row[name]:.1f}" for name in measures for row in (gets, asks)]
            body.append([data, str(k_star), f"{gets['label_epsilon']:.3f}", *pairs])
        return markdown(heading, body)


def regions(counts: Ints, how_many: int, source: FloatNoise) -> Ints:
    """(regions, venues) the venues dealt out at random, each region's largest count first; a few are left over.

    >>> from pate import noise
    >>> regions(np.array([5, 4, 3, 2, 1]), 2, noise.seeded(0)).shape
    (2, 2)
    """
    order = np.argsort(source.gumbel(1.0, counts.shape))[: len(counts) // how_many * how_many]
    return -np.sort(-counts[order].reshape(how_many, -1), axis=1)

"""Answering a stream of queries exactly while their answers are stable (Carvalho et al. 2020, section 5).

The stream is cut into runs of the sparse vector technique, each with a fresh noisy threshold (`SharedTest`). A run ends
at the first outcome of the kind that is paid for; the other kind is free. Proof, in the words of `top_stable`: each
run's record of passes and failures is epsilon-DP (`sparse_vector`), there are at most `cutoff` runs, and bad tests are
rare:

Paying for unstable answers (the improved A_OQR). Until something bad has happened, a query whose answers differ between
the neighbours ends its run: it fails, or it is bad. So each run meets at most one such query, whose test against the
run's own fresh threshold is bad with probability at most delta. The sum over the runs is cutoff * delta, *whatever the
number of queries*: the union over all queries, as in Theorem 3.2, is not needed here, nor is the absolute value on the
threshold's noise that A_OQR had.

Paying for stable answers (the general-query TS). Many such queries may fail in one run, so each of the n tests counts.
Given that earlier tests of its run failed, a threshold is stochastically higher than it was when drawn, so each test is
bad with probability at most delta. The sum is n * delta.

Both sums are for queries that were fixed before the stream began, as the rows of one `release` are.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Pure
from pate.errors import require
from pate.mechanisms.base import Bools, Counts, Floats, Mechanism, check_common, check_probability, check_whole
from pate.mechanisms.sparse_vector import SharedTest
from pate.mechanisms.stability import Offset
from pate.mechanisms.top_stable import Majority, StableQuery
from pate.noise import Noise


@dataclass(frozen=True)
class OnlineStable(Mechanism):
    """A stream of queries, answered exactly where stable; only unstable (or only stable) answers are paid for.

    Guarantee for a stream of n queries, c = min(n, cutoff): c-fold composition of epsilon-DP with failure probability
    c delta (pays = "unstable") or n delta (pays = "stable"), so (c epsilon, c delta)-DP or (c epsilon, n delta)-DP at
    most, for both neighbour relations (Carvalho et al., section 5; proof in this module). One `release` is one stream,
    in the order of its rows: its price is known before anything is drawn. A second release is a second stream.

    Attributes:
        epsilon: the price of one answer of the kind that is paid for.
        delta: how often a run (or, for pays = "stable", a test) releases an answer that a neighbour would change.
        cutoff: how many answers of the kind that is paid for; after them nothing is answered.
        query: `Majority` (default) or `TopSet`; a query is as stable as the least sure of its labels.
        pays: "unstable" is A_OQR, for teachers that mostly agree; "stable" is TS, for labelling a few queries of many.
        p1: the threshold's share of epsilon.
        offset: how the threshold follows from delta, see `SharedTest`.

    >>> m = OnlineStable(num_labels=2, epsilon=1.0, delta=1e-6, cutoff=1, query=Majority(num_teachers=200))
    >>> counts = np.array([[190, 3], [195, 199], [101, 0], [190, 3]])
    >>> m.release(counts, np.random.default_rng(0)).answered.tolist()
    [True, True, False, False]
    >>> m.cost(4).epsilon(1e-6), m.cost(10**6) == m.cost(1)
    (1.0, True)
    """

    theorem: ClassVar[str] = "online stable answers: Carvalho et al. 2020, section 5 and Lemma 3.1"
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    num_labels: int
    epsilon: float
    delta: float
    cutoff: int
    neighbours: Neighbours = "teacher_changed"
    query: StableQuery = field(default_factory=Majority)
    pays: Literal["unstable", "stable"] = "unstable"
    p1: float = 0.37
    offset: Offset = "exact"

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours)
        check_whole("cutoff", self.cutoff)
        require(self.pays in ("unstable", "stable"), "pays", "one of unstable, stable", self.pays)
        _ = self.test
        self.query.check(self.num_labels)

    @cached_property
    def test(self) -> SharedTest:
        """The tests' noise and threshold."""
        return SharedTest(self.epsilon, self.delta, self.p1, self.offset)

    def cost(self, queries: int = 1) -> PrivacyCost:
        """The price of one stream of this many queries."""
        check_whole("queries", queries, 0)
        runs = min(queries, self.cutoff)
        risks = runs if self.pays == "unstable" else queries
        bad = PrivacyCost.of(delta=self.delta, neighbours=self.neighbours) * risks
        return PrivacyCost.of(Pure(self.epsilon), neighbours=self.neighbours) * runs + bad

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold delta_share, the tests' share of delta."""
        share = fixed.pop("delta_share", 0.5)
        check_probability("delta_share", share)
        runs = min(queries, fixed["cutoff"])
        failure = share * delta / (queries if fixed.get("pays") == "stable" else runs)
        return cls(epsilon=math.sqrt(2 * rho * queries / runs), delta=failure, neighbours=neighbours, **fixed)

    def stable(self, distances: Floats, noise: Noise) -> Bools:
        """Which queries of one stream pass their test before the cut-off."""
        runs = min(len(distances), self.cutoff)
        levels = (self.test.level + noise.laplace(self.test.threshold_scale, (runs,))).tolist()
        noisy = (distances + noise.laplace(self.test.test_scale, distances.shape)).tolist()
        passed, run = np.zeros(len(distances), dtype=np.bool_), 0
        for query, value in enumerate(noisy):
            if run == runs:
                break
            passed[query] = value > levels[run]
            run += bool(passed[query]) == (self.pays == "stable")
        return passed

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        labels, distances = self.query.answers(counts, self.neighbours)
        answered = self.stable(distances, noise)
        return labels & answered[:, None], answered, None

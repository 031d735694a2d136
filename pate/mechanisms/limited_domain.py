"""Top-k from the k-bar largest counts and a noisy threshold, without knowing the rest (Durfee & Rogers 2019).

Why it is private, in lines that hold for both neighbour relations. Let h, h' be neighbouring counts, D, D' their k-bar
largest labels (lower labels first among equals), s = 1 (teacher_added) or 2 (teacher_changed), Delta the votes that a
ballot may hold; i is any label of D that is not in D', j any of D' that is not in D. So h_i >= h_j and h'_j >= h'_i.
1. Rename the i to the j, in any order. No count of D then differs by more than 1 between h and h', nor does bottom's
   h(k-bar+1), since h_i - 1 <= h'_i <= h'_j <= h_j + 1 <= h_i + 1; under teacher_added all differ in one direction. At
   most s Delta differ: |h'_j - h_i| is at most the larger move of i and j, and bottom's move is paid by one left over.
2. On renamed labels one draw of noise is a mechanism on a fixed domain: with Gumbel noise at most k rounds of an
   exponential mechanism of bounded range s/scale (Lemmas 4.2 and 4.3), with Laplace noise a release of k-bar + 1 noisy
   numbers, of which at most s Delta move.
3. Renaming shows only if an i is answered. Its count is at most h(k-bar+1) + s. There are at most
   m = min(Delta, k-bar, K - k-bar) of them: of every i and j either i lost a vote or j won one, so all i did or all j.
   Bottom is so high that one i passes it with probability at most delta_t/m. So every answer is within total variation
   delta_t of one that line 2 prices.
4. That holds query by query when histograms, k and k-bar depend on earlier answers: each query's delta_t counts once.
   (Theorem 2 is printed with twice their sum.)
5. k-bar may be chosen by one more round: the thresholds, too, move by at most 1, under teacher_added in one direction.
The paper prints Algorithm 1 with Gumbel noise for teacher_added and announces the Laplace form; the rest is shown here.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import lambertw

from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import BoundedRange, Event, Laplace
from pate.errors import BudgetExceeded, require
from pate.mechanisms.base import (
    Bools,
    Counts,
    Floats,
    Mechanism,
    Tally,
    check_common,
    check_probability,
    check_scale,
    check_whole,
    gap_sensitivity,
)
from pate.mechanisms.order import Ints, largest
from pate.noise import Noise, as_noise

Kind = Literal["gumbel", "laplace"]


@dataclass(frozen=True, kw_only=True)
class LimitedDomain(Mechanism):
    """Up to k labels in noisy order, from the max_k largest counts, as far as they pass a noisy threshold.

    Algorithm 1: noise of one scale on each of the k-bar = max_k largest counts and on bottom,
    h(k-bar+1) + s + scale log(m/delta_t); the labels above bottom are answered, at most k. Everything below the
    k-bar + 1 largest counts may stay unknown.

    Guarantee per query: delta_t-approximate DP of
        * `gumbel`: k rounds of bounded range epsilon, scale s/epsilon; Theorem 1's (epsilon', delta_t + delta')-DP with
          epsilon' = `pate.accounting.composition.bounded_range(epsilon, k, delta')`, or less. The printed algorithm is
          teacher_added, s = 1; teacher_changed has s = 2 in scale and threshold.
        * `laplace`: epsilon-DP for the whole query, whatever k: n = min(s ballot_size, max_k + 1) counts move by 1,
          scale n/epsilon, priced as n Laplace mechanisms of epsilon/n. Bottom lies at the quantile of the difference
          of two Laplace draws, (2 + t) exp(-t)/4 = delta_t/m at t scales.

    Attributes:
        num_labels: K, public; labels that nobody voted for count as 0.
        k: most labels answered per query.
        max_k: k-bar, the labels in the running; at least k and less than K.
        epsilon: the price of one label (gumbel) or of the whole query (laplace).
        delta_t: how often a query may answer a label that one ballot brought among the max_k largest.
        neighbours: what is protected.
        noise: `gumbel`, for any ballots; `laplace`, for ballots of few votes.
        ballot_size: Delta, the votes in a ballot, if that is bounded; `tally` keeps a ballot's first ones.
        private_k_bar: choose k-bar among k..max_k by the lowest noisy threshold, for one more round of bounded range
            s/scale.

    >>> m = LimitedDomain(num_labels=5, k=2, max_k=3, epsilon=0.5, delta_t=1e-6, neighbours="teacher_added")
    >>> round(m.cost().epsilon(2e-6), 3), round(m.margin(3), 2)
    (1.0, 30.02)
    >>> [ranking.tolist() for ranking in m.ranked(np.array([[10, 99, 80, 5, 9]]), np.random.default_rng(0))]
    [[1, 2]]
    """

    theorem: ClassVar[str] = "Durfee & Rogers 2019, Theorem 1, and the proof in pate.mechanisms.limited_domain"
    noise_fields: ClassVar[tuple[str, ...]] = ("epsilon", "delta_t")

    num_labels: int
    k: int
    max_k: int
    epsilon: float
    delta_t: float
    neighbours: Neighbours = "teacher_changed"
    noise: Kind = "gumbel"
    ballot_size: int | None = None
    private_k_bar: bool = False

    def __post_init__(self) -> None:
        check_common(self.num_labels, self.neighbours, at_least=2)
        check_whole("max_k", self.max_k, 1, self.num_labels - 1)
        check_whole("k", self.k, 1, self.max_k)
        check_scale("epsilon", self.epsilon)
        check_probability("delta_t", self.delta_t)
        require(self.noise in ("gumbel", "laplace"), "noise", "one of gumbel, laplace", self.noise)
        if self.ballot_size is not None:
            check_whole("ballot_size", self.ballot_size)

    @property
    def scale(self) -> float:
        """Of all noise drawn."""
        moving = gap_sensitivity(self.neighbours) if self.noise == "gumbel" else self.moving
        return moving / self.epsilon

    @property
    def moving(self) -> int:
        """How many of the max_k largest counts and bottom one neighbour can move."""
        reach = gap_sensitivity(self.neighbours)
        return min(reach * (self.ballot_size or self.num_labels), self.max_k + 1)

    def margin(self, k_bar: int) -> float:
        """How far bottom lies above the (k_bar + 1)-st largest count."""
        check_whole("k_bar", k_bar, 1, self.num_labels - 1)
        return float(self._margins(np.array([k_bar]))[0])

    def _margins(self, k_bar: Ints) -> Floats:
        newcomers = np.minimum(np.minimum(self.ballot_size or self.num_labels, k_bar), self.num_labels - k_bar)
        quantile = gumbel_difference_quantile if self.noise == "gumbel" else laplace_difference_quantile
        return gap_sensitivity(self.neighbours) + self.scale * quantile(self.delta_t / newcomers)

    def cost(self, queries: int = 1) -> PrivacyCost:
        """k rounds of bounded range epsilon, or n Laplace mechanisms of epsilon/n, and delta_t, per query."""
        return PrivacyCost.of(*self._events(), delta=self.delta_t, neighbours=self.neighbours) * queries

    @classmethod
    def at_rho(cls, rho: float, *, neighbours: Neighbours, queries: int, delta: float, **fixed: Any) -> Self:
        """`fixed` may hold delta_share, the thresholds' share of delta."""
        share = fixed.pop("delta_share", 0.5)
        require(0 < share < 1, "delta_share", "in (0, 1)", share)
        common = {"delta_t": share * delta / max(queries, 1), "neighbours": neighbours, **fixed}
        squares = sum(_squared(event) for event in cls(epsilon=1.0, **common)._events())
        return cls(epsilon=float(np.sqrt(rho / squares)), **common)

    def tally(self, votes: Bools) -> Tally:
        """(T, N, K) ballots to (N, K) counts; of each ballot the first ballot_size votes count."""
        if self.ballot_size is None:
            return super().tally(votes)
        votes = self._checked_votes(votes)
        counts = np.zeros(votes.shape[1:], dtype=np.int64)
        for ballot in votes:
            counts += ballot & (ballot.cumsum(axis=1) <= self.ballot_size)
        return Tally(counts, len(votes))

    def ranked(self, counts: Counts, rng: Noise | np.random.Generator | None = None) -> list[Ints]:
        """The labels answered to each query, best first: fewer than k of them means that bottom came next.

        The order is part of what the cost pays for. `release` answers the same as sets.
        """
        labels, lengths = self._ranking(self._checked(counts), as_noise(rng))
        return [row[:length] for row, length in zip(labels, lengths, strict=True)]

    def _events(self) -> list[Event]:
        reach = gap_sensitivity(self.neighbours)
        events: list[Event] = [BoundedRange(reach / self.scale)] * self.k
        if self.noise == "laplace":
            events = [Laplace(1 / self.scale)] * self.moving
        return events + [BoundedRange(reach / self.scale)] * self._chooses

    @property
    def _chooses(self) -> bool:
        """There is a k-bar to choose."""
        return self.private_k_bar and self.max_k > self.k

    def _answer(self, counts: Counts, noise: Noise) -> tuple[Bools, Bools, Floats | None]:
        ranking, lengths = self._ranking(counts, noise)
        labels = np.zeros(counts.shape, dtype=np.bool_)
        kept = np.arange(self.k) < lengths[:, None]
        labels[np.nonzero(kept)[0], ranking[kept]] = True
        return labels, lengths > 0, None

    def _ranking(self, counts: Counts, noise: Noise) -> tuple[Ints, Ints]:
        """(N, k) labels in noisy order, and how many of each row come before bottom."""
        require(not noise.exact, "rng", "continuous noise, of which the threshold is a quantile", noise.description)
        values, labels = top_indices(counts, self.max_k + 1)
        k_bar, bottom = self._threshold(values, noise)
        draw = noise.gumbel if self.noise == "gumbel" else noise.laplace
        drawn = draw(self.scale, values.shape)
        noisy = values[:, :-1] + drawn[:, :-1]
        noisy[(noisy <= bottom + drawn[:, -1:]) | (np.arange(self.max_k) >= k_bar)] = -np.inf
        order = np.argsort(-noisy, axis=1)[:, : self.k]
        lengths = np.minimum(np.count_nonzero(noisy > -np.inf, axis=1), self.k)
        return np.take_along_axis(labels, order, axis=1), lengths

    def _threshold(self, values: Ints, noise: Noise) -> tuple[Ints, Floats]:
        """(N, 1) k-bar and bottom's count: those of max_k, or of the lowest noisy threshold."""
        k_bar = np.arange(self.k, self.max_k + 1) if self._chooses else np.array([self.max_k])
        bottoms = values[:, k_bar] + self._margins(k_bar)
        chosen = np.zeros((len(values), 1), dtype=np.int64)
        if self._chooses:
            chosen = np.argmax(noise.gumbel(self.scale, bottoms.shape) - bottoms, axis=1, keepdims=True)
        return k_bar[chosen], np.take_along_axis(bottoms, chosen, axis=1)


class PayWhatYouGet:
    """Limited-domain queries that pay for the labels they get, until a budget of labels or of queries is used up.

    Algorithm 2. The histogram, k and max_k of each query may depend on earlier answers. A query that answers j < k
    labels uses j + 1 of k_star (bottom counts), one that answers k uses k; each uses one of ell_star. A query that
    might not fit is refused before anything is drawn.

    Guarantee, for everything ever asked: ell_star delta_t-approximate DP of k_star rounds of bounded range epsilon:
    Theorem 2 with ell_star delta_t in place of twice that (see the module). It is known in advance: `cost`.

    Attributes:
        items_left: what is left of k_star.
        queries_left: what is left of ell_star.

    >>> budget = PayWhatYouGet(k_star=20, ell_star=5, epsilon=0.1, delta_t=1e-8, neighbours="teacher_added")
    >>> round(budget.cost.epsilon(1e-6), 3)
    1.017
    >>> budget.ask(np.array([900, 20, 800, 30, 10]), k=3, max_k=4, rng=np.random.default_rng(0)).tolist()
    [0, 2]
    >>> budget.items_left, budget.queries_left
    (17, 4)
    """

    def __init__(
        self,
        *,
        k_star: int,
        ell_star: int,
        epsilon: float,
        delta_t: float,
        neighbours: Neighbours = "teacher_changed",
        ballot_size: int | None = None,
        private_k_bar: bool = False,
    ) -> None:
        check_whole("k_star", k_star)
        check_whole("ell_star", ell_star)
        self.k_star, self.ell_star = k_star, ell_star
        self.items_left, self.queries_left = k_star, ell_star
        self._settings: dict[str, Any] = {
            "epsilon": epsilon,
            "delta_t": delta_t,
            "neighbours": neighbours,
            "ballot_size": ballot_size,
            "private_k_bar": private_k_bar,
        }
        LimitedDomain(num_labels=2, k=1, max_k=1, **self._settings)  # checks them

    @property
    def cost(self) -> PrivacyCost:
        """Of all queries together, asked or not: Theorem 2."""
        epsilon, delta_t = self._settings["epsilon"], self._settings["delta_t"]
        label = PrivacyCost.of(BoundedRange(epsilon), neighbours=self._settings["neighbours"])
        threshold = PrivacyCost.of(delta=delta_t, neighbours=self._settings["neighbours"])
        return label * self.k_star + threshold * self.ell_star

    def ask(self, counts: Counts, k: int, max_k: int, rng: Noise | np.random.Generator | None = None) -> Ints:
        """Up to k labels of one (K,) histogram, best first.

        Raises:
            BudgetExceeded: if the query might use more than is left. Nothing was drawn.
        """
        counts = np.asarray(counts)
        require(counts.ndim == 1, "counts", "one histogram, an array of shape (labels,)", counts.shape)
        mechanism = LimitedDomain(num_labels=len(counts), k=k, max_k=max_k, **self._settings)
        counts, noise = mechanism._checked(counts), as_noise(rng)
        self._reserve(k + mechanism._chooses)
        labels, lengths = mechanism._ranking(counts, noise)
        answer = labels[0, : lengths[0]]
        self.items_left += k - min(len(answer) + 1, k)
        return answer

    def _reserve(self, items: int) -> None:
        """Take the most that a query can use, before it draws: a crash may waste budget, never hide it."""
        if self.queries_left < 1:
            raise BudgetExceeded(f"one more query, but all {self.ell_star} are used.")
        if self.items_left < items:
            raise BudgetExceeded(f"the query may use {items} items, {self.items_left} of {self.k_star} are left.")
        self.items_left -= items
        self.queries_left -= 1


def top_indices(counts: Counts, how_many: int) -> tuple[Ints, Ints]:
    """Each row's largest values, descending, and their labels; the lower label first among equals.

    >>> [found.tolist() for found in top_indices(np.array([[4, 9, 4]]), 2)]
    [[[9, 4]], [[1, 0]]]
    """
    width = counts.shape[1]
    most = np.iinfo(np.int64).max // width - 1
    require(not counts.size or counts.max() <= most, "counts", f"<= {most} for {width} labels", "a larger one")
    # One sortable number per count, unique in its row: partitioning numbers is faster than partitioning indices.
    keys = np.asarray(counts, dtype=np.int64) * width + np.arange(width - 1, -1, -1)
    values, reverse = np.divmod(largest(keys, how_many), width)
    return values, width - 1 - reverse


def gumbel_difference_quantile(failure: Floats) -> Floats:
    """t with P(X - Y > t) = 1/(1 + exp(t)) <= failure for independent standard Gumbel X and Y: log(1/failure).

    >>> round(float(gumbel_difference_quantile(np.array(1e-6))), 3)
    13.816
    """
    return np.asarray(-np.log(failure), dtype=np.float64)


def laplace_difference_quantile(failure: Floats) -> Floats:
    """t >= 0 with P(X - Y > t) = (2 + t) exp(-t) / 4 <= failure for independent standard Laplace X and Y.

    >>> t = float(laplace_difference_quantile(np.array(1e-6)))
    >>> float(round((2 + t) * np.exp(-t) / 4 / 1e-6, 9))
    1.0
    """
    inside = -4 * np.exp(-2.0) * np.minimum(failure, 0.5)
    return np.asarray(np.maximum(0.0, -2 - lambertw(inside, -1).real), dtype=np.float64)


def _squared(event: Event) -> float:
    """An event's zCDP where noise is large."""
    return event.pure_epsilon**2 / (8 if isinstance(event, BoundedRange) else 2)

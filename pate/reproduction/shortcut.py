"""Choosing k of very many candidates without drawing noise for each: exact, because a choice sees few of them.

Candidates with equal counts and noise from one distribution are exchangeable, and a choice of k takes at most k of such
a group: those with its k largest draws. So a group of n needs its min(n, k) largest draws only. Gumbel noise is minus
the logarithm of an exponential variable, and the i smallest of n of these are
    E(i) = X(1)/n + X(2)/(n-1) + ... + X(i)/(n-i+1),   X independent and exponential (Rényi 1953),
so -log E(1) > -log E(2) > ... have the joint distribution of the n draws sorted from above. A group's columns then
arrive sorted, which tells its members apart only by draw: how many of a group are chosen, and so the sum of the chosen
counts, keep their distribution. The head of the histogram (all ranks that a mechanism or a measure looks at one by one,
and whatever ties with them) keeps a draw of its own per candidate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pate.errors import require
from pate.noise import FloatNoise, Indices, top_positions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shortcut:
    """A descending histogram with at most `most` columns for each count below its head.

    Attributes:
        counts: (W,) the columns that are kept, descending.
        rates: (W,) how many draws compete for a column's place: 1 in the head; n, n-1, ... in a group of n.
        starts: where each group's columns begin, and W.

    >>> short = Shortcut.of(np.array([9, 7, 2, 2, 2, 2, 1]), head=2, most=3)
    >>> short.counts.tolist(), short.rates.tolist()
    ([9, 7, 2, 2, 2, 1], [1.0, 1.0, 4.0, 3.0, 2.0, 1.0])
    """

    counts: Ints
    rates: Floats
    starts: Ints

    @classmethod
    def of(cls, counts: Ints, *, head: int, most: int) -> "Shortcut":
        """Keep what a choice of at most `most` candidates can see; ranks up to `head` stay as they are."""
        counts = np.asarray(counts, dtype=np.int64)
        require(bool((counts[:-1] >= counts[1:]).all()), "counts", "sorted, the largest first", "another order")
        head = int(np.count_nonzero(counts >= counts[min(head, len(counts)) - 1]))
        sizes = np.unique(counts[head:], return_counts=True)[1][::-1]
        kept = np.minimum(sizes, most)
        starts = head + np.concatenate([[0], np.cumsum(kept)])
        place = np.arange(starts[-1] - head) - np.repeat(starts[:-1] - head, kept)
        index = head + np.repeat(np.cumsum(sizes) - sizes, kept) + place
        rates = np.concatenate([np.ones(head), np.repeat(sizes, kept) - place])
        return cls(np.concatenate([counts[:head], counts[index]]), rates, starts)

    def rows(self, trials: int) -> Ints:
        """(trials, W) the same histogram for every trial, without copies."""
        return np.broadcast_to(self.counts, (trials, len(self.counts)))

    def noise(self, source: FloatNoise) -> "GroupedNoise":
        """The source, except that noise for whole rows of columns is drawn by groups."""
        return GroupedNoise(source, self)


@dataclass(frozen=True)
class GroupedNoise:
    """A `pate.noise` source whose Gumbel draws for a shortened histogram are its groups' largest."""

    source: FloatNoise
    shortcut: Shortcut
    exact: bool = False

    @property
    def seeded(self) -> bool:
        return self.source.seeded

    @property
    def description(self) -> str:
        return f"{self.source.description}, by groups of equal counts"

    def gaussian(self, scale: float, shape: tuple[int, ...]) -> Floats:
        return self.source.gaussian(scale, self._few(shape))

    def laplace(self, scale: float, shape: tuple[int, ...]) -> Floats:
        return self.source.laplace(scale, self._few(shape))

    def gumbel(self, scale: float, shape: tuple[int, ...]) -> Floats:
        drawn = self.source.gumbel(1.0, shape)
        if not self._whole(shape):
            return scale * drawn
        waits = np.exp(-drawn) / self.shortcut.rates
        for start, end in zip(self.shortcut.starts[:-1], self.shortcut.starts[1:], strict=True):
            np.cumsum(waits[..., start:end], axis=-1, out=waits[..., start:end])
        return np.asarray(-scale * np.log(waits), dtype=np.float64)

    def gumbel_top(self, scores: Floats, k: int, scale: float) -> Indices:
        return top_positions(scores + self.gumbel(scale, scores.shape), k)

    def _few(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        require(not self._whole(shape), "noise", "Gumbel on a shortened histogram", "another kind")
        return shape

    def _whole(self, shape: tuple[int, ...]) -> bool:
        """One number for every column of a row."""
        return len(shape) == 2 and shape[1] == len(self.shortcut.counts)

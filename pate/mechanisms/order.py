"""Sorted counts and top-k sets, fast. Ties are broken by the lower label index."""

import numpy as np
from numpy.typing import NDArray

from pate.mechanisms.base import Bools, Counts

Ints = NDArray[np.int64]


def largest(counts: Counts, how_many: int) -> Counts:
    """(N, how_many) largest values of each row, descending.

    >>> largest(np.array([[1, 5, 3]]), 2).tolist()
    [[5, 3]]
    """
    width = counts.shape[1]
    if how_many < width:
        counts = np.partition(counts, width - how_many, axis=1)[:, width - how_many :]
    return np.sort(counts, axis=1)[:, ::-1]


def top_sets(counts: Counts, k: Ints, following: Counts) -> Bools:
    """(N, K) membership of each row's top-k set, given each row's (k+1)-st largest value.

    >>> top_sets(np.array([[4, 9, 4]]), np.array([2]), np.array([4])).tolist()
    [[True, True, False]]
    """
    inside = counts > following[:, None]
    wanted = k - inside.sum(axis=1)
    tied = np.flatnonzero(wanted)
    if len(tied):
        equal = counts[tied] == following[tied, None]
        inside[tied] |= equal & (np.cumsum(equal, axis=1) <= wanted[tied, None])
    return inside


def members(positions: Ints, num_labels: int) -> Bools:
    """(N, K) membership from (N, k) positions.

    >>> members(np.array([[2, 0]]), 3).tolist()
    [[True, False, True]]
    """
    inside = np.zeros((len(positions), num_labels), dtype=np.bool_)
    np.put_along_axis(inside, positions, True, axis=1)
    return inside

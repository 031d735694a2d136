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
    members = counts > following[:, None]
    tied = np.flatnonzero(members.sum(axis=1) < k)
    if len(tied):
        order = np.argsort(-np.asarray(counts[tied]).astype(np.float64), axis=1, kind="stable")
        chosen = np.empty(order.shape, dtype=np.bool_)
        np.put_along_axis(chosen, order, np.arange(counts.shape[1]) < k[tied, None], axis=1)
        members[tied] = chosen
    return members


def top_labels(scores: Counts, k: int) -> Bools:
    """(N, K) membership of each row's k largest scores.

    >>> top_labels(np.array([[0.5, 2.0, 1.0]]), 2).tolist()
    [[False, True, True]]
    """
    width = scores.shape[1]
    members = np.zeros(scores.shape, dtype=np.bool_)
    if k >= width:
        return ~members
    best = np.argpartition(scores, width - k, axis=1)[:, width - k :]
    np.put_along_axis(members, best, True, axis=1)
    return members

"""Check-ins as a histogram: how many distinct users visited each venue, the most visited first.

Read in this order, from the data folder or its `checkins/`: the published files, then counts made from them.
  Foursquare: dataset_TSMC2014_NYC.txt and dataset_TSMC2014_TKY.txt (Yang et al. 2015): user, venue and 6 fields more.
  BrightKite, Gowalla: loc-NAME_totalCheckins.txt of SNAP (Cho et al. 2011), 5 fields, user first, venue last.
All are separated by tabs, one check-in a line, and may be compressed as they are published (.gz).
"""

import gzip
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate.errors import DataError, require

Ints = NDArray[np.int64]

ORIGINS = {
    "BrightKite": "https://snap.stanford.edu/data/loc-brightkite.html",
    "Foursquare": "https://sites.google.com/site/yangdingqi/home/foursquare-dataset",
    "Gowalla": "https://snap.stanford.edu/data/loc-gowalla.html",
}
# The files of each data set, each under the names it goes by; where user and venue stand in a line of how many fields.
FILES = {
    "BrightKite": (("loc-brightkite_totalCheckins.txt", "Brightkite_totalCheckins.txt"),),
    "Foursquare": (("dataset_TSMC2014_NYC.txt",), ("dataset_TSMC2014_TKY.txt",)),
    "Gowalla": (("loc-gowalla_totalCheckins.txt", "Gowalla_totalCheckins.txt"),),
}
FIELDS = {"BrightKite": (0, 4, 5), "Foursquare": (0, 1, 8), "Gowalla": (0, 4, 5)}
COUNTS = {"Foursquare": ("foursquare_counts.csv",), "Gowalla": ("gowalla_10core_counts.csv",)}


@dataclass(frozen=True)
class Visits:
    """Distinct users per venue.

    Attributes:
        name: BrightKite, Foursquare or Gowalla.
        counts: (venues,) whole numbers, the largest first.
        users: How many users there are; None where only counts are known.
        origin: `published files`, or the name of the file of counts.
    """

    name: str
    counts: Ints
    users: int | None
    origin: str


def load_visits(root: Path, name: str) -> Visits:
    """One data set's histogram, from the published files if they are there, else from a file of counts.

    Raises:
        DataError: if there is neither, or a file or a line cannot be read; says which.
    """
    require(name in ORIGINS, "data set", f"one of {', '.join(ORIGINS)}", name)
    files = _published(root, name)
    if files is None:
        return _from_counts(root, name)
    counts, users = distinct_users(_pairs(files, *FIELDS[name]))
    return Visits(name, counts, users, "published files")


def has_visits(root: Path, name: str) -> bool:
    """True if there is something that `load_visits` would read."""
    return _published(root, name) is not None or _find(root, COUNTS.get(name, ())) is not None


def distinct_users(pairs: Iterable[tuple[object, object]]) -> tuple[Ints, int]:
    """Distinct users of each venue, the largest first, and the number of users, from (user, venue) pairs.

    >>> counts, users = distinct_users([("a", "x"), ("b", "x"), ("a", "x"), ("a", "y")])
    >>> counts.tolist(), users
    ([2, 1], 2)
    """
    users: dict[object, int] = {}
    venues: dict[object, int] = {}
    who, where = array("q"), array("q")
    for user, venue in pairs:
        who.append(users.setdefault(user, len(users)))
        where.append(venues.setdefault(venue, len(venues)))
    visits = np.unique(np.array(who, dtype=np.int64) * max(len(venues), 1) + np.array(where, dtype=np.int64))
    counts = np.bincount(visits % max(len(venues), 1), minlength=len(venues))
    return np.sort(counts)[::-1].astype(np.int64), len(users)


def _pairs(paths: Iterable[Path], user: int, venue: int, fields: int) -> Iterator[tuple[object, object]]:
    """(user, venue) of every line; users of different files are different, though their numbers may be the same."""
    for place, path in enumerate(paths):
        for number, line in enumerate(_lines(path), start=1):
            parts = line.rstrip(b"\r\n").split(b"\t")
            if len(parts) != fields or not parts[user]:
                raise DataError(f"{path}: line {number} must have {fields} fields separated by tabs")
            if parts[venue]:  # some of BrightKite's lines name no venue
                yield (place, parts[user]), parts[venue]


def _published(root: Path, name: str) -> list[Path] | None:
    """All files of a data set, or None unless all are there."""
    found = [path for path in (_find(root, names) for names in FILES[name]) if path]
    return found if len(found) == len(FILES[name]) else None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is torn or not compressed by gzip, fetch it again: {error}") from None


def _find(root: Path, names: Iterable[str]) -> Path | None:
    """The first of these files, as it is or compressed, in the folder or where archives put it."""
    folders = (root, root / "checkins", root / "dataset_tsmc2014", root / "checkins" / "dataset_tsmc2014")
    every = (folder / (name + end) for folder in folders for name in names for end in ("", ".gz"))
    return next((path for path in every if path.is_file()), None)


def _from_counts(root: Path, name: str) -> Visits:
    path = _find(root, COUNTS.get(name, ()))
    if path is None:
        wanted = " and ".join(names[0] for names in FILES[name])
        raise DataError(f"{wanted} not found in {root}; the public original is at {ORIGINS[name]}")
    lines = path.read_text().split()
    try:
        counts = np.array(lines[1:], dtype=np.int64)
    except ValueError:
        raise DataError(f"{path} must have one whole number a line below its heading") from None
    if not len(counts) or counts.min() < 0:
        raise DataError(f"{path} must have one count >= 0 a line below its heading")
    return Visits(name, np.sort(counts)[::-1], None, path.name)

"""Which teacher gets which private record: decided by the record's (or person's) own name and a public salt.

No record's place depends on another record, so adding, removing or changing one changes one teacher: this is what
the neighbour relations of the privacy statement assume. The price is that parts differ in size: m records on
average come with a standard deviation of about sqrt(m).
"""

import hashlib
from typing import Literal

import numpy as np
from scipy.special import pdtr

from pate.data.records import Records
from pate.errors import DataError, SettingError, require

Array = np.ndarray


def assign(keys: Array, teachers: int, salt: str) -> Array:
    """Map each key to a teacher 0..teachers-1, by the key and the salt only.

    >>> assign(np.array(["ann", "bob", "ann"]), 100, salt="a").tolist()
    [22, 49, 22]
    """
    require(teachers >= 1, "teachers.count", ">= 1", teachers)
    return remainder(digests(keys, salt), teachers)


def partition(
    records: Records, teachers: int, unit: Literal["record", "person"], salt: str, smallest: int = 1
) -> list[Array]:
    """Give every record to one teacher.

    Args:
        records: the private records.
        teachers: how many parts.
        unit: whose name decides; with "person", all records of a person go to one teacher.
        salt: public; another salt, another partition.
        smallest: fewest records a teacher can learn from.

    Returns:
        Each teacher's positions in `records`, ascending.

    Raises:
        SettingError: a part is too small; says the largest smaller number of teachers that fits.
        DataError: two records have the same id (unit "record").
    """
    require(teachers >= 1, "teachers.count", ">= 1", teachers)
    require(unit in ("record", "person"), "teachers.unit", "record or person", unit)
    require(smallest >= 1, "smallest", ">= 1", smallest)
    if unit == "record":
        refuse_duplicates(records.ids)
    hashed = digests(records.ids if unit == "record" else records.persons, salt)
    owner = remainder(hashed, teachers)
    counts = np.bincount(owner, minlength=teachers)
    if counts.min() < smallest:
        most, need = fitting(hashed, teachers, smallest), f"{smallest} record{'s' * (smallest > 1)}"
        rule = f"<= {most} so that every teacher gets at least {need} (smallest part now {counts.min()})"
        raise SettingError("teachers.count", rule, teachers)
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])


def sizes(parts: list[Array]) -> dict[str, float]:
    """How many records the teachers have, for reports.

    >>> sizes([np.arange(3), np.arange(5), np.arange(4)])
    {'min': 3, 'median': 4.0, 'max': 5, 'mean': 4.0}
    """
    lengths = [len(part) for part in parts]
    median, mean = float(np.median(lengths)), float(np.mean(lengths))
    return {"min": min(lengths), "median": median, "max": max(lengths), "mean": mean}


def digests(keys: Array, salt: str) -> Array:
    """64 uniform bits of each key; the salt's length keeps salt and key apart."""
    salted = hashlib.blake2b(f"{len(salt)}:{salt}".encode(), digest_size=8)
    found = bytearray()
    for key in keys:
        one = salted.copy()
        one.update(str(key).encode())
        found += one.digest()
    return np.frombuffer(found, "<u8")


def remainder(hashed: Array, teachers: int) -> Array:
    """64 bits modulo at most millions: no teacher is favoured by more than one part in 10^12."""
    return (hashed % np.uint64(teachers)).astype(np.int64)


def refuse_duplicates(ids: Array) -> None:
    """A record that came twice would be two records to the partition but one to its owner."""
    names, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        first = counts.argmax()
        raise DataError(f"record ids must be unique, got {str(names[first])!r} {counts[first]} times")


def fitting(hashed: Array, teachers: int, smallest: int) -> int:
    """The largest number below `teachers` that leaves no part too small; computed, not estimated.

    Skipped unseen: numbers at which 40 parts or more are expected (Poisson) to be too small, for at those all parts
    are large enough with chance e^-40. Persons with several records make parts more uneven, not less.
    """
    require(len(hashed) >= smallest, "private records", f">= {smallest}", len(hashed))
    numbers = np.arange(1, min(teachers, len(hashed) // smallest + 1))
    likely = numbers[numbers * pdtr(smallest - 1, len(hashed) / numbers) < 40]
    fits = (n for n in likely[::-1] if np.bincount(remainder(hashed, n), minlength=n).min() >= smallest)
    return int(next(fits, 1))

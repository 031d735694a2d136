"""What a data set is to the rest of the house: three sets of records and the names of their labels."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pate.errors import DataError

Array = np.ndarray


@dataclass(frozen=True)
class Records:
    """N records. `inputs` is (N, H, W, 3) uint8 pictures or (N, D) float32 features, maybe memory-mapped.

    Attributes:
        labels: (N, K) bool.
        ids: (N,) strings, each record's own name; decides its teacher when the unit is a record.
        persons: (N,) strings, whose record it is; decides its teacher when the unit is a person.
    """

    inputs: Array
    labels: Array
    ids: Array
    persons: Array

    def __post_init__(self) -> None:
        sizes = {name: len(getattr(self, name)) for name in ("inputs", "labels", "ids", "persons")}
        if len(set(sizes.values())) != 1:
            raise DataError(f"inputs, labels, ids and persons must have equal lengths, got {sizes}")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Array) -> "Records":
        """The records at the given positions (or under a mask), in that order."""
        return Records(*(getattr(self, name)[index] for name in ("inputs", "labels", "ids", "persons")))

    def with_labels(self, labels: Array) -> "Records":
        """The same records under other labels."""
        return replace(self, labels=labels)


@dataclass(frozen=True)
class Split:
    """A data set, divided: private trains the teachers, public asks the queries, test judges the student."""

    private: Records
    public: Records
    test: Records
    label_names: tuple[str, ...]

    @property
    def num_labels(self) -> int:
        return len(self.label_names)


class Source(Protocol):
    """Settings that can load a data set; one class per format, named by `conf/data/*.yaml`."""

    def load(self) -> Split:
        """Read (or draw) everything; raises `DataError` naming the file that is wrong."""
        ...

    def describe(self) -> str:
        """One line for statements and reports, e.g. `cartoon faces, seed 0`."""
        ...

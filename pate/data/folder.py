"""Your own data: images and one CSV that names them, their 0/1 labels and, if known, whose they are."""

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pate.data.cache import Wanted, check_image_settings, load_images
from pate.data.records import Records, Split
from pate.errors import DataError, require

Array = np.ndarray
PARTS = ("private", "public", "test")
TRUTH = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class Folder:
    """A folder of images and a CSV with a header line: a file column, label columns, maybe a person and a split.

    Without a split column the records are divided at random: whole persons (or records, without a person column) are
    set aside until they hold `public` + `test` records; `public` of these ask the queries, the others are the test.
    A picture's place among others depends on its own name and the seed only. An image that is not square is cut to
    its centre square, then resized to `size`. An image that the CSV names and that is absent is always an error.

    Attributes:
        root: Folder that the file column's names start from.
        csv: The table, in root unless it is an absolute path.
        size: Side of the pictures in pixels.
        file_column: Column with each image's file name, every one once.
        person_column: Column that says whose record it is; None if every record is its own person.
        split_column: Column with `private`, `public` or `test`; `public`, `test` and `seed` are not used then.
        label_columns: Columns with labels: 0, 1, true or false; None for all that are left.
        public: Records that ask the queries.
        test: Records that judge the student: a number of them, or a share of all if below 1.
        seed: Decides the random division.
        on_bad_image: `error`, or `skip` to leave out and list images that do not decode.
        cache: Folder for decoded images; None for `$XDG_CACHE_HOME/pate` or `~/.cache/pate`.
        workers: Processes that decode; 0 for one per core.
    """

    root: str | None = None
    csv: str = "labels.csv"
    size: int = 64
    file_column: str = "file"
    person_column: str | None = None
    split_column: str | None = None
    label_columns: tuple[str, ...] | None = None
    public: int = 600
    test: float = 0.2
    seed: int = 0
    on_bad_image: Literal["error", "skip"] = "error"
    cache: str | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        check_image_settings(self.size, self.on_bad_image, self.workers)
        check_division(self.public, self.test)
        if self.label_columns is not None:
            object.__setattr__(self, "label_columns", tuple(self.label_columns))
            require(len(self.label_columns) > 0, "label_columns", "null or some columns", self.label_columns)

    def describe(self) -> str:
        """One line for statements and reports."""
        division = f"split by column {self.split_column}" if self.split_column else f"split with seed {self.seed}"
        return f"images of {self.csv} at {self.size} px, {division}"

    def load(self) -> Split:
        """Read the table, divide it, decode the images (once).

        Raises:
            DataError: The table or an image is missing or wrong; names file, line and column.
            SettingError: More records are asked for than there are.
        """
        root = data_root(self.root, "the folder of your images and their CSV")
        table = Table.read(root / self.csv)
        names, persons = self._owners(table)
        label_names = self._label_names(table)
        labels = np.stack([table.binary(name) for name in label_names], axis=1)
        parts = self._parts(table, names, persons)
        order = np.concatenate(parts)  # part after part, so that each is one stretch of the mapped array
        wanted = Wanted(root, names[order].tolist(), self.size, lambda index: table.line(int(order[index])))
        pictures = load_images(wanted, self.on_bad_image, self.cache, self.workers)
        rows = order[pictures.kept]
        records = Records(pictures.pixels, labels[rows], names[rows], persons[rows])
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        return divided(records, [int(kept.sum()) for kept in np.split(pictures.kept, cuts)], label_names)

    def _owners(self, table: "Table") -> tuple[Array, Array]:
        """File names, each once, and whose records they are."""
        names = table.column(self.file_column, unique=True)
        return names, names if self.person_column is None else table.column(self.person_column)

    def _label_names(self, table: "Table") -> tuple[str, ...]:
        """The label columns: those named, or all that are nothing else."""
        taken = {self.file_column, self.person_column, self.split_column}
        names = tuple(self.label_columns or (name for name in table.header if name not in taken))
        if not names:
            raise DataError(f"{table.path} has no label column; its columns are: {', '.join(table.header)}")
        return names

    def _parts(self, table: "Table", names: Array, persons: Array) -> list[Array]:
        """Positions of the private, public and test records."""
        if self.split_column is None:
            return divide(names, persons, self.public, self.test, self.seed)
        values = np.char.lower(table.column(self.split_column))
        table.refuse(~np.isin(values, PARTS), self.split_column, "private, public or test")
        parts = [np.flatnonzero(values == part) for part in PARTS]
        for name, part in zip(PARTS, parts, strict=True):
            if not len(part):
                raise DataError(f"{table.path}: no row has {name} in column {self.split_column!r}")
        return parts


@dataclass(frozen=True)
class Table:
    """A CSV's cells, and the line each row ends on."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Every row that is not blank; all must be as long as the header."""
        if not path.is_file():
            raise DataError(f"{path} is missing; give data.csv=NAME, the table of your images")
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                numbered = [(reader.line_num, row) for row in reader if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not a CSV in UTF-8: {error}") from error
        if len(numbered) < 2:
            raise DataError(f"{path} must have a header line and a line per image, got {len(numbered)} lines")
        header = [name.strip() for name in numbered[0][1]]
        table = cls(path, header, [row for _, row in numbered[1:]], [line for line, _ in numbered[1:]])
        table._check()
        return table

    def _check(self) -> None:
        twice = next((name for name in self.header if self.header.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{self.path} line 1 names column {twice!r} twice")
        for index, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise DataError(f"{self.line(index)} has {len(row)} cells, the header has {len(self.header)}")

    def line(self, index: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.path} line {self.lines[index]}"

    def cells(self, name: str) -> list[str]:
        """A column as it stands in the file."""
        if name not in self.header:
            raise DataError(f"{self.path} has no column {name!r}; its columns are: {', '.join(self.header)}")
        position = self.header.index(name)
        return [row[position].strip() for row in self.rows]

    def column(self, name: str, unique: bool = False) -> Array:
        """A column of names: none may be empty, nor come twice if unique."""
        values = np.array(self.cells(name))
        self.refuse(values == "", name, "a name")
        seen: dict[str, int] = {}
        for index, value in enumerate(values.tolist() if unique else ()):
            first = seen.setdefault(value, index)
            if first != index:
                raise DataError(f"{self.line(index)}: {name} {value!r} stands on line {self.lines[first]} already")
        return values

    def binary(self, name: str) -> Array:
        """A column of labels as bool."""
        truth = [TRUTH.get(cell.lower()) for cell in self.cells(name)]
        self.refuse(np.array([value is None for value in truth]), name, "0, 1, true or false")
        return np.array(truth, bool)

    def refuse(self, wrong: Array, name: str, rule: str) -> None:
        """Raise for the first row marked wrong."""
        if wrong.any():
            index = int(np.argmax(wrong))
            raise DataError(f"{self.line(index)}: {name} must be {rule}, got {self.cells(name)[index]!r}")


def data_root(root: str | None, what: str) -> Path:
    """The folder that `data.root` names."""
    if root is None:
        raise DataError(f"give data.root=PATH, {what}")
    path = Path(root).expanduser()
    if not path.is_dir():
        raise DataError(f"data.root={root} is not a folder; give {what}")
    return path


def check_division(public: int, test: float) -> None:
    """Refuse sizes that no division can have."""
    require(isinstance(public, int) and public >= 1, "public", "an integer >= 1", public)
    ok = 0 < test < 1 or (test >= 1 and test % 1 == 0)
    require(ok, "test", "a share between 0 and 1 or a number of records", test)


def divide(ids: Array, persons: Array, public: int, test: float, seed: int) -> list[Array]:
    """Positions of private, public and test records; nobody in private is also in one of the others.

    Persons are set aside in their shuffled order until they hold `public` + `test` records.
    """
    aside = public + (round(test * len(ids)) if test < 1 else int(test))
    require(aside < len(ids), "public + test", f"< records ({len(ids)})", aside)
    people, owner = np.unique(persons, return_inverse=True)
    turn = np.empty(len(people), int)
    turn[shuffled(people, seed)] = np.arange(len(people))
    last = np.sort(turn[owner])[aside - 1]
    held = np.flatnonzero(turn[owner] <= last)
    if len(held) == len(ids):
        raise DataError(f"no private record is left: the persons set aside for {aside} public and test records own all")
    held = held[shuffled(ids[held], seed)]
    return [np.flatnonzero(turn[owner] > last), held[:public], np.sort(held[public:])]


def shuffled(names: Array, seed: int) -> Array:
    """Positions in a random order: that of a hash of the seed and each name.

    A record that comes or goes leaves the order of all others as it was; a permutation of row numbers would not.
    """
    keys = [hashlib.sha256(f"{seed} {name}".encode()).digest() for name in names.tolist()]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), int)


def divided(records: Records, sizes: Sequence[int], label_names: tuple[str, ...]) -> Split:
    """Cut records that stand part after part into views of themselves."""
    ends = np.cumsum(sizes).tolist()
    for part, size in zip(PARTS, sizes, strict=True):
        if not size:
            raise DataError(f"no {part} image is left: none of them decodes")
    private, public, test = (span(records, end - size, end) for end, size in zip(ends, sizes, strict=True))
    return Split(private, public, test, label_names)


def span(records: Records, start: int, stop: int) -> Records:
    """Records from start to stop, still memory-mapped."""
    parts = (records.inputs, records.labels, records.ids, records.persons)
    return Records(*(part[start:stop] for part in parts))

"""CelebA in its official layout: aligned faces, forty attributes, who is who, and the official partition."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from pate.data.cache import Wanted, check_image_settings, load_images
from pate.data.folder import data_root, shuffled, span
from pate.data.records import Records, Split
from pate.errors import DataError, require

Array = np.ndarray
IMAGES, ATTRIBUTES = "img_align_celeba", "list_attr_celeba.txt"
PARTITION, IDENTITY = "list_eval_partition.txt", "identity_CelebA.txt"
TRAIN, TEST = 0, 2
ORIGIN = (
    f"the folder with {IMAGES}/, {ATTRIBUTES}, {PARTITION} and {IDENTITY}; "
    "CelebA is at https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, for non-commercial research"
)


@dataclass(frozen=True)
class CelebA:
    """The paper's protocol: train images are private, some random test images ask the queries, the others test.

    The validation images are not used. Images that are not square (the official ones are 178 x 218) are cut to
    their centre square (178 x 178), then resized. An image that is listed and absent is always an error.

    Attributes:
        root: Folder with the images and the three lists, or a subset of them in the same layout.
        size: Side of the pictures in pixels.
        public: Test images that ask the queries.
        seed: Decides which; a smaller number is the beginning of a larger one.
        on_bad_image: `error`, or `skip` to leave out and list images that do not decode.
        cache: Folder for decoded images; None for `$XDG_CACHE_HOME/pate` or `~/.cache/pate`.
        workers: Processes that decode; 0 for one per core.
    """

    root: str | None = None
    size: int = 64
    public: int = 600
    seed: int = 0
    on_bad_image: Literal["error", "skip"] = "error"
    cache: str | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        check_image_settings(self.size, self.on_bad_image, self.workers)
        require(isinstance(self.public, int) and self.public >= 1, "public", "an integer >= 1", self.public)

    def describe(self) -> str:
        """One line for statements and reports."""
        return f"CelebA at {self.size} px, {self.public} random test images public (seed {self.seed})"

    def load(self) -> Split:
        """Read the lists, then decode the images (once).

        Raises:
            DataError: A file is missing, torn or contradicts another; names file and line.
            SettingError: More public images are asked for than there are test images.
        """
        root = data_root(self.root, ORIGIN)
        lists = read_lists(root)
        private, held = (np.flatnonzero(lists.partition == part) for part in (TRAIN, TEST))
        if not len(private):
            raise DataError(f"{root / PARTITION} has no image of the train partition ({TRAIN})")
        self._check_public(len(held))
        order = np.concatenate((private, held))  # private in one piece, so that it stays memory-mapped
        names = lists.names[order].tolist()
        wanted = Wanted(root / IMAGES, names, self.size, lambda index: f"{root / ATTRIBUTES} line {order[index] + 3}")
        pictures = load_images(wanted, self.on_bad_image, self.cache, self.workers)
        rows = order[pictures.kept]
        persons = lists.identity[rows].astype(str)
        records = Records(pictures.pixels, lists.labels[rows], lists.names[rows], persons)
        return self._divide(records, int(pictures.kept[: len(private)].sum()), lists.label_names)

    def _divide(self, records: Records, private: int, label_names: tuple[str, ...]) -> Split:
        """Private records stand first; the public ones are drawn from those behind them."""
        held = span(records, private, len(records))
        if not private:
            raise DataError("no private image is left: none of them decodes")
        self._check_public(len(held))
        drawn = shuffled(held.ids, self.seed)
        test = np.sort(drawn[self.public :])
        return Split(span(records, 0, private), held.take(drawn[: self.public]), held.take(test), label_names)

    def _check_public(self, held: int) -> None:
        require(self.public < held, "public", f"< images of the test partition ({held})", self.public)


@dataclass(frozen=True)
class Lists:
    """The three lists, row by row."""

    names: Array
    labels: Array
    partition: Array
    identity: Array
    label_names: tuple[str, ...]


def read_lists(root: Path) -> Lists:
    """Parse and compare the lists; they must name the same images in the same order, as the official ones do."""
    path = root / ATTRIBUTES
    lines = _lines(path)
    label_names = _header(path, lines)
    names, labels = _rows(path, lines, 3, len(label_names))
    _check(path, 3, np.abs(labels) == 1, labels, "-1 or 1")
    if len(set(names)) != len(names):
        raise DataError(f"{path} names an image twice: {_first_repeated(names)}")
    partition = _column(root / PARTITION, path, names)
    _check(root / PARTITION, 1, (partition >= 0) & (partition <= 2), partition, "0 (train), 1 (valid) or 2 (test)")
    identity = _column(root / IDENTITY, path, names)
    _check(root / IDENTITY, 1, identity >= 0, identity, "a number >= 0")
    return Lists(np.array(names), labels == 1, partition[:, 0], identity[:, 0], label_names)


def _lines(path: Path) -> list[str]:
    """The lines of a file, without blank ones at its end."""
    if not path.is_file():
        raise DataError(f"{path} is missing; data.root must be {ORIGIN}")
    return path.read_bytes().decode("utf-8", "replace").rstrip().splitlines()


def _header(path: Path, lines: list[str]) -> tuple[str, ...]:
    """The attributes' names, from line 2; line 1 says how many rows follow."""
    if len(lines) < 3:
        raise DataError(f"{path} must have a count, the attributes' names and rows, got {len(lines)} lines")
    if lines[0].strip() != str(len(lines) - 2):
        raise DataError(f"{path} line 1 says {lines[0].strip()!r} images, {len(lines) - 2} rows follow")
    names = lines[1].split()
    if len(set(names)) != len(names):
        raise DataError(f"{path} line 2 names an attribute twice: {_first_repeated(names)}")
    return tuple(names)


def _column(path: Path, reference: Path, names: list[str]) -> Array:
    """The one number per image of a list that has no header."""
    found, values = _rows(path, _lines(path), 1, 1)
    for row, (name, expected) in enumerate(zip(found, names, strict=False)):
        if name != expected:
            raise DataError(f"{path} line {row + 1} is about {name}, {reference} has {expected} there")
    if len(found) != len(names):
        raise DataError(f"{path} has {len(found)} rows, {reference} has {len(names)}")
    return values


def _rows(path: Path, lines: list[str], first: int, columns: int) -> tuple[list[str], Array]:
    """Image names and (rows, columns) whole numbers from line `first` on; numpy parses all numbers at once."""
    rows = lines[first - 1 :]
    for row, line in enumerate(rows):
        if len(line.split()) != columns + 1:
            raise DataError(f"{path} line {first + row} must have {columns + 1} columns, got {len(line.split())}")
    pairs = [line.split(None, 1) for line in rows]
    try:
        values = np.fromstring(" ".join(numbers for _, numbers in pairs), np.int64, sep=" ")
    except ValueError:
        values = np.empty(0, np.int64)
    if values.size != len(rows) * columns:
        _find_text(path, pairs, first)
    return [name for name, _ in pairs], values.reshape(len(rows), columns)


def _find_text(path: Path, pairs: list[list[str]], first: int) -> None:
    """Name the line that has something else than whole numbers."""
    for row, (_, numbers) in enumerate(pairs):
        for word in numbers.split():
            if not word.removeprefix("-").isdecimal():
                raise DataError(f"{path} line {first + row} must have whole numbers, got {word!r}")
    raise DataError(f"{path} must have whole numbers after each name")


def _check(path: Path, first: int, good: Array, values: Array, rule: str) -> None:
    """Name the first line with a value that breaks the rule."""
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise DataError(f"{path} line {first + row} must have {rule}, got {values[row, column]}")


def _first_repeated(names: list[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]

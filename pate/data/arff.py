"""Multi-label tables as Mulan keeps them: an ARFF of features and labels, and an XML that says which are labels."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pate.data.folder import check_division, data_root, divide
from pate.data.records import Records, Split
from pate.errors import DataError, require

Array = np.ndarray
ORIGIN = (
    "the folder that holds NAME/NAME.arff and NAME/NAME.xml for data.name=NAME; "
    "Mulan's sets are at https://mulan.sourceforge.net/datasets-mlc.html"
)
NUMERIC = frozenset({"numeric", "real", "integer"})
ATTRIBUTE = re.compile(r"""@attribute\s+('(?:\\.|[^'])*'|"(?:\\.|[^"])*"|\S+)\s+(\{.*\}|\S+)\s*$""", re.IGNORECASE)
SPARSE = re.compile(r"\{\s*(\d+\s+[^\s,{}]+\s*(,\s*\d+\s+[^\s,{}]+\s*)*)?\}")


@dataclass(frozen=True)
class Arff:
    """A table `<root>/<name>/<name>.arff` with its `.xml`: rows are features, and 0/1 labels that the XML names.

    Read are `<name>.arff`, else `<name>-sparse.arff`, else the two files with `-train` and `-test` after the name, one
    after the other; capitals do not matter. Records are divided at random; a record's id is its row's number. Numeric
    features are standardised with the mean and deviation of the public records alone, so that no private record
    touches another one's input; 0/1 features stay as they are.

    Attributes:
        root: Folder of the sets.
        name: Which set.
        public: Records that ask the queries.
        test_fraction: Share of all records that judges the student.
        seed: Decides the division.
    """

    root: str | None = None
    name: str = "corel5k"
    public: int = 600
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.name) and Path(self.name).name == self.name, "name", "a plain folder name", self.name)
        require(0 < self.test_fraction < 1, "test_fraction", "between 0 and 1", self.test_fraction)
        check_division(self.public, self.test_fraction)

    def describe(self) -> str:
        """One line for statements and reports."""
        return f"table {self.name}, split with seed {self.seed}, numeric features standardised by the public part"

    def load(self) -> Split:
        """Read the whole table and divide it.

        Raises:
            DataError: A file is missing, torn or contradicts the other; names file and line.
            SettingError: More records are asked for than there are.
        """
        folder = data_root(self.root, ORIGIN) / self.name
        tables = [read_arff(path) for path in _tables(folder, self.name)]
        label_names = _label_names(_file(folder, f"{self.name}.xml"))
        first = tables[0]
        for table in tables[1:]:
            if table.names != first.names:
                raise DataError(f"{table.path} and {first.path} have different attributes")
        values = np.concatenate([table.values for table in tables])
        labels = np.concatenate([table.labels(label_names) for table in tables])
        labelled = set(label_names)
        features = [place for place, name in enumerate(first.names) if name not in labelled]
        ids = np.arange(len(values)).astype(str)
        parts = divide(ids, ids, self.public, self.test_fraction, self.seed)
        numeric = ~np.array([first.binary[place] for place in features])
        inputs = standardised(values[:, features], numeric, parts[1])
        private, public, test = (Records(inputs[part], labels[part], ids[part], ids[part]) for part in parts)
        return Split(private, public, test, label_names)


def standardised(values: Array, numeric: Array, public: Array) -> Array:
    """Centre and scale the numeric columns with what the public rows say; one that is constant there is centred."""
    known = values[public]
    centre = np.where(numeric, known.mean(0), 0)
    spread = np.where(numeric, known.std(0), 1)
    return ((values - centre) / np.where(spread > 0, spread, 1)).astype(np.float32)


@dataclass(frozen=True)
class ArffTable:
    """One file: attributes' names, which of them are {0,1}, (rows, attributes) values and the rows' lines."""

    path: Path
    names: list[str]
    binary: list[bool]
    values: Array
    lines: list[int]

    def labels(self, names: tuple[str, ...]) -> Array:
        """(rows, K) bool; every name must be an attribute whose values are 0 and 1."""
        places = {name: place for place, name in enumerate(self.names)}
        absent = [name for name in names if name not in places]
        if absent:
            raise DataError(f"{self.path} has no attribute {absent[0]!r}, which its XML names as a label")
        chosen = [places[name] for name in names]
        columns = self.values[:, chosen]
        self.refuse((columns != 0) & (columns != 1), "0 or 1", chosen)
        return columns.astype(bool)

    def refuse(self, wrong: Array, rule: str, places: list[int]) -> None:
        """Raise for the first row with a wrong value; the columns of wrong are the attributes at places."""
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            place = places[column]
            found = f"attribute {self.names[place]} must be {rule}, got {self.values[row, place]:g}"
            raise DataError(f"{self.path} line {self.lines[row]}: {found}")


def read_arff(path: Path) -> ArffTable:
    """Parse a dense or sparse file of numeric and {0,1} attributes.

    Raises:
        DataError: Something is not as it should be; names file and line.
    """
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    data = next((place for place, line in enumerate(lines) if line.strip().lower() == "@data"), None)
    if data is None:
        raise DataError(f"{path} has no line @data: it is torn or no ARFF")
    attributes = [_attribute(path, number, line) for number, line in enumerate(lines[:data], 1) if _says(line)]
    rows = [(number, line.strip()) for number, line in enumerate(lines[data + 1 :], data + 2)]
    rows = [(number, line) for number, line in rows if line and line[0] != "%"]
    if not attributes or not rows:
        raise DataError(f"{path} has {len(attributes)} attributes and {len(rows)} rows: it is torn")
    parse = _sparse if rows[0][1][0] == "{" else _dense
    omitted = [0.0 if first is None else first for _, first in attributes]
    values = parse(path, rows, np.array(omitted))
    binary = [first is not None for _, first in attributes]
    table = ArffTable(path, [name for name, _ in attributes], binary, values, [number for number, _ in rows])
    every = list(range(len(attributes)))
    table.refuse(~np.isfinite(values), "finite", every)
    table.refuse((values != 0) & (values != 1) & np.array(binary), "0 or 1", every)
    return table


def _says(line: str) -> bool:
    """Whether a line of the header is about an attribute."""
    return line.strip().lower().startswith("@attribute")


def _attribute(path: Path, number: int, line: str) -> tuple[str, float | None]:
    """An attribute's name and, if it is {0,1} or {1,0}, its first value, which is what a sparse row leaves out."""
    match = ATTRIBUTE.match(line.strip())
    if match is None:
        raise DataError(f"{path} line {number} is not an attribute with name and type: {line.strip()!r}")
    name, kind = match.groups()
    plain = re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name
    if kind.lower() in NUMERIC:
        return plain, None
    choices = [choice.strip(" '\"") for choice in kind.strip("{}").split(",")]
    if sorted(choices) != ["0", "1"]:
        raise DataError(f"{path} line {number}: attribute {plain} must be numeric or {{0,1}}, got {kind}")
    return plain, float(choices[0])


def _dense(path: Path, rows: list[tuple[int, str]], omitted: Array) -> Array:
    """Rows with a value for every attribute."""
    for number, row in rows:
        if row.count(",") + 1 != len(omitted):
            raise DataError(f"{path} line {number} must have {len(omitted)} values, got {row.count(',') + 1}")
    return _numbers(path, rows, ",", len(rows) * len(omitted)).reshape(len(rows), len(omitted))


def _sparse(path: Path, rows: list[tuple[int, str]], omitted: Array) -> Array:
    """Rows `{place value, place value}`; what is left out has its attribute's first value."""
    for number, row in rows:
        if not SPARSE.fullmatch(row):
            raise DataError(f"{path} line {number} must be {{place value, ...}} as the first row, got {row[:60]!r}")
    counts = [row.count(",") + 1 if row[1:-1].strip() else 0 for _, row in rows]
    inner = [(number, row[1:-1].replace(",", " ")) for number, row in rows]
    pairs = _numbers(path, inner, " ", 2 * sum(counts)).reshape(-1, 2)
    index, place = np.repeat(np.arange(len(rows)), counts), pairs[:, 0].astype(int)
    flat = index * len(omitted) + place
    beyond, again = place >= len(omitted), np.diff(flat, prepend=-1) <= 0
    if (beyond | again).any():
        first = int(np.argmax(beyond | again))
        rule = f"places that rise and are below {len(omitted)}"
        raise DataError(f"{path} line {rows[index[first]][0]} must have {rule}, got {place[first]}")
    values = np.tile(omitted, (len(rows), 1))
    values[index, place] = pairs[:, 1]
    return values


def _numbers(path: Path, rows: list[tuple[int, str]], separator: str, expected: int) -> Array:
    """All numbers of all rows: numpy parses them at once; if it cannot, a loop says where."""
    try:
        values = np.fromstring(separator.join(row for _, row in rows), float, sep=separator)
    except ValueError:
        values = np.empty(0)
    if values.size == expected:
        return values
    words = ((number, word) for number, row in rows for word in row.split(separator.strip() or None))
    return np.array([_number(path, number, word.strip()) for number, word in words])


def _number(path: Path, number: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise DataError(f"{path} line {number} must have numbers, got {word!r}") from None


def _label_names(path: Path) -> tuple[str, ...]:
    """The names of all labels, those inside other labels too."""
    try:
        elements = ElementTree.parse(path).iter()
    except ElementTree.ParseError as error:
        raise DataError(f"{path} is not XML: {error}") from error
    names = tuple(element.get("name", "") for element in elements if element.tag.rpartition("}")[2] == "label")
    if not names or len(set(names)) != len(names):
        raise DataError(f"{path} must name labels, each once, got {len(names)} with {len(set(names))} different names")
    return names


def _tables(folder: Path, name: str) -> list[Path]:
    """The file of the whole set, or those of its two parts."""
    for choice in ((".arff",), ("-sparse.arff",), ("-train.arff", "-test.arff")):
        found = [_find(folder, name + suffix) for suffix in choice]
        if all(found):
            return [path for path in found if path]
    return [_file(folder, f"{name}.arff")]


def _file(folder: Path, name: str) -> Path:
    found = _find(folder, name)
    if found is None:
        raise DataError(f"{folder / name} is missing; data.root must be {ORIGIN}")
    return found


def _find(folder: Path, name: str) -> Path | None:
    """A file by its name, whatever its capitals."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((path for path in files if path.name.lower() == name.lower()), None)

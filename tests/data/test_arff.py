import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pate.data.arff import Arff, read_arff, standardised
from pate.errors import DataError, SettingError
from pate.settings import build

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
HEADER = """% a comment
@relation tiny

@attribute height numeric
@ATTRIBUTE word {0,1}
@attribute Sun {0, 1}
@attribute depth REAL
@attribute Sea {0,1}
@data
"""
XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels"><label name="Sea"><label name="Sun"/></label></labels>"""


def row(index: int) -> list[float]:
    """height, word, Sun, depth, Sea"""
    return [index * 1.5, index % 2, index // 2 % 2, -index, index // 4 % 2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twenty dense rows in tiny/tiny.arff."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "tiny.arff").write_text(HEADER + "\n".join(",".join(map(str, row(index))) for index in range(20)))
    (folder / "tiny.xml").write_text(XML)
    return tmp_path


def settings(root: Path, **changes: object) -> Arff:
    return Arff(**{"root": str(root), "name": "tiny", "public": 5} | changes)


def write(path: Path, rows: str, header: str = HEADER) -> Path:
    path.write_text(header + rows)
    return path


def test_yaml_says_the_defaults() -> None:
    written = yaml.safe_load((CONF / "arff.yaml").read_text())
    assert build(written, "data") == Arff()
    assert set(written) - {"_target_"} == {field.name for field in fields(Arff)}


def test_each_record_has_its_own_features_and_labels(root: Path) -> None:
    split = settings(root).load()
    assert split.label_names == ("Sea", "Sun")  # in the XML's order, those inside others too
    assert [len(part) for part in (split.private, split.public, split.test)] == [11, 5, 4]
    public = np.array([row(int(index)) for index in split.public.ids])
    for records in (split.private, split.public, split.test):
        assert records.inputs.dtype == np.float32 and records.persons.tolist() == records.ids.tolist()
        values = np.array([row(int(index)) for index in records.ids])
        assert np.array_equal(records.labels, values[:, [4, 2]] == 1)
        scaled = (values - public.mean(0)) / public.std(0)
        assert np.allclose(records.inputs[:, [0, 2]], scaled[:, [0, 3]], atol=1e-5)
        assert np.array_equal(records.inputs[:, 1], values[:, 1])  # a word stays 0 or 1
    assert len({*split.private.ids, *split.public.ids, *split.test.ids}) == 20


def test_a_private_row_changes_no_other_input(root: Path) -> None:
    before = settings(root).load()
    changed = str(before.private.ids[0])
    path = root / "tiny" / "tiny.arff"
    lines = path.read_text().splitlines()
    place = lines.index("@data") + 1 + int(changed)
    lines[place] = "1e6,1,1,-1e6,1"
    path.write_text("\n".join(lines))
    after = settings(root).load()
    assert np.array_equal(after.private.inputs[1:], before.private.inputs[1:])
    assert np.array_equal(after.public.inputs, before.public.inputs)
    assert np.array_equal(after.test.inputs, before.test.inputs)
    assert not np.array_equal(after.private.inputs[0], before.private.inputs[0])


def test_what_is_constant_in_public_is_centred_only() -> None:
    values = np.array([[3.0, 1.0], [3.0, 0.0], [5.0, 1.0]])
    assert standardised(values, np.array([True, False]), np.array([0, 1])).tolist() == [[0, 1], [0, 0], [2, 1]]


def test_the_seed_decides_the_division(root: Path) -> None:
    ids = [settings(root, seed=seed).load().public.ids.tolist() for seed in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]


def test_sparse_rows_leave_out_the_first_value(tmp_path: Path) -> None:
    header = "@relation x\n@attribute a {1,0}\n@attribute b numeric\n@attribute c {0,1}\n@data\n"
    path = write(tmp_path / "x.arff", "{}\n{0 0, 2 1}\n% between\n\n{ 1 -2.5e1 }\n{0 1,1 3,2 0}", header)
    assert read_arff(path).values.tolist() == [[1, 0, 0], [0, 0, 1], [1, -25, 0], [1, 3, 0]]


def test_quoted_names_and_spaces(tmp_path: Path) -> None:
    header = "@relation x\n@attribute 'it\\'s a' {'0','1'}\n@attribute \"b c\"\tNUMERIC  \n@data\n"
    table = read_arff(write(tmp_path / "x.arff", "1 , 2.5\n0,\t-1", header))
    assert table.names == ["it's a", "b c"] and table.values.tolist() == [[1, 2.5], [0, -1]]


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_sparse_and_dense_agree(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:
    header = "@relation x\n@attribute a numeric\n@attribute b {0,1}\n@attribute c {0,1}\n@data\n"
    folder = tmp_path_factory.mktemp("agree")
    values = [[float(number), int(first), int(second)] for number, first, second in rows]
    dense = "\n".join(",".join(map(repr, cells)) for cells in values)
    sparse = "\n".join(
        "{" + ",".join(f"{place} {cell!r}" for place, cell in enumerate(cells) if cell) + "}" for cells in values
    )
    for text in (dense, sparse):
        assert read_arff(write(folder / "x.arff", text, header)).values.tolist() == values


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,0,0,2,1\n1,0,0,2", "line 11 must have 5 values, got 4"),
        ("1,0,0,2,1\n1,0,0,2,1,1", "line 11 must have 5 values, got 6"),
        ("1,0,0,2,1\n1,0,0,?,1", "line 11 must have numbers, got '?'"),
        ("1,0,0,2,1\n1,0,0,,1", "line 11 must have numbers, got ''"),
        ("1,0,0,nan,1", "line 10: attribute depth must be finite, got nan"),
        ("1,0,0,2,1\n1,0,0.5,2,1", "line 11: attribute Sun must be 0 or 1, got 0.5"),
        ("{0 1}\n1,0,0,2,1", "line 11 must be {place value, ...} as the first row, got '1,0,0,2,1'"),
        ("{0 1}\n{0 1,4", "line 11 must be {place value, ...}"),
        ("{0 1}\n{0 1,4 1 3}", "line 11 must be {place value, ...}"),
        ("{0 1}\n{0 1,5 1}", "line 11 must have places that rise and are below 5, got 5"),
        ("{0 1}\n{4 1,0 1}", "line 11 must have places that rise and are below 5, got 0"),
        ("{0 1}\n{0 1,0 2}", "line 11 must have places that rise and are below 5, got 0"),
        ("{0 1}\n{0 many}", "line 11 must have numbers, got 'many'"),
        ("{0 1}\n{4 3}", "line 11: attribute Sea must be 0 or 1, got 3"),
        ("", "has 5 attributes and 0 rows: it is torn"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, rows: str, sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"x.arff {sentence}")):
        read_arff(write(tmp_path / "x.arff", rows))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace("@data\n", ""), "has no line @data"),
        (lambda text: text.replace("depth REAL", "depth string"), "line 7: attribute depth must be numeric or {0,1}"),
        (lambda text: text.replace("{0, 1}", "{a,b}"), "line 6: attribute Sun must be numeric or {0,1}, got {a,b}"),
        (lambda text: text.replace("depth REAL", "depth"), "line 7 is not an attribute with name and type"),
    ],
)
def test_a_wrong_header_is_named_with_its_line(tmp_path: Path, change: Callable[[str], str], sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"x.arff {sentence}")):
        read_arff(write(tmp_path / "x.arff", "1,0,0,2,1", change(HEADER)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace("Sea", "Moon"), r"tiny\.arff has no attribute 'Moon', which its XML names"),
        (lambda text: text.replace("Sea", "Sun"), r"tiny\.xml must name labels, each once, got 2 with 1 different"),
        (lambda text: text.replace("label name", "word name").replace("/label>", "/word>"), "got 0 with 0"),
        (lambda text: text[:-20], r"tiny\.xml is not XML"),
        (lambda text: text.replace("Sea", "depth"), r"line \d+: attribute depth must be 0 or 1, got -1"),
    ],
)
def test_a_wrong_xml_is_a_sentence(root: Path, change: Callable[[str], str], sentence: str) -> None:
    path = root / "tiny" / "tiny.xml"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=sentence):
        settings(root).load()


def test_missing_things_are_named(root: Path) -> None:
    with pytest.raises(DataError, match=r"give data\.root=PATH, .*mulan\.sourceforge\.net"):
        Arff().load()
    with pytest.raises(DataError, match=r"none/none\.arff is missing; data\.root must be the folder"):
        settings(root, name="none").load()
    (root / "tiny" / "tiny.xml").unlink()
    with pytest.raises(DataError, match=r"tiny\.xml is missing"):
        settings(root).load()


def test_parts_are_joined_when_the_whole_is_absent(root: Path) -> None:
    folder = root / "tiny"
    lines = (folder / "tiny.arff").read_text().splitlines()
    start = lines.index("@data") + 1
    (folder / "Tiny-train.arff").write_text("\n".join(lines[: start + 12]))
    (folder / "Tiny-test.arff").write_text("\n".join(lines[:start] + lines[start + 12 :]))
    whole = settings(root).load()
    (folder / "tiny.arff").unlink()
    joined = settings(root).load()
    assert np.array_equal(joined.private.inputs, whole.private.inputs)
    assert joined.test.ids.tolist() == whole.test.ids.tolist()
    path = folder / "Tiny-test.arff"
    path.write_text(path.read_text().replace("height", "width"))
    with pytest.raises(DataError, match=r"Tiny-test\.arff and .*Tiny-train\.arff have different attributes"):
        settings(root).load()


@pytest.mark.parametrize(
    ("field", "value"), [("name", ""), ("name", "a/b"), ("public", 0), ("test_fraction", 0), ("test_fraction", 1)]
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must be .*, got {value!r}"):
        Arff(**{field: value})


def test_too_many_set_aside(root: Path) -> None:
    with pytest.raises(SettingError, match=r"public \+ test must be < records \(20\), got 20"):
        settings(root, public=16).load()


def test_describe_needs_no_data() -> None:
    assert Arff(name="yeast", seed=3).describe().startswith("table yeast, split with seed 3")


@pytest.mark.parametrize(
    ("name", "records", "features", "labels", "first"),
    [
        ("corel5k", 5000, 499, 374, "city"),
        ("cal500", 502, 68, 174, "Angry-Agressive"),
        ("yeast", 2417, 103, 14, "Class1"),
        ("scene", 2407, 294, 6, "Beach"),
    ],
)
def test_real_tables(shared_data: Path, name: str, records: int, features: int, labels: int, first: str) -> None:
    if not (shared_data / "mulan" / name).is_dir():
        pytest.skip(f"no {name} in {shared_data}/mulan")
    split = Arff(root=str(shared_data / "mulan"), name=name, public=100).load()
    assert sum(map(len, (split.private, split.public, split.test))) == records
    assert split.private.inputs.shape[1] == features and split.num_labels == labels and split.label_names[0] == first
    assert split.private.labels.any(1).mean() > 0.9 and np.isfinite(split.private.inputs).all()


def test_real_sparse_and_dense_files_agree(shared_data: Path) -> None:
    folder = shared_data / "mulan" / "corel5k"
    if not folder.is_dir():
        pytest.skip(f"no corel5k in {shared_data}/mulan")
    dense, sparse = (read_arff(folder / f"Corel5k-test{kind}.arff") for kind in ("", "-sparse"))
    assert dense.names == sparse.names and np.array_equal(dense.values, sparse.values)

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pate.data.folder import Folder, divide, shuffled
from pate.data.records import Split
from pate.errors import DataError, SettingError
from pate.settings import build

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
SPLITS = ("private", "private", "public", "test")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twenty-four images of one colour each, in a sub-folder; two labels, eight persons, a split column."""
    (tmp_path / "scans").mkdir()
    lines = ["file,who,Fracture,Implant,part"]
    for index in range(24):
        name = f"scans/{index:02}.png"
        Image.new("RGB", (10, 12), (index * 10, 0, 0)).save(tmp_path / name)
        lines.append(f"{name},p{index % 8},{index % 2},{'TRUE' if index % 3 else 'False'},{SPLITS[index % 4]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def settings(root: Path, **changes: object) -> Folder:
    base = {"root": str(root), "size": 4, "cache": str(root / "cache"), "person_column": "who", "public": 4, "test": 4}
    return Folder(**base | {"label_columns": ("Fracture", "Implant")} | changes)


def names(split: Split) -> list[list[str]]:
    return [part.ids.tolist() for part in (split.private, split.public, split.test)]


def test_yaml_says_the_defaults() -> None:
    written = yaml.safe_load((CONF / "folder.yaml").read_text())
    assert build(written, "data") == Folder()
    assert set(written) - {"_target_"} == {field.name for field in fields(Folder)}


def test_label_columns_can_come_as_a_list() -> None:
    value = {"_target_": "pate.data.folder.Folder", "label_columns": ["a", "b"]}
    assert build(value, "data").label_columns == ("a", "b") == Folder(label_columns=["a", "b"]).label_columns


def test_a_split_column_is_followed(root: Path) -> None:
    split = settings(root, split_column="part").load()
    assert [len(part) for part in names(split)] == [12, 6, 6]
    for value, part in zip(("private", "public", "test"), names(split), strict=True):
        assert {SPLITS[int(name[6:8]) % 4] for name in part} == {value}


def test_each_record_has_its_own_picture_labels_and_person(root: Path) -> None:
    split = settings(root).load()
    assert split.label_names == ("Fracture", "Implant")
    for records in (split.private, split.public, split.test):
        assert isinstance(records.inputs, np.memmap)
        for position, name in enumerate(records.ids.tolist()):
            index = int(name[6:8])
            assert records.labels[position].tolist() == [bool(index % 2), bool(index % 3)]
            assert records.persons[position] == f"p{index % 8}"
            assert (records.inputs[position] == (index * 10, 0, 0)).all()


def test_without_a_person_column_everyone_is_their_own(root: Path) -> None:
    split = settings(root, person_column=None).load()
    assert [len(part) for part in names(split)] == [16, 4, 4]
    assert split.private.persons.tolist() == split.private.ids.tolist()


def test_all_other_columns_are_labels(root: Path) -> None:
    split = settings(root, label_columns=None, split_column="part").load()
    assert split.label_names == ("Fracture", "Implant")
    with pytest.raises(DataError, match=r"labels\.csv line 2: part must be 0, 1, true or false, got 'private'"):
        settings(root, label_columns=None).load()


def test_nobody_is_private_and_not(root: Path) -> None:
    for seed in range(10):
        split = settings(root, seed=seed).load()
        apart = {*split.public.persons.tolist(), *split.test.persons.tolist()}
        assert not apart & set(split.private.persons.tolist())
        assert len(split.public) == 4 and sum(map(len, names(split))) == 24


def test_the_seed_decides_the_division(root: Path) -> None:
    assert names(settings(root, seed=1).load()) == names(settings(root, seed=1).load())
    assert names(settings(root, seed=1).load()) != names(settings(root, seed=2).load())


def test_a_table_elsewhere_with_other_names(root: Path, tmp_path: Path) -> None:
    text = (root / "labels.csv").read_text().replace("file,who", '"the file", person')
    (tmp_path / "other.csv").write_text("\ufeff" + text, encoding="utf-8")
    changes = {"csv": str(tmp_path / "other.csv"), "file_column": "the file", "person_column": "person"}
    assert names(settings(root, **changes).load()) == names(settings(root).load())


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda _: "", "must have a header line and a line per image, got 0 lines"),
        (lambda text: text.splitlines()[0], "must have a header line and a line per image, got 1 lines"),
        (replaced("file,", "name,"), "has no column 'file'; its columns are: name, who, Fracture, Implant, part"),
        (replaced(",who", ",whose"), "has no column 'who'; its columns are: file, whose"),
        (replaced("Implant", "Screw"), "has no column 'Implant'; its columns are: file, who, Fracture, Screw"),
        (replaced("who", "file"), "line 1 names column 'file' twice"),
        (replaced("03.png,p3,1", "03.png,p3,2"), "line 5: Fracture must be 0, 1, true or false, got '2'"),
        (replaced("03.png,p3,1", "03.png,p3,"), "line 5: Fracture must be 0, 1, true or false, got ''"),
        (replaced("03.png,p3", "03.png,"), "line 5: who must be a name, got ''"),
        (replaced("scans/03.png", ""), "line 5: file must be a name, got ''"),
        (replaced("03.png", "02.png"), "line 5: file 'scans/02.png' stands on line 4 already"),
        (replaced("03.png,p3", "03.png"), "line 5 has 4 cells, the header has 5"),
        (replaced("p3,1", 'p3,"1'), "is not a CSV in UTF-8"),
    ],
)
def test_a_mistake_in_the_table_is_a_sentence(root: Path, change: Callable[[str], str], sentence: str) -> None:
    path = root / "labels.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=rf"labels\.csv {sentence}"):
        settings(root).load()


def test_a_table_in_another_encoding(root: Path) -> None:
    (root / "labels.csv").write_bytes("file,Grösse\n".encode("latin-1") * 2)
    with pytest.raises(DataError, match=r"labels\.csv is not a CSV in UTF-8"):
        settings(root).load()


def test_lines_are_counted_as_an_editor_does(root: Path) -> None:
    path = root / "labels.csv"
    path.write_text(path.read_text().replace("\nscans/03.png,p3,1", "\n\nscans/03.png,p3,x"))
    with pytest.raises(DataError, match=r"labels\.csv line 6: Fracture"):
        settings(root).load()


def test_mistakes_in_the_split_column(root: Path) -> None:
    path = root / "labels.csv"
    whole = path.read_text()
    path.write_text(whole.replace("private", "train", 1))
    with pytest.raises(DataError, match=r"line 2: part must be private, public or test, got 'train'"):
        settings(root, split_column="part").load()
    path.write_text(whole.replace("public", "test"))
    with pytest.raises(DataError, match=r"labels\.csv: no row has public in column 'part'"):
        settings(root, split_column="part").load()


def test_missing_things_are_named(root: Path) -> None:
    with pytest.raises(DataError, match=r"give data\.root=PATH, the folder of your images"):
        Folder().load()
    with pytest.raises(DataError, match=r"data\.root=/no/such is not a folder"):
        Folder(root="/no/such").load()
    with pytest.raises(DataError, match=r"none\.csv is missing; give data\.csv=NAME"):
        settings(root, csv="none.csv").load()
    (root / "scans" / "05.png").unlink()
    with pytest.raises(DataError, match=r"scans/05\.png, named in .*labels\.csv line 7, is missing"):
        settings(root).load()


def test_only_names_is_no_table_of_labels(root: Path) -> None:
    (root / "labels.csv").write_text("file\nscans/01.png\n")
    with pytest.raises(DataError, match="has no label column; its columns are: file"):
        Folder(root=str(root)).load()


def test_bad_images_stop_or_are_left_out(root: Path) -> None:
    whole = settings(root).load()
    bad = [part[0] for part in names(whole)]
    for name in bad:
        (root / name).write_bytes(b"torn")
    with pytest.raises(DataError, match=rf"{bad[0]} does not decode .*nor do 2 other images"):
        settings(root).load()
    split = settings(root, on_bad_image="skip").load()
    assert names(split) == [part[1:] for part in names(whole)]
    for after, before in ((split.private, whole.private), (split.public, whole.public), (split.test, whole.test)):
        assert np.array_equal(after.labels, before.labels[1:])
    for name in names(split)[1]:
        (root / name).write_bytes(b"torn")
    with pytest.raises(DataError, match="no public image is left"):
        settings(root, on_bad_image="skip").load()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", 0),
        ("public", 0),
        ("test", 0),
        ("test", -0.5),
        ("test", 2.5),
        ("test", float("inf")),
        ("on_bad_image", "x"),
        ("workers", -1),
    ],
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must be .*, got {value!r}"):
        Folder(**{field: value})


def test_empty_label_columns_are_refused() -> None:
    with pytest.raises(SettingError, match="label_columns must be null or some columns"):
        Folder(label_columns=())


def test_too_many_set_aside(root: Path) -> None:
    with pytest.raises(SettingError, match=r"public \+ test must be < records \(24\), got 24"):
        settings(root, public=20).load()
    lines = (root / "labels.csv").read_text().splitlines()
    (root / "labels.csv").write_text("\n".join([lines[0], *(line.replace(",p", ",same p") for line in lines[1:])]))
    settings(root).load()
    text = (root / "labels.csv").read_text()
    for person in range(8):
        text = text.replace(f"same p{person}", "one")
    (root / "labels.csv").write_text(text)
    with pytest.raises(DataError, match="no private record is left"):
        settings(root).load()


def test_describe_needs_no_data() -> None:
    assert Folder(size=32, seed=2).describe() == "images of labels.csv at 32 px, split with seed 2"
    assert Folder(split_column="part").describe() == "images of labels.csv at 64 px, split by column part"


# the random division


@given(st.lists(st.integers(0, 12), min_size=12, max_size=60), st.integers(0, 9), st.integers(1, 3), st.integers(1, 3))
def test_a_division_is_complete_and_apart(people: list[int], seed: int, public: int, test: int) -> None:
    persons, ids = np.array(people).astype(str), np.arange(len(people)).astype(str)
    try:
        parts = divide(ids, persons, public, test, seed)
    except DataError:
        counts = Counter(people).most_common()
        assert counts[0][1] > len(people) - public - test  # someone owns so much that nobody else is left
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(people)))
    assert len(parts[1]) == public and len(parts[2]) >= test
    assert not set(persons[parts[0]]) & set(persons[np.concatenate(parts[1:])])


@given(st.sets(st.text(min_size=1, max_size=5), min_size=2, max_size=20), st.integers(0, 5))
def test_a_name_that_goes_moves_no_other(given_names: set[str], seed: int) -> None:
    ordered = np.array(sorted(given_names), dtype=object)
    after = ordered[1:][shuffled(ordered[1:], seed)].tolist()
    assert [name for name in ordered[shuffled(ordered, seed)].tolist() if name != ordered[0]] == after


def test_shuffling_is_uniform() -> None:
    people = np.arange(20).astype(str)
    first = Counter(int(shuffled(people, seed)[0]) for seed in range(2000))
    assert len(first) == 20 and max(first.values()) < 150 and min(first.values()) > 60  # 100 expected


def test_a_share_and_a_number_for_the_test() -> None:
    ids = np.arange(100).astype(str)
    assert [len(part) for part in divide(ids, ids, 10, 0.25, 0)] == [65, 10, 25]
    assert [len(part) for part in divide(ids, ids, 10, 7, 0)] == [83, 10, 7]

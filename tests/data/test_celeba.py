import shutil
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from pate.data.celeba import ATTRIBUTES, IDENTITY, IMAGES, PARTITION, CelebA, read_lists
from pate.data.records import Split
from pate.errors import DataError, SettingError
from pate.settings import build

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
PARTS = "000000001112222"  # 8 train, 3 valid, 4 test, interleaved below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Fifteen images in the official layout, 20 x 24 pixels, each of one colour, three attributes."""
    root = tmp_path / "celeba"
    (root / IMAGES).mkdir(parents=True)
    names = [f"{index + 1:06}.jpg" for index in range(15)]
    parts = [PARTS[index * 7 % 15] for index in range(15)]
    signs = [[1 if index >> bit & 1 else -1 for bit in range(3)] for index in range(15)]
    for index, name in enumerate(names):
        Image.new("RGB", (20, 24), (index * 16, 0, 0)).save(root / IMAGES / name, quality=95)
    rows = [f"{name} " + " ".join(f"{sign:2}" for sign in row) for name, row in zip(names, signs, strict=True)]
    (root / ATTRIBUTES).write_text("\n".join(("15", "Bald Hat Young ", *rows)) + "\n")
    (root / PARTITION).write_text("".join(f"{name} {part}\n" for name, part in zip(names, parts, strict=True)))
    (root / IDENTITY).write_text("".join(f"{name} {1000 + index // 2}\n" for index, name in enumerate(names)))
    return root


def settings(root: Path, **changes: object) -> CelebA:
    return CelebA(**{"root": str(root), "size": 8, "public": 2, "cache": str(root / "cache")} | changes)


def edit(path: Path, line: int, change: Callable[[str], str]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_text("".join(lines))


def everyone(split: Split) -> list[str]:
    return [str(name) for part in (split.private, split.public, split.test) for name in part.ids]


def test_yaml_says_the_defaults() -> None:
    written = yaml.safe_load((CONF / "celeba.yaml").read_text())
    assert build(written, "data") == CelebA()
    assert set(written) - {"_target_"} == {field.name for field in fields(CelebA)}
    assert all(written[name] == value for name, value in asdict(CelebA()).items())


def test_the_protocol(root: Path) -> None:
    split = settings(root).load()
    lists = read_lists(root)
    part = dict(zip(lists.names.tolist(), lists.partition.tolist(), strict=True))
    assert [len(split.private), len(split.public), len(split.test)] == [8, 2, 2]
    assert {part[name] for name in split.private.ids} == {0}
    assert {part[name] for name in (*split.public.ids, *split.test.ids)} == {2}
    assert len(set(everyone(split))) == 12
    assert split.label_names == ("Bald", "Hat", "Young")


def test_each_record_has_its_own_picture_labels_and_person(root: Path) -> None:
    split = settings(root).load()
    for records in (split.private, split.public, split.test):
        assert records.inputs.dtype == np.uint8 and records.labels.dtype == bool
        for position, name in enumerate(records.ids.tolist()):
            index = int(name[:6]) - 1
            assert records.labels[position].tolist() == [bool(index >> bit & 1) for bit in range(3)]
            assert records.persons[position] == str(1000 + index // 2)
            assert abs(int(records.inputs[position, 4, 4, 0]) - index * 16) < 8


def test_private_pictures_stay_on_disk(root: Path) -> None:
    assert isinstance(settings(root).load().private.inputs, np.memmap)


def test_the_seed_chooses_the_public_images(root: Path) -> None:
    chosen = {seed: settings(root, seed=seed).load().public.ids.tolist() for seed in range(8)}
    assert chosen[3] == settings(root, seed=3).load().public.ids.tolist()
    assert len({frozenset(names) for names in chosen.values()}) > 1
    assert settings(root, seed=3, public=1).load().public.ids.tolist() == chosen[3][:1]


def test_private_rows_do_not_decide_the_public_ones(root: Path) -> None:
    before = settings(root).load()
    for name in (ATTRIBUTES, PARTITION, IDENTITY):
        edit(root / name, 3 if name == ATTRIBUTES else 1, lambda _: "")
    edit(root / ATTRIBUTES, 1, lambda _: "14\n")
    after = settings(root).load()
    assert before.private.ids[0] == "000001.jpg" and len(after.private) == 7
    assert before.public.ids.tolist() == after.public.ids.tolist()
    assert before.test.ids.tolist() == after.test.ids.tolist()


def test_windows_lines_and_blank_ends_are_read(root: Path) -> None:
    before = read_lists(root)
    for name in (ATTRIBUTES, PARTITION, IDENTITY):
        (root / name).write_bytes((root / name).read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    after = read_lists(root)
    assert np.array_equal(before.labels, after.labels) and np.array_equal(before.identity, after.identity)


def test_no_root_says_where_celeba_comes_from() -> None:
    with pytest.raises(DataError, match=r"give data\.root=PATH.*img_align_celeba.*CelebA\.html"):
        CelebA().load()
    with pytest.raises(DataError, match=r"data\.root=/no/such is not a folder"):
        CelebA(root="/no/such").load()


@pytest.mark.parametrize("name", [ATTRIBUTES, PARTITION, IDENTITY])
def test_a_missing_list_is_named(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        settings(root).load()


@pytest.mark.parametrize(
    ("name", "line", "change", "sentence"),
    [
        (ATTRIBUTES, 1, lambda _: "16\n", "line 1 says '16' images, 15 rows follow"),
        (ATTRIBUTES, 1, lambda _: "many\n", "line 1 says 'many' images"),
        (ATTRIBUTES, 2, lambda _: "Bald Hat Bald\n", "line 2 names an attribute twice: Bald"),
        (ATTRIBUTES, 17, lambda _: "", "line 1 says '15' images, 14 rows follow"),
        (ATTRIBUTES, 17, lambda line: line[:13], "line 17 must have 4 columns, got 2"),
        (ATTRIBUTES, 5, lambda line: line.replace("\n", " 1\n"), "line 5 must have 4 columns, got 5"),
        (ATTRIBUTES, 6, lambda line: line.replace("-1", " 0"), "line 6 must have -1 or 1, got 0"),
        (ATTRIBUTES, 6, lambda line: line.replace("-1", "yes"), "line 6 must have whole numbers, got 'yes'"),
        (ATTRIBUTES, 6, lambda line: line.replace("-1", "1.5"), "line 6 must have whole numbers, got '1.5'"),
        (ATTRIBUTES, 6, lambda line: line.replace("-1", "--1"), "line 6 must have whole numbers, got '--1'"),
        (ATTRIBUTES, 4, lambda line: line.replace("000002", "000001"), "names an image twice: 000001.jpg"),
        (PARTITION, 9, lambda line: line.replace("jpg ", "jpg 1"), "line 9 must have 0 .train., 1 .valid. or 2"),
        (PARTITION, 9, lambda _: "000009.jpg\n", "line 9 must have 2 columns, got 1"),
        (PARTITION, 9, lambda _: "", "line 9 is about 000010.jpg, .*list_attr_celeba.txt has 000009.jpg there"),
        (PARTITION, 15, lambda _: "", "has 14 rows, .*list_attr_celeba.txt has 15"),
        (IDENTITY, 15, lambda line: line + "000016.jpg 7\n", "has 16 rows, .*list_attr_celeba.txt has 15"),
        (IDENTITY, 2, lambda _: "000002.jpg ?\n", r"line 2 must have whole numbers, got '\?'"),
        (IDENTITY, 2, lambda _: "000002.jpg -7\n", "line 2 must have a number >= 0, got -7"),
    ],
)
def test_a_wrong_list_is_named_with_its_line(
    root: Path, name: str, line: int, change: Callable[[str], str], sentence: str
) -> None:
    edit(root / name, line, change)
    with pytest.raises(DataError, match=f"{name} {sentence}"):
        settings(root).load()


@pytest.mark.parametrize("name", [ATTRIBUTES, PARTITION, IDENTITY])
@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"\xff\xd8\xff\xe0 jpeg"])
def test_a_file_of_something_else_is_named(root: Path, name: str, content: bytes) -> None:
    (root / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        settings(root).load()


def test_no_train_image_is_an_error(root: Path) -> None:
    text = (root / PARTITION).read_text()
    (root / PARTITION).write_text(text.replace("jpg 0", "jpg 1"))
    with pytest.raises(DataError, match=f"{PARTITION} has no image of the train partition"):
        settings(root).load()


def test_an_absent_image_is_named_with_its_line(root: Path) -> None:
    (root / IMAGES / "000001.jpg").unlink()
    with pytest.raises(DataError, match=rf"000001\.jpg, named in .*{ATTRIBUTES} line 3, is missing"):
        settings(root, on_bad_image="skip").load()


def test_an_image_of_the_validation_part_is_not_needed(root: Path) -> None:
    lists = read_lists(root)
    for name in lists.names[lists.partition == 1]:
        (root / IMAGES / name).unlink()
    assert len(everyone(settings(root).load())) == 12


def test_bad_images_stop_or_are_left_out(root: Path) -> None:
    whole = settings(root).load()
    private, test = str(whole.private.ids[2]), str(whole.test.ids[0])
    for name in (private, test):
        (root / IMAGES / name).write_bytes(b"torn")
    with pytest.raises(DataError, match=rf"{private} does not decode .*nor do 1 other"):
        settings(root).load()
    split = settings(root, on_bad_image="skip").load()
    assert set(everyone(whole)) - set(everyone(split)) == {private, test}
    assert [len(split.private), len(split.public), len(split.test)] == [7, 2, 1]
    assert split.private.inputs[2, 0, 0, 0] == whole.private.inputs[3, 0, 0, 0]


def test_all_private_images_bad_is_an_error(root: Path) -> None:
    for name in settings(root).load().private.ids:
        (root / IMAGES / str(name)).write_bytes(b"torn")
    with pytest.raises(DataError, match="no private image is left"):
        settings(root, on_bad_image="skip").load()


@pytest.mark.parametrize(
    ("field", "value"), [("size", 0), ("public", 0), ("on_bad_image", "ignore"), ("workers", -1), ("size", "64")]
)
def test_settings_are_checked(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must be .*, got {value!r}"):
        CelebA(**{field: value})


def test_too_many_public_images(root: Path) -> None:
    with pytest.raises(SettingError, match=r"public must be < images of the test partition \(4\), got 4"):
        settings(root, public=4).load()


def test_describe_needs_no_data() -> None:
    assert CelebA(size=32, public=5, seed=2).describe() == "CelebA at 32 px, 5 random test images public (seed 2)"


# real data


@pytest.fixture
def small(shared_data: Path, tmp_path: Path) -> Path:
    """The first 200 images of the real subset, by link."""
    source, root = shared_data / "celeba", tmp_path / "small"
    if not source.is_dir():
        pytest.skip(f"no CelebA in {shared_data}")
    (root / IMAGES).mkdir(parents=True)
    lines = (source / ATTRIBUTES).read_text().splitlines()[1:202]
    (root / ATTRIBUTES).write_text("\n".join(("200", *lines)))
    for name in (PARTITION, IDENTITY):
        (root / name).write_text("\n".join((source / name).read_text().splitlines()[:200]))
    for line in lines[1:]:
        name = line.split()[0]
        (root / IMAGES / name).symlink_to((source / IMAGES / name).resolve())
    return root


def test_real_images(small: Path) -> None:
    split = settings(small, size=64, public=10).load()
    assert split.num_labels == 40 and split.private.inputs.shape[1:] == (64, 64, 3)
    assert 0.05 < split.private.labels.mean() < 0.5
    smiling = split.private.inputs[split.private.labels[:, split.label_names.index("Smiling")]]
    assert 10 < smiling.std() < 120  # pictures, not noise or blanks


@pytest.mark.slow
def test_the_whole_subset(shared_data: Path, tmp_path: Path) -> None:
    root = shared_data / "celeba"
    lists = read_lists(root)
    assert np.bincount(lists.partition).tolist() == [11289, 616, 2576]
    split = CelebA(root=str(root), size=32, cache=str(tmp_path)).load()
    assert [len(split.private), len(split.public), len(split.test)] == [11289, 600, 1976]
    held = {*split.public.persons.tolist(), *split.test.persons.tolist()}
    assert not held & set(split.private.persons.tolist())
    official = np.load(root / "all_attributes.npz", allow_pickle=False)
    rows = np.array([int(name[:6]) - 1 for name in split.private.ids.tolist()])
    assert np.array_equal(split.private.labels, official["attr"][rows].astype(bool))
    assert np.array_equal(split.private.persons, official["identity"][rows].astype(str))


@pytest.mark.slow
def test_lists_as_long_as_the_full_set(root: Path) -> None:
    count, wide = 202599, " ".join([" 1", "-1"] * 20)
    names = [f"{index + 1:06}.jpg" for index in range(count)]
    header = " ".join(f"label{index}" for index in range(40))
    (root / ATTRIBUTES).write_text("\n".join((str(count), header, *(f"{name} {wide}" for name in names))))
    for file in (PARTITION, IDENTITY):
        (root / file).write_text("\n".join(f"{name} {index % 3}" for index, name in enumerate(names)))
    shutil.rmtree(root / IMAGES)
    lists = read_lists(root)
    assert lists.labels.shape == (count, 40) and lists.labels.mean() == 0.5

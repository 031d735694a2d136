"""The embedded faces: frequencies and ties of CelebA, attributes that are seen, parts that do not touch each other."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from pate.data import drawing
from pate.data.faces import ATTRIBUTES, Faces, attributes, blend, caption, persons
from pate.errors import SettingError
from pate.settings import build

# CelebA's published attribute frequencies, in percent.
CELEBA = {
    **{"5_o_Clock_Shadow": 11, "Arched_Eyebrows": 27, "Attractive": 51, "Bags_Under_Eyes": 20, "Bald": 2},
    **{"Bangs": 15, "Big_Lips": 24, "Big_Nose": 23, "Black_Hair": 24, "Blond_Hair": 15, "Blurry": 5},
    **{"Brown_Hair": 21, "Bushy_Eyebrows": 14, "Chubby": 6, "Double_Chin": 5, "Eyeglasses": 7, "Goatee": 6},
    **{"Gray_Hair": 4, "Heavy_Makeup": 39, "High_Cheekbones": 46, "Male": 42, "Mouth_Slightly_Open": 48},
    **{"Mustache": 4, "Narrow_Eyes": 12, "No_Beard": 83, "Oval_Face": 28, "Pale_Skin": 4, "Pointy_Nose": 28},
    **{"Receding_Hairline": 8, "Rosy_Cheeks": 7, "Sideburns": 6, "Smiling": 48, "Straight_Hair": 21},
    **{"Wavy_Hair": 32, "Wearing_Earrings": 19, "Wearing_Hat": 5, "Wearing_Lipstick": 47},
    **{"Wearing_Necklace": 12, "Wearing_Necktie": 7, "Young": 77},
}
TIES = [
    ("Heavy_Makeup", "Wearing_Lipstick", 0.80),
    ("Male", "Wearing_Lipstick", -0.79),
    ("High_Cheekbones", "Smiling", 0.68),
    ("Mouth_Slightly_Open", "Smiling", 0.54),
    ("Goatee", "No_Beard", -0.57),
    ("Male", "No_Beard", -0.52),
    ("Chubby", "Double_Chin", 0.53),
    ("Attractive", "Young", 0.39),
    ("Gray_Hair", "Young", -0.36),
    ("Male", "Wearing_Necktie", 0.33),
    ("Big_Nose", "Male", 0.37),
    ("Straight_Hair", "Wavy_Hair", -0.32),
    ("Eyeglasses", "Smiling", -0.06),
]
TINY = Faces(private=40, public=12, test=20)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def column(labels: np.ndarray, name: str) -> np.ndarray:
    return labels[:, ATTRIBUTES.index(name)]


@pytest.fixture(scope="module")
def crowd() -> tuple[np.ndarray, np.ndarray]:
    """Whose picture, and its attributes, for 60,000 pictures."""
    person = persons(rng(1), 60_000, zipf=1.5)
    return person, attributes(rng(2), person)


@pytest.fixture(scope="module")
def tiny():
    return TINY.load()


def test_names_and_order_are_celebas():
    assert tuple(CELEBA) == ATTRIBUTES


def test_frequencies_are_celebas(crowd):
    difference = crowd[1].mean(0) - np.array(list(CELEBA.values())) / 100
    worst = np.abs(difference).argmax()
    assert abs(difference[worst]) < 0.025, (ATTRIBUTES[worst], difference[worst])


@pytest.mark.parametrize(("first", "second", "celeba"), TIES)
def test_ties_between_attributes_are_celebas(crowd, first, second, celeba):
    found = np.corrcoef(column(crowd[1], first), column(crowd[1], second))[0, 1]
    assert abs(found - celeba) < 0.12


def test_all_ties_together_are_celebas(crowd, shared_data):
    path = shared_data / "celeba" / "all_attributes.npz"
    if not path.exists():
        pytest.skip(f"{path} not found")
    with np.load(path, allow_pickle=False) as file:
        assert tuple(file["cols"]) == ATTRIBUTES
        real = np.corrcoef(file["attr"].T.astype(np.float32))
    upper = np.triu_indices(40, 1)
    difference = (np.corrcoef(crowd[1].T) - real)[upper]
    assert np.sqrt((difference**2).mean()) < 0.06 < np.sqrt((real[upper] ** 2).mean()) / 2


def test_what_cannot_be_is_never_drawn(crowd):
    has = {name: column(crowd[1], name) for name in ATTRIBUTES}
    colours = sum(has[name].astype(int) for name in ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair"))
    assert colours.max() == 1
    for one, other in [
        *(("Bald", other) for other in ("Bangs", "Black_Hair", "Wavy_Hair", "Receding_Hairline", "Wearing_Hat")),
        *((beard, "No_Beard") for beard in ("Goatee", "Mustache", "Sideburns")),
        ("Straight_Hair", "Wavy_Hair"),
        ("Bangs", "Receding_Hairline"),
        ("Wearing_Hat", "Bangs"),
        ("Wearing_Necklace", "Wearing_Necktie"),
    ]:
        assert has[one].any() and not (has[one] & has[other]).any(), (one, other)
    beards = ("Goatee", "Mustache", "Sideburns", "5_o_Clock_Shadow", "Bald")
    assert not any((has[name] & ~has["Male"]).any() for name in beards)


def test_what_belongs_to_a_person_never_changes(crowd):
    person, labels = crowd
    same = person[1:] == person[:-1]
    changed = dict(zip(ATTRIBUTES, (labels[1:] != labels[:-1])[same].mean(0), strict=True))
    permanent = ("Male", "Young", "Bald", "Big_Nose", "Pointy_Nose", "Big_Lips", "Oval_Face", "Chubby", "Double_Chin")
    assert {name: changed[name] for name in permanent} == dict.fromkeys(permanent, 0)
    assert min(changed[name] for name in ("Smiling", "Mouth_Slightly_Open")) > 0.25
    assert min(changed[name] for name in ("Eyeglasses", "Wearing_Hat", "Blurry")) > 0.02


def test_private_persons_have_about_ten_pictures_and_queries_few():
    many, few = (np.bincount(persons(rng(), 20_000, zipf)) for zipf in (0.65, 2.0))
    assert 9 < many.mean() < 12 and many.min() == 1 and many.max() == 30
    assert 1.5 < few.mean() < 3


def test_parts_share_no_person_and_no_id(tiny):
    for names in ("persons", "ids"):
        parts = [set(getattr(part, names)) for part in (tiny.private, tiny.public, tiny.test)]
        assert len(set.union(*parts)) == sum(map(len, parts))
    assert len(set(tiny.private.ids)) == 40
    assert tiny.private.ids[0] == "face-0000000" and tiny.test.persons[0] == "person-2000000"


def test_shapes_and_types(tiny):
    assert tiny.private.inputs.shape == (40, 32, 32, 3) and tiny.private.inputs.dtype == np.uint8
    assert tiny.test.labels.shape == (20, 40) and tiny.test.labels.dtype == bool
    assert tiny.label_names == ATTRIBUTES and tiny.num_labels == 40


def same_records(one, other) -> bool:
    names = ("inputs", "labels", "ids", "persons")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_same_settings_same_bytes_other_seed_other_faces(tiny):
    again, other = TINY.load(), replace(TINY, seed=1).load()
    for name in ("private", "public", "test"):
        assert same_records(getattr(tiny, name), getattr(again, name))
        assert not np.array_equal(getattr(tiny, name).inputs, getattr(other, name).inputs)


def test_the_size_of_one_part_changes_no_other(tiny):
    bigger = replace(TINY, private=150).load()
    assert same_records(tiny.public, bigger.public) and same_records(tiny.test, bigger.test)


def test_more_pictures_leave_the_first_ones_as_they_were(tiny):
    bigger = replace(TINY, private=150, test=90).load()
    assert same_records(tiny.private, bigger.private.take(np.arange(40)))
    assert same_records(tiny.test, bigger.test.take(np.arange(20)))


def plain(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Young, beardless faces without other attributes, each with its own looks."""
    labels = np.zeros((count, 40), bool)
    for name in ("No_Beard", "Young"):
        labels[:, ATTRIBUTES.index(name)] = True
    looks = blend(rng(5), np.arange(count), np.ones(len(drawing.LOOKS)))
    return labels, looks


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_is_seen(name):
    labels, looks = plain(48)
    toggled = labels.copy()
    toggled[:, ATTRIBUTES.index(name)] ^= True
    before, after = (drawing.draw(one, ATTRIBUTES, looks, rng(7), 32).astype(int) for one in (labels, toggled))
    strongest = np.abs(after - before).max((1, 2, 3))
    assert np.quantile(strongest, 0.1) >= 12, strongest  # degrees may be faint in a few


def test_blur_is_a_blur():
    labels, looks = plain(16)
    sharp = drawing.draw(labels, ATTRIBUTES, looks, rng(7), 32).astype(float)
    labels[:, ATTRIBUTES.index("Blurry")] = True
    soft = drawing.draw(labels, ATTRIBUTES, looks, rng(7), 32).astype(float)
    edges = [np.abs(np.diff(pictures, axis=1)).mean() for pictures in (sharp, soft)]
    assert edges[1] < 0.8 * edges[0] and abs(sharp.mean() - soft.mean()) < 2


def test_drawing_in_windows_and_chunks_loses_nothing(monkeypatch, tiny):
    everything = attributes(rng(3), np.arange(200))
    looks = 3 * blend(rng(4), np.arange(200), np.ones(len(drawing.LOOKS)))
    quick = drawing.draw(everything, ATTRIBUTES, looks, rng(6), 32)
    monkeypatch.setattr(drawing.Sheet, "rows", lambda sheet, top, bottom: sheet)
    monkeypatch.setattr(drawing, "CHUNK", 7)
    whole = drawing.draw(everything, ATTRIBUTES, looks, rng(6), 32)
    assert np.abs(quick.astype(int) - whole).max() <= 1


@pytest.mark.parametrize("size", [16, 50])
def test_other_sizes_show_the_same_faces(size):
    large = replace(TINY, size=size).load().test.inputs
    assert large.shape == (20, size, size, 3)
    small = TINY.load().test.inputs
    assert np.abs(large.mean((1, 2)) - small.mean((1, 2))).max() < 8


def ridge(train, test, strength: float) -> np.ndarray:
    """Linear least squares on pixels, as plain a learner as there is; (N, 40) guesses."""
    x, z = (records.inputs.reshape(len(records), -1) / 127.5 - 1 for records in (train, test))
    prior = train.labels.mean(0)
    dual = np.linalg.solve(x @ x.T + strength * np.eye(len(x)), train.labels - prior)
    return prior + z @ (x.T @ dual) > 0.5


def test_hard_but_learnable():
    split = Faces(private=1600, public=1, test=600).load()
    prior = ((split.private.labels.mean(0) > 0.5) == split.test.labels).mean()
    few = split.private.take(np.arange(0, 1600, 32))
    with_few, with_many = (
        (ridge(train, split.test, strength=500) == split.test.labels).mean() for train in (few, split.private)
    )
    assert 0.78 < prior < 0.83
    assert prior + 0.01 < with_few < with_many - 0.03 < 0.93


@pytest.mark.parametrize(
    ("field", "value"), [("private", 0), ("public", -1), ("test", 0), ("size", 8), ("size", 1000), ("seed", -1)]
)
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(SettingError, match=f"{field} must be .*, got {value}"):
        Faces(**{field: value})


def test_the_configuration_names_every_setting():
    path = Path(__file__).resolve().parents[2] / "conf" / "data" / "faces.yaml"
    assert build(yaml.safe_load(path.read_text())) == Faces()
    assert set(yaml.safe_load(path.read_text())) == {"_target_", *Faces.__dataclass_fields__}
    assert Faces(seed=3).describe() == "cartoon faces, 32 x 32 pixels, 40 attributes, seed 3"


def test_caption_names_the_rarest():
    labels = np.isin(ATTRIBUTES, ("Young", "No_Beard", "Bald", "Eyeglasses", "Male", "Smiling", "Goatee"))
    assert caption(labels) == "Bald\nGoatee\nEyeglasses\nMale"
    assert caption(np.zeros(40, bool)) == "-"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)


def test_command_writes_a_contact_sheet(tmp_path):
    path = tmp_path / "sheet.png"
    done = run("-m", "pate.data.faces", "--out", str(path))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(path), "")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 100_000


def test_command_refuses_in_one_sentence(tmp_path):
    done = run("-m", "pate.data.faces", "--seed", "-1", "--out", str(tmp_path / "sheet.png"))
    assert done.returncode == 2 and "seed must be >= 0, got -1" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "sheet.png").exists()


def test_drawing_needs_no_torch():
    assert run("-c", "import sys, pate.data.faces, pate.partition; sys.exit('torch' in sys.modules)").returncode == 0

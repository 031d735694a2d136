"""A student as a file that loads, a card that describes it, and a command that prints what it sees."""

import csv
import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pate.backbone import Mirrored
from pate.commands import run_script
from pate.data.cache import decode
from pate.errors import DataError, MissingInput, SettingError
from pate.metrics import all_zeros, evaluate
from pate.models import Network
from pate.student import load_student, network_of, predict, read_image, save_student
from pate.student.__main__ import main
from pate.student.card import card
from pate.student.files import encode_student, read_meta

ROOT = Path(__file__).resolve().parent.parent
NETWORK = Network()
NAMES = ["Smiling", "Wearing_Hat", "Young"]
META = {"network": dataclasses.asdict(NETWORK), "label_names": NAMES, "input_shape": [32, 32, 3], "mirror": False}


def untaught(seed=0):
    return NETWORK.build(3, seed, (32, 32, 3)).eval()


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def saved(folder, model=None, meta=META):
    path = folder / "mine" / "release" / "student.safetensors"
    save_student(path, model or untaught(), meta)
    return path


def draw(path, seed=0, size=(64, 48)):
    Image.fromarray(pictures(1, seed)[0]).resize(size, Image.Resampling.NEAREST).convert("RGBA").save(path)
    return path


# The file


def test_save_and_load_round_trip(tmp_path):
    model, path = untaught(), saved(tmp_path)
    again, header = load_student(path)
    assert header == META == read_meta(path) and network_of(header) == NETWORK
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values(), strict=True))
    np.testing.assert_array_equal(predict(again, pictures(5), NETWORK), predict(model, pictures(5), NETWORK))
    assert [file.name for file in path.parent.iterdir()] == ["student.safetensors"]


def test_a_student_that_looks_at_mirror_images_does_so_when_it_is_loaded(tmp_path):
    plain, both = untaught(), Mirrored(untaught()).eval()
    again, header = load_student(saved(tmp_path, both))
    assert header["mirror"] and isinstance(again, Mirrored)
    batch = pictures(5)
    found = predict(again, batch, NETWORK)
    np.testing.assert_array_equal(found, predict(both, batch, NETWORK))
    np.testing.assert_allclose(found, predict(again, batch[:, :, ::-1], NETWORK), atol=1e-6)
    assert np.abs(found - predict(plain, batch, NETWORK)).max() > 1e-3


def test_equal_students_are_equal_files():
    """A header of two entries would be written in a random order."""
    assert len({encode_student(untaught(), META) for _ in range(12)}) == 1
    assert encode_student(untaught(), META) != encode_student(untaught(seed=1), META)


def test_a_file_that_is_no_student_is_named(tmp_path):
    path = saved(tmp_path)
    with pytest.raises(MissingInput, match=r"make it with `python train_student.py run=other`"):
        load_student(tmp_path / "other" / "release" / "student.safetensors")
    with pytest.raises(SettingError, match="label_names"):
        save_student(path, untaught(), {"network": {}})
    save_student(path, untaught(), META | {"label_names": ["one"]})
    with pytest.raises(DataError, match=r"student.safetensors must be a student written by"):
        load_student(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"student.safetensors must be a student written by"):
        load_student(path)
    with pytest.raises(DataError, match="must be a student written by"):
        load_student(tmp_path)


def test_pictures_are_read_as_data_sets_are(tmp_path):
    path = draw(tmp_path / "face.png")
    np.testing.assert_array_equal(read_image(path, (32, 32, 3)), decode(path, 32))
    turned = Image.open(path).convert("RGB")
    exif = turned.getexif()
    exif[274] = 6  # to be seen turned by a quarter
    turned.save(tmp_path / "turned.png", exif=exif)
    assert not np.array_equal(read_image(tmp_path / "turned.png", (32, 32, 3)), decode(path, 32))


def test_pictures_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "torn.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"torn.png must be a picture"):
        read_image(tmp_path / "torn.png", (32, 32, 3))
    with pytest.raises(DataError, match=r"absent.png must be a picture"):
        read_image(tmp_path / "absent.png", (32, 32, 3))
    with pytest.raises(DataError, match="takes rows of 7 features"):
        read_image(tmp_path / "torn.png", (7,))
    with pytest.raises(SettingError, match="square"):
        read_image(tmp_path / "torn.png", (32, 16, 3))


# The card


def judged():
    truth = np.array([[True, False, True], [False, False, True]])
    figures = evaluate(np.array([[0.9, 0.1, 0.9], [0.2, 0.1, 0.4]]), truth, NAMES)
    rows = {"student": figures.scalars(), "all zeros": all_zeros(truth).scalars() | {"mean_ap": None}}
    found = {"rows": rows, "attributes": figures.table(), "queries": 60, "answered": 59, "test": 2}
    return found | {"always": ["Young"], "never": []}


def section(text, name):
    return text.partition(f"## {name}\n\n")[2].partition("\n\n## ")[0]


def test_the_card_tells_what_a_stranger_must_know():
    heads = META | {"mode": "heads", "seed": 7, "labels": "l" * 64, "student": {"epochs": 12}, "mirror": True}
    heads["network"] = META["network"] | {"weights": "/home/me/public.pth", "image_size": 64}
    text = card(heads, judged(), "One claim.\n\nAnother.\n", "d" * 64)
    assert text == card(heads, judged(), "One claim.\n\nAnother.\n", "d" * 64) and text.endswith("|\n")
    assert "d" * 64 in text and "public.pth" in text and "/home/me" not in text
    assert "frozen but for its last layer" in text and "32 x 32 pixels, then to 64 x 64" in text and "mirror" in text
    assert "| `seed`   | `7`" in text and "`epochs`" in text and "60 public records" in text and "answered 59" in text
    assert "always yes" in text and "has seen one class only and says what it has seen: Young." in text
    assert "python -m pate.student predict --student student.safetensors" in text
    assert "Not for decisions about people" in text and "nor the test records it was judged on" in text
    assert re.search(r"\| student +\| +83.3 % \|", text) and re.search(r"\| all zeros .*\| +- \|", text)
    assert re.search(r"\| Wearing_Hat +\| +100.0 % .*\| +- \| +0.0 % \|", section(text, "Attributes"))


def test_the_card_begins_with_the_statement_or_says_that_there_is_none():
    text = card(META, judged(), "NOT PRIVATE: seeded.\nHad it\n\nbeen fresh.\n", "d")
    assert text.splitlines()[2:8] == ["## Privacy", "", "> NOT PRIVATE: seeded.", "> Had it", ">", "> been fresh."]
    assert "There is no privacy statement" in section(card(META, judged(), None, "d"), "Privacy")


def test_the_card_of_a_student_of_features():
    text = card(META | {"input_shape": [7]}, judged(), None, "d")
    assert "rows of 7 features" in text and "inputs (N, 7)" in text and "picture.jpg" not in text


# The command


@pytest.fixture
def type_(monkeypatch, capsys):
    """Run the command in this process; gives exit code, output and errors."""

    def typed(*words):
        monkeypatch.setattr(sys, "argv", ["student", "predict", *map(str, words)])
        code = 0
        try:
            run_script(main)
        except SystemExit as left:
            code = left.code
        return code, *capsys.readouterr()

    return typed


def test_predict_command_prints_attributes(tmp_path):
    path, face = saved(tmp_path), draw(tmp_path / "face.png")
    command = [sys.executable, "-m", "pate.student", "predict", "--student", str(path), str(face)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    title, *lines = done.stdout.splitlines()
    found = {name: float(value) for value, name in (line.split() for line in lines)}
    assert title == str(face) and list(found.values()) == sorted(found.values(), reverse=True)
    expected = predict(untaught(), read_image(face, (32, 32, 3))[None], NETWORK)[0]
    assert found == pytest.approx(dict(zip(NAMES, expected, strict=True)), abs=6e-4)


def test_predict_command_takes_runs_folders_and_many_pictures(tmp_path, type_):
    saved(tmp_path)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(70):  # more than a batch
        draw(photos / f"{number:02d}.png", seed=number, size=(32, 32))
    (photos / "notes.txt").write_text("no picture")
    code, out, err = type_("--run", "mine", "--runs", tmp_path, "--csv", photos)
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["image"] for row in rows] == [str(photos / f"{number:02d}.png") for number in range(70)]
    wanted = predict(untaught(), np.concatenate([pictures(1, seed) for seed in range(70)]), NETWORK)
    np.testing.assert_allclose([[float(row[name]) for name in NAMES] for row in rows], wanted, atol=1e-5)
    limit = float(np.median(wanted))
    rows = list(
        csv.DictReader(
            io.StringIO(type_("--run", "mine", "--runs", tmp_path, "--csv", "--threshold", limit, photos)[1])
        )
    )
    assert [[row[name] == "1" for name in NAMES] for row in rows] == (wanted >= limit).tolist()
    _, out, _ = type_("--run", "mine", "--runs", tmp_path, "--threshold", limit, photos / "00.png", photos / "01.png")
    assert out.count("\n") == 2 + int((wanted[:2] >= limit).sum())


def test_predict_command_refuses_with_a_sentence(tmp_path, type_):
    path, face = saved(tmp_path), draw(tmp_path / "face.png")
    rows = tmp_path / "rows.safetensors"
    save_student(
        rows,
        Network("linear").build(3, 0, (7,)),
        META | {"network": {"name": "linear", "weights": None}, "input_shape": [7]},
    )
    (tmp_path / "torn.safetensors").write_bytes(path.read_bytes()[:-9])
    (tmp_path / "torn.png").write_bytes(face.read_bytes()[:60])
    (tmp_path / "empty").mkdir()
    for words, sentence in (
        (("--run", "absent", "--runs", tmp_path, face), "python train_student.py run=absent"),
        (("--run", "a/b", face), "run must be a plain folder name"),
        (("--student", tmp_path / "torn.safetensors", face), "torn.safetensors must be a student"),
        (("--student", face, face), "face.png must be a student"),
        (("--student", rows, face), "takes rows of 7 features, not pictures"),
        (("--student", path, tmp_path / "torn.png"), "torn.png must be a picture"),
        (("--student", path, tmp_path / "empty"), "must hold pictures, got a folder without any"),
        (("--student", path, "--threshold", "2", face), "--threshold must be from 0 to 1, got 2.0"),
    ):
        code, out, err = type_(*words)
        assert (code, out) == (2, "") and sentence in err and err.count("\n") == 1, err
    for words in ((face,), ("--student", path, "--run", "mine", face), ("--student", path)):
        code, _, err = type_(*words)
        assert code == 2 and "usage: " in err

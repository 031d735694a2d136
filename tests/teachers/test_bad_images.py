"""Images that do not decode: a sentence before any training, or left out and listed; then teachers of the others."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pate.data.celeba import ATTRIBUTES, IDENTITY, IMAGES, PARTITION, CelebA
from pate.errors import DataError
from pate.models import Network
from pate.partition import partition
from pate.runs import Run
from pate.teachers import Teachers, train_teachers
from pate.votes import VoteStore

SCRIPT = Path(__file__).resolve().parents[2] / "train_teachers.py"
TORN = ("000007.jpg", "000043.jpg")  # one private, one that could ask a query


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """40 private images of 10 people and 12 of the test partition; two of them are cut off."""
    root, rng = tmp_path / "celeba", np.random.default_rng(0)
    (root / IMAGES).mkdir(parents=True)
    names = [f"{index + 1:06}.jpg" for index in range(52)]
    for name in names:
        Image.fromarray(rng.integers(0, 256, (24, 20, 3), np.uint8)).save(root / IMAGES / name)
    for name in TORN:
        path = root / IMAGES / name
        path.write_bytes(path.read_bytes()[:-200])
    signs = [f"{name} {' '.join(str(s) for s in rng.choice((-1, 1), 3))}" for name in names]
    (root / ATTRIBUTES).write_text("\n".join(("52", "Bald Hat Young", *signs)) + "\n")
    (root / PARTITION).write_text("".join(f"{name} {0 if i < 40 else 2}\n" for i, name in enumerate(names)))
    (root / IDENTITY).write_text("".join(f"{name} {i // 4}\n" for i, name in enumerate(names)))
    return root


def data(root: Path, **changes) -> CelebA:
    return CelebA(**{"root": str(root), "size": 16, "public": 9, "cache": str(root / "cache"), "workers": 1} | changes)


def test_by_default_nothing_is_trained(root, tmp_path, one_process):
    run = Run(tmp_path, "a")
    with pytest.raises(DataError, match=r"000007.jpg does not decode .*, nor do 1 other.*data.on_bad_image=skip"):
        train_teachers(run, data(root), Network(), Teachers(count=3, epochs=1), devices="cpu")
    assert one_process == [] and not run.folder.exists()


@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("mode", ["finetune", "heads"])
def test_skipped_ones_are_listed_and_the_others_vote(root, tmp_path, one_process, caplog, unit, mode):
    run, teachers = Run(tmp_path, "a"), Teachers(count=3, epochs=1, mode=mode, unit=unit, smallest=2)
    source = data(root, on_bad_image="skip")
    with caplog.at_level(logging.WARNING):
        summary = train_teachers(run, source, Network(), teachers, devices="cpu")
    assert all(name in caplog.text for name in TORN)
    assert summary.voted == 3 and VoteStore(run.private / "votes", 3, 9, 3).load().shape == (3, 9, 3)
    private = source.load().private
    assert len(private) == 39 and not set(TORN) & set(private.ids.tolist())
    if unit == "person":
        parts = partition(private, 3, "person", "pate", 2)
        assert sum(len(set(private.persons[part])) for part in parts) == len(set(private.persons)) == 10


def test_the_command_lists_them(root, tmp_path):
    words = f"data=celeba data.root={root} data.cache={root / 'cache'} data.size=16 data.public=9 data.workers=1"
    words += f" runs={tmp_path} run=a teachers.count=2 teachers.epochs=1 devices=cpu data.on_bad_image=skip"
    command = [sys.executable, str(SCRIPT), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 teachers of" in done.stdout, done.stderr
    assert f"left out 2 images that do not decode: {', '.join(TORN)}" in done.stderr

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tqdm import tqdm

from pate.data import cache as module
from pate.data.cache import Pictures, Wanted, cache_folder, decode, load_images
from pate.errors import DataError, SettingError

BUILD = """
import sys
from pathlib import Path
from pate.data.cache import Wanted, load_images
folder, cache, workers = sys.argv[1:]
names = sorted(path.name for path in Path(folder).iterdir())
load_images(Wanted(Path(folder), names, 64, str), "error", cache, int(workers))
"""


def picture(seed: int, width: int = 24, height: int = 24) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten images, 0.jpg to 9.jpg."""
    images = tmp_path / "images"
    images.mkdir()
    for index in range(10):
        picture(index).save(images / f"{index}.jpg")
    return images


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Enough names for two processes, of one image; the last ones, of another, take about a second."""
    images = tmp_path / "many"
    images.mkdir()
    picture(0).save(tmp_path / "small.jpg")
    picture(1, 1000, 1000).save(tmp_path / "large.jpg")
    for index in range(2 * module.PER_PROCESS):
        (images / f"{index:04}.jpg").symlink_to(tmp_path / ("small.jpg" if index < 432 else "large.jpg"))
    return images


def load(folder: Path, cache: Path, size: int = 8, on_bad_image: str = "error", workers: int = 1) -> Pictures:
    names = sorted(path.name for path in folder.iterdir())
    return load_images(Wanted(folder, names, size, lambda index: f"row {index}"), on_bad_image, str(cache), workers)


def arrays(cache: Path) -> list[Path]:
    return sorted((cache / "images").glob("*.npy"))


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("decoded again")

    monkeypatch.setattr(module, "decode_block", refuse)


# one image


def test_a_picture_is_the_centre_square_resized(tmp_path: Path) -> None:
    wide = np.zeros((16, 40, 3), np.uint8)
    wide[:, 12:28] = (10, 200, 30)  # the centre square alone is coloured
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 8) == (10, 200, 30)).all()


def test_resizing_is_antialiased(tmp_path: Path) -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    assert np.ptp(decode(tmp_path / "stripes.png", 8)[:, 1:-1].astype(int)) < 20  # grey, not stripes


def test_draft_mode_differs_little_from_a_full_decode(tmp_path: Path) -> None:
    smooth = picture(1, 6, 6).resize((240, 240), Image.Resampling.BICUBIC)
    smooth.save(tmp_path / "large.jpg", quality=95)
    full = np.asarray(smooth.resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(decode(tmp_path / "large.jpg", 32) - full).mean() < 3


def test_a_turned_photograph_is_set_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    half = np.zeros((16, 16, 3), np.uint8)
    half[:8] = 255
    Image.fromarray(half).save(tmp_path / "turned.png", exif=exif)
    assert decode(tmp_path / "turned.png", 16)[0, 0, 0] == 0


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK"])
def test_every_eight_bit_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "tif" if mode == "CMYK" else "png"
    Image.new("RGB", (9, 9), (255, 255, 255)).convert(mode).save(tmp_path / f"white.{suffix}")
    pixels = decode(tmp_path / f"white.{suffix}", 4)
    assert pixels.shape == (4, 4, 3) and (pixels == 255).all()


def test_deep_pixels_are_refused_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.full((9, 9), 40000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match="more than 8 bits"):
        decode(tmp_path / "deep.png", 4)


# the cache


def test_rows_are_the_images_in_the_order_asked(folder: Path, tmp_path: Path) -> None:
    names = ["7.jpg", "2.jpg", "5.jpg"]
    pictures = load_images(Wanted(folder, names, 8, str), "error", str(tmp_path / "cache"))
    assert isinstance(pictures.pixels, np.memmap) and pictures.pixels.dtype == np.uint8
    assert not pictures.pixels.flags.writeable
    assert np.array_equal(pictures.pixels, [decode(folder / name, 8) for name in names])
    assert pictures.kept.all() and pictures.bad == {}


def test_a_second_load_decodes_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(folder, tmp_path / "cache")
    forbid_decoding(monkeypatch)
    assert np.array_equal(load(folder, tmp_path / "cache").pixels, first.pixels)
    with pytest.raises(RuntimeError, match="decoded again"):
        load(folder, tmp_path / "cache", size=9)


def test_only_the_owner_can_read_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    load(folder, tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o755  # a folder that was given keeps its mode
    assert (tmp_path / "cache" / "images").stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "cache" / "images").iterdir()}
    assert len(modes) == 3 and set(modes.values()) == {0o600}


def test_the_default_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder(None) == Path("/somewhere/pate/images")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "pate" / "images"


def test_a_changed_image_replaces_the_cache(folder: Path, tmp_path: Path) -> None:
    before = load(folder, tmp_path / "cache").pixels.copy()
    old = arrays(tmp_path / "cache")
    picture(99).save(folder / "3.jpg")
    os.utime(folder / "3.jpg", ns=(1, 1))
    after = load(folder, tmp_path / "cache").pixels
    assert np.flatnonzero((before != after).any(axis=(1, 2, 3))).tolist() == [3]
    assert len(arrays(tmp_path / "cache")) == 1 and arrays(tmp_path / "cache") != old


def test_sizes_and_folders_have_caches_of_their_own(folder: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    twin.mkdir()
    for path in folder.iterdir():  # same names, lengths and times
        shutil.copy2(path, twin)
    for source, size in ((folder, 8), (folder, 12), (twin, 8)):
        assert load(source, tmp_path / "cache", size).pixels.shape == (10, size, size, 3)
    assert len(arrays(tmp_path / "cache")) == 3


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def pickled(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def no_facts(path: Path) -> None:
    path.with_suffix(".json").unlink()


def other_facts(path: Path) -> None:
    path.with_suffix(".json").write_text('["a list"]')


@pytest.mark.parametrize("damage", [torn, longer, flipped, empty, gone, pickled, no_facts, other_facts])
def test_a_damaged_cache_is_built_again(folder: Path, tmp_path: Path, damage) -> None:
    load(folder, tmp_path / "cache")
    (path,) = arrays(tmp_path / "cache")
    whole = path.read_bytes()
    damage(path)
    load(folder, tmp_path / "cache")
    assert path.read_bytes() == whole


def test_images_that_change_while_they_are_read_are_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.decode_block

    def disturb(*arguments):
        os.utime(folder / "0.jpg", ns=(5, 5))
        return real(*arguments)

    monkeypatch.setattr(module, "decode_block", disturb)
    with pytest.raises(DataError, match="changed while they were read"):
        load(folder, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "images").iterdir()] == ["lock"]


def test_a_missing_image_is_named_with_who_named_it(folder: Path, tmp_path: Path) -> None:
    wanted = Wanted(folder, ["1.jpg", "none.jpg"], 8, lambda index: f"list.txt line {index + 3}")
    for mode in ("error", "skip"):
        with pytest.raises(DataError, match=r"none\.jpg, named in list\.txt line 4, is missing"):
            load_images(wanted, mode, str(tmp_path / "cache"))


def test_bad_images_stop_or_are_left_out(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = load(folder, tmp_path / "other").pixels
    (folder / "4.jpg").write_bytes(b"not a picture")
    (folder / "6.jpg").write_bytes((folder / "6.jpg").read_bytes()[:-300])
    with pytest.raises(DataError, match=r"4\.jpg does not decode .*, nor do 1 other images.*on_bad_image=skip"):
        load(folder, tmp_path / "cache")
    for _ in ("after the error, from the same cache", "again"):
        caplog.clear()
        pictures = load(folder, tmp_path / "cache", on_bad_image="skip")
        assert list(pictures.bad) == ["4.jpg", "6.jpg"] and "truncated" in pictures.bad["6.jpg"]
        assert "left out 2 images that do not decode: 4.jpg, 6.jpg" in caplog.text
        assert np.flatnonzero(~pictures.kept).tolist() == [4, 6]
        assert np.array_equal(pictures.pixels, whole[pictures.kept])


def test_nothing_but_bad_images_is_an_error_even_when_skipping(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"0\.jpg does not decode .*nor do 9 other"):
        load(folder, tmp_path / "cache", on_bad_image="skip")


def test_a_cache_that_cannot_be_written_is_a_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot hold decoded images .*data\.cache=PATH"):
        load(folder, tmp_path / "file")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(DataError, match=r"GB are needed, 0\.0 GB are free"):
        load(folder, tmp_path / "cache")


def test_a_short_build_is_silent(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(folder, tmp_path / "cache")
    assert capfd.readouterr() == ("", "")


def test_a_long_build_shows_a_bar(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "tqdm", lambda **settings: tqdm(**settings | {"delay": settings["delay"] - 2}))
    load(folder, tmp_path / "cache")
    out, err = capfd.readouterr()
    assert out == "" and "10/10" in err


def test_settings_are_checked() -> None:
    for arguments, name in (
        ((0, "error", 0), "size"),
        ((8, "ignore", 0), "on_bad_image"),
        ((8, "skip", -1), "workers"),
    ):
        with pytest.raises(SettingError, match=f"{name} must be"):
            module.check_image_settings(*arguments)


# processes


def test_processes_give_the_same_bytes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "5.jpg").write_bytes(b"not a picture")
    monkeypatch.setattr(module, "BLOCK", 3)
    monkeypatch.setattr(module, "PER_PROCESS", 2)
    alone = load(folder, tmp_path / "alone", on_bad_image="skip")
    forbid_decoding(monkeypatch)  # here; the processes still can
    together = load(folder, tmp_path / "together", on_bad_image="skip", workers=2)
    assert together.bad == alone.bad
    assert arrays(tmp_path / "together")[0].read_bytes() == arrays(tmp_path / "alone")[0].read_bytes()


def test_a_process_that_dies_is_a_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PER_PROCESS", 2)
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with pytest.raises(DataError, match=r"process that decodes images died.*data\.workers=1"):
        load(folder, tmp_path / "cache", workers=2)
    assert [path.name for path in (tmp_path / "cache" / "images").iterdir()] == ["lock"]


def children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def wait_for(what) -> None:
    for _ in range(3000):
        if what():
            return
        time.sleep(0.02)
    raise TimeoutError


def start(images: Path, cache: Path, workers: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", BUILD, str(images), str(cache), str(workers)])


def test_killed_in_the_middle_then_built_again(many: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(many, cache, workers=2)
    block = module.BLOCK * 64 * 64 * 3
    wait_for(lambda: any(path.stat().st_size > block for path in (cache / "images").glob("*.tmp")))
    helpers = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert arrays(cache) == [] and list((cache / "images").glob("*.tmp"))  # it was in the middle
    wait_for(lambda: not any(Path(f"/proc/{helper}").exists() for helper in helpers))
    assert start(many, cache, workers=2).wait() == 0
    assert start(many, tmp_path / "undisturbed", workers=1).wait() == 0
    assert arrays(cache)[0].read_bytes() == arrays(tmp_path / "undisturbed")[0].read_bytes()
    assert not list((cache / "images").glob("*.tmp"))


def test_two_builders_at_once(many: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    builders = [start(many, cache, workers=1) for _ in range(2)]
    assert [builder.wait() for builder in builders] == [0, 0]
    (path,) = arrays(cache)
    assert sorted(file.suffix for file in (cache / "images").iterdir()) == ["", ".json", ".npy"]
    expected = [decode(many / name, 64) for name in ("0000.jpg", "0511.jpg")]
    assert np.array_equal(np.load(path, mmap_mode="r")[[0, 511]], expected)

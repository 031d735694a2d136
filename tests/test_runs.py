"""The run folder: private is private, files are whole, other settings are refused by name."""

import stat

import numpy as np
import pytest

from pate import runs
from pate.errors import RunChanged, SettingError
from pate.runs import Run


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_two_rooms(tmp_path):
    run = Run(tmp_path / "runs", "mine").create()
    assert mode(run.private) == 0o700 and run.release.is_dir()
    run.private.chmod(0o755)
    assert mode(Run(tmp_path / "runs", "mine").create().private) == 0o700


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b"])
def test_a_run_is_a_plain_name(tmp_path, name):
    with pytest.raises(SettingError, match="run must be a plain folder name"):
        Run(tmp_path, name)


def test_settings_are_kept_and_changes_named(tmp_path):
    run = Run(tmp_path, "mine").create()
    run.settle("teachers", {"teachers": {"count": 10, "salt": "x"}, "seed": 0})
    run.settle("teachers", {"teachers": {"count": 10, "salt": "x"}, "seed": 0})
    run.settle("other", {"seed": 5})
    with pytest.raises(RunChanged, match=r"seed was 0, is 1; teachers.count was 10, is 20; x was 'absent', is 3"):
        run.settle("teachers", {"teachers": {"count": 20, "salt": "x"}, "seed": 1, "x": 3})
    assert mode(run.private / "manifest.json") == 0o600
    assert "torch" in (run.private / "manifest.json").read_text()


def test_the_whole_configuration_is_kept(tmp_path):
    run = Run(tmp_path, "mine")
    run.record("compare", {"seed": 0})
    assert not run.private.exists()
    run.create().record("compare", {"seed": 0, "data": {"root": None}})
    path = run.private / "config" / "compare.json"
    assert '"seed": 0' in path.read_text() and mode(path) == 0o600 and mode(path.parent) == 0o700


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file"
    runs.write_bytes(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        runs.write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_files_get_their_mode(tmp_path):
    runs.write_json(tmp_path / "a" / "b.json", {"x": 1}, mode=0o600)
    assert mode(tmp_path / "a" / "b.json") == 0o600


def test_arrays_come_back_and_equal_arrays_make_equal_bytes(tmp_path):
    arrays = {"a": np.arange(5), "b": np.array(["x", "yz"]), "c": np.float64(2.5)}
    data = runs.to_npz(**arrays)
    assert data == runs.to_npz(**arrays)
    runs.write_bytes(tmp_path / "x.npz", data)
    again = runs.read_npz(tmp_path / "x.npz")
    assert all(np.array_equal(again[name], arrays[name]) for name in arrays)


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "x.npz", bad=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        runs.read_npz(tmp_path / "x.npz")


def test_flat_names():
    assert runs.flatten({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}

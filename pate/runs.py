"""The run folder: what is private, what is released, and files that are either whole or absent."""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pate.errors import RunChanged, SettingError


@dataclass(frozen=True)
class Run:
    """`<root>/<name>/private` (mode 0700, never leaves) and `<root>/<name>/release` (may be given away)."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        if not self.name or self.name in (".", "..") or set(self.name) & set("/\\\0"):
            raise SettingError("run", "a plain folder name", self.name)

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def private(self) -> Path:
        return self.folder / "private"

    @property
    def release(self) -> Path:
        return self.folder / "release"

    def create(self) -> "Run":
        """Make both rooms; the private one is opened to its owner only."""
        private_folder(self.private)
        self.release.mkdir(parents=True, exist_ok=True)
        return self

    def record(self, stage: str, config: Mapping[str, Any]) -> None:
        """Keep a stage's whole configuration and what computed it, where the run has a private room."""
        if self.private.is_dir():
            known = {"config": config, "versions": versions(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
            write_json(private_folder(self.private / "config") / f"{stage}.json", known, mode=0o600)

    def settle(self, stage: str, settings: Mapping[str, Any]) -> None:
        """Record a stage's settings on first use; afterwards refuse other ones, saying which changed."""
        path = self.private / "manifest.json"
        manifest = json.loads(path.read_text()) if path.exists() else {}
        wanted = flatten(json.loads(json.dumps(settings)))
        if stage not in manifest:
            manifest[stage] = {"settings": wanted, "versions": versions()}
            write_json(path, manifest, mode=0o600)
            return
        changed = differences(manifest[stage]["settings"], wanted)
        if changed:
            raise RunChanged(
                f"run {self.name!r} was made with other settings: {'; '.join(changed)}. "
                f"Choose another run=NAME, or give the settings it was made with."
            )


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can enter, and its parents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    path.chmod(0o700)
    return path


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write to a temporary name, sync, rename: a reader sees the old file or the new one, never a torn one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write_bytes(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode(), mode)


def to_npz(**arrays: np.ndarray | np.generic) -> bytes:
    """The bytes of an npz file; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    return buffer.getvalue()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file; nothing is ever unpickled."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@contextmanager
def board(folder: Path) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """A TensorBoard of this folder, begun anew; yields a function that takes a step and its scalars."""
    from torch.utils.tensorboard import SummaryWriter  # seconds that stages without a board need not pay

    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:

        def log(step: int, scalars: Mapping[str, float]) -> None:
            for name, value in scalars.items():
                writer.add_scalar(name, value, step)

        yield log


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    inner = (flatten(child, f"{prefix}.{key}" if prefix else str(key)) for key, child in value.items())
    return {name: leaf for part in inner for name, leaf in part.items()}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`name was A, is B` for each name whose value differs."""
    names = sorted(set(old) | set(new))
    absent = "absent"
    return [
        f"{name} was {old.get(name, absent)!r}, is {new.get(name, absent)!r}"
        for name in names
        if old.get(name, absent) != new.get(name, absent)
    ]


def versions() -> dict[str, str]:
    """What computed this run."""
    import platform
    from importlib.metadata import version

    packages = ("pate", "torch", "torchvision", "numpy", "scipy", "dp-accounting")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}

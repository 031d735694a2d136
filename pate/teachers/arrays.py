"""Large arrays on their way to other processes: as files that each of them maps."""

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np

from pate.data.records import Array
from pate.teachers.pool import Mapped


def fingerprint(*arrays: Array) -> str:
    """A short hash of arrays; of a memory-mapped one, which has been checked as a file, only some 256 rows."""
    found = hashlib.blake2b(digest_size=8)
    for array in arrays:
        found.update(f"{array.dtype.kind} {array.shape} ".encode())
        sample = array[:: max(1, len(array) // 256)] if isinstance(array, np.memmap) else array
        text = sample.dtype.kind in "UO"
        found.update("\0".join(map(str, sample)).encode() if text else np.ascontiguousarray(sample).view(np.uint8).data)
    return found.hexdigest()


def as_file(array: Array, folder: Path) -> Mapped:
    """An array as rows of a `.npy` file: of the one it is mapped from, or of one written here, named by its content."""
    there = _rows_of_file(array)
    if there is not None:
        return there
    path = (folder / f"{fingerprint(np.asarray(array))}.npy").absolute()
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    return Mapped(path)


def _rows_of_file(array: Array) -> Mapped | None:
    """Which rows of a `.npy` file an array is a view of, if it is one."""
    name = getattr(array, "filename", None)
    if not isinstance(array, np.memmap) or name is None or Path(name).suffix != ".npy" or not array.flags.c_contiguous:
        return None
    first: Array = array
    while isinstance(first.base, np.ndarray):
        first = first.base
    start, rest = divmod(array.ctypes.data - first.ctypes.data, max(1, array[:1].nbytes))
    found = Mapped(Path(name).absolute(), start, start + len(array))
    rows = found.open()
    same = not rest and (rows.shape, rows.dtype, rows.strides) == (array.shape, array.dtype, array.strides)
    return found if same and all(np.array_equal(rows[i], array[i]) for i in (0, -1)) else None

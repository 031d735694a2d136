"""Decode once: pictures become a memory-mapped uint8 array that every later run shares.

The array lies in `<cache>/images`, where `<cache>` is `$XDG_CACHE_HOME/pate` or `~/.cache/pate` unless given.
It holds private pictures: only its owner may enter the folder (0700) and read the files (0600). It may be
deleted at any time; the next run decodes again.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import shutil
import signal
import struct
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen
from typing import IO, cast

import numpy as np
from PIL import Image, ImageOps
from tqdm import tqdm

from pate.errors import DataError, require
from pate.runs import private_folder, write_json

Array = np.ndarray
Reasons = dict[str, str]  # file name -> why it is no picture
Block = tuple[Array, Reasons]  # some pictures, and what there was besides
Pipes = tuple[IO[bytes], IO[bytes]]  # a process's standard input and output

TRANSFORM = 1  # raise it when `decode` changes, so that older caches are left alone
BLOCK = 64  # pictures that a process decodes at a time
PER_PROCESS = 256  # a process pays for its start from about this many pictures on
SAMPLED = 256  # rows that the checksum covers
UNREADABLE = (  # what Pillow raises on damaged files
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pictures:
    """Decoded images.

    Attributes:
        pixels: (N, size, size, 3) uint8, memory-mapped; a row per image that decodes, in the order asked.
        kept: One bool per name asked for: whether it has a row.
        bad: The names without one, and the reasons.
    """

    pixels: Array
    kept: Array
    bad: Reasons


@dataclass(frozen=True)
class Wanted:
    """Which images, at what size: `names` below `folder`, each once; `listed(i)` says who named the i-th."""

    folder: Path
    names: Sequence[str]
    size: int
    listed: Callable[[int], str]

    def file(self) -> str:
        """The cache's name: what is wanted, then the files' state, so that a new state replaces the old."""
        folder = str(self.folder.resolve())
        wanted = "\0".join((str(TRANSFORM), str(self.size), folder, *self.names))
        state = np.fromiter((self._stat(i) for i in range(len(self.names))), np.dtype((np.int64, 2)))
        return f"{_digest(wanted.encode())}-{_digest(state.tobytes())}.npy"

    def _stat(self, index: int) -> tuple[int, int]:
        """Length and time of change of one file."""
        path = f"{self.folder}/{self.names[index]}"
        try:
            facts = os.stat(path)  # noqa: PTH116 (a Path per image doubles the time)
        except OSError as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
            raise DataError(f"image {path}, named in {self.listed(index)}, {reason}") from error
        return facts.st_size, facts.st_mtime_ns


def check_image_settings(size: int, on_bad_image: str, workers: int) -> None:
    """Refuse settings that no set of images can have."""
    require(isinstance(size, int) and size >= 1, "size", "an integer >= 1", size)
    require(on_bad_image in ("error", "skip"), "on_bad_image", "error or skip", on_bad_image)
    require(isinstance(workers, int) and workers >= 0, "workers", "an integer >= 0 (0: one per core)", workers)


def load_images(wanted: Wanted, on_bad_image: str, cache: str | None = None, workers: int = 0) -> Pictures:
    """Open the decoded images, after decoding them if that was not done yet or the files changed since.

    Args:
        wanted: Which images, at what size.
        on_bad_image: When an image does not decode: `error`, or `skip` to leave it out and list it.
        cache: Folder for decoded images; None for the default one.
        workers: Processes that decode; 0 for one per core.

    Raises:
        DataError: An image is missing, or does not decode (with `error`), or the cache cannot be written.
    """
    path = cache_folder(cache) / wanted.file()
    try:
        pictures = _open(path, wanted) or _build_alone(path, wanted, workers)
    except OSError as error:
        raise DataError(f"{path.parent} cannot hold decoded images ({error}); give data.cache=PATH") from error
    _judge(wanted.folder, pictures.bad, on_bad_image)
    return pictures


def cache_folder(cache: str | None) -> Path:
    """Where decoded images are kept: a folder of their own, so that no other folder's mode is touched."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache if cache is not None else f"{base}/pate").expanduser() / "images"


def decode(path: Path, size: int) -> Array:
    """One image as (size, size, 3) uint8: upright, its centre square, resized with antialiasing."""
    with Image.open(path) as image:
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"mode {image.mode} has more than 8 bits per channel")
        image.draft("RGB", (size, size))  # a JPEG much larger than needed is decoded at 1/2, 1/4 or 1/8
        ImageOps.exif_transpose(image, in_place=True)
        rgb = image.convert("RGB")
    side = min(rgb.size)
    left, top = ((length - side) // 2 for length in rgb.size)
    square = rgb.crop((left, top, left + side, top + side))
    return np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))


def _judge(folder: Path, bad: Reasons, on_bad_image: str) -> None:
    """Refuse images that do not decode, or list those that were left out."""
    if not bad:
        return
    if on_bad_image == "skip":
        log.warning("left out %d images that do not decode: %s", len(bad), ", ".join(bad))
        return
    name, reason = next(iter(bad.items()))
    others = f", nor do {len(bad) - 1} other images" if len(bad) > 1 else ""
    raise DataError(
        f"image {folder / name} does not decode ({reason}){others}; "
        f"replace what is damaged, or leave it out with data.on_bad_image=skip"
    )


def _open(path: Path, wanted: Wanted) -> Pictures | None:
    """The cache, if it is there and whole."""
    try:
        facts = json.loads(path.with_suffix(".json").read_text())
        bad = {name: facts["bad"][name] for name in wanted.names if name in facts["bad"]}
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        whole = facts == _facts(path, pixels, bad)
    except (OSError, EOFError, ValueError, TypeError, KeyError):
        return None
    kept = np.array([name not in bad for name in wanted.names])
    shape = (int(kept.sum()), wanted.size, wanted.size, 3)
    return Pictures(pixels, kept, bad) if whole and pixels.dtype == np.uint8 and pixels.shape == shape else None


def _facts(path: Path, pixels: Array, bad: Reasons) -> dict[str, object]:
    """What stands beside the array: its length in bytes, a checksum of rows spread over it, what is bad."""
    rows = np.unique(np.linspace(0, len(pixels) - 1, SAMPLED).astype(int))
    return {"bytes": path.stat().st_size, "crc32": zlib.crc32(pixels[rows].tobytes()), "bad": bad}


def _build_alone(path: Path, wanted: Wanted, workers: int) -> Pictures:
    """Decode while no other process does; a process that had to wait finds the work done."""
    private_folder(path.parent)
    with _lock(path.parent) as alone:
        done = _open(path, wanted)
        if done:
            return done
        if alone:
            _remove(path.parent.glob("*.tmp"))  # left behind by processes that were killed
        bad = _build(path, wanted, workers)
        facts = _facts(path, np.load(path, mmap_mode="r"), bad)
        write_json(path.with_suffix(".json"), facts, mode=0o600)
        if alone:
            group = path.name.partition("-")[0]  # the same images in another state: never to be opened again
            _remove(old for old in path.parent.glob(f"{group}-*") if old.stem != path.stem)
    built = _open(path, wanted)
    if built is None:
        raise OSError(f"{path.name} is not what was written")
    return built


@contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which the kernel takes from the dead; False if the file system has none."""
    path = folder / "lock"
    path.touch(mode=0o600)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            log.info("waiting for another process that decodes images into %s", folder)
            fcntl.flock(file, fcntl.LOCK_EX)
            alone = True
        except OSError:
            alone = False  # every file is renamed into place: two builders cost time, not correctness
        yield alone


def _build(path: Path, wanted: Wanted, workers: int) -> Reasons:
    """Write the array under a temporary name, sync it, rename it; returns what did not decode."""
    need, free = len(wanted.names) * wanted.size**2 * 3, shutil.disk_usage(path.parent).free
    if need > free:
        raise OSError(f"{need / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            bad = _write(file, wanted, workers)
            file.flush()
            os.fsync(file.fileno())
        if wanted.file() != path.name:
            raise DataError(f"images in {wanted.folder} changed while they were read; run the command again")
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return bad


def _write(file: IO[bytes], wanted: Wanted, workers: int) -> Reasons:
    """Decode into a file, block by block; the header comes again at the end, when the rows are counted."""
    bad: Reasons = {}
    total = len(wanted.names)
    _write_header(file, total, wanted.size)
    with closing(_decode_all(wanted, workers)) as blocks, tqdm(total=total, desc="images", delay=2) as bar:
        for pixels, reasons in blocks:
            file.write(pixels.tobytes())
            bad |= reasons
            bar.update(len(pixels) + len(reasons))
    if len(bad) == total:
        _judge(wanted.folder, bad, "error")
    file.seek(0)
    _write_header(file, total - len(bad), wanted.size)
    return bad


def _write_header(file: IO[bytes], rows: int, size: int) -> None:
    """Numpy pads the header so that its length does not depend on the number of rows."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (rows, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)


def _decode_all(wanted: Wanted, workers: int) -> Generator[Block, None, None]:
    """Blocks of pictures in the order of names; in this process if they are few."""
    names = wanted.names
    blocks = [list(names[start : start + BLOCK]) for start in range(0, len(names), BLOCK)]
    processes = min(workers or _cores(), len(names) // PER_PROCESS)
    if processes < 2:
        yield from (decode_block(wanted.folder, wanted.size, block) for block in blocks)
        return
    with ExitStack() as stack:
        idle: SimpleQueue[Pipes] = SimpleQueue()
        for _ in range(processes):
            idle.put(stack.enter_context(_helper(wanted)))
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        stack.callback(threads.shutdown, cancel_futures=True)
        yield from _in_order(threads, partial(_ask, idle), blocks, ahead=4 * processes)


def _in_order(
    threads: ThreadPoolExecutor, work: Callable[[list[str]], Block], blocks: list[list[str]], ahead: int
) -> Iterator[Block]:
    """Results in order, computed only a few ahead of the reader so that memory stays small."""
    waiting: deque[Future[Block]] = deque()
    for block in blocks:
        waiting.append(threads.submit(work, block))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _helper(wanted: Wanted) -> Iterator[Pipes]:
    """A process that decodes what its standard input names, and ends with it: when this process does, at the latest.

    Started from scratch, as multiprocessing would import the running script, and torch with it, in every process.
    """
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    command = (sys.executable, "-P", "-m", __name__, str(wanted.folder), str(wanted.size))
    settings = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    process = Popen(command, stdin=PIPE, stdout=PIPE, env=settings)
    try:
        yield cast(Pipes, (process.stdin, process.stdout))
    finally:
        with suppress(BrokenPipeError):
            process.communicate()


def _ask(idle: "SimpleQueue[Pipes]", names: list[str]) -> Block:
    """Have an idle process decode: a line of names goes out; shape and what is bad, then pixels, come back."""
    question, answer = pipes = idle.get()
    try:
        question.write(json.dumps(names).encode() + b"\n")
        question.flush()
        shape, bad = json.loads(answer.readline())
        return np.frombuffer(answer.read(math.prod(shape)), np.uint8).reshape(shape), bad
    except (OSError, ValueError) as error:
        raise DataError(
            "a process that decodes images died; run the command again, or decode in this one: data.workers=1"
        ) from error
    finally:
        idle.put(pipes)


def _serve(folder: str, size: str) -> None:
    """The other end of `_ask`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end ends this
    for line in sys.stdin.buffer:
        pixels, bad = decode_block(Path(folder), int(size), json.loads(line))
        sys.stdout.buffer.write(json.dumps((pixels.shape, bad)).encode() + b"\n" + pixels.tobytes())
        sys.stdout.buffer.flush()


def decode_block(folder: Path, size: int, names: list[str]) -> Block:
    """The pictures of the images that decode, and the reasons of those that do not."""
    pixels: list[Array] = []
    bad: Reasons = {}
    for name in names:
        try:
            pixels.append(decode(folder / name, size))
        except UNREADABLE as error:
            bad[name] = f"{type(error).__name__}: {error}"
    return np.array(pixels, np.uint8).reshape(-1, size, size, 3), bad


def _cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink(missing_ok=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


if __name__ == "__main__":
    _serve(*sys.argv[1:])

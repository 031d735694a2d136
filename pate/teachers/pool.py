"""A supervised pool: one long-lived process per device slot, pinned before torch is imported, replaced when it dies.

The parent imports nothing heavy from here; a spawned process finds its device in the environment it is born with.
"""

import ctypes
import functools
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from pate.errors import PateError, require

ATTEMPTS = 3  # how often a job may lose its process, and a slot its process in a row before it is ready
GOODBYE = 5.0  # seconds that a process has to end in order
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
SPAWN = get_context("spawn")


class JobFailed(PateError):
    """A job raised an exception, or lost its process too often."""


@dataclass(frozen=True)
class Mapped:
    """Rows of a `.npy` file among the shared values; each process sees them as a read-only memory-mapped array."""

    path: Path
    start: int = 0
    stop: int | None = None

    def open(self) -> np.ndarray:
        """Map it."""
        rows: np.ndarray = np.load(self.path, mmap_mode="r", allow_pickle=False)[self.start : self.stop]
        return rows


@dataclass(frozen=True)
class Result:
    """What became of a job.

    Attributes:
        index: its position in the list of jobs.
        outcome: what the function returned; None if there is an error.
        error: why there is no outcome.
        attempts: 1, or more if processes died under it.
        seconds: of the last attempt.
        device: where it ran.
    """

    index: int
    outcome: Any
    error: PateError | None
    attempts: int
    seconds: float
    device: str

    def value(self) -> Any:
        """The outcome; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.outcome


def find_devices(words: str = "auto") -> list[str]:
    """The devices that a setting names.

    Args:
        words: `auto` (all GPUs, else the CPU), `cpu`, or a list such as `cuda:0,cuda:1`.
    """
    names = [word.strip() for word in words.split(",")]
    if names == ["cpu"]:
        return names
    gpus = [f"cuda:{index}" for index in range(_count_gpus())]
    if names == ["auto"]:
        return gpus or ["cpu"]
    known = all(name in gpus for name in names) and len(set(names)) == len(names)
    here = ", ".join(gpus) or "none here"
    require(known, "devices", f"auto, cpu or a list of this machine's GPUs ({here})", words)
    return names


def _count_gpus() -> int:
    import torch  # counts without starting CUDA in this process

    return torch.cuda.device_count()


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _slots(device: str) -> int:
    return cores() if device == "cpu" else 1


class Pool:
    """Runs jobs on every slot of every device and survives the death of any of its processes."""

    def __init__(self, devices: str | Sequence[str], slots_per_device: int = 0, initializer: str | None = None) -> None:
        """Nothing is started yet.

        Args:
            devices: words for `find_devices`, or its answer; `cuda:I` counts among the GPUs this process may see.
            slots_per_device: processes per device; 0 is one per core for the CPU, one for a GPU.
            initializer: `module:name` of a function that each process calls once, with its device, before any job.
        """
        names = find_devices(devices) if isinstance(devices, str) else list(devices)
        require(len(names) > 0, "devices", "at least one", names)
        require(slots_per_device >= 0, "slots_per_device", ">= 0", slots_per_device)
        turns = [(turn, name) for name in names for turn in range(slots_per_device or _slots(name))]
        self.slots = [name for _, name in sorted(turns, key=lambda slot: slot[0])]  # few jobs spread over all devices
        self.initializer = initializer
        self.workers: list[_Worker] = []

    @property
    def busy(self) -> int:
        """How many slots are at work now."""
        return sum(worker.job is not None for worker in self.workers)

    def run(
        self, function: str, shared: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], first: int = 0
    ) -> Iterator[Result]:
        """Call `function(shared, job, device)` for every job; results come as they are ready.

        A job whose process dies is given to a new one, at most 3 times in all; then it is reported and the rest
        goes on. An exception in a job is reported and not retried. When the iterator ends, is closed, or is left
        by an exception (Ctrl-C), no process remains; neither does one when the parent is killed.

        Args:
            function: `module:name`; imported by the processes only. It sees its device as cpu or cuda:0.
            shared: sent to each process once, so keep it small: large arrays go as `Mapped` files.
            jobs: one mapping each.
            first: so many jobs of the list have all ended before any other begins.

        Raises:
            PateError: processes cannot start at all.
        """
        call = Call(function, dict(shared), self.initializer)
        todo = _Todo(jobs, first, patience=ATTEMPTS * len(self.slots))
        try:
            for device in self.slots[: len(jobs)]:
                self.workers.append(_start(device, call))
            while todo.open:
                results = list(self._collect(call, todo))
                self._hand_out(todo)  # first, so that nobody idles while the caller looks at the results
                yield from results
        finally:
            self._stop()

    def close(self) -> None:
        """Nothing is left running between runs; there is nothing to close."""

    def _hand_out(self, todo: "_Todo") -> None:
        """Give a job to each worker that is ready and has none."""
        for worker in self.workers:
            if worker.ready and worker.job is None and todo.may_begin:
                worker.job, worker.since = todo.waiting.popleft(), time.perf_counter()
                todo.attempts[worker.job] += 1
                with suppress(OSError):  # it has just died, which _collect will notice
                    worker.pipe.send(dict(todo.jobs[worker.job]))

    def _collect(self, call: "Call", todo: "_Todo") -> Iterator[Result]:
        """Wait until some worker speaks or dies; replace the dead while jobs wait."""
        heard = set(wait([end for worker in self.workers for end in worker.ends]))
        for worker in [each for each in self.workers if heard.intersection(each.ends)]:
            message = worker.receive()
            if message is not None:
                yield from todo.understand(worker, *message)
                continue
            self.workers.remove(worker)
            yield from todo.bury(worker)
            if todo.waiting:
                self.workers.append(_start(worker.device, call))

    def _stop(self) -> None:
        """End all processes: the idle are let go, the others killed; they write only whole files."""
        for worker in self.workers:
            worker.leave()
        while self.workers:
            self.workers.pop().end()


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, and the job it has."""

    device: str
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    job: int | None = None
    since: float = 0.0

    @property
    def ends(self) -> tuple[Connection, int]:
        """What to wait for: a message, or the end of the process."""
        return self.pipe, self.process.sentinel

    def receive(self) -> tuple[str, Any] | None:
        """The next message, which a process may leave behind when it ends; None if there is none any more."""
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None

    def leave(self) -> None:
        """Close the pipe, at which an idle process ends by itself, in order; end any other one."""
        self.pipe.close()
        if self.job is not None or not self.ready:
            self.process.kill()

    def end(self) -> str:
        """Make sure that it has ended; how it did."""
        self.process.join(GOODBYE)
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        self.process.close()
        self.pipe.close()
        return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class _Todo:
    """The jobs: which wait, how often each was given out, how many have no result yet."""

    def __init__(self, jobs: Sequence[Mapping[str, Any]], first: int, patience: int) -> None:
        self.jobs, self.waiting, self.attempts = jobs, deque(range(len(jobs))), [0] * len(jobs)
        self.open, self.patience, self.false_starts = len(jobs), patience, 0
        self.first, self.first_open = first, first

    @property
    def may_begin(self) -> bool:
        """Whether the next job may be given out: it is one of the first, or these have all ended."""
        return bool(self.waiting) and (self.waiting[0] < self.first or not self.first_open)

    def understand(self, worker: _Worker, word: str, content: Any) -> Iterator[Result]:
        """A worker is ready, cannot work at all, or has done its job, well or badly."""
        if word == "broken":
            raise content
        if word == "ready":
            worker.ready, self.false_starts = True, 0
        else:
            yield self.close(worker, *((content, None) if word == "value" else (None, content)))

    def bury(self, worker: _Worker) -> Iterator[Result]:
        """A worker is dead: its job waits again, unless it has waited too often."""
        how, job = worker.end(), worker.job
        if not worker.ready:
            self.false_starts += 1
            if self.false_starts >= self.patience:
                raise PateError(
                    f"{self.false_starts} processes in a row ended {how} before they were ready: is memory short, "
                    f"or does the script start its work outside of `if __name__ == '__main__':`?"
                )
        elif job is not None and self.attempts[job] < ATTEMPTS:
            self.waiting.appendleft(job)
        elif job is not None:
            yield self.close(worker, None, JobFailed(f"its process ended {how}, {ATTEMPTS} times"))

    def close(self, worker: _Worker, outcome: Any, error: PateError | None) -> Result:
        """The worker's job is over."""
        job, worker.job = worker.job, None
        if job is None:
            raise RuntimeError("a worker answered without having a job")
        self.open -= 1
        self.first_open -= job < self.first
        return Result(job, outcome, error, self.attempts[job], time.perf_counter() - worker.since, worker.device)


@dataclass(frozen=True)
class Call:
    """What every process is told once."""

    function: str
    shared: dict[str, Any]
    initializer: str | None

    def load(self, device: str) -> Callable[..., Any]:
        """The function, with what is shared; arrays are mapped."""
        if self.initializer is not None:
            _find(self.initializer)(device)
        shared = {key: value.open() if isinstance(value, Mapped) else value for key, value in self.shared.items()}
        return functools.partial(_find(self.function), shared, device=device)


def _find(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _start(device: str, call: Call) -> _Worker:
    """A new process for a slot."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_work, args=(theirs, call), daemon=True)
    with _birthplace(device):
        process.start()
    theirs.close()
    return _Worker(device, process, ours)


@contextmanager
def _birthplace(device: str) -> Iterator[None]:
    """What a new process inherits: one device, one thread, and deafness to Ctrl-C, which is the parent's to hear."""
    wanted = dict.fromkeys(THREADS, "1") | {"CUDA_VISIBLE_DEVICES": _visible(device)}
    wanted |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # what deterministic matrix products on a GPU ask for
    saved = {name: os.environ.get(name) for name in wanted}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _visible(device: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES that leaves one device; counted among those already chosen, if any."""
    if device == "cpu":
        return ""
    kind, _, index = device.partition(":")
    require(kind == "cuda" and index.isdecimal(), "devices", "cpu or cuda:I", device)
    chosen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return chosen[int(index)] if int(index) < len(chosen) else index


def _work(pipe: Connection, call: Call) -> None:
    """A process's life: load once, then jobs until the pipe closes."""
    _follow_parent()
    device = "cuda:0" if os.environ["CUDA_VISIBLE_DEVICES"] else "cpu"
    word, function = attempt(functools.partial(call.load, device))
    if word == "error":
        pipe.send(("broken", function))
        return
    pipe.send(("ready", None))
    with suppress(EOFError):
        while True:
            _answer(pipe, *attempt(functools.partial(function, pipe.recv())))


def attempt(action: Callable[[], Any]) -> tuple[str, Any]:
    """What an action gives, or one sentence about why it does not."""
    try:
        return "value", action()
    except PateError as error:
        return "error", error
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its result, not the end of the pool
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return "error", JobFailed(f"{type(error).__name__}: {error} ({place})")


def _answer(pipe: Connection, word: str, content: Any) -> None:
    """Send an answer; one that cannot travel becomes an error that can."""
    sent, problem = attempt(functools.partial(pipe.send, (word, content)))
    if sent == "error":
        pipe.send(("error", problem))


def _follow_parent() -> None:
    """Die with the parent, however it dies: by the kernel's word on Linux, by the end of its pipe everywhere."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    threading.Thread(target=_outlive_nothing, daemon=True).start()


def _outlive_nothing() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)

"""The same jobs as Ray tasks: on this machine, or on a cluster whose machines share the run's folder."""

import functools
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pate.errors import PateError, require
from pate.teachers.pool import ATTEMPTS, THREADS, Call, JobFailed, Result, attempt, cores
from pate.teachers.settings import Ray

KNOCK = 10.0  # seconds within which the port of a cluster must answer


class RayPool:
    """Runs jobs wherever Ray has room; a job whose process or machine is lost is given out again, 3 times in all."""

    def __init__(self, settings: Ray, devices: str, slots_per_device: int = 0) -> None:
        """Nothing is started yet.

        Args:
            settings: where Ray is.
            devices: `auto` (the cluster's GPUs if it has any, else its CPUs) or `cpu`.
            slots_per_device: jobs that share a GPU; without GPUs and with a Ray of our own, jobs at a time.
        """
        require(devices in ("auto", "cpu"), "devices", "auto or cpu with teachers.engine=ray", devices)
        require(slots_per_device >= 0, "slots_per_device", ">= 0", slots_per_device)
        self.settings, self.devices, self.slots_per_device = settings, devices, slots_per_device
        self.slots: list[str] = []
        self.busy, self.ours, self.gpus = 0, False, 0.0

    def run(
        self, function: str, shared: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], first: int = 0
    ) -> Iterator[Result]:
        """Call `function(shared, job, device)` for every job; results come as they are ready. See `Pool.run`."""
        for indices in (range(first), range(first, len(jobs))):
            yield from self._run(Call(function, dict(shared), None), {index: jobs[index] for index in indices})

    def _run(self, call: Call, jobs: Mapping[int, Mapping[str, Any]]) -> Iterator[Result]:
        """Jobs that do not wait for each other."""
        ray = self._connect()
        task = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0)(_work)
        told, attempts, running = ray.put(call), dict.fromkeys(jobs, 1), {}
        try:
            running = {task.remote(told, dict(job)): index for index, job in jobs.items()}
            while running:
                self.busy = min(len(running), len(self.slots))
                for done in ray.wait(list(running), num_returns=1)[0]:
                    index = running.pop(done)
                    answer = self._answer(done, attempts[index])
                    if answer is None:
                        attempts[index] += 1
                        running[task.remote(told, dict(jobs[index]))] = index
                    else:
                        yield Result(index, answer[0], answer[1], attempts[index], *answer[2:])
        finally:
            for task_left in running:
                ray.cancel(task_left, force=True)

    def close(self) -> None:
        """Disconnect; a Ray that was started here ends."""
        if self.ours:
            _import().shutdown()
            self.ours = False

    def _connect(self) -> Any:
        """Ray, started or found; what it has."""
        ray = _import()
        if not ray.is_initialized():
            self.ours = True
            where = {"address": self.settings.address or "local"}
            size = {} if self.settings.address else {"num_cpus": self.slots_per_device or cores()}
            quiet = {"log_to_driver": False, "logging_level": "error"}
            local = {} if self.settings.address else {"include_dashboard": False}
            try:
                _knock(self.settings.address)
                ray.init(**where, **size, **quiet, **local)
            except (OSError, OverflowError, RuntimeError, ValueError) as error:
                reason = str(error).strip().splitlines()[0]
                raise PateError(f"ray.address={self.settings.address}: no Ray could be reached ({reason})") from None
        found = ray.cluster_resources()
        gpus = int(found.get("GPU", 0)) if self.devices == "auto" else 0
        self.gpus = 1 / (self.slots_per_device or 1) if gpus else 0.0
        room = gpus * (self.slots_per_device or 1) if gpus else int(found.get("CPU", 1))
        self.slots = ["cuda" if gpus else "cpu"] * room
        return ray

    def _answer(self, task: Any, attempts: int) -> tuple[Any, PateError | None, float, str] | None:
        """A task's outcome, error, seconds and device; None if its process was lost and it may be tried again."""
        ray = _import()
        try:
            word, content, seconds, device = ray.get(task)
        except ray.exceptions.RayError as error:
            if attempts < ATTEMPTS:
                return None
            reason = type(error).__name__
            return None, JobFailed(f"its process was lost {ATTEMPTS} times ({reason})"), 0.0, self.slots[0]
        return (content, None, seconds, device) if word == "value" else (None, content, seconds, device)


def _knock(address: str | None) -> None:
    """Is anybody at host:port? Ray itself would go on trying for minutes."""
    found = re.fullmatch(r"(?:ray://)?\[?(.+?)\]?:(\d+)", address or "")
    if found:
        socket.create_connection((found[1], int(found[2])), timeout=KNOCK).close()


def _import() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is done with private data is nobody's statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise PateError("teachers.engine=ray needs the extra `cluster`: pip install -e '.[cluster]'") from None
    return ray


def _work(call: Call, job: Mapping[str, Any]) -> tuple[str, Any, float, str]:
    """A task's life; one thread, as in the local pool, set before torch is imported."""
    import ray

    os.environ.update(dict.fromkeys(THREADS, "1") | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    device, began = "cuda:0" if ray.get_gpu_ids() else "cpu", time.perf_counter()
    word, content = attempt(functools.partial(_call, call, job, device))
    return word, content, time.perf_counter() - began, device


def _call(call: Call, job: Mapping[str, Any], device: str) -> Any:
    return call.load(device)(job)

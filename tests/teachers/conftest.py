"""What several tests of the factory use."""

import importlib

import pytest

from pate.errors import PateError
from pate.teachers import Mapped, Pool, Result


@pytest.fixture
def one_process(monkeypatch):
    """The pool's jobs in this process: the same function on the same files, without the seconds a start takes.

    Gives the list of what was asked for, `look` or `teach`, job by job.
    """
    asked = []

    def run(pool, function, shared, jobs, first=0):
        module, name = function.split(":")
        job_of = getattr(importlib.import_module(module), name)
        mapped = {k: v.open() if isinstance(v, Mapped) else v for k, v in shared.items()}
        for index, job in enumerate(jobs):
            asked.append("teach" if "teacher" in job else "look")
            try:
                yield Result(index, job_of(mapped, job, "cpu"), None, 1, 0.0, "cpu")
            except PateError as error:
                yield Result(index, None, error, 1, 0.0, "cpu")

    monkeypatch.setattr(Pool, "run", run)
    return asked

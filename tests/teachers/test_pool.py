"""The pool: pins devices, survives its processes, reports every job once, leaves nobody behind."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pate.errors import PateError, SettingError
from pate.teachers.pool import JobFailed, Mapped, Pool, find_devices

JOBS = "teachers.pool_jobs"
TESTS = Path(__file__).resolve().parent.parent


def run(pool, name, shared=None, jobs=()):
    results = list(pool.run(f"{JOBS}:{name}", shared or {}, jobs))
    assert sorted(result.index for result in results) == list(range(len(jobs)))  # every job, once
    assert pool.workers == []
    return sorted(results, key=lambda result: result.index)


def eventually(condition, seconds=30.0):
    for _ in range(int(seconds * 50)):
        if condition():
            return True
        time.sleep(0.02)
    return False


def alive(pid):
    """Running, not merely unburied."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_every_job_gets_what_is_shared_and_its_own_share():
    results = run(Pool(["cpu"], 2), "echo", {"word": "hello"}, [{"number": n} for n in range(7)])
    assert [result.value() for result in results] == [("hello", n, "cpu") for n in range(7)]
    assert {result.attempts for result in results} == {1} and {result.device for result in results} == {"cpu"}


def test_no_jobs_start_no_process():
    assert run(Pool(["cpu"], 2), "no_such_function") == []


def test_each_device_is_pinned_before_anything_is_imported():
    results = run(Pool(["cuda:0", "cuda:3"], 1), "surroundings", {}, [{}] * 8)
    for result in results:
        seen = result.value()
        assert seen["CUDA_VISIBLE_DEVICES"] == result.device.removeprefix("cuda:")
        assert seen["device"] == "cuda:0"  # the only one it can see
        assert not seen["torch"]


def test_pins_count_among_the_devices_already_chosen(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    (result,) = run(Pool(["cuda:1"]), "surroundings", {}, [{}])
    assert result.value()["CUDA_VISIBLE_DEVICES"] == "7"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"  # ours is as it was


def test_cpu_processes_see_no_gpu_and_use_one_thread():
    (result,) = run(Pool(["cpu"], 1, initializer=f"{JOBS}:settle_in"), "surroundings", {}, [{}])
    seen = result.value()
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["OMP_NUM_THREADS"], seen["MKL_NUM_THREADS"]) == ("", "1", "1")
    assert seen["SETTLED_ON"] == seen["device"] == "cpu"


def test_processes_are_long_lived_and_as_many_as_slots():
    pids = [result.value() for result in run(Pool(["cpu"], 2), "pid", {}, [{}] * 40)]
    assert len(set(pids)) <= 2 and os.getpid() not in pids


def test_slots_spread_over_devices():
    assert Pool(["cuda:0", "cuda:1"], 2).slots == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert Pool(["cuda:0", "cuda:1"]).slots == ["cuda:0", "cuda:1"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert Pool("cpu").slots == ["cpu"] * cores


def test_the_first_jobs_have_ended_before_the_others_begin(tmp_path):
    jobs = [{"number": number} for number in range(6)]
    results = list(Pool(["cpu"], 2).run(f"{JOBS}:count_done", {"folder": str(tmp_path)}, jobs, first=3))
    found = {result.index: result.value() for result in results}
    assert all(found[index] >= 3 for index in (3, 4, 5)) and found[0] < 3


def test_mapped_files_arrive_as_read_only_maps(tmp_path):
    values = np.arange(12).reshape(3, 4)
    np.save(tmp_path / "values.npy", values)
    jobs = [{"row": row} for row in range(3)]
    results = run(Pool(["cpu"], 1), "total", {"values": Mapped(tmp_path / "values.npy")}, jobs)
    assert [result.value() for result in results] == [(int(row.sum()), "memmap", False) for row in values]


def test_an_exception_is_reported_with_its_sentence_and_not_retried(tmp_path):
    words = ["fine", "raise", "mistake", "unpicklable", "fine"]
    results = run(Pool(["cpu"], 1), "misbehave", {}, [{"what": word} for word in words])
    assert [result.outcome for result in results] == ["fine", None, None, None, "fine"]
    assert "ZeroDivisionError: division by zero (pool_jobs.py:" in str(results[1].error)
    assert isinstance(results[2].error, SettingError) and str(results[2].error) == "sigma must be > 0, got -1"
    assert isinstance(results[3].error, JobFailed)
    assert {result.attempts for result in results} == {1}
    with pytest.raises(SettingError, match="sigma must be > 0"):
        results[2].value()


def test_a_job_that_loses_its_process_is_retried_and_at_last_reported(tmp_path):
    words = ["fine", "die3", "fine", "die2", "die1", "fine"]
    jobs = [{"what": word, "number": number} for number, word in enumerate(words)]
    results = run(Pool(["cpu"], 2), "misbehave", {"folder": str(tmp_path)}, jobs)
    assert [result.attempts for result in results] == [1, 3, 1, 3, 2, 1]
    assert [result.outcome for result in results] == ["fine", None, "fine", 2, 1, "fine"]
    assert isinstance(results[1].error, JobFailed) and "SIGKILL, 3 times" in str(results[1].error)


def test_a_worker_killed_from_outside_costs_one_attempt(tmp_path):
    pool = Pool(["cpu"], 2)
    results = pool.run(f"{JOBS}:linger", {"folder": str(tmp_path)}, [{"number": n} for n in range(3)])

    def kill_the_first():
        assert eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        os.kill(int(next(tmp_path.glob("begun-0-*")).name.split("-")[2]), signal.SIGKILL)
        assert eventually(lambda: len(list(tmp_path.glob("begun-0-*"))) == 2)  # somebody else has begun it again
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    found = {result.index: (result.value(), result.attempts) for result in results}
    killer.join()
    assert found == {0: (0, 2), 1: (1, 1), 2: (2, 1)}


def test_leaving_the_results_ends_all_processes(tmp_path):
    pool = Pool(["cpu"], 2)
    (tmp_path / "go").touch()
    results = pool.run(f"{JOBS}:linger", {"folder": str(tmp_path)}, [{"number": n} for n in range(50)])
    next(results)
    pids = [worker.process.pid for worker in pool.workers]
    results.close()
    assert len(pids) == 2 and not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("name", ["no_such_module:f", f"{JOBS}:no_such_function"])
def test_a_function_that_is_not_there_ends_the_run_at_once(name):
    with pytest.raises(PateError, match="no_such"):
        list(Pool(["cpu"], 1).run(name, {}, [{}] * 5))


def test_a_failing_initializer_ends_the_run_at_once():
    with pytest.raises(SettingError, match="initializer must be able to start"):
        list(Pool(["cpu"], 1, initializer=f"{JOBS}:fail_to_settle_in").run(f"{JOBS}:pid", {}, [{}] * 5))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from pate.teachers.pool import Pool
assert "torch" not in sys.modules
def work():
    jobs = [{{"number": number}} for number in range(9)]
    for result in Pool(["cpu"], 2).run("teachers.pool_jobs:linger", {{"folder": {folder!r}}}, jobs):
        print(result.value(), flush=True)
{guard}
"""


def script(folder, guard="if __name__ == '__main__':\n    work()"):
    path = folder / "script.py"
    path.write_text(SCRIPT.format(tests=str(TESTS), folder=str(folder), guard=guard))
    hear = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore Ctrl-C
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(path)], **pipes, preexec_fn=hear)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_parent_however_it_ends(tmp_path, number):
    parent = script(tmp_path)
    assert eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    pids = [int(path.name.split("-")[2]) for path in tmp_path.glob("begun-*")]
    assert all(alive(pid) for pid in pids)
    parent.send_signal(number)
    errors = parent.communicate(timeout=30)[1]
    assert parent.returncode == -number
    assert eventually(lambda: not any(alive(pid) for pid in pids), 5)
    assert errors.count("Traceback") == (number == signal.SIGINT)  # the parent's own; the workers are quiet


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    errors = script(tmp_path, guard="work()").communicate(timeout=60)[1]
    last = errors.strip().splitlines()[-1]
    assert last.startswith("pate.errors.PateError") and "if __name__ == '__main__':" in last


@pytest.mark.parametrize(
    ("words", "gpus", "found"),
    [
        ("auto", 0, ["cpu"]),
        ("auto", 2, ["cuda:0", "cuda:1"]),
        ("cpu", 2, ["cpu"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cuda:0, cuda:1", 2, ["cuda:0", "cuda:1"]),
    ],
)
def test_devices_by_word(monkeypatch, words, gpus, found):
    monkeypatch.setattr("pate.teachers.pool._count_gpus", lambda: gpus)
    assert find_devices(words) == found


@pytest.mark.parametrize(("words", "gpus"), [("cuda:0", 0), ("cuda:2", 2), ("gpu", 2), ("", 0), ("cuda:0,cuda:0", 1)])
def test_devices_that_are_not_here_are_refused(monkeypatch, words, gpus):
    monkeypatch.setattr("pate.teachers.pool._count_gpus", lambda: gpus)
    with pytest.raises(SettingError, match="devices must be auto, cpu or"):
        find_devices(words)


def test_bad_pools_are_refused():
    with pytest.raises(SettingError, match="devices"):
        Pool([])
    with pytest.raises(SettingError, match="slots_per_device"):
        Pool(["cpu"], -1)
    with pytest.raises(SettingError, match="cpu or cuda:I"):
        list(Pool(["tpu"], 1).run(f"{JOBS}:pid", {}, [{}]))

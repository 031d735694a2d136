"""Ray: the same jobs, the same votes; a worker killed costs an attempt; absent, it is asked for."""

import os
import signal
import socket
import sys
import threading
import time
import types
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate.data.faces import Faces
from pate.errors import PateError, SettingError
from pate.models import Network
from pate.runs import Run
from pate.teachers import Ray, Teachers, train_teachers
from pate.teachers.cluster import RayPool
from pate.votes import VoteStore

DATA = Faces(private=160, public=12, test=1)
FINETUNE = Teachers(count=8, epochs=12, batch_size=16, slots_per_device=2)
HEADS = replace(FINETUNE, mode="heads")


def votes_of(run):
    return VoteStore(run.private / "votes", 8, 12, 40).load()


def test_ray_is_asked_for_where_it_is_absent(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PateError, match=r"needs the extra `cluster`: pip install -e '.\[cluster\]'"):
        train_teachers(Run(tmp_path, "a"), DATA, Network(), replace(FINETUNE, engine="ray"), devices="cpu")


def test_devices_by_number_are_the_local_pools():
    with pytest.raises(SettingError, match="devices must be auto or cpu with teachers.engine=ray"):
        RayPool(Ray(), "cuda:0")


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_is_not_there_is_a_sentence_at_once(monkeypatch, scheme):
    """Ray would try for minutes; a port that nobody listens at is known before."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    quiet = types.SimpleNamespace(is_initialized=lambda: False, init=pytest.fail, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", quiet)
    pool = RayPool(Ray(f"{scheme}127.0.0.1:{port}"), "cpu")
    with pytest.raises(PateError, match=rf"ray.address=.*127.0.0.1:{port}: no Ray could be reached \(.*refused"):
        list(pool.run("module:function", {}, [{}]))
    pool.close()


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ray_workers():
    """Processes at work for the Ray that this process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            pid = above = int(path.parent.name)
            if path.read_bytes().startswith(b"ray::_work"):
                while above > 1 and above != os.getpid():
                    above = parent_of(above)
                found += [pid] * (above == os.getpid())
    return found


def kill_one(run, killed):
    for _ in range(6000):
        busy = ray_workers() if list((run.private / "votes").glob("teacher-*")) else []
        if busy:
            os.kill(busy[0], signal.SIGKILL)
            killed.append(busy[0])
            return
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("teachers", [FINETUNE, HEADS], ids=["finetune", "heads"])
def test_two_workers_one_of_them_killed_vote_the_same(tmp_path, one_process, teachers):
    ray = pytest.importorskip("ray", reason="needs the extra `cluster`")
    train_teachers(Run(tmp_path, "local"), DATA, Network(), teachers, devices="cpu")
    run, killed = Run(tmp_path, "ray"), []
    killer = threading.Thread(target=kill_one, args=(run, killed))
    killer.start()
    summary = train_teachers(run, DATA, Network(), replace(teachers, engine="ray"), devices="cpu")
    killer.join()
    assert killed and summary.trained == 8 and not ray.is_initialized()  # none is left running
    assert np.array_equal(votes_of(run), votes_of(Run(tmp_path, "local")))


@pytest.mark.slow
def test_errors_and_lost_processes_are_reported_once(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    tests = str(Path(__file__).resolve().parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH")))))
    words = ["fine", "raise", "mistake", "die3", "die1"]
    jobs = [{"what": word, "number": number} for number, word in enumerate(words)]
    pool = RayPool(Ray(), "cpu", 2)
    try:
        done = pool.run("teachers.pool_jobs:misbehave", {"folder": str(tmp_path)}, jobs)
        results = sorted(done, key=lambda result: result.index)
    finally:
        pool.close()
    assert [result.outcome for result in results] == ["fine", None, None, None, 1]
    assert [result.attempts for result in results] == [1, 1, 1, 3, 2]
    assert "ZeroDivisionError" in str(results[1].error) and str(results[2].error) == "sigma must be > 0, got -1"
    assert "its process was lost 3 times" in str(results[3].error)

"""What the tests let the pool's processes do."""

import os
import signal
import sys
import time
from pathlib import Path

from pate.errors import SettingError

BORN_WITH_TORCH = "torch" in sys.modules


def settle_in(device):
    """An initializer that can be seen from a job."""
    os.environ["SETTLED_ON"] = device


def fail_to_settle_in(device):
    raise SettingError("initializer", "able to start", device)


def echo(shared, job, device):
    return shared["word"], job["number"], device


def surroundings(shared, job, device):
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "SETTLED_ON")
    return {name: os.environ.get(name) for name in names} | {"device": device, "torch": BORN_WITH_TORCH}


def pid(shared, job, device):
    return os.getpid()


def total(shared, job, device):
    values = shared["values"]
    return int(values[job["row"]].sum()), type(values).__name__, bool(values.flags.writeable)


def misbehave(shared, job, device):
    """Return, raise, answer with what cannot travel, or die as often as told."""
    what = job["what"]
    if what == "raise":
        return 1 / 0
    if what == "mistake":
        raise SettingError("sigma", "> 0", -1)
    if what == "unpicklable":
        return lambda: None
    if what.startswith("die"):
        return _die(Path(shared["folder"]) / str(job["number"]), int(what.removeprefix("die")))
    return what


def _die(notes, times):
    done = len(notes.read_text()) if notes.exists() else 0
    if done < times:
        notes.write_text("x" * (done + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return done


def linger(shared, job, device):
    """Say that the job has begun, then wait for a file that may never come."""
    folder = Path(shared["folder"])
    (folder / f"begun-{job['number']}-{os.getpid()}").touch()
    for _ in range(6000):
        if (folder / "go").exists():
            return job["number"]
        time.sleep(0.01)
    raise TimeoutError


def count_done(shared, job, device):
    """How many jobs had ended when this one began."""
    folder = Path(shared["folder"])
    done = len(list(folder.iterdir()))
    time.sleep(0.1 * (job["number"] == 1))
    (folder / str(job["number"])).touch()
    return done

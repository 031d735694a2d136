"""An estimate: three teachers, numbers for all, and nothing left behind."""

from dataclasses import replace

import pytest

from pate.data.faces import Faces
from pate.models import Network
from pate.runs import Run
from pate.teachers import Estimate, Teachers, estimate_teachers, train_teachers

DATA = Faces(private=160, public=12, test=1)
TEACHERS = Teachers(count=8, epochs=2, estimate=True, slots_per_device=2)


@pytest.mark.parametrize("mode", ["finetune", "heads"])
def test_three_teachers_tell_for_all_and_nothing_is_kept(tmp_path, one_process, mode):
    run, teachers = Run(tmp_path / "runs", "a"), replace(TEACHERS, mode=mode)
    found = estimate_teachers(run, DATA, Network(), teachers, devices="cpu")
    assert one_process.count("teach") == 3 and list(run.root.iterdir()) == []
    assert (found.teachers, found.slots) == (8, 2)
    assert 0 < found.seconds < 600 and found.memory_mb > 100 and 0.01 < found.disk_mb < 100
    assert str(found).startswith("estimate: 8 teachers on 2 slots need about ")
    kept = estimate_teachers(run, DATA, Network(), replace(teachers, keep_checkpoints=True), devices="cpu")
    assert kept.disk_mb > found.disk_mb + 0.5


def test_only_what_is_missing_is_predicted(tmp_path, one_process):
    run, real = Run(tmp_path, "a"), replace(TEACHERS, estimate=False)
    train_teachers(run, DATA, Network(), replace(real, shard="1/2"), devices="cpu")
    before = sorted(path for path in tmp_path.rglob("*"))
    assert estimate_teachers(run, DATA, Network(), TEACHERS, devices="cpu").teachers == 4
    assert estimate_teachers(run, DATA, Network(), replace(TEACHERS, shard="2/4"), devices="cpu").teachers == 2
    assert sorted(path for path in tmp_path.rglob("*")) == before
    train_teachers(run, DATA, Network(), real, devices="cpu")
    assert estimate_teachers(run, DATA, Network(), TEACHERS, devices="cpu").seconds == 0


def test_durations_can_be_read():
    assert "2 h 30 min" in str(Estimate(800, 2, 9000.0, 1.0, 1.0)) and "12 s" in str(Estimate(8, 2, 12.0, 1.0, 1.0))

"""Teacher settings check themselves and say what is available."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pate.errors import SettingError
from pate.settings import build
from pate.teachers import Teachers

CONF = Path(__file__).resolve().parents[2] / "conf"


def test_the_defaults_are_those_of_the_file():
    assert build(OmegaConf.to_container(OmegaConf.load(CONF / "teachers" / "default.yaml"))) == Teachers()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("count", 0, ">= 1"),
        ("epochs", 0, ">= 1"),
        ("batch_size", 1, ">= 2"),
        ("smallest", 1, ">= 2"),
        ("slots_per_device", -1, ">= 0"),
        ("learning_rate", 0.0, "> 0 and < 10"),
        ("learning_rate", float("nan"), "> 0 and < 10"),
        ("weight_decay", -0.1, ">= 0 and < 100"),
        ("unit", "family", "one of record, person"),
        ("mode", "head", "one of finetune, heads"),
        ("engine", "slurm", "one of local, ray"),
        ("precision", "bf16", "one of float32, bfloat16, float16"),
        ("ridge", 0.0, "> 0 and < 1000000"),
        ("shard", "0/4", "I/N with I from 1 to N, e.g. 3/16"),
        ("shard", "5/4", "I/N with I from 1 to N, e.g. 3/16"),
        ("shard", "half", "I/N with I from 1 to N, e.g. 3/16"),
    ],
)
def test_a_bad_value_is_a_sentence(field, value, rule):
    with pytest.raises(SettingError) as caught:
        Teachers(**{field: value})
    assert str(caught.value) == f"teachers.{field} must be {rule}, got {value!r}"


def test_shards_are_a_partition_of_the_teachers():
    shards = [Teachers(shard=f"{share}/16") for share in range(1, 17)]
    assert [sum(shard.mine(teacher) for shard in shards) for teacher in range(40)] == [1] * 40
    assert [teacher for teacher in range(40) if shards[2].mine(teacher)] == [2, 18, 34]
    assert all(Teachers().mine(teacher) for teacher in range(9))


def test_settings_do_not_change():
    with pytest.raises(FrozenInstanceError):
        Teachers().count = 3


def test_matched_teachers_say_yes_as_often_as_their_records():
    """Rare labels: half says no to everything; matched picks the likeliest pairs, as many as its own records have."""
    import numpy as np
    import torch

    from pate.teachers.training import decide

    logits = torch.from_numpy(np.random.default_rng(0).normal(-9, 1, (50, 20)))
    own = np.random.default_rng(1).random((30, 20)) < 0.1
    half, matched = (decide(logits, own, Teachers(decision=how)) for how in ("half", "matched"))
    assert not half.any() and matched.sum() == round(own.mean() * 1000)
    assert logits[torch.from_numpy(matched)].min() >= logits[torch.from_numpy(~matched)].max()
    with pytest.raises(SettingError, match=r"teachers.decision must be one of half, matched"):
        Teachers(decision="never")

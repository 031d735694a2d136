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
        ("mode", "heads", "finetune (the only one available)"),
        ("engine", "ray", "local (the only one available)"),
    ],
)
def test_a_bad_value_is_a_sentence(field, value, rule):
    with pytest.raises(SettingError) as caught:
        Teachers(**{field: value})
    assert str(caught.value) == f"teachers.{field} must be {rule}, got {value!r}"


def test_settings_do_not_change():
    with pytest.raises(FrozenInstanceError):
        Teachers().count = 3

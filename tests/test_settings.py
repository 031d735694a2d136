"""Plain values become settings; mistakes end in a sentence with name, rule and value."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from pate.errors import SettingError
from pate.mechanisms import GumbelChoice, StableTopK
from pate.settings import build, check, make, pick


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 0.1
    mode: Literal["a", "b"] = "a"
    limit: int | None = None
    inner: Inner = Inner()
    many: tuple[float, ...] = ()
    raw: dict[str, Any] | None = None
    on: bool = True


def test_values_become_settings():
    made = make(Outer, {"name": "x", "rate": 2, "inner": {"size": 3}, "many": [1, 2.5], "limit": None, "mode": "b"})
    assert made == Outer("x", 2.0, "b", None, Inner(3), (1.0, 2.5))
    assert isinstance(made.rate, float)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"name": 3}, "name must be text, got 3"),
        ({"name": "x", "rate": "fast"}, "rate must be a number, got 'fast'"),
        ({"name": "x", "rate": True}, "rate must be a number, got True"),
        ({"name": "x", "mode": "c"}, "mode must be one of a, b, got 'c'"),
        ({"name": "x", "limit": 1.5}, "limit must be a whole number, got 1.5"),
        ({"name": "x", "limit": "many"}, "limit must be a whole number, got 'many'"),
        ({"name": "x", "inner": {"sise": 3}}, r"inner.sise must be a setting of Inner \(did you mean size\?\), got 3"),
        ({"name": "x", "inner": {"size": "big"}}, "inner.size must be a whole number, got 'big'"),
        ({"name": "x", "inner": 5}, "inner must be a Inner, got 5"),
        ({"name": "x", "many": 3}, "many must be a list, got 3"),
        ({"name": "x", "many": [1, "a"]}, r"many\[1\] must be a number, got 'a'"),
        ({"name": "x", "on": "yes"}, "on must be true or false, got 'yes'"),
        ({}, "name must be given, got None"),
        ({"name": "???"}, "name must be given, got None"),
    ],
)
def test_mistakes_are_named(value, sentence):
    with pytest.raises(SettingError, match=sentence):
        make(Outer, value)


def test_targets_are_built_with_what_the_program_knows():
    config = {
        "_target_": "pate.mechanisms.StableTopK",
        "choose": {"_target_": "pate.mechanisms.GumbelChoice", "scale": 3},
        "sigma": 2.0,
    }
    built = build(config, "mechanism", num_labels=5, neighbours="teacher_added", num_teachers=9)
    assert built == StableTopK(num_labels=5, choose=GumbelChoice(3.0), sigma=2.0, neighbours="teacher_added")


@pytest.mark.parametrize(
    "target", [None, 5, "os.system", "pate.nothing.Here", "pate.mechanisms.Absent", "pate.noise.seeded"]
)
def test_only_our_own_settings_classes_can_be_named(target):
    with pytest.raises(SettingError, match="mechanism._target_ must be the name of a settings class in pate"):
        build({"_target_": target}, "mechanism")


def test_nested_mistakes_carry_their_path():
    config = {
        "_target_": "pate.mechanisms.StableTopK",
        "choose": {"_target_": "pate.mechanisms.GumbelChoice", "scale": "x"},
    }
    with pytest.raises(SettingError, match="mechanism.choose.scale must be a number"):
        build(config, "mechanism", num_labels=5)


def test_pick_takes_what_a_script_names():
    assert pick(Inner, {"size": 4, "other": 1}) == Inner(4)


def test_mappings_can_stay_plain():
    assert check(dict[str, Any], {"_target_": "pate.x"}, "raw") == {"_target_": "pate.x"}

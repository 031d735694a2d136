"""The partition: each key alone decides, parts are uniform, and a refusal names a number that really fits."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pate.data.records import Records
from pate.errors import DataError, SettingError
from pate.partition import assign, digests, fitting, partition, remainder, sizes


def records(count: int, per_person: int = 1) -> Records:
    ids = np.char.mod("record-%d", np.arange(count))
    persons = np.char.mod("person-%d", np.arange(count) // per_person)
    return Records(np.zeros((count, 1), np.float32), np.zeros((count, 1), bool), ids, persons)


names = st.lists(st.text(max_size=12), min_size=1, max_size=60, unique=True)


@given(names, st.integers(1, 50), st.text(max_size=8), st.data())
def test_adding_or_removing_a_key_moves_no_other(keys, teachers, salt, data):
    whole = dict(zip(keys, assign(np.array(keys, object), teachers, salt), strict=True))
    kept = data.draw(st.permutations(keys))[: len(keys) // 2]
    rest = assign(np.array(kept, object), teachers, salt)
    assert {key: whole[key] for key in kept} == dict(zip(kept, rest, strict=True))
    assert all(0 <= teacher < teachers for teacher in whole.values())


def test_removing_a_record_changes_one_part_only():
    everyone = records(400)
    gone = 123
    before = partition(everyone, 8, "record", "salt")
    after = partition(everyone.take(np.delete(np.arange(400), gone)), 8, "record", "salt")
    kept = np.delete(everyone.ids, gone)
    changed = [t for t in range(8) if everyone.ids[before[t]].tolist() != kept[after[t]].tolist()]
    assert changed == [int(assign(everyone.ids[[gone]], 8, "salt")[0])]


def test_assignment_never_changes_between_versions():
    keys = np.array(["face-0000000", "face-0000001", "000001.jpg", "", "é"])
    assert assign(keys, 1000, "pate").tolist() == [932, 385, 863, 41, 784]


def test_salt_and_key_are_kept_apart():
    assert digests(np.array(["bc"]), "a")[0] != digests(np.array(["c"]), "ab")[0]
    moved = assign(records(1000).ids, 10, "one") != assign(records(1000).ids, 10, "two")
    assert 850 < moved.sum() < 950


@pytest.mark.parametrize("teachers", [2, 7, 64, 250])
def test_parts_are_uniform(teachers):
    counts = np.bincount(assign(records(20_000).ids, teachers, "salt"), minlength=teachers)
    assert 0.001 < chisquare(counts).pvalue < 0.999


def test_demo_parts_have_the_expected_spread():
    spread = sizes(partition(records(12_500), 250, "record", "pate"))
    assert spread["mean"] == 50 and abs(spread["median"] - 50) <= 2
    assert 25 <= spread["min"] < 40 and 60 < spread["max"] <= 80


@pytest.mark.parametrize("unit", ["record", "person"])
def test_every_record_has_one_teacher(unit):
    parts = partition(records(300, per_person=5), 6, unit, "salt")
    assert np.sort(np.concatenate(parts)).tolist() == list(range(300))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_a_person_stays_together_as_a_person_and_not_as_records():
    everyone = records(600, per_person=6)

    def homes(unit):
        owner = np.empty(600, int)
        for teacher, part in enumerate(partition(everyone, 5, unit, "salt")):
            owner[part] = teacher
        return [len(set(owner[everyone.persons == person])) for person in np.unique(everyone.persons)]

    assert set(homes("person")) == {1}
    assert max(homes("record")) > 1


@pytest.mark.parametrize(
    ("count", "per_person", "unit", "teachers", "smallest"),
    [
        (12_500, 1, "record", 800, 8),
        (500, 1, "record", 400, 1),
        (3000, 10, "person", 120, 5),
        (40, 1, "record", 41, 20),
    ],
)
def test_too_small_parts_name_the_largest_number_that_fits(count, per_person, unit, teachers, smallest):
    everyone = records(count, per_person)
    with pytest.raises(SettingError) as refusal:
        partition(everyone, teachers, unit, "salt", smallest)
    pattern = (
        rf"teachers.count must be <= (\d+) so that every teacher gets at least {smallest} records? "
        rf"\(smallest part now (\d+)\), got {teachers}"
    )
    found = re.fullmatch(pattern, str(refusal.value))
    assert found is not None, str(refusal.value)
    fits, now = map(int, found.groups())
    keys = everyone.ids if unit == "record" else everyone.persons
    assert now == np.bincount(assign(keys, teachers, "salt"), minlength=teachers).min() < smallest
    assert min(map(len, partition(everyone, fits, unit, "salt", smallest))) >= smallest
    for between in range(fits + 1, teachers):
        assert np.bincount(assign(keys, between, "salt"), minlength=between).min() < smallest


@given(st.integers(1, 120), st.integers(2, 80), st.integers(1, 6), st.text(max_size=4))
def test_fitting_is_the_exact_maximum(count, teachers, smallest, salt):
    hashed = digests(records(count).ids, salt)
    if count < smallest:
        with pytest.raises(SettingError, match=f"private records must be >= {smallest}, got {count}"):
            fitting(hashed, teachers, smallest)
        return
    every = range(1, teachers)
    slow = [n for n in every if np.bincount(remainder(hashed, n), minlength=n).min() >= smallest]
    assert fitting(hashed, teachers, smallest) == max(slow)


def test_bad_input_is_refused_by_name():
    few = records(3)
    with pytest.raises(SettingError, match=r"teachers\.count must be >= 1, got 0"):
        partition(few, 0, "record", "salt")
    with pytest.raises(SettingError, match=r"teachers\.unit must be record or person, got 'image'"):
        partition(few, 1, "image", "salt")
    with pytest.raises(SettingError, match="private records must be >= 4, got 3"):
        partition(few, 1, "record", "salt", smallest=4)


def test_a_record_that_came_twice_is_refused():
    twice = records(4, per_person=4).take(np.array([0, 1, 1, 2]))
    with pytest.raises(DataError, match="record ids must be unique, got 'record-1' 2 times"):
        partition(twice, 1, "record", "salt")
    assert len(partition(twice, 1, "person", "salt")[0]) == 4

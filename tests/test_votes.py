"""The vote store: small, private, whole or absent; what does not belong is noticed and named."""

import hashlib
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import DataError, MissingInput, SettingError
from pate.votes import VoteStore, tally


def draw(teachers=5, queries=7, labels=3, seed=0):
    return np.random.default_rng(seed).random((teachers, queries, labels)) < 0.3


def filled(folder, votes, token="t"):
    store = VoteStore(folder / "votes", *votes.shape)
    for teacher, ballot in enumerate(votes):
        store.save(teacher, ballot, token)
    return store


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
def test_what_is_saved_is_loaded(tmp_path_factory, teachers, queries, labels, seed):
    votes = draw(teachers, queries, labels, seed)
    found = filled(tmp_path_factory.mktemp("run"), votes).load("t")
    assert found.dtype == bool and np.array_equal(found, votes)


def test_800_files_of_600_queries_and_40_labels_are_two_and_a_half_megabytes(tmp_path):
    store = VoteStore(tmp_path, 800, 600, 40)
    store.save(799, draw(1, 600, 40)[0], "t")
    assert store.path(799).stat().st_size * 800 < 2.5e6


def test_only_the_owner_can_look(tmp_path):
    store = filled(tmp_path, draw())
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()} == {0o600}


def test_what_is_missing_is_known_and_asked_for(tmp_path):
    store = filled(tmp_path, draw())
    store.path(3).unlink()
    assert store.done("t") == {0, 1, 2, 4} and store.missing("t") == [3]
    with pytest.raises(MissingInput, match=r"votes of 1 of 5 teachers .*\(first: 3\): python train_teachers.py"):
        store.load()


def test_an_empty_folder_is_all_missing(tmp_path):
    assert VoteStore(tmp_path / "never made", 2, 3, 4).missing() == [0, 1]


@pytest.mark.parametrize("place", [0, 8, 12, 30, 50, -1])
def test_any_changed_byte_is_a_torn_file(tmp_path, place):
    store = filled(tmp_path, draw(queries=100))
    data = bytearray(store.path(2).read_bytes())
    data[place] ^= 1
    store.path(2).write_bytes(data)
    assert store.missing() == [2]
    for action in (store.load, store.digest, store.manifest):
        with pytest.raises(DataError, match=r"teacher-00002.votes is torn or was changed"):
            action()


@pytest.mark.parametrize("length", [0, 1, 40, 71])
def test_a_cut_file_is_a_torn_file(tmp_path, length):
    store = filled(tmp_path, draw())
    store.path(1).write_bytes(store.path(1).read_bytes()[:length])
    assert store.missing() == [1]


def test_a_torn_file_can_be_replaced(tmp_path):
    votes = draw()
    store = filled(tmp_path, votes)
    store.path(1).write_bytes(b"")
    store.save(1, votes[1], "t")
    assert np.array_equal(store.load("t"), votes)


def test_files_of_other_settings_are_named(tmp_path):
    store = filled(tmp_path, draw(), token="these settings")
    with pytest.raises(DataError, match=r"teacher-00000.votes belongs to other"):
        store.done("other settings")
    with pytest.raises(DataError, match="belongs to other"):
        store.load("other settings")


@pytest.mark.parametrize(("queries", "labels"), [(8, 3), (7, 4), (3, 7)])
def test_files_of_other_shapes_are_named(tmp_path, queries, labels):
    store = filled(tmp_path, draw())
    with pytest.raises(DataError, match="belongs to other"):
        VoteStore(store.folder, 5, queries, labels).done()


def test_a_file_under_another_teachers_name_is_named(tmp_path):
    store = filled(tmp_path, draw())
    store.path(0).write_bytes(store.path(1).read_bytes())
    with pytest.raises(DataError, match=r"teacher-00000.votes belongs to .*another teacher"):
        store.load()


def test_votes_of_two_runs_do_not_mix(tmp_path):
    votes = draw()
    store = filled(tmp_path, votes)
    store.save(2, votes[2], "another run")
    with pytest.raises(DataError, match="mixes the votes of 2 runs"):
        store.load()


def test_the_digest_is_that_of_the_votes(tmp_path):
    votes = draw()
    first, same = (filled(tmp_path / name, votes) for name in "ab")
    changed = votes.copy()
    changed[4, 6, 2] ^= True
    assert first.digest() == same.digest() != filled(tmp_path / "c", changed).digest()
    assert first.digest() != filled(tmp_path / "d", votes, token="u").digest()
    name, check = next(iter(first.manifest().items()))
    content = (first.folder / name).read_bytes()[:-32]
    assert check == hashlib.blake2b(content, digest_size=32).hexdigest()


@pytest.mark.parametrize("teacher", [-1, 5])
def test_only_teachers_that_exist_vote(tmp_path, teacher):
    with pytest.raises(SettingError, match="teacher must be from 0 to 4"):
        VoteStore(tmp_path, 5, 7, 3).save(teacher, draw()[0], "t")


@pytest.mark.parametrize("ballot", [draw()[0][:6], draw()[0].T, draw()[0].astype(int)])
def test_only_whole_ballots_are_saved(tmp_path, ballot):
    with pytest.raises(SettingError, match=r"votes must be bool of shape \(7, 3\)"):
        VoteStore(tmp_path, 5, 7, 3).save(0, ballot, "t")


def test_what_killed_writers_left_is_swept(tmp_path):
    votes = draw()
    store = filled(tmp_path, votes)
    (store.folder / ".teacher-00003.votes.abc.tmp").write_bytes(b"half")
    store.sweep()
    assert len(list(store.folder.iterdir())) == 5 and np.array_equal(store.load(), votes)


def test_counts_are_plain_sums():
    votes = draw(300, 4, 2)
    counts = tally(votes)
    assert counts.dtype == np.int64 and counts.shape == (4, 2)
    assert counts.tolist() == [[sum(int(votes[t, n, k]) for t in range(300)) for k in range(2)] for n in range(4)]

"""Check-ins in their published formats, made small, and the counts that stand in for them."""

import gzip

import numpy as np
import pytest

from pate.data.checkins import distinct_users, has_visits, load_visits
from pate.errors import DataError, SettingError

SNAP = "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847\n"
TSMC = (
    "470\t49bbd6c0f964a520f4531fe3\t4bf5\tArts & Crafts Caf\u00e9\t40.7\t-74.0\t-240\tTue Apr 03 18:00:09 +0000 2012\n"
)


def snap(*visits):
    """(user, venue) pairs as lines of a totalCheckins file."""
    return "".join(f"{user}\t2010-10-19T23:55:27Z\t30.2\t-97.8\t{venue}\n" for user, venue in visits)


def city(*visits):
    """(user, venue) pairs as lines of a TSMC2014 file."""
    return "".join(
        TSMC.replace("470", str(user), 1).replace("49bbd6c0f964a520f4531fe3", venue) for user, venue in visits
    )


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("BrightKite", "loc-brightkite_totalCheckins.txt"),
        ("Gowalla", "loc-gowalla_totalCheckins.txt"),
        ("Gowalla", "Gowalla_totalCheckins.txt"),
    ],
)
def test_total_checkins_count_each_user_once_per_venue(tmp_path, name, file):
    (tmp_path / file).write_text(snap((1, "a"), (1, "a"), (2, "a"), (3, "a"), (2, "b"), (2, "b"), (7, "c")) + SNAP)
    visits = load_visits(tmp_path, name)
    assert visits.counts.tolist() == [3, 1, 1, 1] and visits.users == 5
    assert visits.origin == "published files"


def test_compressed_as_published_and_in_the_checkins_folder(tmp_path):
    (tmp_path / "checkins").mkdir()
    path = tmp_path / "checkins" / "loc-gowalla_totalCheckins.txt.gz"
    path.write_bytes(gzip.compress(snap((1, "a"), (2, "a"), (2, "b")).encode()))
    assert load_visits(tmp_path, "Gowalla").counts.tolist() == [2, 1]


def test_lines_without_a_venue_are_no_visit(tmp_path):
    (tmp_path / "loc-brightkite_totalCheckins.txt").write_text(snap((1, "a")) + "5\t\t\t\t\n" + snap((2, "a")))
    visits = load_visits(tmp_path, "BrightKite")
    assert visits.counts.tolist() == [2] and visits.users == 2


def test_foursquare_users_of_two_cities_are_different_people(tmp_path):
    """Both files number their users from 1; counted by number alone, the papers have 2,293 instead of 3,376."""
    for name, text in (("NYC", city((1, "x"), (1, "x"), (2, "x"))), ("TKY", city((1, "y"), (2, "y"), (3, "y")))):
        (tmp_path / f"dataset_TSMC2014_{name}.txt").write_bytes(text.encode("latin-1"))
    visits = load_visits(tmp_path, "Foursquare")
    assert visits.counts.tolist() == [3, 2] and visits.users == 5


def test_one_city_is_not_enough_and_the_sentence_says_where_to_get_the_other(tmp_path):
    (tmp_path / "dataset_TSMC2014_NYC.txt").write_text(city((1, "x")))
    assert not has_visits(tmp_path, "Foursquare")
    with pytest.raises(
        DataError, match=r"dataset_TSMC2014_NYC.txt and dataset_TSMC2014_TKY.txt not found in .*https://"
    ):
        load_visits(tmp_path, "Foursquare")


def test_published_files_come_before_counts(tmp_path):
    (tmp_path / "gowalla_10core_counts.csv").write_text("distinct_users\n9\n4\n")
    before = load_visits(tmp_path, "Gowalla")
    assert before.counts.tolist() == [9, 4] and before.users is None and before.origin == "gowalla_10core_counts.csv"
    (tmp_path / "loc-gowalla_totalCheckins.txt").write_text(snap((1, "a")))
    assert load_visits(tmp_path, "Gowalla").counts.tolist() == [1]


@pytest.mark.parametrize("line", ["1\t2010\t30\t-97\n", "\t2010\t30\t-97\t5\n", "1 2010 30 -97 5\n"])
def test_a_broken_line_is_named(tmp_path, line):
    (tmp_path / "loc-gowalla_totalCheckins.txt").write_text(SNAP + line)
    with pytest.raises(DataError, match="line 2 must have 5 fields separated by tabs"):
        load_visits(tmp_path, "Gowalla")


def _flipped(data):
    return data[:40] + bytes([data[40] ^ 0xFF]) + data[41:]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: data[:-3], lambda data: b"no gzip" + data, _flipped],
    ids=["half", "without its end", "not gzip", "a byte changed"],
)
def test_a_torn_archive_is_named(tmp_path, damage):
    path = tmp_path / "loc-gowalla_totalCheckins.txt.gz"
    visits = snap(*((user, f"venue {user * user % 97}") for user in range(500)))
    path.write_bytes(damage(gzip.compress(visits.encode())))
    with pytest.raises(DataError, match=r"loc-gowalla_totalCheckins.txt.gz is torn or not compressed by gzip"):
        load_visits(tmp_path, "Gowalla")


@pytest.mark.parametrize("text", ["distinct_users\n", "distinct_users\n3\nmany\n", "distinct_users\n3\n-1\n"])
def test_broken_counts_are_refused(tmp_path, text):
    (tmp_path / "foursquare_counts.csv").write_text(text)
    with pytest.raises(DataError, match="foursquare_counts.csv must have one"):
        load_visits(tmp_path, "Foursquare")


def test_other_names_are_refused(tmp_path):
    with pytest.raises(SettingError, match="one of BrightKite, Foursquare, Gowalla"):
        load_visits(tmp_path, "Facebook")


def test_against_counting_by_sets():
    rng = np.random.default_rng(0)
    pairs = [(int(user), int(venue)) for user, venue in rng.integers(0, 40, (2000, 2)) ** 2 // 40]
    counts, users = distinct_users(pairs)
    by_sets = sorted((len({u for u, v in pairs if v == venue}) for venue in {v for _, v in pairs}), reverse=True)
    assert counts.tolist() == by_sets and users == len({user for user, _ in pairs})


def test_nothing_is_an_empty_histogram():
    counts, users = distinct_users([])
    assert len(counts) == users == 0


@pytest.mark.parametrize(("name", "venues", "largest"), [("Foursquare", 100_191, 1149), ("Gowalla", 40_981, 2310)])
def test_the_stand_ins(shared_data, name, venues, largest):
    counts = load_visits(shared_data, name).counts
    assert (len(counts), counts[0]) == (venues, largest) and (np.diff(counts) <= 0).all()

"""Daily cases from cumulative ones."""

import pytest

from pate.data.covid import load_daily_cases
from pate.errors import DataError

HEADING = "date,state,fips,cases,deaths\n"


def made(folder, *lines, heading=HEADING, name="us-states.csv"):
    (folder / name).write_text(heading + "".join(f"{line}\n" for line in lines))
    return folder


def test_differences_by_state_from_the_second_day_on(tmp_path):
    made(
        tmp_path,
        "2020-03-11,Utah,49,5,0",
        "2020-03-12,Utah,49,9,0",
        "2020-03-12,Iowa,19,4,0",
        "2020-03-13,Iowa,19,10,1",
        "2020-03-13,Utah,49,7,0",
    )
    cases = load_daily_cases(tmp_path)
    assert cases.dates == ("2020-03-12", "2020-03-13") and cases.states == ("Iowa", "Utah")
    assert cases.counts.tolist() == [[4, 4], [6, 0]]  # Utah's correction from 9 to 7 is no negative day


def test_the_part_in_its_folder_is_found(tmp_path):
    (tmp_path / "covid").mkdir()
    made(tmp_path / "covid", "2020-03-11,Utah,49,5,0", "2020-03-12,Utah,49,6,0", name="us-states-part.csv")
    assert load_daily_cases(tmp_path).counts.tolist() == [[1]]


def test_sentences(tmp_path):
    with pytest.raises(DataError, match=r"us-states.csv not found in .*nytimes/covid-19-data"):
        load_daily_cases(tmp_path)
    made(tmp_path, "2020-03-11,Utah,5", heading="date,state,number\n")
    with pytest.raises(DataError, match="columns date, state and cases"):
        load_daily_cases(tmp_path)
    made(tmp_path, "2020-03-11,Utah,49,5,0", "2020-03-12,Utah,49,many,0")
    with pytest.raises(DataError, match="line 3 must have a whole number of cases"):
        load_daily_cases(tmp_path)


def test_the_real_file(shared_data):
    cases = load_daily_cases(shared_data)
    assert cases.dates[0] == "2020-03-12" and len(cases.dates) >= 40 and len(cases.states) >= 50
    new_york = cases.states.index("New York")
    april = cases.dates.index("2020-04-10")
    assert cases.counts[april].argmax() == new_york and cases.counts[april, new_york] > 5000

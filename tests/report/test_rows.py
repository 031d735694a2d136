"""Rows: what is refused, what ± means, and what table, CSV and sentence say."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import SettingError
from pate.report import NOT_A_GUARANTEE, Row, console_table, finding, summary_csv
from pate.report.findings import sweep_findings
from pate.report.rows import average, deviation, gain, released, show_cost


def read(rows: list[Row]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(summary_csv(rows))))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mechanism", ""),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("delta", 1.5),
        ("answered", 62.0),
        ("label_accuracy", -0.1),
        ("accuracy", (0.5, math.nan)),
        ("macro_f1", (50.0,)),
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(rows: list[Row], field: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{field} must be"):
        replace(rows[-1], **{field: value})


def test_spread_is_the_sample_standard_deviation(rows: list[Row]) -> None:
    row = rows[-1]
    assert row.mean == pytest.approx(0.861)
    assert row.sd == pytest.approx(0.003)  # with n instead of n - 1 it would be 0.00245
    assert average(row.micro_f1) == pytest.approx(0.761)
    assert deviation(row.micro_f1) == pytest.approx(0.003)


def test_one_seed_has_no_spread(rows: list[Row]) -> None:
    single = [replace(row, accuracy=row.accuracy[:1], macro_f1=row.macro_f1[:1]) for row in rows]
    assert all(row.sd is None and deviation(row.macro_f1) is None for row in single)
    table = console_table(single)
    assert "88.6 ± n/a" in table
    assert "± 0" not in table
    assert "no spread" in table
    assert finding(single).endswith("One seed: no spread is known.")
    assert {record["accuracy_sd"] for record in read(single)} == {""}


@given(st.floats(1e-12, 1e6))
def test_a_printed_cost_never_understates(value: float) -> None:
    shown = float(show_cost(value))
    assert value * (1 - 2e-6) <= shown <= value * 1.01


def test_csv_has_every_column_and_every_digit(rows: list[Row]) -> None:
    records = read(rows)
    assert list(records[0]) == [
        "mechanism",
        "neighbours",
        "epsilon",
        "delta",
        "answered",
        "label_accuracy",
        "accuracy_mean",
        "accuracy_sd",
        "macro_f1_mean",
        "macro_f1_sd",
        "micro_f1_mean",
        "micro_f1_sd",
        "mean_ap_mean",
        "mean_ap_sd",
        "seeds",
        "accuracy",
        "macro_f1",
        "micro_f1",
        "mean_ap",
        "label_f1",
        "teachers",
        "queries",
        "labels",
        "settings",
        "note",
    ]
    assert len(records) == len(rows)
    row, record = rows[2], records[0]
    assert float(record["epsilon"]) == row.epsilon
    assert tuple(map(float, record["accuracy"].split(";"))) == row.accuracy
    assert float(record["accuracy_mean"]) == row.mean
    assert json.loads(record["settings"]) == row.settings
    assert record["seeds"] == "3"


def test_csv_survives_hostile_text_and_infinity(rows: list[Row]) -> None:
    evil = replace(
        rows[2], mechanism='a,"b"\n<script>', epsilon=math.inf, settings={"sigma": math.inf}, note="x;y\r\nz"
    )
    (record,) = read([evil])
    assert record["mechanism"] == evil.mechanism
    assert record["note"] == evil.note
    assert float(record["epsilon"]) == math.inf
    assert json.loads(record["settings"], parse_constant=pytest.fail) == {"sigma": "inf"}


def test_table_is_aligned_and_ends_with_the_references(rows: list[Row]) -> None:
    lines = console_table(rows).splitlines()
    rules = [i for i, line in enumerate(lines) if set(line) == {"-"}]
    assert rules == [1, 18]
    assert lines[19].split()[0] == "prior-only"
    assert lines[20].split()[0] == "non-private"
    assert len({len(line) for line in lines[:21]}) == 1
    assert len(lines[0]) <= 120
    words = [" ".join(line.split()) for line in lines]
    assert words[2] == "noisy_counts teacher_changed 0.5 1e-6 100 85.0 83.0 ± 0.3 63.0 ± 0.3"
    assert words[10] == "stable_topk_gumbel teacher_changed 0.5 1e-6 nothing – – –"
    assert "sample standard deviation over 3 seeds" in lines[21]


def test_table_stays_within_a_terminal_whatever_the_names(rows: list[Row]) -> None:
    evil = [replace(row, mechanism="\x1b[31mx\n" * 30, neighbours="y" * 99, note="long " * 60) for row in rows]
    table = console_table(evil)
    assert max(map(len, table.splitlines())) <= 120
    assert "\x1b" not in table
    assert "[1] long long" in table


def test_table_of_no_rows_is_refused() -> None:
    with pytest.raises(SettingError, match="rows must be at least one"):
        console_table([])


def test_finding_names_the_best_with_both_levels(rows: list[Row]) -> None:
    assert finding(rows) == (
        "At epsilon 4 (teacher_changed) the best mechanism is noisy_counts: 88.9 ± 0.3 % against "
        "80.0 ± 0.1 % prior-only and 91.5 ± 0.1 % non-private; "
        "epsilon 0.5 is enough to beat the prior (noisy_counts, 83.0 ± 0.3 %)."
    )


def test_finding_says_how_much_was_answered(rows: list[Row]) -> None:
    stable = [row for row in rows if row.is_reference or row.mechanism == "stable_topk_gumbel"]
    assert "with 83.0 % of the queries answered" in finding(stable)
    assert "epsilon 1 is enough" in finding(stable)


@pytest.mark.parametrize(("prior", "words"), [(0.95, "no mechanism beats"), (0.887, "no mechanism clearly beats")])
def test_finding_when_the_prior_is_not_beaten(rows: list[Row], prior: float, words: str) -> None:
    raised = replace(rows[0], accuracy=(prior - 0.003, prior, prior + 0.003))
    said = finding([raised, *rows[1:]])
    assert words in said
    assert "the best mechanism is" not in said


def test_what_is_not_a_guarantee_cannot_win(rows: list[Row]) -> None:
    claimed = replace(rows[5], mechanism="as_published", accuracy=(0.99,), note=f"{NOT_A_GUARANTEE}: too cheap")
    assert finding([*rows, claimed]) == finding(rows)
    assert "as_published [1]" in console_table([*rows, claimed])


def test_infinite_epsilon_and_silence_cannot_win(rows: list[Row]) -> None:
    endless = replace(rows[5], epsilon=math.inf, accuracy=(0.99, 0.99))
    silent = replace(rows[5], answered=0.0, accuracy=(0.99, 0.99))
    assert finding([*rows, endless, silent]) == finding(rows)
    assert "∞" in console_table([endless])


def test_finding_keeps_neighbour_relations_apart(rows: list[Row]) -> None:
    added = [replace(row, neighbours="teacher_added") for row in rows if row.mechanism == "tau_ballots"]
    said = finding(rows + added)
    assert "At epsilon 4 (teacher_changed) the best mechanism is noisy_counts" in said
    assert "At epsilon 4 (teacher_added) the best mechanism is tau_ballots" in said


def test_finding_without_a_student(rows: list[Row], references: list[Row]) -> None:
    silent = [replace(row, answered=0.0, accuracy=()) for row in rows if not row.is_reference]
    for case in (silent, references):
        assert finding(case).startswith("There is no private student to judge")


def test_gain_is_the_share_of_the_way_to_noiseless_votes(rows: list[Row], noiseless: Row) -> None:
    best = next(row for row in rows if row.mechanism == "noisy_counts" and show_cost(row.epsilon) == "4")
    assert gain(best, [*rows, noiseless]) == pytest.approx((0.889 - 0.80) / (0.90 - 0.80))
    silent = next(row for row in rows if row.answered == 0)
    assert gain(silent, [*rows, noiseless]) is None  # no student
    assert gain(best, rows) is None  # nothing to measure by
    assert gain(noiseless, [*rows, noiseless]) is None
    assert gain(replace(best, labels=7), [*rows, noiseless]) is None  # references of other labels do not count


def test_only_with_noiseless_votes_has_the_csv_gains_and_such_rows_are_not_released(
    rows: list[Row], noiseless: Row
) -> None:
    with_it = read([*rows, noiseless])
    assert float(next(r for r in with_it if r["mechanism"] == "noisy_counts")["gain"]) == pytest.approx(0.3)
    assert "gain" not in read(rows)[0]
    assert released([*rows, noiseless]) == rows


def test_crossings_name_where_the_stable_top_k_passes_whom(swept: list[Row]) -> None:
    said = sweep_findings(swept, "labels")
    assert len(said) == 8  # four measures at two epsilons
    assert all("noisy_counts nowhere and of tau_ballots nowhere" in line for line in said[:4])
    by_labels = next(line for line in said if line.startswith("At epsilon 16, by accuracy of answered labels"))
    assert "noisy_counts at 10 and from 160 labels on (at 160: 86.0 against 80.0 %, 60.0 % answered)" in by_labels
    assert "tau_ballots at 10 labels only (at 10: 92.0 against 90.0 %" in by_labels
    by_student = next(line for line in said if line.startswith("At epsilon 16, by student accuracy"))
    assert "noisy_counts from 160 labels on (at 160: 85.0 against 82.0 %" in by_student
    assert "tau_ballots nowhere" in by_student


def test_a_lead_on_hardly_any_answers_is_none(swept: list[Row]) -> None:
    few = [replace(row, answered=0.01) if row.settings.get("kind") == "StableTopK" else row for row in swept]
    assert all("noisy_counts nowhere" in line for line in sweep_findings(few, "labels"))


def test_other_sweeps_name_their_best_student(swept: list[Row]) -> None:
    rows = [replace(row, queries=row.labels, labels=40) for row in swept]
    first, second = sweep_findings(rows, "queries")
    assert first == "At epsilon 4 the best student is that of tau_ballots with 400 queries: 92.0 ± 0.3 %."
    assert second.startswith("At epsilon 16")
    silent = [replace(row, accuracy=(), answered=0.0) for row in rows if row.epsilon == rows[0].epsilon]
    assert sweep_findings(silent, "queries") == ["At epsilon 4 no student was trained."]

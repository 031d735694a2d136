"""Tables of docs/results.md come from the committed CSV files, and from nothing else."""

import sys
from pathlib import Path

import pytest

from pate.errors import DataError, MissingInput, SettingError
from pate.report.results import fill, main

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = "mechanism,neighbours,epsilon,answered,accuracy_mean,accuracy_sd,teachers,queries,labels,gain\n"
ROWS = (
    "noisy_counts,teacher_changed,0.9995,1.0,0.82,0.01,8,6,4,0.5\n"
    "stable_topk,teacher_changed,0.9999,0.0,,,8,6,4,\n"
    "noisy_counts,teacher_added,0.9995,1.0,0.99,0.01,8,6,4,0.9\n"
    "noisy_counts,teacher_changed,3.999,1.0,0.83,0.02,8,6,4,0.75\n"
    "prior-only,,,,0.80,,8,6,4,\n"
    "noiseless votes,,,,0.84,0.0,8,6,4,\n"
)


def page(folder, words, rows=ROWS):
    (folder / "a.csv").write_text(HEAD + rows)
    path = folder / "page.md"
    path.write_text(f"before\n<!-- table {words} -->\nold\n<!-- end -->\nafter\n")
    return path


def lines(folder, words, rows=ROWS):
    return fill(page(folder, words, rows)).splitlines()


def test_the_committed_page_is_up_to_date():
    path = DOCS / "results.md"
    assert fill(path) == path.read_text(), "python -m pate.report.results docs/results.md"
    assert "<!-- table " in path.read_text()


def test_a_table_of_accuracies(tmp_path):
    found = lines(tmp_path, "a.csv accuracy teacher_changed")
    assert found[0] == "before" and found[-1] == "after" and "old" not in found
    assert found[2:8] == [
        "| epsilon | 1 | 4 |",
        "| --- | --- | --- |",
        "| noisy_counts | 82.0 ± 1.0 | 83.0 ± 2.0 |",
        "| stable_topk | nothing |  |",
        "| prior-only | 80.0 | 80.0 |",
        "| noiseless votes | 84.0 ± 0.0 | 84.0 ± 0.0 |",
    ]


def test_a_gain_has_the_spread_of_its_accuracies(tmp_path):
    assert "| noisy_counts | 50.0 ± 25.0 | 75.0 ± 50.0 |" in lines(tmp_path, "a.csv gain teacher_changed")


def test_a_sweep_is_cut_at_one_epsilon(tmp_path):
    rows = ROWS + ROWS.replace(",8,6,4,", ",9,6,4,").replace("0.83,0.02", "0.85,0.01")
    found = lines(tmp_path, "a.csv accuracy teacher_changed teachers 4", rows)
    assert found[2:5] == ["| teachers | 8 | 9 |", "| --- | --- | --- |", "| noisy_counts | 83.0 ± 2.0 | 85.0 ± 1.0 |"]


def test_wrong_tables_are_refused(tmp_path):
    with pytest.raises(SettingError, match="got 'beauty'"):
        lines(tmp_path, "a.csv beauty teacher_changed")
    with pytest.raises(SettingError, match="got 'colours'"):
        lines(tmp_path, "a.csv accuracy teacher_changed colours")
    with pytest.raises(MissingInput, match="b.csv is missing"):
        lines(tmp_path, "b.csv accuracy teacher_changed")
    with pytest.raises(DataError, match="rows of teacher_changed at epsilon 2"):
        lines(tmp_path, "a.csv accuracy teacher_changed epsilon 2")


def test_the_command_rewrites_the_page(tmp_path, monkeypatch):
    path = page(tmp_path, "a.csv accuracy teacher_changed")
    monkeypatch.setattr(sys, "argv", ["results", str(path)])
    main()
    assert "82.0 ± 1.0" in path.read_text()
    monkeypatch.setattr(sys, "argv", ["results"])
    with pytest.raises(SettingError, match="one page"):
        main()
    monkeypatch.setattr(sys, "argv", ["results", str(tmp_path / "absent.md")])
    with pytest.raises(MissingInput, match="absent.md is missing"):
        main()

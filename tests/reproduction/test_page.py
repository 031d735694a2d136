"""The page says what the committed CSVs say, and these have what is claimed."""

import shutil
from pathlib import Path

import pytest

from pate.errors import DataError, MissingInput
from pate.reproduction import NAMES
from pate.reproduction.experiment import from_csv, read_about, unique, where
from pate.reproduction.page import PARTS, page, take_over

DOCS = Path(__file__).resolve().parents[2] / "docs"


def rows(name):
    return from_csv((DOCS / "reproduction" / f"{name}.csv").read_text())


def test_the_page_is_made_from_the_csvs():
    assert (DOCS / "reproduction.md").read_text() == page(DOCS), "run python -m pate.reproduction.page"


@pytest.mark.parametrize("name", NAMES)
def test_committed_results_are_full_runs(name):
    about = read_about(DOCS / "reproduction" / f"{name}.json")
    assert about["command"] == f"python reproduce.py experiment={name}" and about["seed"] == 0


def test_real_votes_have_a_table_of_their_own():
    about = read_about(DOCS / "reproduction" / "exp3_celeba_votes.json")
    assert about["command"] == "python reproduce.py experiment=exp3_celeba reproduction.run=runs/sub"
    assert set(PARTS) - set(NAMES) == {"exp3_celeba_votes"}
    assert unique(rows("exp3_celeba_votes"), "teachers") == ["run sub"]
    assert unique(rows("exp3_celeba"), "teachers") == ["203 pictures", "14 pictures"]


def test_stable_topk_reaches_the_best_printed_cell_everywhere():
    own = where(rows("exp1_fixed_k"), method="StableTopK")
    assert len(own) == 18 and {row["trials"] for row in own} == {2000}
    for row in own:
        assert (
            round(row["P"], 2) >= row["best_printed_P"] and row["valid"] == "yes" and row["charged"] <= row["epsilon"]
        )


def test_stable_topk_is_flat_in_figure_1b():
    found = rows("exp2_large_k")
    for method in ("StableTopK", "StableTopK fixed k"):
        recall = {row["k"]: row["recall"] for row in where(found, method=method)}
        assert min(recall.values()) >= 0.95 and max(recall) == 1500
    em = [row["recall"] for row in where(found, method="EM-CDP")]
    assert em[0] > 0.99 and min(em) < 0.25


def test_corrected_ld_is_never_below_ts_in_figure_1():
    found = rows("exp1_range_of_k")
    for panel in unique(found, "panel"):
        ts, ld = ({row["k"]: row["S"] for row in where(found, panel=panel, method=name)} for name in ("TS", "LD"))
        assert all(ld[k] >= ts[k] for k in ts)


def test_a_run_is_taken_over(tmp_path):
    docs, run = tmp_path / "docs", tmp_path / "runs" / "mine"
    shutil.copytree(DOCS / "reproduction", docs / "reproduction")
    with pytest.raises(MissingInput, match="python reproduce.py experiment=NAME run=mine"):
        take_over(run, docs)
    made = run / "release" / "reproduction" / "exp2_covid"
    made.mkdir(parents=True)
    text = (DOCS / "reproduction" / "exp2_covid.csv").read_text().replace("StableTopK halves", "StableTopK 0.5")
    (made / "exp2_covid.csv").write_text(text)
    take_over(run, docs)
    assert "StableTopK 0.5" in page(docs) and "StableTopK 0.5" not in page(DOCS)


def test_a_text_that_forgets_an_experiment_is_refused(tmp_path):
    shutil.copytree(DOCS / "reproduction", tmp_path / "reproduction")
    text = tmp_path / "reproduction" / "text.md"
    text.write_text(text.read_text().replace("{{spectral}}", ""))
    with pytest.raises(DataError, match="spectral"):
        page(tmp_path)

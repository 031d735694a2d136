"""Every experiment in its quick form: it runs, writes what it should, and shows the facts that must hold."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pate.accounting.composition import optimal_homogeneous
from pate.errors import DataError
from pate.reproduction import NAMES, named
from pate.reproduction.composition_ratio import lemma_4_5
from pate.reproduction.experiment import Context, conduct, from_csv, read_about, to_csv, unique, where
from pate.reproduction.fixed_k import FixedK
from pate.reproduction.oneshot import Oneshot, peel, round_epsilon
from pate.reproduction.spectral import Spectral
from pate.settings import build

CONF = Path(__file__).resolve().parents[2] / "conf"
NEED_DATA = ("exp1_fixed_k", "exp1_range_of_k", "exp2_covid", "exp3_celeba", "pay_what_you_get")


@pytest.fixture(scope="module")
def results(tmp_path_factory, request):
    """Rows of the quick experiments, each run once."""
    folder, done = tmp_path_factory.mktemp("results"), {}

    def get(name):
        if name not in done:
            root = str(request.getfixturevalue("shared_data")) if name in NEED_DATA else "/nowhere"
            done[name] = conduct(named(name).small(), Context(root, seed=0), folder, f"experiment={name}")
        return done[name]

    get.folder = folder
    return get


@pytest.mark.parametrize("name", NAMES)
def test_files_and_tables(results, name):
    rows = results(name)
    text = (results.folder / f"{name}.csv").read_text()
    assert len(from_csv(text)) == len(rows) > 3
    assert (results.folder / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    about = read_about(results.folder / f"{name}.json")
    assert about["command"] == f"experiment={name}" and about["seed"] == 0
    assert named(name).table(from_csv(text)) == named(name).table(from_csv(to_csv(rows)))


@pytest.mark.parametrize("name", NAMES)
def test_what_spends_a_budget_says_how(results, name):
    for row in results(name):
        if "charged" in row and row["charged"] is not None:
            assert row["charged"] <= row["epsilon"] * (1 + 1e-9)
        if name != "composition_ratio" and row.get("method") != "not private":
            assert {"epsilon", "delta", "neighbours", "conversion"} <= set(row)


@pytest.mark.parametrize("name", NAMES)
def test_yaml_spells_the_defaults_out(name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = OmegaConf.to_container(compose("reproduce", [f"experiment={name}"]), resolve=False)
    assert build(config["reproduction"]) == named(name)
    assert set(config["reproduction"]) == {"_target_", *(field.name for field in fields(named(name)))}


def test_the_same_seed_gives_the_same_rows(results):
    again = named("spectral").small().rows(Context("/nowhere", seed=0))
    other = named("spectral").small().rows(Context("/nowhere", seed=1))
    assert to_csv(again) == to_csv(results("spectral")) != to_csv(other)


def test_absent_data_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("PATE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"data folder ../shared/data not found: give data.root=PATH or set PATE_DATA"):
        named("exp1_fixed_k").rows(Context())
    monkeypatch.setenv("PATE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="dataset_TSMC2014_NYC.txt and dataset_TSMC2014_TKY.txt not found"):
        named("exp1_fixed_k").rows(Context())


def test_fixed_k_has_every_cell_and_ld_never_more_than_k(results):
    rows = results("exp1_fixed_k")
    assert len(rows) == 2 * 3 * 3 * len(unique(rows, "method"))
    for row in rows:
        assert row["size"] <= row["k"]
        if row["method"] == "StableTopK":
            assert row["P"] > row["best_printed_P"] - 0.02  # forty trials; the page has two thousand
    as_coded = where(rows, data="Foursquare", method="TS as coded", k=3, epsilon=0.4)[0]
    valid = where(rows, data="Foursquare", method="TS", k=3, epsilon=0.4)[0]
    assert as_coded["P"] > 0.95 and valid["P"] < 0.8 and as_coded["notebook_P"] == 1.0


def test_range_of_k_sizes(results):
    rows = results("exp1_range_of_k")
    assert unique(rows, "panel") == ["a", "b", "c"] and max(row["k"] for row in rows) == 15
    assert all(row["size"] <= row["k"] for row in rows)
    assert all(row["size"] == row["k"] for row in where(rows, method="StableTopK"))


def test_cells_that_no_paper_prints(shared_data):
    """Other k and epsilon have no italics; those that are printed keep theirs."""
    experiment = FixedK(data=("Foursquare",), epsilons=(0.4, 0.5), ks=(3, 4), trials=2)
    rows = from_csv(to_csv(experiment.rows(Context(str(shared_data)))))
    assert "| *best printed* | *1.00* |  |  |  |" in experiment.table(rows) and experiment.picture(rows).axes


def test_covid_order(results):
    rows = results("exp2_covid")
    recall = {(row["days"], row["method"]): row["recall"] for row in rows}
    assert unique(rows, "days") == ["1-10", "11-20", "21-30", "31-40"]
    for days in unique(rows, "days"):
        assert recall[days, "LD"] < recall[days, "StableTopK"] and recall[days, "TS"] < recall[days, "TS then EM"]
    assert recall["31-40", "EM-CDP"] > recall["1-10", "EM-CDP"] + 0.2


def test_stable_topk_is_flat_in_k_and_em_is_not(results):
    rows = results("exp2_large_k")
    for method in ("StableTopK", "StableTopK fixed k"):
        stable = [row["recall"] for row in where(rows, method=method)]
        assert min(stable) > 0.85 and max(stable) - min(stable) < 0.15
    em = [row["recall"] for row in where(rows, method="EM-CDP")]
    assert em[0] > 0.95 and em[-1] < 0.4
    assert min(row["recall"] for row in where(rows, method="TS")) == 1.0


def test_composition_ratio(results):
    for row in results("composition_ratio"):
        assert row["ratio"] > 0.99 and row["delta_i"] <= 1e-6
    assert max(row["ratio"] for row in results("composition_ratio")) > 1.5


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.5, 40), (0.01, 60), (0.2, 333)])
def test_lemma_4_5_against_the_library(epsilon, count):
    """At the lemma's grid point the optimal composition is the lemma's epsilon."""
    total, failure = lemma_4_5(epsilon, count, 1e-6)
    assert 0 < failure <= 1e-6
    assert optimal_homogeneous(epsilon, count, failure) == pytest.approx(total, abs=1e-6)
    assert optimal_homogeneous(epsilon, count, 1e-6) > total - 2 * epsilon  # the next grid point would pass delta


def test_paying_for_what_it_gets_answers_more(results):
    for data in ("Foursquare", "Gowalla"):
        for k_star in (50, 100):
            gets, asks = where(results("pay_what_you_get"), data=data, k_star=k_star)
            assert gets["queries"] > 4 * asks["queries"] and asks["queries"] == k_star // 10
            assert gets["labels"] + gets["queries"] <= k_star + 10 and gets["true"] <= gets["labels"]
            assert gets["delta_t"] * k_star <= gets["delta"] / 2 * (1 + 1e-9)


def test_oneshot_scales_are_the_theorems(results):
    for row in where(results("oneshot"), method="oneshot, pure"):
        assert row["scale"] == pytest.approx(2 * row["k"] / 0.2)
    for row in where(results("oneshot"), method="oneshot, approximate"):
        assert row["scale"] == pytest.approx(8 * np.sqrt(row["k"] * np.log(10_000 / 1e-6)) / 0.2)
    slow, fast = (where(results("oneshot"), method=name, k=100)[0] for name in ("peeling Laplace, pure", "EM-CDP"))
    assert slow["milliseconds"] > 5 * fast["milliseconds"]


def test_peeling_chooses_k_and_the_right_ones_without_noise():
    from pate import noise

    counts = np.array([[5, 900, 30, 700]])
    assert peel(counts, 2, 1e-3, noise.seeded(0)).tolist() == [[False, True, False, True]]
    assert round_epsilon(0.2, 1, 1e-6) == 0.2 and round_epsilon(0.2, 400, 1e-6) > 0.2 / 400
    assert optimal_homogeneous(round_epsilon(0.2, 400, 1e-6), 400, 1e-6) == pytest.approx(0.2, rel=1e-6)


def test_oneshot_counts_are_sorted():
    assert (np.diff(Oneshot().counts()) <= 0).all()


def test_spectral_recovers_without_privacy_and_improves_with_epsilon(results):
    rows = where(results("spectral"), met=1.0)
    assert min(row["recall"] for row in where(rows, method="not private")) > 0.9
    ours = [row["recall"] for row in where(rows, method="whole distribution (ours)")]
    oneshot = [row["recall"] for row in where(rows, method="oneshot, pure")]
    assert ours[0] < ours[-1] and oneshot[0] < oneshot[-1] and all(a >= b for a, b in zip(ours, oneshot, strict=True))
    assert max(row["epsilon"] for row in where(rows, method="oneshot, approximate")) == 0.2


def test_drawn_comparisons_are_complete():
    wins = Spectral().draw(1.0, np.random.default_rng(0))
    assert (wins + wins.T + 300 * np.eye(50) == 300).all() and wins[0].sum() > wins[-1].sum()
    half = Spectral().draw(0.5, np.random.default_rng(0))
    assert 0.4 < ((half + half.T) > 0).mean() < 0.6

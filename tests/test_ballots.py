"""Ballots know their queries, their size and how the public records differ."""

from dataclasses import replace

import numpy as np
import pytest

from pate.accounting import PrivacyCost
from pate.accounting.events import gaussian_event
from pate.ballots import Ballots, write_views
from pate.errors import DataError, SettingError
from pate.labels import Target, plain, prepare_mechanism
from pate.mechanisms import Directions, GumbelChoice, NoisyCounts, StableTopK
from pate.runs import Run

CONFIG = {"_target_": "pate.mechanisms.ProjectedBallots", "sigma": 2.0}


def ballots(queries=6, views=True):
    votes = np.zeros((5, queries, 3), bool)
    seen = np.random.default_rng(0).normal(size=(queries, 4)).astype(np.float32) if views else None
    return Ballots(votes, np.arange(queries).astype(str), ("a", "b", "c"), "record", "digest", None, seen)


@pytest.mark.parametrize("shape", [(9, 7), (9, 8, 8, 3), (9, 70, 66, 3)], ids=["features", "small", "large"])
def test_views_keep_how_records_differ(tmp_path, shape):
    inputs = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8 if len(shape) == 4 else np.float32)
    run = Run(tmp_path, "r").create()
    write_views(run, inputs)
    path = run.private / "views.npy"
    views = np.load(path)
    assert path.stat().st_mode & 0o777 == 0o600 and views.dtype == np.float32 and len(views) == 9
    assert np.allclose(views.mean(0), 0, atol=1e-3)
    if shape != (9, 70, 66, 3):  # not made coarser: distances are kept
        rows = inputs.reshape(9, -1).astype(float)
        assert np.linalg.norm(views[0] - views[5]) == pytest.approx(np.linalg.norm(rows[0] - rows[5]), rel=1e-4)


def test_fewer_queries_have_their_own_directions():
    some = ballots().first(4)
    assert some.directions.vectors.shape == (4, 4) and np.allclose(some.directions.vectors[:, 0], 0.5)
    assert some.facts["queries"] == 4 and some.facts["num_teachers"] == 5 and some.facts["num_labels"] == 3
    assert ballots(views=False).directions is None and ballots(views=False).first(2).views is None


def test_views_of_other_queries_are_refused():
    wrong = Ballots(np.zeros((5, 6, 3), bool), np.arange(6), ("a", "b", "c"), "record", "x", None, np.ones((5, 2)))
    with pytest.raises(DataError, match="a row for each of the 6 queries, got 5"):
        wrong.directions  # noqa: B018


def made(config, epsilon, conversion, **known):
    common = {"neighbours": "teacher_changed", "delta": 1e-6, "target": Target(epsilon, conversion=conversion)}
    return prepare_mechanism(config, **common, **known)


def test_a_mechanism_that_projects_needs_directions():
    assert made(CONFIG, None, "tight", **ballots().facts).directions.vectors.shape == (6, 5)
    with pytest.raises(SettingError, match="mechanism.directions must be given"):
        made(CONFIG, None, "tight", **ballots(views=False).facts)


def test_exact_calibration_spends_the_target_exactly_and_needs_less_noise():
    tight, exact = (made(CONFIG, 2.0, how, **ballots().facts) for how in ("tight", "exact"))
    assert exact.sigma < 0.97 * tight.sigma
    assert 0.999 * 2.0 <= exact.cost(6).epsilon(1e-6, "exact") <= 2.0 < exact.cost(6).epsilon(1e-6)


def test_exact_is_for_gaussian_noise_only():
    config = {"_target_": "pate.mechanisms.StableTopK", "sigma": 9.0, "delta_t": 1e-9}
    config |= {"choose": {"_target_": "pate.mechanisms.GumbelChoice", "scale": 9.0}}
    both = [made(config, 2.0, how, **ballots().facts) for how in ("tight", "exact")]
    assert both[0] == both[1] and isinstance(both[0], StableTopK) and isinstance(both[0].choose, GumbelChoice)
    mixed = NoisyCounts(num_labels=3, sigma=9.0).cost(1) + both[0].cost(1)
    assert Target(1.0, conversion="exact").conversion_of(mixed) == "tight"
    gaussian = PrivacyCost.of(gaussian_event(0.5, False), neighbours="teacher_changed")
    assert [Target(1.0, conversion=how).conversion_of(gaussian) for how in ("tight", "exact")] == ["tight", "exact"]
    with pytest.raises(SettingError, match=r"target.conversion must be one of tight, exact, got 'published'"):
        Target(1.0, conversion="published")


def test_other_directions_are_another_request():
    features = [np.random.default_rng(seed).normal(size=(6, 3)) for seed in (0, 0, 1)]
    one, same, other = (plain(Directions.of(each)) for each in features)
    assert one["kind"] == "Directions" and one["source"].startswith("6x3 sha256 ")
    assert one == same and one["source"] != other["source"]


def test_the_last_bits_of_an_svd_do_not_make_a_new_request():
    """Another number of threads or another processor gives other bits; asking again must still cost nothing."""
    found = Directions.of(np.random.default_rng(0).normal(size=(6, 3)))
    elsewhere = replace(found, vectors=found.vectors * (1 + 1e-15))
    assert not np.array_equal(elsewhere.vectors, found.vectors) and plain(elsewhere) == plain(found)

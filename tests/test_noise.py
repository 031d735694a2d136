"""Seeded statistics: the right scale is accepted, two thirds and three halves of it are rejected."""

import numpy as np
import pytest
from scipy import stats

from pate import noise
from pate.errors import SettingError

DRAWS = 40_000
SHAPES = {"gaussian": stats.norm, "laplace": stats.laplace, "gumbel": stats.gumbel_r}


def distance(kind: str, drawn: float, claimed: float) -> float:
    """Largest gap between the draws' distribution and the claimed one, in standard errors."""
    draws = getattr(noise.seeded(11), kind)(drawn, (DRAWS,))
    return float(stats.kstest(draws, SHAPES[kind](scale=claimed).cdf).statistic * np.sqrt(DRAWS))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 60.0])
def test_scale_is_right_and_a_wrong_one_would_be_noticed(kind, scale):
    assert distance(kind, scale, scale) < 1.95  # 0.1 % level of the Kolmogorov-Smirnov statistic
    assert distance(kind, scale * 2 / 3, scale) > 5
    assert distance(kind, scale * 3 / 2, scale) > 5


@pytest.mark.parametrize("kind", SHAPES)
def test_system_entropy_has_the_same_distribution(kind):
    draws = getattr(noise.system(), kind)(2.0, (DRAWS,))
    assert stats.kstest(draws, SHAPES[kind](scale=2.0).cdf).statistic * np.sqrt(DRAWS) < 3.0  # one in 3e7


def test_system_entropy_never_repeats():
    first, second = (noise.system().gaussian(1.0, (8,)) for _ in range(2))
    assert not np.array_equal(first, second)


def extreme(word: int) -> noise.FloatNoise:
    return noise.FloatNoise(lambda count: np.full(count, word, np.uint64), seeded=True, description="one word")


@pytest.mark.parametrize("word", [0, 1, 2**64 - 1, 2**64 - 2, 2**63])
@pytest.mark.parametrize("kind", SHAPES)
def test_every_word_gives_a_finite_draw(kind, word):
    assert np.isfinite(getattr(extreme(word), kind)(1.0, (2, 3))).all()


def test_tails_reach_beyond_ordinary_doubles():
    assert extreme(0).gaussian(1.0, (1,))[0] == pytest.approx(9.155, abs=0.01)
    assert extreme(1).gaussian(1.0, (1,))[0] == pytest.approx(-9.155, abs=0.01)
    assert extreme(0).gumbel(1.0, (1,))[0] > 44


def test_a_numpy_generator_is_accepted_and_counts_as_seeded():
    draws = [noise.as_noise(np.random.default_rng(3)).laplace(1.0, (4,)) for _ in range(2)]
    assert np.array_equal(*draws) and noise.as_noise(np.random.default_rng(3)).seeded
    assert not noise.as_noise(None).seeded


@pytest.mark.parametrize("source", [3, "seed", np.random])
def test_other_sources_are_refused(source):
    with pytest.raises(SettingError, match="rng must be"):
        noise.as_noise(source)


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(SettingError, match="noise_seed must be"):
        noise.seeded(seed)

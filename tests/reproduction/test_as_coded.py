"""What the TS authors' code does, so that their tables can be understood."""

import numpy as np
import pytest

from pate import noise
from pate.accounting.composition import bounded_range
from pate.mechanisms import TopStable
from pate.reproduction import as_coded

EXACT = 1e6  # an epsilon at which noise hardly matters


def rows(*counts, trials=50):
    return np.broadcast_to(np.array(counts), (trials, len(counts)))


def test_top_stable_tests_the_gap_after_the_one_it_should():
    """The gap is below rank 3: the valid TS answers three items, the code two, and one would swap the third."""
    counts = rows(900, 890, 880, 20, 18, 16)
    coded = as_coded.top_stable(counts, 3, 2.0, 1e-9, noise.seeded(0))
    assert (coded.sum(axis=1) == 2).all() and coded[:, :2].all()
    valid = TopStable(6, 3, 2.0, 1e-9, "teacher_added").release(counts, noise.seeded(0)).labels
    assert (valid.sum(axis=1) == 3).all()


def test_top_stable_answers_an_unstable_set_if_the_next_gap_is_large():
    """Not valid: ranks 3 and 4 differ by 1, so one user can exchange them, and yet the top 3 are answered."""
    counts = rows(900, 890, 500, 499, 10, 5)
    coded = as_coded.top_stable(counts, 3, 1.0, 1e-9, noise.seeded(0))
    assert (coded.sum(axis=1) == 3).all()
    valid = TopStable(6, 3, 1.0, 1e-9, "teacher_added").release(counts, noise.seeded(0)).labels
    assert (valid.sum(axis=1) == 2).all()


def test_limited_domain_prefers_high_thresholds():
    """Counts drop after rank 4: a good k-bar is 4 or more, the code takes 2 or 3, so that fewer than k pass."""
    counts = rows(1000, 999, 998, 997, *[5] * 7)
    answers = as_coded.limited_domain(counts, 2, EXACT, 1e-4, noise.seeded(0))
    assert (answers.sum(axis=1) <= 2).all()
    assert answers.sum(axis=1).mean() < 1.9


def test_limited_domain_never_answers_more_than_k_though_more_pass():
    """Twelve equal counts, then none: where k-bar is 12, all twelve pass the threshold."""
    answers = as_coded.limited_domain(rows(*[1000] * 12, *[0] * 19, trials=300), 6, 50.0, 1e-4, noise.seeded(2))
    assert answers.sum(axis=1).max() == 6 and (answers.sum(axis=1) == 6).mean() > 0.05


def test_limited_domain_never_answers_more_than_k_or_beyond_k_bar():
    rng = np.random.default_rng(0)
    counts = np.sort(rng.integers(0, 300, (200, 31)), axis=1)[:, ::-1]
    answers = as_coded.limited_domain(counts, 6, 1.0, 1e-4, noise.seeded(1))
    assert answers.sum(axis=1).max() <= 6 and not answers[:, 29:].any()


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.4, 4), (0.4, 51), (1.0, 11)])
def test_label_epsilon_spends_what_there_is(epsilon, rounds):
    each = as_coded.label_epsilon(epsilon, 1e-4, rounds)
    assert bounded_range(each, rounds, 1e-4) == pytest.approx(epsilon, rel=1e-6)
    assert each >= epsilon / rounds * (1 - 1e-9)

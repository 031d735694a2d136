"""Ratios of the privacy core, each measured in one run, interleaved, median of several.

    python benchmarks/privacy_core.py        (about a minute on one core)

Rows: what is timed, against what, the ratio, and the goal that it is held to.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

from pate.accounting import PrivacyCost
from pate.mechanisms import GaussianChoice, GumbelChoice, LimitedDomain, StableTopK, TopStable
from pate.noise import seeded

ROUNDS = 9


def seconds(task: Callable[[], object]) -> float:
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def ratio(task: Callable[[], object], against: Callable[[], object]) -> float:
    """Median of the ratios of neighbouring measurements, after one round that does not count."""
    seconds(task), seconds(against)
    return statistics.median(seconds(task) / seconds(against) for _ in range(ROUNDS))


def stable_topk(choose: GumbelChoice | GaussianChoice) -> float:
    """100,000 queries x 40 labels against numpy's sort of the same array plus drawing the same noise."""
    counts = np.random.default_rng(0).integers(0, 801, (100_000, 40))
    m = StableTopK(num_labels=40, choose=choose, sigma=60.0, delta_t=1e-9)

    def plain() -> None:
        source = seeded(0)
        np.sort(counts, axis=1)
        (source.gumbel if isinstance(choose, GumbelChoice) else source.gaussian)(50.0, (100_000, 39))
        source.gaussian(60.0, (100_000,))

    return ratio(lambda: m.release(counts, seeded(0)), plain)


def top_of_many(m: TopStable | LimitedDomain | StableTopK, counts: np.ndarray) -> float:
    """Top-50 of 1.28 million candidates against np.argpartition."""
    return ratio(lambda: m.release(counts, seeded(0)), lambda: np.argpartition(counts[0], len(counts[0]) - 50))


def charges() -> float:
    """Milliseconds of 600 x (charge one query, read epsilon)."""
    one = StableTopK(num_labels=40, choose=GaussianChoice(50.0), sigma=60.0, delta_t=1e-9).cost(1)

    def odometer() -> None:
        spent = PrivacyCost()
        for _ in range(600):
            spent = spent + one
            spent.epsilon(1e-6)

    odometer()
    return 1000 * statistics.median(seconds(odometer) for _ in range(ROUNDS))


def million() -> float:
    """Epsilon of a million equal queries against that of one."""
    one = StableTopK(num_labels=40, choose=GaussianChoice(5e5), sigma=6e5, delta_t=1e-14).cost(1)
    repeat = range(200)
    return ratio(
        lambda: [(one * 1_000_000).epsilon(1e-6) for _ in repeat], lambda: [(one * 1).epsilon(1e-6) for _ in repeat]
    )


def main() -> None:
    venues = 1_280_000
    counts = np.minimum(3000, np.random.default_rng(0).zipf(1.7, (1, venues)))
    common = {"num_labels": venues, "neighbours": "teacher_added"}
    many = {
        "TopStable": TopStable(k=50, epsilon=1.0, delta=1e-6, **common),
        "LimitedDomain": LimitedDomain(k=50, max_k=50, epsilon=0.05, delta_t=1e-6, **common),
        "StableTopK": StableTopK(choose=GumbelChoice(2.0), sigma=2.0, delta_t=1e-6, max_k=50, **common),
    }
    print(f"{'what':<58}{'measured':>10}{'goal':>10}")
    for choose in (GaussianChoice(50.0), GumbelChoice(39.0)):
        name = f"StableTopK {type(choose).__name__} / (sort + noise)"
        print(f"{name:<58}{stable_topk(choose):>9.2f}x{'<= 3x':>10}")
    for name, m in many.items():
        print(f"{name + ' top-50 of 1.28 million / argpartition':<58}{top_of_many(m, counts):>9.2f}x{'<= 2x':>10}")
    print(f"{'600 x (charge one query, read epsilon)':<58}{charges():>7.1f} ms{'< 30 ms':>10}")
    print(f"{'a million equal queries / one query':<58}{million():>9.2f}x{'1x':>10}")


if __name__ == "__main__":
    main()

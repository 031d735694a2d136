"""Every mechanism once, for the tests that all of them must pass."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pate.mechanisms import (
    AboveThreshold,
    BinaryVotes,
    Directions,
    FixedTopK,
    GaussianChoice,
    GaussianTest,
    GNMax,
    GumbelChoice,
    LaplaceTest,
    LimitedDomain,
    Majority,
    Mechanism,
    NoisyCounts,
    OneshotLaplace,
    OnlineStable,
    PeelingExponential,
    ProjectedBallots,
    StableAnswer,
    StableSet,
    StableTopK,
    TauBallots,
    TopStable,
)

DIRECTIONS = Directions.of(np.random.default_rng(7).normal(size=(40, 12)))  # for 40 queries
BOTH = ("teacher_added", "teacher_changed")


@dataclass(frozen=True)
class Entry:
    """How to make a mechanism with its noise stretched by a factor, and what calibration needs beside num_labels."""

    make: Callable[..., Mechanism]
    fixed: dict[str, Any] = field(default_factory=dict)
    neighbours: tuple[str, ...] = BOTH
    linear: bool = True  # n queries cost n times one


def _stable(choose: Callable[[float], Any]) -> Callable[..., Mechanism]:
    def make(noise: float, num_labels: int, neighbours: str) -> Mechanism:
        common = {"num_labels": num_labels, "neighbours": neighbours}
        return StableTopK(choose=choose(20.0 * noise), sigma=10.0 * noise, delta_t=1e-9, **common)

    return make


CATALOGUE: dict[str, Entry] = {
    "NoisyCounts": Entry(
        lambda noise, num_labels, neighbours: NoisyCounts(
            num_labels=num_labels, sigma=20.0 * noise, neighbours=neighbours, num_teachers=50
        )
    ),
    "TauBallots": Entry(
        lambda noise, num_labels, neighbours: TauBallots(
            num_labels=num_labels, tau=2.0, sigma=20.0 * noise, neighbours=neighbours, num_teachers=50
        ),
        {"tau": 2.0},
    ),
    "ProjectedBallots": Entry(
        lambda noise, num_labels, neighbours: ProjectedBallots(
            num_labels=num_labels, directions=DIRECTIONS, sigma=2.0 * noise, neighbours=neighbours, num_teachers=50
        ),
        {"directions": DIRECTIONS, "num_teachers": 50},
        linear=False,
    ),
    "StableTopK-gumbel": Entry(_stable(GumbelChoice), {"choose": "gumbel"}),
    "StableTopK-gaussian": Entry(_stable(GaussianChoice), {"choose": "gaussian"}),
    "StableTopK-laplace-test": Entry(
        lambda noise, num_labels, neighbours: StableTopK(
            num_labels=num_labels,
            choose=GumbelChoice(20.0 * noise),
            test=LaplaceTest(epsilon=0.2 / noise, delta_t=1e-9),
            neighbours=neighbours,
        ),
        {"choose": "gumbel", "max_k": 2},
    ),
    "StableSet": Entry(
        lambda noise, num_labels, neighbours: StableSet(
            num_labels=num_labels, k=1, test=GaussianTest(10.0 * noise, 1e-9), neighbours=neighbours
        ),
        {"k": 1},
    ),
    "FixedTopK": Entry(
        lambda noise, num_labels, neighbours: FixedTopK(
            num_labels=num_labels,
            k=2,
            choose=GumbelChoice(20.0 * noise),
            sigma=10.0 * noise,
            rho=1e-3 / noise**2,
            pull=1.0,
            neighbours=neighbours,
        ),
        {"k": 2, "pull": 1.0},
    ),
    "AboveThreshold": Entry(
        lambda noise, num_labels, neighbours: AboveThreshold(
            num_labels=num_labels, threshold=25.0, epsilon=0.2 / noise, cutoff=2, neighbours=neighbours
        ),
        {"threshold": 25.0, "cutoff": 2},
    ),
    "StableAnswer": Entry(
        lambda noise, num_labels, neighbours: StableAnswer(
            num_labels=num_labels, epsilon=0.2 / noise, delta=1e-9, neighbours=neighbours, query=Majority(50)
        ),
        {"query": Majority(50)},
    ),
    "TopStable": Entry(
        lambda noise, num_labels, neighbours: TopStable(
            num_labels=num_labels, k=2, epsilon=0.2 / noise, delta=1e-9, neighbours=neighbours
        ),
        {"k": 2},
    ),
    "TopStable-em": Entry(
        lambda noise, num_labels, neighbours: TopStable(
            num_labels=num_labels,
            k=2,
            max_k=4,
            epsilon=0.2 / noise,
            delta=1e-9,
            neighbours=neighbours,
            em=True,
            em_epsilon=0.2 / noise,
        ),
        {"k": 2, "max_k": 4, "em": True},
    ),
    "OnlineStable": Entry(
        lambda noise, num_labels, neighbours: OnlineStable(
            num_labels=num_labels, epsilon=0.2 / noise, delta=1e-9, cutoff=5, neighbours=neighbours, query=Majority(50)
        ),
        {"cutoff": 5, "query": Majority(50)},
        linear=False,
    ),
    "LimitedDomain-gumbel": Entry(
        lambda noise, num_labels, neighbours: LimitedDomain(
            num_labels=num_labels, k=2, max_k=4, epsilon=0.1 / noise, delta_t=1e-9, neighbours=neighbours
        ),
        {"k": 2, "max_k": 4},
    ),
    "LimitedDomain-laplace": Entry(
        lambda noise, num_labels, neighbours: LimitedDomain(
            num_labels=num_labels,
            k=2,
            max_k=4,
            epsilon=0.2 / noise,
            delta_t=1e-9,
            neighbours=neighbours,
            noise="laplace",
            private_k_bar=True,
        ),
        {"k": 2, "max_k": 4, "noise": "laplace", "private_k_bar": True},
    ),
    "OneshotLaplace": Entry(
        lambda noise, num_labels, neighbours: OneshotLaplace(
            num_labels=num_labels, k=2, epsilon=0.2 / noise, neighbours=neighbours
        ),
        {"k": 2},
    ),
    "OneshotLaplace-values": Entry(
        lambda noise, num_labels, neighbours: OneshotLaplace(
            num_labels=num_labels, k=2, epsilon=0.2 / noise, values=True, neighbours=neighbours
        ),
        {"k": 2, "values": True},
    ),
    "GNMax": Entry(
        lambda noise, num_labels, neighbours: GNMax(num_labels=num_labels, sigma=20.0 * noise, neighbours=neighbours)
    ),
    "BinaryVotes": Entry(
        lambda noise, num_labels, neighbours: BinaryVotes(
            num_labels=num_labels, sigma=20.0 * noise, neighbours=neighbours, num_teachers=50
        )
    ),
    "PeelingExponential": Entry(
        lambda noise, num_labels, neighbours: PeelingExponential(
            num_labels=num_labels, k=2, scale=20.0 * noise, neighbours=neighbours
        ),
        {"k": 2},
    ),
}

CASES = [(name, neighbours) for name, entry in CATALOGUE.items() for neighbours in entry.neighbours]

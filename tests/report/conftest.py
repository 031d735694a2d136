"""Rows like those of a real study: four mechanisms, four epsilons, three seeds, two references."""

from dataclasses import replace

import pytest

from pate.report import Row

CURVES = {  # student accuracy and answered share at each epsilon; None: nothing answered, no student
    "noisy_counts": ((0.830, 1.0), (0.859, 1.0), (0.878, 1.0), (0.889, 1.0)),
    "tau_ballots": ((0.821, 1.0), (0.846, 1.0), (0.869, 1.0), (0.884, 1.0)),
    "stable_topk_gumbel": ((None, 0.0), (0.812, 0.11), (0.841, 0.48), (0.872, 0.83)),
    "stable_topk_gaussian": ((None, 0.0), (0.806, 0.06), (0.828, 0.31), (0.861, 0.72)),
}
WOBBLE = (-0.003, 0.0, 0.003)  # a sample standard deviation of exactly 0.003


def measured(name: str, epsilon: float, accuracy: float | None, answered: float) -> Row:
    seeds = () if accuracy is None else tuple(accuracy + w for w in WOBBLE)
    return Row(
        mechanism=name,
        neighbours="teacher_changed",
        epsilon=epsilon * (1 - 1e-9),  # calibration stops just below its target
        delta=1e-6,
        answered=answered,
        label_accuracy=None if accuracy is None else accuracy + 0.02,
        accuracy=seeds,
        macro_f1=tuple(value - 0.2 for value in seeds),
        micro_f1=tuple(value - 0.1 for value in seeds),
        mean_ap=tuple(value - 0.3 for value in seeds),
        label_f1=answered * 0.5,
        settings={"num_labels": 40, "sigma": 400 / epsilon, "choose": {"scale": 39.0}},
    )


def reference(name: str, accuracy: float) -> Row:
    seeds = tuple(accuracy + w / 3 for w in WOBBLE)
    f1, micro, ap = (tuple(value - less for value in seeds) for less in (0.2, 0.1, 0.3))
    return Row(name, None, None, None, None, None, seeds, f1, micro, ap)


@pytest.fixture
def references() -> list[Row]:
    return [reference("prior-only", 0.80), reference("non-private", 0.915)]


@pytest.fixture
def rows(references: list[Row]) -> list[Row]:
    grid = (0.5, 1.0, 2.0, 4.0)
    study = [measured(name, e, *at) for name, curve in CURVES.items() for e, at in zip(grid, curve, strict=True)]
    return references + study  # references first: every form must bring them last by itself


@pytest.fixture
def noiseless() -> Row:
    return reference("noiseless votes", 0.90)


KINDS = {"noisy_counts": "NoisyCounts", "tau_ballots": "TauBallots", "stable_topk_gumbel": "StableTopK"}
SWEPT = {  # label and student accuracy at 10, 40, 160, 400 labels: the stable top-k passes one rival, not the other
    "noisy_counts": ((0.90, 0.88), (0.88, 0.87), (0.80, 0.82), (0.70, 0.75)),
    "tau_ballots": ((0.90, 0.88), (0.89, 0.88), (0.91, 0.89), (0.95, 0.92)),
    "stable_topk_gumbel": ((0.92, 0.86), (0.88, 0.85), (0.86, 0.85), (0.90, 0.88)),
}


@pytest.fixture
def swept() -> list[Row]:
    """A sweep over labels at two epsilons; at the smaller one the stable top-k answers nothing."""
    rows = []
    for place, labels in enumerate((10, 40, 160, 400)):
        for name, curve in SWEPT.items():
            for epsilon in (4.0, 16.0):
                silent = epsilon == 4.0 and name not in ("noisy_counts", "tau_ballots")
                one = measured(name, epsilon, None if silent else curve[place][1], 0.0 if silent else 0.6)
                accuracy = None if silent else curve[place][0]
                rows.append(replace(one, labels=labels, label_accuracy=accuracy, settings={"kind": KINDS[name]}))
        rows += [replace(reference(name, level), labels=labels) for name, level in LEVELS.items()]
    return rows


LEVELS = {"prior-only": 0.80, "non-private": 0.915}


@pytest.fixture
def facts() -> dict[str, str]:
    return {
        "data": "cartoon faces, seed 0",
        "teachers": "100",
        "queries": "400",
        "seeds": "0, 1, 2",
        "date": "2025-01-15",
        "versions": "pate 0.1.0, numpy 2.3.1",
    }

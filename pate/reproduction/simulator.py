"""Votes of teachers that were never trained, on real labels: for CelebA without its pictures.

Teacher t says yes to label k of query n if margin[n, k] + habit * u[t, k] + sqrt(1 - habit^2) * e[t, n, k] > 0, u and e
standard normal, so that a share of about Phi(margin) of the teachers says yes. The margin is the same for all teachers,
    margin[n, k] = prior_pull * Phi^-1(prior[k]) + bias + strength[k] * (truth[n, k] - 1/2) + spread[k] * x[n, k],
and so is the difficulty x[n, k] in it: standard normal, correlated between labels as the labels themselves are in
all 202,599 rows (a face that looks like a woman looks made up too). spread[k] = floor + slope * strength[k].

Where the numbers come from: votes of ridge heads on a frozen ImageNet backbone on 600 pictures of the subset in
`celeba/`, twice 800 teachers. With 14 pictures each they are what the subset allows with disjoint shares; with 203
pictures each, as in the paper, the shares are drawn with overlap. STRENGTHS are from the latter: how much larger, on
average, Phi^-1 of the share of yes votes is where a label is true, to one digit. The few numbers of LIKE were then set
by hand to match, on the same 600 label rows, what MEASURED says. Real ballots vary more in size than simulated ones.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pate.errors import DataError, require
from pate.runs import read_npz

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
FILE = Path("celeba") / "all_attributes.npz"
TRAIN, TEST = 0, 2

# fmt: off
STRENGTHS = {
    "5_o_Clock_Shadow": 0.6, "Arched_Eyebrows": 1.3, "Attractive": 2.0, "Bags_Under_Eyes": 0.7, "Bald": 0.1,
    "Bangs": 1.1, "Big_Lips": 0.3, "Big_Nose": 0.8, "Black_Hair": 1.6, "Blond_Hair": 2.5, "Blurry": 0.0,
    "Brown_Hair": 0.7, "Bushy_Eyebrows": 0.3, "Chubby": 0.2, "Double_Chin": 0.1, "Eyeglasses": 1.7, "Goatee": 0.1,
    "Gray_Hair": 0.1, "Heavy_Makeup": 3.2, "High_Cheekbones": 1.1, "Male": 4.3, "Mouth_Slightly_Open": 0.7,
    "Mustache": 0.1, "Narrow_Eyes": 0.2, "No_Beard": 1.1, "Oval_Face": 0.3, "Pale_Skin": 0.4, "Pointy_Nose": 0.6,
    "Receding_Hairline": 0.5, "Rosy_Cheeks": 0.1, "Sideburns": 0.1, "Smiling": 1.0, "Straight_Hair": 0.6,
    "Wavy_Hair": 2.6, "Wearing_Earrings": 1.0, "Wearing_Hat": 1.9, "Wearing_Lipstick": 4.0, "Wearing_Necklace": 0.5,
    "Wearing_Necktie": 2.2, "Young": 1.6,
}
# Of the real votes: label accuracy of teachers and of their majority, quantiles (0.1, 0.5, 0.9) of the largest gap,
# votes in a ballot, share of the counts that nearly all teachers agree on (below 2 % or above 98 %).
MEASURED = {
    14: {"teacher": 0.797, "majority": 0.826, "gaps": (133, 202, 317), "ballot": 6.8, "agreed": 0.50},
    203: {"teacher": 0.835, "majority": 0.847, "gaps": (168, 263, 410), "ballot": 6.5, "agreed": 0.69},
}
# fmt: on


@dataclass(frozen=True)
class Population:
    """The attributes of all faces.

    Attributes:
        labels: (M, K) bool.
        partition: (M,) official: 0 train, 1 valid, 2 test.
        names: K names.
    """

    labels: Bools
    partition: NDArray[np.int8]
    names: tuple[str, ...]

    @classmethod
    def load(cls, root: Path) -> Self:
        """Read `<root>/celeba/all_attributes.npz`."""
        path = root / FILE
        if not path.is_file():
            raise DataError(f"{path} is missing: attr (202599, 40) bool, cols and partition of CelebA's lists")
        arrays = read_npz(path)
        missing = [name for name in ("attr", "cols", "partition") if name not in arrays]
        if missing:
            raise DataError(f"{path} must hold attr, cols and partition, {missing[0]} is absent")
        return cls(arrays["attr"].astype(np.bool_), arrays["partition"], tuple(arrays["cols"].tolist()))

    @property
    def prior(self) -> Floats:
        """(K,) how often each label is true of training pictures."""
        return np.asarray(self.labels[self.partition == TRAIN].mean(axis=0))

    @property
    def correlation(self) -> Floats:
        """(K, K) between labels, over everybody."""
        return np.asarray(np.corrcoef(self.labels.T.astype(np.float32)))

    def queries(self, count: int, rng: np.random.Generator) -> Bools:
        """(N, K) labels of random test pictures."""
        test = np.flatnonzero(self.partition == TEST)
        require(1 <= count <= len(test), "queries", f"from 1 to the test pictures ({len(test)})", count)
        return np.asarray(self.labels[rng.choice(test, count, replace=False)])


@dataclass(frozen=True)
class Teachers:
    """How teachers see, in units of the noise in which they differ; the module has the formula."""

    strength_floor: float
    strength_scale: float
    spread_floor: float
    spread_slope: float
    prior_pull: float
    bias: float
    habit: float

    def votes(self, truth: Bools, crowd: Population, count: int, rng: np.random.Generator) -> Bools:
        """(T, N, K) votes on queries with this truth."""
        margins = self.margins(truth, crowd, rng)
        own = float(np.sqrt(1 - self.habit**2))
        votes = np.empty((count, *truth.shape), dtype=np.bool_)
        for ballot in votes:
            habits = self.habit * rng.standard_normal(truth.shape[1])
            chance = ndtr(((margins + habits) / own).astype(np.float32))
            np.less(rng.random(truth.shape, dtype=np.float32), chance, out=ballot)
        return votes

    def margins(self, truth: Bools, crowd: Population, rng: np.random.Generator) -> Floats:
        """(N, K) what all teachers share."""
        unknown = sorted(set(crowd.names) - set(STRENGTHS))
        if unknown:
            raise DataError(f"the simulator knows CelebA's forty attributes, not {unknown[0]!r}")
        strength = self.strength_floor + self.strength_scale * np.array([STRENGTHS[name] for name in crowd.names])
        mixed = np.linalg.cholesky(crowd.correlation + 1e-6 * np.eye(len(strength)))
        difficulty = rng.standard_normal(truth.shape) @ mixed.T
        seen = strength * (truth - 0.5) + (self.spread_floor + self.spread_slope * strength) * difficulty
        return np.asarray(self.prior_pull * ndtri(crowd.prior) + self.bias + seen)


LIKE = {
    14: Teachers(0.15, 0.2, 0.33, 0.4, prior_pull=1.9, bias=0.1, habit=0.75),
    203: Teachers(0.0, 1.2, 0.6, 0.45, prior_pull=2.3, bias=0.0, habit=0.3),
}


def summary(votes: Bools, truth: Bools) -> dict[str, float | tuple[float, ...]]:
    """Of any votes, what MEASURED has of the real ones."""
    counts = votes.sum(axis=0)
    shares, gaps = counts / len(votes), np.diff(np.sort(counts, axis=1), axis=1).max(axis=1)
    return {
        "teacher": float((votes == truth).mean()),
        "majority": float(((shares > 0.5) == truth).mean()),
        "gaps": tuple(np.quantile(gaps, (0.1, 0.5, 0.9)).tolist()),
        "ballot": float(votes.sum(axis=2).mean()),
        "agreed": float(((shares < 0.02) | (shares > 0.98)).mean()),
    }

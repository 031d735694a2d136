"""Votes of teachers that were never trained, on real labels: for CelebA without its pictures.

Teacher t says yes to label k of query n if margin[n, k] + habit * u[t, k] + sqrt(1 - habit^2) * e[t, n, k] > 0, u and e
standard normal, so that a share of about Phi(margin) of the teachers says yes. The margin is the same for all teachers,
    margin[n, k] = prior_pull * Phi^-1(prior[k]) + bias + strength[k] * (truth[n, k] - 1/2) + spread[k] * x[n, k],
and so is the difficulty x[n, k] in it: standard normal, correlated between labels as the labels themselves are in
all 202,599 rows (a face that looks like a woman looks made up too). spread[k] = floor + slope * strength[k].

Where the numbers come from: votes of ridge heads on a frozen ImageNet backbone on 600 pictures of the subset in
`celeba/`, of two runs of `train_teachers.py experiment=celeba_subset data.root=PATH`, whose teachers share no picture:
800 teachers with 14 pictures each, and with `teachers.count=55` as many as the subset has of 203 each (205), the
paper's number. STRENGTHS are of the latter: how much larger Phi^-1 of the share of yes votes, (yes + 1/2) / (T + 1), is
on average where a label is true, to one digit. The seven numbers of each of LIKE then minimise (Nelder-Mead) the
distance between `summary` of votes simulated on the same 600 rows (200 and 55 teachers) and what MEASURED says. Not
fitted: with 800 of the former teachers, the paper's noise answers 2 to 4 % of the queries, of the real ones 2 to 3 %.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pate.data.celeba import read_lists
from pate.errors import DataError, require
from pate.runs import read_npz

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
FILE = "all_attributes.npz"
TRAIN, TEST = 0, 2

# fmt: off
STRENGTHS = {
    "5_o_Clock_Shadow": 0.1, "Arched_Eyebrows": 1.0, "Attractive": 1.9, "Bags_Under_Eyes": 0.3, "Bald": 0.0,
    "Bangs": 0.5, "Big_Lips": 0.2, "Big_Nose": 0.5, "Black_Hair": 1.4, "Blond_Hair": 1.6, "Blurry": 0.0,
    "Brown_Hair": 0.3, "Bushy_Eyebrows": 0.1, "Chubby": 0.0, "Double_Chin": 0.0, "Eyeglasses": 1.3, "Goatee": 0.0,
    "Gray_Hair": 0.0, "Heavy_Makeup": 2.6, "High_Cheekbones": 1.3, "Male": 3.3, "Mouth_Slightly_Open": 0.7,
    "Mustache": 0.0, "Narrow_Eyes": 0.0, "No_Beard": 0.6, "Oval_Face": 0.2, "Pale_Skin": 0.2, "Pointy_Nose": 0.4,
    "Receding_Hairline": 0.1, "Rosy_Cheeks": 0.0, "Sideburns": 0.0, "Smiling": 1.2, "Straight_Hair": 0.2,
    "Wavy_Hair": 2.0, "Wearing_Earrings": 0.5, "Wearing_Hat": 1.3, "Wearing_Lipstick": 3.2, "Wearing_Necklace": 0.0,
    "Wearing_Necktie": 0.1, "Young": 1.1,
}
# Of the real votes: how many teachers, label accuracy of them and of their majority, quantiles (0.1, 0.5, 0.9) of the
# largest gap, votes in a ballot, share of the counts that nearly all teachers agree on (below 2 % or above 98 %).
MEASURED = {
    14: {"count": 800, "teacher": 0.795, "majority": 0.832, "gaps": (119, 170.5, 277), "ballot": 7.55, "agreed": 0.377},
    203: {"count": 55, "teacher": 0.837, "majority": 0.844, "gaps": (13, 20, 33), "ballot": 6.26, "agreed": 0.780},
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
        """Read `all_attributes.npz` in `<root>/celeba` or `<root>`; where it is absent, CelebA's own lists there."""
        path = celeba_folder(root) / FILE
        if not path.is_file():
            lists = read_lists(path.parent)
            return cls(lists.labels, lists.partition, lists.label_names)
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
    14: Teachers(0.27, 0.22, 0.35, 0.37, prior_pull=1.69, bias=0.17, habit=0.74),
    203: Teachers(0.1, 1.65, 0.52, 0.56, prior_pull=2.69, bias=0.05, habit=0.2),
}


def celeba_folder(root: Path) -> Path:
    """The data folder's `celeba`, or the folder itself if it has none."""
    return root / "celeba" if (root / "celeba").is_dir() else root


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

"""Top-k methods that meet on one sorted histogram, many trials at a time.

Everything that looks at the k-bar largest counts only gets these; what chooses among all candidates gets them by
`Shortcut`. Counts are sorted, so the true top k are the first k columns, and a user is added or removed.

The settings of `StableTopK` come from reasoning and from drawn histograms, and stay as they are where those measured
would like others (max_k = k would be better on Foursquare at k = 3). Where popularity falls like a power of the rank,
gaps shrink even faster: only sets of the first few ranks are ever stable, the test's share of the budget buys little,
and most of it belongs to the exponential mechanism. So em_split = 0.9 and delta_share = 0.1. A search on drawn power
laws (exponents 0.5 to 0.9, 2,000 users, 100,000 venues) agrees: half of the budget for choosing and testing loses up
to 0.14 of the recall at k = 50, a tenth 0.01 against a twentieth; max_k = 2k is a little better than k; no pull.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pate.accounting import PrivacyCost, calibrate
from pate.accounting.conversion import Conversion
from pate.data.checkins import Visits, load_visits
from pate.errors import DataError
from pate.mechanisms import FixedTopK, LimitedDomain, Mechanism, PeelingExponential, TopStable
from pate.mechanisms.base import Bools
from pate.noise import FloatNoise
from pate.reproduction import as_coded
from pate.reproduction.experiment import NEIGHBOURS, Row
from pate.reproduction.shortcut import Shortcut

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class Case:
    """A histogram, sorted, and a question about it."""

    counts: Ints
    k: int
    epsilon: float
    delta: float

    def head(self, width: int) -> Ints:
        """The largest counts, at most so many."""
        return self.counts[:width]


@dataclass(frozen=True)
class Outcome:
    """What came of many trials: each one's number of answers, share of the true top k (P) and of their sum (S).

    Attributes:
        charged: epsilon at the case's delta by the library's accounting; None for what is not valid.
        conversion: how it was reached.
        settings: the noise, in words.
    """

    size: Ints
    p: Floats
    s: Floats
    charged: float | None
    conversion: str
    settings: str

    def row(self) -> Row:
        """Means and the standard errors of P."""
        measured = {"P": float(self.p.mean()), "P_error": float(self.p.std() / np.sqrt(len(self.p)))}
        measured |= {"S": float(self.s.mean()), "size": float(self.size.mean())}
        told = {"valid": "no" if self.charged is None else "yes", "charged": self.charged}
        return measured | told | {"conversion": self.conversion, "settings": self.settings}


Method = Callable[[Case, int, FloatNoise], Outcome]


def visits(root: Path, name: str, venues: int) -> Visits:
    """A data set's histogram, which must have so many venues: LD as coded looks at the first 5k, for instance."""
    found = load_visits(root, name)
    if len(found.counts) < venues:
        said = f"{name} in {root} ({found.origin}) must have at least {venues} venues"
        raise DataError(f"{said} for this experiment, got {len(found.counts)}")
    return found


def top_stable(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """TS as the paper has it, corrected: the gap of the set that is answered is the one tested."""
    counts = case.head(case.k + 2)
    mechanism = TopStable(len(counts), case.k, case.epsilon, case.delta, NEIGHBOURS)
    labels = mechanism.release(_rows(counts, trials), source).labels
    return _outcome(case, counts, labels, mechanism, "none: (epsilon, delta) by theorem", f"p1 {mechanism.p1:g}")


def top_stable_as_coded(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """TS as its authors' code has it. Not valid."""
    counts = case.head(case.k + 3)
    labels = as_coded.top_stable(_rows(counts, trials), case.k, case.epsilon, case.delta, source)
    return _outcome(case, counts, labels, None, "none", "k-bar = k", lenient=True)


def limited_domain(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """LD with a private k-bar among k..5k, as in Carvalho et al., corrected."""
    counts = case.head(10 * case.k + 1)
    widest = min(5 * case.k, len(counts) - 1)
    fixed: dict[str, Any] = {"num_labels": len(counts), "k": case.k, "max_k": widest, "private_k_bar": True}
    mechanism = _calibrated(LimitedDomain, case, **fixed)
    labels = mechanism.release(_rows(counts, trials), source).labels
    said = f"label epsilon {mechanism.epsilon:.4g}, delta_t {mechanism.delta_t:.3g}"
    return _outcome(case, counts, labels, mechanism, "tight at delta/2", said)


def limited_domain_as_coded(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """LD as the TS authors' code has it. Not valid."""
    counts = case.head(5 * case.k + 1)
    labels = as_coded.limited_domain(_rows(counts, trials), case.k, case.epsilon, case.delta, source)
    return _outcome(case, counts, labels, None, "Theorem 1 at delta/2", "k-bar in k..5k-1", lenient=True)


def peeling(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """EM-CDP: all of the budget for the exponential mechanism, whose scores are monotone here."""
    short = Shortcut.of(case.counts, head=case.k + 1, most=case.k)
    mechanism = _calibrated(PeelingExponential, case, num_labels=len(short.counts), k=case.k)
    labels = mechanism.release(short.rows(trials), short.noise(source)).labels
    return _outcome(case, short.counts, labels, mechanism, "tight at delta", f"Gumbel {mechanism.scale:.4g}")


def stable_topk(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """Algorithm 3 with the settings that this module argues for."""
    return _fixed_topk(case, trials, source, em_split=0.9, delta_share=0.1, max_k=2 * case.k)


def stable_topk_halves(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """Algorithm 3 with the paper's halves, k-bar = 5k; the scores' monotonicity and the tight conversion are used."""
    return _fixed_topk(case, trials, source, em_split=0.5, delta_share=0.5, max_k=5 * case.k)


def stable_topk_as_printed(case: Case, trials: int, source: FloatNoise) -> Outcome:
    """Algorithm 3 with the paper's halves, conversion and quantile, and an EM for scores that need not be monotone.

    Valid, and charged for less noise than it draws.
    """

    def more_noise(mechanism: FixedTopK) -> FixedTopK:
        published = float(ndtr(-np.sqrt(2 * np.log(1 / mechanism.delta_t))))  # whose exact quantile is the published z
        return replace(mechanism, rho=mechanism.rho / 4, delta_t=published)  # twice the Gumbel scale

    fixed = {"em_split": 0.5, "delta_share": 0.5, "max_k": 5 * case.k}
    return _fixed_topk(case, trials, source, "published", more_noise, **fixed)


def stable_then_em(
    counts: Ints, k: int, epsilon: float, delta: float, source: FloatNoise, days: int = 1
) -> tuple[Bools, PrivacyCost]:
    """Half of a budget for TS and half for an exponential mechanism that stands in where TS answers nothing."""
    budget: dict[str, Any] = {"epsilon": epsilon / 2, "delta": delta / 2, "queries": days, "neighbours": NEIGHBOURS}
    stable = calibrate(TopStable, num_labels=counts.shape[1], k=k, **budget)
    second = calibrate(PeelingExponential, num_labels=counts.shape[1], k=k, **budget)
    first = stable.release(counts, source)
    labels = np.where(first.answered[:, None], first.labels, second.release(counts, source).labels)
    return labels, stable.cost(days) + second.cost(days)


METHODS: dict[str, Method] = {
    "TS": top_stable,
    "TS as coded": top_stable_as_coded,
    "LD": limited_domain,
    "LD as coded": limited_domain_as_coded,
    "StableTopK as printed": stable_topk_as_printed,
    "StableTopK halves": stable_topk_halves,
    "StableTopK": stable_topk,
    "EM-CDP": peeling,
}


def _fixed_topk(
    case: Case,
    trials: int,
    source: FloatNoise,
    conversion: Conversion = "tight",
    change: Callable[[FixedTopK], FixedTopK] = lambda mechanism: mechanism,
    **fixed: float,
) -> Outcome:
    short = Shortcut.of(case.counts, head=5 * case.k + 1, most=case.k)
    mechanism = _calibrated(FixedTopK, case, conversion, num_labels=len(short.counts), k=case.k, **fixed)
    mechanism = change(mechanism)
    labels = mechanism.release(short.rows(trials), short.noise(source)).labels
    said = f"sigma {mechanism.sigma:.4g}, EM rho {mechanism.rho:.3g}, delta_t {mechanism.delta_t:.3g}"
    left = f"{conversion} at {1 - fixed['delta_share']:g} delta"
    return _outcome(case, short.counts, labels, mechanism, left, said, conversion)


def _calibrated(kind: type[M], case: Case, conversion: Conversion = "tight", **fixed: Any) -> M:
    budget: dict[str, Any] = {"epsilon": case.epsilon, "delta": case.delta, "queries": 1, "neighbours": NEIGHBOURS}
    return calibrate(kind, conversion=conversion, **budget, **fixed)


def _rows(counts: Ints, trials: int) -> Ints:
    return np.broadcast_to(counts, (trials, len(counts)))


def _outcome(
    case: Case,
    counts: Ints,
    labels: Bools,
    mechanism: Mechanism | None,
    said: str,
    settings: str,
    conversion: Conversion = "tight",
    lenient: bool = False,
) -> Outcome:
    hits = labels[:, : case.k + lenient].sum(axis=1)
    share = labels @ counts / counts[: case.k].sum()
    charged = None if mechanism is None else mechanism.cost(1).epsilon(case.delta, conversion)
    return Outcome(labels.sum(axis=1), hits / case.k, share, charged, said, settings)

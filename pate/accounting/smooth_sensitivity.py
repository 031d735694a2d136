"""A data-dependent price that may be released: with noise scaled to its smooth sensitivity, and an upper bound.

f(x) is the price at one public order alpha: a sum over questions of a function of one whole number each, which one
neighbour moves by at most `reach`. S(x) is its smooth sensitivity (Nissim, Raskhodnikova & Smith 2007): at least
|f(x) - f(x')| for every neighbour x', and log S moves by at most beta between neighbours. Both get Gaussian noise:

1. s = log S(x) + beta log_sigma N(0, 1), and S* = exp(s + z beta log_sigma), so S* >= S(x) but for delta/2;
2. v = f(x) + sigma S* N(0, 1), and u = v + z sigma S*, so u >= f(x) but for delta/2.

**Theorem (ex post).** Let o be the labels M(x) together with s and v, and let e(o) = u + c, where
c = alpha/(2 log_sigma^2) + alpha/(2 sigma^2) + log((alpha-1)/alpha) - (log d + log alpha)/(alpha-1).
For all neighbours x, x' and all sets O: P(o in O | x) <= E[exp(e(o)); o in O | x'] + d + delta.

Proof. Let L be the log-ratio of the densities of o given x and given x', and G the event S* >= |f(x) - f(x')|, which
depends on s only and fails with probability at most delta/2 under x. Integrate over v, then s, then the labels:
E[exp((alpha-1) L); G | x] <= exp((alpha-1) R), R = f(x) + alpha/(2 log_sigma^2) + alpha/(2 sigma^2), since on G the two
Gaussians of v are at most 1/sigma standard deviations apart, those of s at most 1/log_sigma, and the divergence of the
labels is at most f(x). So E[(1 - exp(f(x) + c - L))+; G | x] <= d (Canonne, Kamath & Steinke 2020, Proposition 12,
whose proof is pointwise in L). Where u >= f(x), e(o) >= f(x) + c. Together E[(1 - exp(e(o) - L))+ | x] <= d + P(not G)
+ P(u < f(x)) <= d + delta, which is the claim. Other releases beside these are integrated in the same way.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pate.accounting.conversion import tight_epsilon
from pate.accounting.cost import Neighbours, PrivacyCost
from pate.accounting.events import Gaussian
from pate.errors import SettingError, require
from pate.noise import Noise, as_noise

Floats = NDArray[np.float64]
SMALLEST = 1e-30  # Added to the sensitivity, so that its logarithm exists; a constant keeps it smooth.


class Priced(Protocol):
    """A mechanism whose price on the votes at hand is a sum over whole numbers: `BinaryVotes` or `GNMax`."""

    def __hash__(self) -> int: ...

    @property
    def neighbours(self) -> Neighbours: ...

    @property
    def num_teachers(self) -> int | None: ...

    @property
    def reach(self) -> int: ...

    def teachers(self, counts: Any) -> int: ...

    def statistic(self, counts: Any) -> NDArray[np.int64]: ...

    def prices(self, alpha: float, num_teachers: int) -> Floats: ...


def local_sensitivity(prices: Floats, reach: int) -> Floats:
    """max |prices[v'] - prices[v]| over |v' - v| <= reach, for each v.

    >>> local_sensitivity(np.array([4.0, 3.0, 0.0]), reach=1)
    array([1., 3., 3.])
    """
    result = np.zeros_like(prices)
    for step in range(1, min(reach, len(prices) - 1) + 1):
        change = np.abs(prices[step:] - prices[:-step])
        result[step:] = np.maximum(result[step:], change)
        result[:-step] = np.maximum(result[:-step], change)
    return result


def smooth_sensitivity(prices: Floats, reach: int, beta: float) -> Floats:
    """max over d >= 0 of exp(-beta d) max over |v' - v| <= d reach of the local sensitivity at v', for each v.

    Guarantee: at least the local sensitivity, and S(v) <= exp(beta) S(v') whenever |v' - v| <= reach: what lies within
    d steps of v lies within d + 1 of v' (Nissim, Raskhodnikova & Smith 2007, Definition 2.2 and Lemma 2.3). Sums over
    questions keep both.

    >>> smooth_sensitivity(np.array([4.0, 3.0, 0.0, 0.0, 0.0]), reach=1, beta=np.log(2))
    array([1.5 , 3.  , 3.  , 1.5 , 0.75])
    """
    require(beta > 0, "beta", "> 0", beta)
    window = local_sensitivity(prices, reach)
    result = window.copy()
    for steps in range(1, len(prices)):
        window = _widened(window, reach)
        result = np.maximum(result, np.exp(-beta * steps) * window)
        if window.min() == window.max():  # From here on everything is only discounted.
            break
    return result


@dataclass(frozen=True, kw_only=True)
class Sanitiser:
    """How a data-dependent price is released. Every setting must be chosen without looking at the votes.

    Attributes:
        alpha: the one order at which the price is released; 5 to 12 suits epsilons of a few units.
        beta: how fast the sensitivity may fall from one data set to its neighbour; about 1 / (the vote's sigma).
        sigma: noise on the price, in units of its sensitivity.
        log_sigma: noise on the sensitivity's logarithm, in units of beta.
        delta: probability that the sensitivity or the bound comes out too small; half for each.

    >>> round(Sanitiser(alpha=8.0, beta=0.01).cost("teacher_changed").epsilon(1e-5), 3)
    1.143
    """

    alpha: float
    beta: float
    sigma: float = 4.0
    log_sigma: float = 8.0
    delta: float = 1e-7

    def __post_init__(self) -> None:
        require(np.isfinite(self.alpha) and self.alpha > 1, "alpha", "> 1 and finite", self.alpha)
        for name in ("beta", "sigma", "log_sigma"):
            value = getattr(self, name)
            require(bool(np.isfinite(value) and value > 0), name, "> 0 and finite", value)
        require(0 < self.delta < 1, "delta", "in (0, 1)", self.delta)

    @property
    def z(self) -> float:
        """Standard deviations that noise exceeds with probability delta / 2."""
        return -float(ndtri(self.delta / 2))

    def cost(self, neighbours: Neighbours) -> PrivacyCost:
        """The price of the sanitised release itself, whatever the votes: what a ledger is charged before it is drawn.

        Two Gaussian events of ratios 1/log_sigma and 1/sigma, and delta/2 for a sensitivity that comes out too small.
        """
        events = Gaussian(1 / self.log_sigma), Gaussian(1 / self.sigma)
        return PrivacyCost.of(*events, delta=self.delta / 2, neighbours=neighbours)


@dataclass(frozen=True)
class SanitisedCost:
    """A released bound on what labels cost on the votes that they came from, and the ex-post claim it supports.

    Guarantee (module's theorem): for all neighbours x, x' and all sets O of what is released,
    P(O | x) <= E[exp(epsilon(delta)); O | x'] + delta, where epsilon is the one released with the outcome. This is
    not a bound promised before the release: it may be quoted as ex post, beside the ledger's worst case.

    Attributes:
        settings: the `Sanitiser`.
        value: the noisy price at order settings.alpha; unbiased.
        sensitivity: S*, the released bound on the price's smooth sensitivity.
        upper: bound on the price, too small with probability at most settings.delta / 2; never above the worst case.
        own: what the sanitised release itself costs.
        seeded: True if the noise can be repeated, which makes it not private.
        noise: where the noise came from.

    >>> own = Sanitiser(alpha=8.0, beta=0.02).cost("teacher_changed")
    >>> cost = SanitisedCost(Sanitiser(alpha=8.0, beta=0.02), 1.1, 0.01, 1.4, own, False, "operating system entropy")
    >>> print(cost)
    ex post, the labels' Rényi divergence at order 8 is at most 1.4
    >>> round(cost.epsilon(1e-6), 2)
    3.27
    """

    settings: Sanitiser
    value: float
    sensitivity: float
    upper: float
    own: PrivacyCost
    seeded: bool
    noise: str

    def epsilon(self, delta: float, beside: PrivacyCost | None = None) -> float:
        """Ex-post epsilon of the labels, of this release and of everything charged `beside` them, at its worst case.

        Args:
            delta: total failure probability, larger than settings.delta and the delta_t of `beside` together.
        """
        others = self.own + (beside or PrivacyCost())
        spent = others.delta + self.settings.delta / 2
        if not spent < delta < 1:
            raise SettingError("delta", f"in ({spent:.6g}, 1), above what the sanitised release may fail with", delta)
        order = np.array([self.settings.alpha])
        return tight_epsilon(self.upper + others.rdp(order), delta - spent, order)

    def facts(self, delta: float, beside: PrivacyCost | None = None) -> dict[str, Any]:
        """Plain values for a statement."""
        return {
            "kind": "ex-post",
            "private": not self.seeded,
            "neighbours": self.own.neighbours,
            "epsilon": self.epsilon(delta, beside),
            "delta": delta,
            "order": self.settings.alpha,
            "rdp_upper_bound": self.upper,
            "theorem": "smooth sensitivity: Nissim, Raskhodnikova & Smith 2007; pate.accounting.smooth_sensitivity",
            "noise": self.noise,
        }

    def __str__(self) -> str:
        alpha, seeded = self.settings.alpha, "NOT PRIVATE (seeded noise): " if self.seeded else ""
        return f"{seeded}ex post, the labels' Rényi divergence at order {alpha:g} is at most {self.upper:.4g}"


def sanitise(
    mechanism: Priced, counts: Any, settings: Sanitiser, rng: Noise | np.random.Generator | None = None
) -> SanitisedCost:
    """Release what answering these counts once cost on these counts. Charge `settings.cost` first.

    Args:
        mechanism: the `BinaryVotes` (its price is exact) or `GNMax` (priced by the gap of the two largest counts) that
            answered.
        counts: the (N, K) counts that it answered, as `tally` makes them.
        settings: how to sanitise, chosen without looking at the votes.
        rng: as for `Mechanism.release`.

    >>> from pate.mechanisms.gnmax import BinaryVotes
    >>> m = BinaryVotes(num_labels=40, sigma=60.0, num_teachers=800)
    >>> counts = np.random.default_rng(0).choice([8, 40, 760], (600, 40))
    >>> cost = sanitise(m, counts, Sanitiser(alpha=8.0, beta=0.02), np.random.default_rng(1))
    >>> round(cost.epsilon(1e-6), 2), round(m.cost(600).epsilon(1e-6), 2)
    (1.9, 15.95)
    """
    fixed = mechanism.neighbours == "teacher_changed" or mechanism.num_teachers is not None
    require(fixed, "num_teachers", "given as a public number where teachers may be added or removed", None)
    noise, teachers, values = as_noise(rng), mechanism.teachers(counts), mechanism.statistic(counts)
    inside = not values.size or (values.min() >= 0 and values.max() <= teachers)
    require(bool(inside), "counts", f"<= the number of teachers ({teachers})", values.max(initial=0))
    prices, smooth = _tables(mechanism, settings.alpha, teachers, settings.beta)
    log_scale, z = settings.beta * settings.log_sigma, settings.z
    noisy_log = np.log(SMALLEST + smooth[values].sum()) + float(noise.gaussian(log_scale, (1,))[0])
    sensitivity = float(np.exp(noisy_log + z * log_scale))
    scale = settings.sigma * sensitivity
    value = float(prices[values].sum() + noise.gaussian(scale, (1,))[0])
    worst = len(values) * float(prices.max())
    upper = min(max(value + z * scale, 0.0), worst)
    own = settings.cost(mechanism.neighbours)
    return SanitisedCost(settings, value, sensitivity, upper, own, noise.seeded, noise.description)


@lru_cache(maxsize=16)
def _tables(mechanism: Priced, alpha: float, num_teachers: int, beta: float) -> tuple[Floats, Floats]:
    """Price and smooth sensitivity of one question for each value 0..T of its statistic."""
    prices = mechanism.prices(alpha, num_teachers)
    return prices, smooth_sensitivity(prices, mechanism.reach, beta)


def _widened(values: Floats, reach: int) -> Floats:
    """The largest value within reach of each place."""
    for _ in range(reach):
        wider = values.copy()
        wider[1:] = np.maximum(wider[1:], values[:-1])
        wider[:-1] = np.maximum(wider[:-1], values[1:])
        values = wider
    return values

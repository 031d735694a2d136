"""Votes of teachers that do not exist on records that do not exist, from three guesses: for planning, before any data.

Record n has features x[n, i] = i^-0.5 u[n, i], u standard normal, i = 1..100. Label k is true where
    bias[k] + c[k] g[n, k] + sqrt(1 - c[k]^2) e[n, k] > 0,    g[n, k] = sum over i of load[i, k] u[n, i],
with e standard normal and load[i, k] normal of mean ALIKE, falling as 1 / i and scaled to length 1: few directions
decide, and labels that lean on the same ones come together. Teacher t's votes are scores above 0,
    bias[k] + skill[k] c[k] g[n, k] + blur (HABIT w[t, k] + sqrt(1 - HABIT^2) v[t, n, k]),
w standard normal and v[t, n, k] a random linear function of the record, sum over i of h[t, i, k] z[n, i], h standard
normal and z[n] the vector i^-0.75 u[n, i] scaled to length 1: a teacher of few pictures errs alike on records that look
alike. So about a share Phi(margin) of the teachers says yes, margin the score without blur over blur. Who errs more is
also more careful, as a ridge regression is: skill = c^2 / (c^2 + blur^2). The guesses set the mean of the rates
Phi(bias), the mean of 1 - c^2 (difficulty), and the blur, which follows from a teacher's accuracy.

The constants below were set by hand on real votes: 800 ridge heads on a frozen backbone, 14 CelebA pictures each, on
600 pictures and 40 labels. Agrees (in brackets: eight worlds of `Assumptions(800, 40, 600)`): accuracy of teachers
0.795 (0.799), their majority 0.832 (0.832), prior-only 0.795 (0.801); counts below 2 %, 10 %, 25 % and 50 % of the
teachers 36, 58, 74, 86 % (40, 63, 78, 89); quantiles 0.1, 0.5, 0.9 of the largest gap 119, 171, 277 (115, 171, 262);
StableTopK's answers at sigma 50 and 60 2 % (2), at 15 and 20 85 % (81); quantiles 0.05, 0.5, 0.95 of a ballot's length
over that which `ProjectedBallots` expects 0.82, 0.89, 0.96 (0.86, 0.94, 1.03) on 30 directions and 0.85, 0.94, 1.01
(0.87, 0.97, 1.05) on 96; what projecting the shares of votes on 5, 15, 29 and 60 directions leaves of a student's gain
76, 91, 95, 98 % (82, 95, 98, 101). Does not agree: ballots are smaller, 6.4 votes where real ones have 7.5, and vary
less, by 2.2 where real ones do by 2.6; counts above 98 % are 0.3 % where real ones are 1.5; labels differ more in how
well teachers see them (the weakest vary by 0.04 in margin, real ones by 0.2); one direction has 46 % of the margins'
variance, not 76.

The student is the linear one (`pate.student.ridge`), of noisy shares of votes, or of labels where no shares are
released. Counts are drawn exactly record by record. Ballots are drawn one by one for a part of the teachers only, and
say by how much a mechanism that bounds ballots shrinks each count, or the sum of projected ones.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri

from pate.errors import require
from pate.mechanisms import Directions, ProjectedBallots
from pate.mechanisms.base import Bools, Counts, Floats, Mechanism, Tally, check_whole
from pate.noise import seeded
from pate.student import Student, Targets, targets
from pate.student.ridge import solve

Judge = Literal["accuracy", "f1"]
DIRECTIONS = 100
SPECTRUM = np.arange(1, DIRECTIONS + 1) ** -0.5
FALLING = 1 / np.arange(1, DIRECTIONS + 1)
NODES = ndtri((np.arange(200) + 0.5) / 200)  # stand for a standard normal in means
RATE_SPREAD = 0.7  # standard deviation of Phi^-1(rate) between labels
UNLIKE = 4.0  # labels differ in c^2 as Beta does whose two parameters sum to this
ALIKE = 0.4  # what loads have in common: a record that has one label tends to have others
HABIT = 0.65  # a teacher's leaning to yes or no on a label, as a part of its blur
FRESH = 1000  # records that judge a student
BALLOT_CELLS, BALLOTS = 8_000_000, 100  # drawn one by one: votes, and teachers at most
MEASURED = 16  # ballots whose lengths are looked at; lengths vary by 5 %


@dataclass(frozen=True)
class Assumptions:
    """What a user has to say about a task, without looking at private data: three plans, three guesses, one wish.

    Attributes:
        teachers: T.
        labels: K.
        public: records that could be asked about.
        rate: how often a label is true, on average over labels.
        teacher_accuracy: how often one teacher's vote on one label is right.
        difficulty: share of what decides a label that nobody can see in a record; 0: everything can be seen.
        judge: what a student should be good at: `accuracy` over all labels, or micro `f1`, which suits rare labels.
    """

    teachers: int
    labels: int
    public: int
    rate: float = 0.22
    teacher_accuracy: float = 0.8
    difficulty: float = 0.65
    judge: Judge = "accuracy"

    def __post_init__(self) -> None:
        for name in ("teachers", "labels", "public"):
            check_whole(f"assume.{name}", getattr(self, name))
        require(0 < self.rate < 1, "assume.rate", "in (0, 1)", self.rate)
        require(0.5 < self.teacher_accuracy < 1, "assume.teacher_accuracy", "in (0.5, 1)", self.teacher_accuracy)
        require(0 <= self.difficulty < 1, "assume.difficulty", "in [0, 1)", self.difficulty)
        require(self.judge in get_args(Judge), "assume.judge", f"one of {', '.join(get_args(Judge))}", self.judge)


class Questions(NamedTuple):
    """N simulated records: features (N, D), how probably each label is true and the teachers' margins, both (N, K)."""

    features: Floats
    chance: Floats
    margins: Floats


@dataclass(frozen=True, eq=False)
class World:
    """K labels, and teachers who have learnt them so well. The module has the formulas.

    Attributes:
        bias: (K,) Phi^-1 of how often each label is true.
        signal: (K,) c.
        loads: (D, K).
        blur: of the teachers.
    """

    bias: Floats
    signal: Floats
    loads: Floats
    blur: float

    @classmethod
    def draw(cls, assume: Assumptions, rng: np.random.Generator) -> Self:
        """Labels with the spread of rates and difficulties that is assumed, in a random pairing."""
        ranks = (np.arange(assume.labels) + 0.5) / assume.labels
        bias = ndtri(assume.rate) * np.hypot(1, RATE_SPREAD) + RATE_SPREAD * rng.permutation(ndtri(ranks))
        seen, hidden = UNLIKE * (1 - assume.difficulty), UNLIKE * assume.difficulty
        signal = np.sqrt(betaincinv(seen, hidden, ranks)) if hidden else np.ones(assume.labels)
        loads = (ALIKE + rng.standard_normal((DIRECTIONS, assume.labels))) * FALLING[:, None]
        loads /= np.linalg.norm(loads, axis=0)
        return cls(bias, signal, loads, _blur(assume.teacher_accuracy, bias, signal))

    @property
    def rates(self) -> Floats:
        """(K,) how often each label is true: all that can be said without an answer."""
        return np.asarray(ndtr(self.bias))

    def questions(self, count: int, rng: np.random.Generator) -> Questions:
        """Fresh records."""
        basis = rng.standard_normal((count, DIRECTIONS))
        visible = self.signal * (basis @ self.loads)
        margins = _margins(visible, self.bias, self.signal, self.blur)
        return Questions(basis * SPECTRUM, _chance(visible, self.bias, self.signal), margins)


def draw_counts(margins: Floats, num_teachers: int, rng: np.random.Generator) -> Counts:
    """(N, K) yes votes: exact for each record and label, since teachers are independent."""
    return rng.binomial(num_teachers, ndtr(margins))


def draw_ballots(asked: Questions, num_teachers: int, rng: np.random.Generator) -> Bools:
    """(T, N, K) votes one by one, for what depends on a whole ballot."""
    seen, margins = asked.features * np.sqrt(SPECTRUM), asked.margins.astype(np.float32)
    seen *= np.sqrt(1 - HABIT**2) / np.linalg.norm(seen, axis=1, keepdims=True)
    sources = np.column_stack([np.full(len(seen), HABIT), seen]).astype(np.float32)
    votes = np.empty((num_teachers, *margins.shape), dtype=np.bool_)
    for ballot in votes:
        blur = sources @ rng.standard_normal((sources.shape[1], margins.shape[1]), dtype=np.float32)
        np.greater(margins, blur, out=ballot)
    return votes


@dataclass(frozen=True, eq=False)
class Trial:
    """One simulated task: records, their votes, and fresh records that judge students.

    Attributes:
        counts: (N, K) of all teachers.
        usual, noiseless: score of prior-only, and of a student of the votes without noise.
    """

    assume: Assumptions
    asked: Questions
    fresh: Questions
    counts: Counts
    seed: int
    usual: float
    noiseless: float

    @classmethod
    def make(cls, assume: Assumptions, queries: int, rng: np.random.Generator) -> Self:
        """Fresh labels, teachers and records."""
        world = World.draw(assume, rng)
        asked, fresh = world.questions(queries, rng), world.questions(FRESH, rng)
        counts = draw_counts(asked.margins, assume.teachers, rng)
        usual = score(np.broadcast_to(world.rates, fresh.chance.shape), fresh.chance, assume.judge)
        goal = _goal(2 * counts > assume.teachers, np.ones(queries, dtype=np.bool_), counts, assume.teachers)
        noiseless = score(learn(asked.features, goal, fresh.features), fresh.chance, assume.judge)
        return cls(assume, asked, fresh, counts, int(rng.integers(2**32)), usual, noiseless)

    @cached_property
    def ballots(self) -> Bools:
        """(part of T, N, K), for mechanisms that bound them."""
        part = min(self.assume.teachers, BALLOTS, max(8, BALLOT_CELLS // self.counts.size))
        return draw_ballots(self.asked, part, np.random.default_rng(self.seed))

    def judge(self, mechanism: Mechanism, queries: int, *stream: int) -> tuple[float, float]:
        """The score of a student of the first so many queries, and the share of them that is answered."""
        simulated = self.fitted(mechanism, queries)
        answer = simulated.release(self.tally(simulated, queries), seeded(*stream))
        share = float(answer.answered.mean())
        if not answer.answered.any():
            return self.usual, share
        goal = _goal(answer.labels, answer.answered, answer.scores, self.assume.teachers)
        shares = learn(self.asked.features[:queries], goal, self.fresh.features)
        return score(shares, self.fresh.chance, self.assume.judge), share

    def directions(self, queries: int) -> Directions:
        """Of the first so many records."""
        return Directions.of(self.asked.features[:queries])

    def fitted(self, mechanism: Mechanism, queries: int) -> Mechanism:
        """The same mechanism for these records, with noise that can be repeated."""
        if isinstance(mechanism, ProjectedBallots):
            return replace(mechanism, directions=self.directions(queries))
        return replace(mechanism, exact=False) if mechanism.exact else mechanism  # type: ignore[type-var]

    def tally(self, mechanism: Mechanism, queries: int) -> Tally:
        """All teachers' counts as the mechanism makes them, from what it makes of some ballots."""
        counts, teachers = self.counts[:queries], self.assume.teachers
        if isinstance(mechanism, ProjectedBallots):
            middle = teachers * mechanism.rate
            counts = middle + self._kept(mechanism, queries) * (counts - middle)  # the release projects them
        elif type(mechanism).tally is not Mechanism.tally:
            ballots = self.ballots[:, :queries]
            plain, bounded = ballots.sum(axis=0), np.asarray(mechanism.tally(ballots), dtype=np.float64)
            typical = bounded.sum(axis=1, keepdims=True) / np.maximum(plain.sum(axis=1, keepdims=True), 1)
            counts = counts * np.where(plain > 0, bounded / np.maximum(plain, 1), typical)
            counts = np.rint(counts) if mechanism.whole_counts else counts
        return Tally(counts, teachers)

    def _kept(self, mechanism: ProjectedBallots, queries: int) -> float:
        """What cutting to a length leaves of the sum of coordinates."""
        ballots, middle = self.ballots[:MEASURED, :queries], self.assume.teachers * mechanism.rate
        cut, whole = (np.asarray(one.tally(ballots)) - middle for one in (mechanism, replace(mechanism, clip=1e9)))
        return float((cut * whole).sum() / (whole**2).sum()) if whole.any() else 1.0


def learn(features: Floats, goal: Targets, fresh: Floats) -> Floats:
    """What the linear student says of fresh records: see `pate.student.ridge`."""
    weights, intercepts = solve(features, goal)
    return np.asarray(fresh @ weights + intercepts)


def _goal(labels: Bools, answered: Bools, scores: Counts | None, num_teachers: int) -> Targets:
    """What a student learns of a release, by its default settings."""
    return targets(labels, answered, scores, num_teachers, Student())


def score(shares: Floats, chance: Floats, judge: Judge) -> float:
    """How good predicted shares are, in expectation over the truth.

    For accuracy, labels with a share above a half are said; for F1, the largest shares, as many as they sum to.

    >>> shares, chance = np.array([[0.6, 0.4]]), np.array([[0.9, 0.5]])
    >>> score(shares, chance, "accuracy"), round(score(shares, chance, "f1"), 2)
    (0.7, 0.75)
    """
    if judge == "accuracy":
        return float(np.where(shares > 0.5, chance, 1 - chance).mean())
    count = min(max(1, round(float(shares.clip(0, 1).sum()))), shares.size)
    said = np.argpartition(-shares, count - 1, axis=None)[:count]
    return float(2 * chance.ravel()[said].sum() / (count + chance.sum()))


def _chance(visible: Floats, bias: Floats, signal: Floats) -> Floats:
    """How probably a label is true, given what can be seen."""
    with np.errstate(divide="ignore"):
        return np.asarray(ndtr((bias + visible) / np.sqrt(1 - signal**2)))


def _margins(visible: Floats, bias: Floats, signal: Floats, blur: float) -> Floats:
    skill = signal**2 / (signal**2 + blur**2)
    return np.asarray((bias + skill * visible) / blur)


def _accuracy(blur: float, bias: Floats, signal: Floats) -> float:
    """How often one vote is right, over labels and records."""
    visible = signal * NODES[:, None]
    true, yes = _chance(visible, bias, signal), ndtr(_margins(visible, bias, signal, blur))
    return float((yes * true + (1 - yes) * (1 - true)).mean())


def _blur(wanted: float, bias: Floats, signal: Floats) -> float:
    """The blur that leaves teachers of this accuracy."""
    least, most = 1e-4, 1e3
    best = _accuracy(least, bias, signal)
    rule = f"< {best:.4g}, the best that assume.rate and assume.difficulty allow"
    require(wanted < best, "assume.teacher_accuracy", rule, wanted)
    found = brentq(lambda log: _accuracy(float(np.exp(log)), bias, signal) - wanted, np.log(least), np.log(most))
    return float(np.exp(found))

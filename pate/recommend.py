"""Which mechanism, how many queries and how much noise: advice from simulated votes, before anything private is read.

Every mechanism, calibrated to the target, answers simulated votes on 50, 100, 200, ... of the public records, and the
linear student of each answer is judged on fresh records (`pate.simulation`). What counts is its gain: 0 for prior-only,
1 for a student of noiseless votes on all public records. Votes and noise are seeded, and the same for all candidates of
a trial, so that candidates are compared trial by trial. `ProjectedBallots` gets directions of the simulated records,
and the assumed rate as its guess.

Against reality (800 ridge heads on CelebA's pictures, 40 labels, 600 queries, `teacher_changed`, delta 1e-6; the same
student on the backbone's features, five noises), gain in % of projected ballots / noisy counts / tau ballots /
StableTopK by Gumbel noise:
    epsilon      real votes           simulated, `Assumptions(800, 40, 600)`, two seeds
    0.5        77 / 48 / 58 /  0      79 / 40 / 53 /   0
    1          89 / 67 / 71 /  0      89 / 67 / 69 /   0
    4          96 / 87 / 85 /  0      94 / 90 / 85 / -10
    16         96 / 95 / 91 / 71      95 / 98 / 90 /  41
The order is the same but for epsilon 16, where the simulation prefers noisy counts by 3 points and real votes projected
ballots by 1. StableTopK's answers are worth more than the simulation says, not so much that the advice would change.
This is no independent test: the simulation's constants were set by hand on statistics of the same votes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from pate.accounting import Neighbours
from pate.errors import SettingError, require
from pate.labels import Target, prepare_mechanism
from pate.mechanisms import Mechanism
from pate.mechanisms.base import Floats
from pate.simulation import Assumptions, Trial

TRIALS, FEWEST = 30, 6
CELLS = 240_000  # queries x labels: larger numbers of queries are not simulated
ALL_CELLS = 1_200_000  # of all trials together: large tasks get fewer trials, each of which says more
SHIFTS = (5, 4, 3, 2, 1)  # points of a teacher's accuracy, to see how sure the advice is
USEFUL = 0.05  # a smaller gain is none
FACTORS = (2, 4, 8, 16, 32)
UNCALIBRATED = ("epsilon", "num_labels", "rank")  # names of refusals that only mean: not this mechanism here


@dataclass(frozen=True, eq=False)
class Candidate:
    """One mechanism on so many queries.

    Attributes:
        scores: of the student, one per trial.
        gains: the same, from 0 (prior-only) to 1 (a student of noiseless votes).
        answered: share of the queries.
    """

    name: str
    queries: int
    mechanism: Mechanism
    scores: Floats
    gains: Floats
    answered: float

    @property
    def gain(self) -> float:
        return float(self.gains.mean())

    @property
    def error(self) -> float:
        """Standard error of the gain."""
        return _error(self.gains)

    @property
    def useful(self) -> bool:
        return self.gain > max(USEFUL, 2 * self.error)

    def __str__(self) -> str:
        return f"{self.name} on {self.queries} queries"


@dataclass(frozen=True)
class Advice:
    """What to do, and why.

    Attributes:
        chosen: the advised candidate, or the best of the useless ones.
        tried: all candidates.
        text: four lines for a person.
        command: what to type next; empty where nothing is useful.
    """

    chosen: Candidate
    tried: tuple[Candidate, ...]
    text: str
    command: str

    @property
    def useful(self) -> bool:
        return self.chosen.useful

    def table(self) -> str:
        """All candidates, a line each."""
        width = max(len(one.name) for one in self.tried)
        lines = [f"{'mechanism':{width}}  queries  gain, %    ±  student, %  answered, %  noise"]
        for one in self.tried:
            gain, error, score, answered = (100 * x for x in (one.gain, one.error, one.scores.mean(), one.answered))
            numbers = f"{one.queries:7}  {gain:7.1f}  {error:3.1f}  {score:10.1f}  {answered:11.1f}"
            lines.append(f"{one.name:{width}}  {numbers}  {noise_of(one.mechanism)}")
        return "\n".join(lines)


def recommend(
    mechanisms: Mapping[str, Mapping[str, Any]],
    assume: Assumptions,
    *,
    target: Target,
    delta: float,
    neighbours: Neighbours = "teacher_changed",
    run: str = "demo",
    seed: int = 0,
) -> Advice:
    """The mechanism, the number of queries and the noise that promise the best student for an epsilon.

    Args:
        mechanisms: name -> configuration, as in conf/mechanism.
        assume: the task's numbers and the guesses about it.
        target: the epsilon to spend, and the conversion it is computed by.
        run: named in the command.
        seed: of votes and noise, all of them simulated.

    Raises:
        SettingError: no epsilon; a number out of its range; nothing to be gained even from noiseless votes.
    """
    if target.epsilon is None:
        raise SettingError("target.epsilon", "given for a recommendation", None)
    require(target.split is None, "target.split", "null for a recommendation", target.split)
    require(len(mechanisms) > 0, "mechanisms", "at least one", 0)
    plan = Plan(_guessed(mechanisms, assume), assume, target, delta, neighbours, seed)
    tried = tuple(plan.candidates(grid(assume)))
    chosen = choose(tried)
    command = command_for(chosen, plan, run) if chosen.useful else ""
    lines = _reasons(plan, chosen, tried, command) if chosen.useful else _nothing(plan, tried)
    return Advice(chosen, tried, "\n".join(lines), command)


def _guessed(mechanisms: Mapping[str, Mapping[str, Any]], assume: Assumptions) -> dict[str, dict[str, Any]]:
    """A mechanism that needs a public guess of the share of yes gets the one that was made anyway."""
    return {
        name: dict(config) | ({"rate": assume.rate} if "rate" in config else {}) for name, config in mechanisms.items()
    }


def grid(assume: Assumptions) -> list[int]:
    """Numbers of queries to try: 50, doubled again and again, and all public records.

    >>> grid(Assumptions(teachers=800, labels=40, public=600))
    [50, 100, 200, 400, 600]
    """
    last = min(assume.public, max(50, CELLS // assume.labels))
    return [queries for queries in (50 * 2**step for step in range(30)) if queries < last] + [last]


def choose(tried: Sequence[Candidate]) -> Candidate:
    """The mechanism with the best gain, on the fewest queries that are within one standard error of that."""
    best = max(tried, key=lambda one: one.gain)
    near = [one for one in tried if one.name == best.name and _near(one, best)]
    return min(near, key=lambda one: one.queries)


def _near(one: Candidate, best: Candidate) -> bool:
    behind = best.gains - one.gains  # trial by trial, since all candidates saw the same votes
    return float(behind.mean()) <= _error(behind)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True)
class Plan:
    """A task, what may be spent on it, and the trials on which everything is tried."""

    mechanisms: Mapping[str, Mapping[str, Any]]
    assume: Assumptions
    target: Target
    delta: float
    neighbours: Neighbours
    seed: int

    @cached_property
    def trials(self) -> list[Trial]:
        largest = grid(self.assume)[-1]
        count = min(TRIALS, max(FEWEST, ALL_CELLS // (largest * self.assume.labels)))
        return [Trial.make(self.assume, largest, np.random.default_rng([self.seed, place])) for place in range(count)]

    @property
    def epsilon(self) -> float:
        return self.target.epsilon or math.nan

    @property
    def usual(self) -> float:
        return float(np.mean([trial.usual for trial in self.trials]))

    @property
    def noiseless(self) -> float:
        return float(np.mean([trial.noiseless for trial in self.trials]))

    @cached_property
    def worth(self) -> float:
        """What noiseless votes add to prior-only: the unit of gains."""
        found = self.noiseless - self.usual
        rule = "such that noiseless votes beat prior-only by 0.1 points (for rare labels: assume.judge=f1)"
        require(found >= 0.001, "assume", rule, f"{100 * found:.2f} points")
        return found

    def mechanism(self, name: str, queries: int) -> Mechanism:
        """Calibrated to spend the plan's epsilon on so many queries."""
        return prepare_mechanism(
            self.mechanisms[name],
            num_labels=self.assume.labels,
            num_teachers=self.assume.teachers,
            neighbours=self.neighbours,
            queries=queries,
            delta=self.delta,
            target=self.target,
            directions=self.trials[0].directions(queries),  # any of so many queries: the noise is the same
        )

    def candidates(self, sizes: Sequence[int]) -> list[Candidate]:
        """Every mechanism on every number of queries that it can answer."""
        found, refused = list[Candidate](), list[SettingError]()
        for name, queries in product(self.mechanisms, sizes):
            try:
                found.append(self.candidate(name, queries))
            except SettingError as error:
                if error.name not in UNCALIBRATED:
                    raise
                refused.append(error)
        if not found:
            raise refused[0]
        return found

    def candidate(self, name: str, queries: int) -> Candidate:
        mechanism = self.mechanism(name, queries)
        results = [trial.judge(mechanism, queries, self.seed, place) for place, trial in enumerate(self.trials)]
        scores, shares = np.array(results).T
        gains = (scores - [trial.usual for trial in self.trials]) / self.worth
        return Candidate(name, queries, mechanism, scores, gains, float(shares.mean()))

    def spending(self, epsilon: float) -> "Plan":
        """The same task with another epsilon."""
        return replace(self, target=replace(self.target, epsilon=epsilon))

    def shifted(self, step: float) -> "Plan | None":
        """With better or worse teachers; None if the other assumptions leave no room for such."""
        try:
            plan = replace(self, assume=replace(self.assume, teacher_accuracy=self.assume.teacher_accuracy + step))
            _ = plan.worth
        except SettingError:
            return None
        return plan


def noise_of(mechanism: Mechanism) -> str:
    """The values of its noise, in words."""
    found = [(name, getattr(mechanism, name, None)) for name in mechanism.noise_fields]
    return ", ".join(f"{name} {_short(value)}" for name, value in found if value is not None)


def _short(value: Any) -> str:
    if is_dataclass(value):
        inner = ", ".join(f"{field.name} {_short(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__} ({inner})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def command_for(chosen: Candidate, plan: Plan, run: str) -> str:
    """The command that releases what was advised; it names a mechanism's settings that are not its class's own."""
    own = {field.name: field.default for field in fields(chosen.mechanism)}  # type: ignore[arg-type]
    kept = {name: value for name, value in plan.mechanisms[chosen.name].items() if name in chosen.mechanism.fixed()}
    given = {name: value for name, value in kept.items() if isinstance(value, (int, float, str))}
    words = [
        f"mechanism.{name}={_word(value)}"
        for name, value in given.items()
        if own[name] is MISSING or own[name] != value
    ]
    settings = f"run={run} mechanism={chosen.name} queries={chosen.queries} target.epsilon={plan.epsilon:.12g}"
    settings += " target.conversion=exact" if plan.target.conversion == "exact" else ""
    last = f"neighbours={plan.neighbours} budget.delta={plan.delta:.12g}"
    return " ".join(["python label_student.py", settings, *words, last])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reasons(plan: Plan, chosen: Candidate, tried: Sequence[Candidate], command: str) -> Iterator[str]:
    """Four lines: what, why this mechanism, why so many queries, how sure."""
    assume, cost = plan.assume, chosen.mechanism.cost(chosen.queries)
    conversion = plan.target.conversion_of(cost)
    yield (
        f"Use {chosen.name} on {chosen.queries} of {assume.public} public records, {noise_of(chosen.mechanism)}, with "
        f"{assume.teachers} teachers and {assume.labels} labels: epsilon {cost.epsilon(plan.delta, conversion):.4g} at "
        f"delta {plan.delta:g} ({plan.neighbours}; {chosen.mechanism.theorem}; {conversion} conversion)."
    )
    others = [one for one in tried if one.name != chosen.name]
    second = max(others, key=lambda one: one.gain) if others else None
    beaten = f"the best other is {second}, {_behind(second, chosen)}" if second else "nothing else was tried"
    yield (
        f"Why {chosen.name}: its student gets {_gain(chosen)} of what noiseless votes add to prior-only "
        f"({assume.judge} {_percent(plan.usual)} to {_percent(plan.noiseless)}); {beaten}."
    )
    yield f"Why {chosen.queries} queries: {_around(plan, chosen)}."
    yield f"How sure: simulated, not measured on your data; {_if_others(plan, chosen)}. Next: {command}"


def _around(plan: Plan, chosen: Candidate) -> str:
    """The same mechanism on half and on twice as many queries."""
    largest = grid(plan.assume)[-1]
    said = [_would(plan, chosen.name, max(1, chosen.queries // 2))]
    if chosen.queries < largest:
        more = min(2 * chosen.queries, largest)
        said.append(f"{'all ' if more == largest else ''}{_would(plan, chosen.name, more)}")
    else:
        said.append("these are all public records" if largest == plan.assume.public else "more were not simulated")
    return ", ".join(said)


def _would(plan: Plan, name: str, queries: int) -> str:
    try:
        return f"{queries} would give {_gain(plan.candidate(name, queries))}"
    except SettingError as error:
        return f"{queries} cannot be asked ({error})"


def _if_others(plan: Plan, chosen: Candidate) -> str:
    """What becomes of it where teachers are worse or better than assumed, by 5 points or what there is room for."""
    said = [f"{plan.assume.judge} {_percent(float(chosen.scores.mean()))}"]
    for sign, word in ((-1, "worse"), (1, "better")):
        other = next(((points, found) for points in SHIFTS if (found := plan.shifted(sign * points / 100))), None)
        if other is not None:
            said.append(f"{_other(other[1], chosen)} with teachers {other[0]} point{'s' * (other[0] > 1)} {word}")
    return ", ".join(said)


def _other(plan: Plan, chosen: Candidate) -> str:
    found = plan.candidates([chosen.queries])
    same, best = next(one for one in found if one.name == chosen.name), max(found, key=lambda one: one.gain)
    better = "" if _near(same, best) else f" ({best.name} {_percent(float(best.scores.mean()))})"
    return f"{_percent(float(same.scores.mean()))}{better}"


def _nothing(plan: Plan, tried: Sequence[Candidate]) -> Iterator[str]:
    """Four lines where no mechanism is of use: what was tried, and how much more would do."""
    assume = plan.assume
    best = max(tried, key=lambda one: (one.answered > 0, one.gain))
    yield (
        f"Use nothing yet: at epsilon {plan.epsilon:g}, delta {plan.delta:g} ({plan.neighbours}) no mechanism beats "
        f"prior-only with {assume.teachers} teachers, {assume.labels} labels and {assume.public} public records."
    )
    yield (
        f"The best that answers at all is {best}, {noise_of(best.mechanism)}: {_gain(best)} of what noiseless "
        f"votes add to prior-only ({assume.judge} {_percent(plan.usual)} to {_percent(plan.noiseless)})."
    )
    richer = ((f"epsilon {by * plan.epsilon:g}", plan.spending(by * plan.epsilon)) for by in FACTORS)
    crowds = (replace(assume, teachers=by * assume.teachers) for by in FACTORS)
    larger = ((f"{crowd.teachers} teachers as good", replace(plan, assume=crowd)) for crowd in crowds)
    yield f"More is needed: {_first_useful(richer)}, or {_first_useful(larger)}."
    yield "How sure: simulated, not measured on your data; nothing private was read and nothing spent."


def _first_useful(plans: Iterable[tuple[str, Plan]]) -> str:
    """The first plan that is of use, and its gain."""
    words = ""
    for words, plan in plans:
        sizes = grid(plan.assume)
        best = max(plan.candidates(sorted({sizes[0], sizes[-1]})), key=lambda one: one.gain)
        if best.useful:
            return f"{words} ({best}: {_gain(best)})"
    return f"more than {words}"


def _behind(one: Candidate, chosen: Candidate) -> str:
    """By how much a candidate is behind."""
    behind = chosen.gains - one.gains
    verdict = f"behind by {100 * float(behind.mean()):.1f} ± {100 * _error(behind):.1f} points of that"
    return verdict if float(behind.mean()) > 2 * _error(behind) else f"{verdict}: no clear difference"


def _gain(one: Candidate) -> str:
    return f"{100 * one.gain:.0f} ± {100 * one.error:.0f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

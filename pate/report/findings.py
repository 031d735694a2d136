"""What rows say, in sentences computed from them."""

import math
from collections.abc import Iterable, Mapping, Sequence

from pate.report.measures import MEASURES, Measure
from pate.report.rows import (
    NON_PRIVATE,
    PRIOR_ONLY,
    Row,
    average,
    deviation,
    printable,
    show_answered,
    show_cost,
    show_percent,
    unique,
)

CHALLENGER, RIVALS = "StableTopK", ("NoisyCounts", "TauBallots")  # by the kind of their settings
ENOUGH = 0.05  # share of the queries that must be answered for a lead to mean anything


def finding(rows: Iterable[Row]) -> str:
    """What the rows say, a sentence per neighbour relation: epsilons of two relations do not compare."""
    rows = list(rows)
    trained = [r for r in rows if r.is_guarantee and r.accuracy and r.answered != 0 and r.epsilon != math.inf]
    relations = list(dict.fromkeys(row.neighbours for row in trained))
    if not relations:
        return "There is no private student to judge: none was trained on answers with a finite, valid epsilon."
    references = {row.mechanism: row for row in rows if row.is_reference and row.accuracy}
    found = [_finding([r for r in trained if r.neighbours == name], references) for name in relations]
    return " ".join(found + ["One seed: no spread is known."] * all(row.sd is None for row in trained))


def best(rows: Iterable[Row]) -> Row:
    """The row with the most accurate student."""
    return max(rows, key=lambda row: row.mean or 0.0)


def _finding(rows: Sequence[Row], references: Mapping[str, Row]) -> str:
    """The best mechanism at the largest epsilon, and how little epsilon is enough to beat the prior."""
    budget = show_cost(max(row.epsilon or 0.0 for row in rows))
    top = best(row for row in rows if show_cost(row.epsilon) == budget)
    prior = references.get(PRIOR_ONLY)
    where = f"At epsilon {budget}" + (f" ({printable(top.neighbours)})" if top.neighbours else "")
    levels = " and ".join(
        f"{_score(references[name])} {name}" for name in (PRIOR_ONLY, NON_PRIVATE) if name in references
    )
    reached = f"{_score(top)}{f' against {levels}' if levels else ''}{_answered(top)}"
    name = printable(top.mechanism)
    if prior is not None and not beats(top, prior):
        rule = "clearly beats" if (top.mean or 0) > (prior.mean or 0) else "beats"
        return f"{where} no mechanism {rule} the prior-only student; the best, {name}, reaches {reached}."
    return f"{where} the best mechanism is {name}: {reached}{_enough(rows, prior, budget)}."


def beats(row: Row, other: Row) -> bool:
    """Whether row is ahead by more than the seeds' spread and by more than rounding hides."""
    ahead = (row.mean or 0.0) - (other.mean or 0.0)
    return ahead > max(math.hypot(row.sd or 0.0, other.sd or 0.0), 0.0005)


def _enough(rows: Sequence[Row], prior: Row | None, budget: str) -> str:
    """The smallest epsilon that beats the prior, where it is smaller than the budget just named."""
    winners = [row for row in rows if prior is not None and beats(row, prior)]
    least = show_cost(min((row.epsilon or 0.0 for row in winners), default=0.0))
    if not winners or least == budget:
        return ""
    row = best(row for row in winners if show_cost(row.epsilon) == least)
    return f"; epsilon {least} is enough to beat the prior ({printable(row.mechanism)}, {_score(row)})"


def _score(row: Row) -> str:
    return f"{show_percent(row.mean)}{'' if row.sd is None else f' ± {show_percent(row.sd)}'} %"


def _answered(row: Row) -> str:
    return f", with {show_answered(row.answered)} % of the queries answered" if row.is_partial else ""


# --- sweeps ------------------------------------------------------------------------------------------------


def sweep_findings(rows: Sequence[Row], axis: str) -> list[str]:
    """What a sweep over `queries`, `teachers` or `labels` says: who wins where, and for labels who passes whom."""
    costs = unique(show_cost(row.epsilon) for row in rows if row.is_guarantee)
    by_cost = {cost: [row for row in rows if row.is_guarantee and show_cost(row.epsilon) == cost] for cost in costs}
    if axis != "labels":
        return [_winner(own, axis, cost) for cost, own in by_cost.items()]
    names = ("label_accuracy", "label_f1", "accuracy", "micro_f1")
    return [_crossings(own, axis, cost, MEASURES[name]) for cost, own in by_cost.items() for name in names]


def _winner(rows: Sequence[Row], axis: str, cost: str) -> str:
    """The best student of all numbers of an axis."""
    trained = [row for row in rows if row.accuracy and row.answered]
    if not trained:
        return f"At epsilon {cost} no student was trained."
    top = best(trained)
    place = f"{getattr(top, axis)} {axis}"
    return f"At epsilon {cost} the best student is that of {printable(top.mechanism)} with {place}: {_score(top)}."


def _crossings(rows: Sequence[Row], axis: str, cost: str, measure: Measure) -> str:
    """Where the stable top-k passes each rival, by one measure."""
    challengers, rivals = _kinds(rows, (CHALLENGER,)), _kinds(rows, RIVALS)
    said = [
        f"{printable(one)} is ahead of {' and of '.join(_ahead(rows, axis, measure, one, other) for other in rivals)}"
        for one in challengers
    ]
    return f"At epsilon {cost}, by {measure.heading}: {'; '.join(said) or 'nothing to compare'}."


def _kinds(rows: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    return unique(row.mechanism for row in rows if row.settings.get("kind") in kinds)


def _ahead(rows: Sequence[Row], axis: str, measure: Measure, one: str, other: str) -> str:
    """`noisy_counts at 10 and from 160 labels on (at 160: 12.0 against 10.1 %, 40.0 % answered)`, or `... nowhere`."""
    mine, its = ({getattr(r, axis): r for r in rows if r.mechanism == name} for name in (one, other))
    places = sorted(set(mine) & set(its))
    wins = [x for x in places if (mine[x].answered or 0) >= ENOUGH and _leads(*map(measure.values, (mine[x], its[x])))]
    if not wins:
        return f"{printable(other)} nowhere"
    tail = [x for x in wins if wins[wins.index(x) :] == places[places.index(x) :]]
    lone = ", ".join(str(x) for x in wins if x not in tail)
    where = [f"at {lone}"] * bool(lone) + [f"from {tail[0]} {axis} on" if tail else f"{axis} only"]
    shown = (tail or wins)[0]
    level = [show_percent(average(measure.values(by[shown]))) for by in (mine, its)]
    share = show_answered(mine[shown].answered)
    said = f"at {shown}: {level[0]} against {level[1]} %, {share} % answered"
    return f"{printable(other)} {(' and ' if tail else ' ').join(where)} ({said})"


def _leads(values: Sequence[float], others: Sequence[float]) -> bool:
    """Whether values are larger by more than the seeds' spread; nothing (no answers) leads nobody."""
    mine, its = average(values), average(others)
    if mine is None or its is None:
        return mine is not None
    return mine - its > max(math.hypot(deviation(values) or 0.0, deviation(others) or 0.0), 0.0005)

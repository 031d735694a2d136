"""The privacy statement: what is claimed, for whom, by which theorem, and what is not."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pate import mechanisms
from pate.accounting import PrivacyCost, total
from pate.entries import canonical
from pate.ledger import Charge, Terms
from pate.runs import versions

CONVERSION = "tight (Canonne, Kamath & Steinke 2020, Proposition 12)"
NEIGHBOUR_WORDS = {
    "teacher_changed": "one {unit}'s data changes in any way, so that its teacher may answer everything differently",
    "teacher_added": "one whole teacher is added or removed (a claim about teachers, not about a single {unit})",
    None: "nothing changes, since nothing was asked",
}
PROTECTED = {
    "person": "People, not single images, are protected: everything of one person went to one teacher.",
    "record": "Single images (or rows), not people, are protected: those of one person may be with several teachers.",
}
RELEASED = (
    "the labels, which queries were answered, noisy counts where the mechanism gives them, the student trained on "
    "them, this statement, the ledger, and what is computed from these and from public data"
)
NOT_COVERED = (
    "settings that a person chose after looking at private data or at earlier results",
    "other runs on the same private data: their epsilons add up with this one",
    "what has a ledger of its own in the same folder, such as a study (study/, report/) beside labels: it adds up too",
    "the privacy of the public pictures, which are taken as public",
    "data from which weights that the teachers started from were made, which is taken as public",
    "anything in the run's private folder: votes, teachers, their logs and their accuracies",
)
NOT_PRIVATE = "NOT PRIVATE: the noise was drawn from a seed, and whoever has the seed can subtract it."


@dataclass(frozen=True)
class Statement:
    """A claim and everything that it rests on; `text` is for people, `facts` for programs."""

    text: str
    facts: dict[str, Any]


def state(
    charges: Sequence[Charge],
    *,
    delta: float,
    unit: str | None,
    num_teachers: int,
    budget: Terms | None = None,
    covers: tuple[int, str] | None = None,
    weights: str | None = None,
) -> Statement:
    """State what all charges of a ledger cost together.

    Args:
        delta: the failure probability at which epsilon is stated.
        unit: whose data is protected, `record` or `person`.
        budget: the ledger's terms, if a budget was set.
        covers: the number of ledger rows that this statement is about, and the last one's hash.
        weights: the teachers' networks and what they started from; None if nothing is known about it.
    """
    spent = total(charge.cost for charge in charges)
    facts = {
        "private": not any(charge.details["seeded"] for charge in charges),
        "seeded": any(charge.details["seeded"] for charge in charges),
        "unit": unit,
        "neighbours": spent.neighbours,
        "epsilon": epsilons(spent, delta),
        "delta": delta,
        "conversion": CONVERSION,
        "theorems": _theorems(charges),
        "mechanisms": _mechanisms(charges),
        "teachers": num_teachers,
        "queries": sum(charge.queries for charge in charges),
        "charges": len(charges),
        "charges_without_answer": sum(charge.answer is None for charge in charges),
        "noise": "; ".join(sorted({charge.details["noise"] for charge in charges})),
        "weights": weights,
        "budget": None if budget is None or budget.epsilon is None else budget.epsilon,
        "ledger": None if covers is None else {"rows": covers[0], "hash": covers[1]},
        "released": RELEASED,
        "not_covered": list(NOT_COVERED),
        "date": date.today().isoformat(),
        "versions": versions(),
    }
    return Statement(_text(facts), facts)


def epsilons(cost: PrivacyCost, delta: float) -> dict[str, float]:
    """A cost's epsilon by every conversion that applies."""
    found = {"tight": cost.epsilon(delta), "published": cost.epsilon(delta, "published")}
    return found | ({"exact": cost.epsilon(delta, "exact")} if cost.is_gaussian else {})


def _theorems(charges: Sequence[Charge]) -> list[str]:
    kinds = sorted({charge.details["mechanism"]["kind"] for charge in charges})
    return [f"{kind}: {getattr(mechanisms, kind).theorem}" for kind in kinds]


def _mechanisms(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    """Each mechanism once, with how many charges and queries it answered."""
    settings = {canonical(charge.details["mechanism"]): charge.details["mechanism"] for charge in charges}
    times, queries = Counter[str](), Counter[str]()
    for charge in charges:
        key = canonical(charge.details["mechanism"])
        times[key] += 1
        queries[key] += charge.queries
    return [{"settings": value, "charges": times[key], "queries": queries[key]} for key, value in settings.items()]


def _text(facts: dict[str, Any]) -> str:
    """Plain paragraphs; the first line of a seeded run says that it is not private."""
    warning = "" if facts["private"] else f"{NOT_PRIVATE}\nHad the noise been fresh, this would hold:\n\n"
    return warning + "\n\n".join((_claim(facts), _basis(facts), _limits(facts)))


def _claim(facts: dict[str, Any]) -> str:
    epsilon, delta = facts["epsilon"]["tight"], facts["delta"]
    protected = PROTECTED.get(facts["unit"]) if facts["neighbours"] == "teacher_changed" else None
    change = NEIGHBOUR_WORDS[facts["neighbours"]].format(unit=facts["unit"] or "record")
    return (
        f"What is listed here as released is together differentially private with epsilon {epsilon:.4g} at delta "
        f"{delta:g}. "
        f"This means: if {change}, no released result becomes more than {_factor(epsilon)} times more or less likely, "
        f"except with probability {delta:g}.{f' {protected}' if protected else ''}"
    )


def _basis(facts: dict[str, Any]) -> str:
    answered = "; ".join(
        f"{one['queries']} by {_spelled(one['settings'])} in {_count(one['charges'], 'charge')}"
        for one in facts["mechanisms"]
    )
    lost = facts["charges_without_answer"]
    wasted = f" Counted too: {_count(lost, 'charge')} whose answer was lost in a crash." if lost else ""
    exact = facts["epsilon"].get("exact")
    also = f"; all noise being Gaussian, {exact:.4g} is exact" if exact is not None else ""
    start = f" The teachers' networks: {facts['weights']}." if facts["weights"] else ""
    return (
        f"It rests on this. {facts['teachers']} teachers, each trained on its own part of the private data, answered "
        f"{facts['queries']} questions: {answered}.{wasted} Proved by {'; '.join(facts['theorems'])}; composed by "
        f"Rényi differential privacy. Conversion to epsilon: {facts['conversion']}; the papers' looser rule gives "
        f"{facts['epsilon']['published']:.4g}{also}. Noise: {facts['noise']}.{start}"
    )


def _limits(facts: dict[str, Any]) -> str:
    budget = f"The budget is epsilon {facts['budget']:g}; no charge can pass it. " if facts["budget"] else ""
    ledger = facts["ledger"]
    rows = f"This covers rows 1 to {ledger['rows']} of the ledger, whose hash is {ledger['hash']}. " if ledger else ""
    made = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return (
        f"{budget}{rows}Released: {facts['released']}. Not covered: {'; '.join(facts['not_covered'])}. "
        f"Made on {facts['date']} with {made}."
    )


def _spelled(settings: dict[str, Any]) -> str:
    """A mechanism's settings in a line."""
    inner = ", ".join(f"{name}={_value(value)}" for name, value in settings.items() if name != "kind")
    return f"{settings['kind']}({inner})"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _spelled(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _factor(epsilon: float) -> str:
    """exp(epsilon) in words that stay readable."""
    return f"{math.exp(epsilon):.3g}" if epsilon < 20 else f"e^{epsilon:.3g}"

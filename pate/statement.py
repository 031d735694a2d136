"""The privacy statement: what is claimed, for whom, by which theorem, and what is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pate import mechanisms
from pate.accounting import total
from pate.ledger import Charge
from pate.runs import versions

NEIGHBOUR_WORDS = {
    "teacher_changed": "one {unit}'s data changes in any way, so that its teacher may vote differently everywhere",
    "teacher_added": "one whole teacher is added or removed (a claim about teachers, not about single records)",
}
NOT_COVERED = (
    "settings that a person chose after looking at private data or at earlier results",
    "other runs on the same private data: their epsilons add up with this one",
    "the privacy of the public pictures, which are taken as public",
    "anything in the run's private folder: votes, teachers, their logs and their accuracies",
)


@dataclass(frozen=True)
class Statement:
    """A claim and everything that it rests on; `text` is for people, `facts` for programs."""

    text: str
    facts: dict[str, Any]


def state(charges: Sequence[Charge], *, delta: float, unit: str, num_teachers: int) -> Statement:
    """State what all charges of a ledger cost together."""
    spent = total(charge.cost for charge in charges)
    epsilon = {"tight": spent.epsilon(delta), "published": spent.epsilon(delta, "published")}
    if spent.is_gaussian:
        epsilon["exact"] = spent.epsilon(delta, "exact")
    kinds = sorted({charge.details["mechanism"]["kind"] for charge in charges})
    facts = {
        "private": not any(charge.details["seeded"] for charge in charges),
        "unit": unit,
        "neighbours": spent.neighbours,
        "epsilon": epsilon,
        "delta": delta,
        "conversion": "tight (Canonne, Kamath & Steinke 2020, Proposition 12)",
        "theorems": [f"{kind}: {getattr(mechanisms, kind).theorem}" for kind in kinds],
        "mechanisms": [charge.details["mechanism"] for charge in charges],
        "teachers": num_teachers,
        "queries": sum(charge.queries for charge in charges),
        "noise": "; ".join(sorted({charge.details["noise"] for charge in charges})),
        "released": "labels, answered flags, the student trained on them, this statement and the ledger",
        "not_covered": list(NOT_COVERED),
        "date": date.today().isoformat(),
        "versions": versions(),
    }
    return Statement(_text(facts), facts)


def _text(facts: dict[str, Any]) -> str:
    """Plain paragraphs; the first line of a seeded run says that it is not private."""
    epsilon, delta = facts["epsilon"]["tight"], facts["delta"]
    change = NEIGHBOUR_WORDS[facts["neighbours"]].format(unit=facts["unit"])
    seeded = "NOT PRIVATE: the noise came from a seed and can be subtracted. Had it been fresh, this would hold:\n\n"
    claim = (
        f"Everything released here together is differentially private with epsilon {epsilon:.4g} at delta {delta:g}. "
        f"This means: if {change}, no released result becomes more than {_factor(epsilon)} times more or less likely, "
        f"except with probability {delta:g}."
    )
    basis = (
        f"{facts['teachers']} teachers, each trained on its own part of the private data, answered "
        f"{facts['queries']} questions. Proved by {'; '.join(facts['theorems'])}; composed by Rényi differential "
        f"privacy and converted by the tight rule (the papers' looser rule gives "
        f"{facts['epsilon']['published']:.4g}). Noise: {facts['noise']}."
    )
    limits = f"Released: {facts['released']}. Not covered: {'; '.join(facts['not_covered'])}."
    return ("" if facts["private"] else seeded) + "\n\n".join((claim, basis, limits))


def _factor(epsilon: float) -> str:
    """exp(epsilon) in words that stay readable."""
    return f"{2.718281828459045**epsilon:.3g}" if epsilon < 20 else f"e^{epsilon:.3g}"

"""The labelling desk: opens on a ledger that is sound, answers within the budget, publishes what was charged for.

Everything in the release folder comes from here as a charged answer, or is computed from charged answers, the ledger
and public settings: `publish` takes charges, reads their answers back from disk and checks them against the ledger.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pate import noise, odometer
from pate.accounting import Neighbours
from pate.ballots import Ballots
from pate.errors import BudgetExceeded, DataError, MissingInput, PateError, SettingError, require
from pate.labels import (
    Labels,
    Released,
    Request,
    Target,
    answer_path,
    merge,
    prepare_mechanism,
    release,
    sha256,
    stored,
)
from pate.ledger import Budget, Charge, Ledger, StorageFailed
from pate.mechanisms import Directions, Mechanism, OnlineStable, ProjectedBallots
from pate.odometer import Status
from pate.runs import Run, write_bytes, write_json
from pate.statement import Statement, state
from pate.votes import VoteStore

UNTIL_BUDGET: Literal["until_budget"] = "until_budget"
PUBLISHED = ("labels.npz", "labels.json", "statement.json", "statement.txt", "spending.png")
TAUGHT = ("student.safetensors", "student.md", "metrics.json", "metrics.csv")  # by train_student.py, recorded here too


@contextmanager
def open_desk(run: Run) -> Iterator[Ledger]:
    """The run's ledger, after checking all of it and every file that it knows; stays shut on a damaged one."""
    if not run.private.exists():
        raise MissingInput(f"{run.private} is missing: make it with `python train_teachers.py run={run.name}`")
    try:
        with Ledger(run.release / "ledger.sqlite") as ledger, ledger.witness.presence() as alone:
            if alone:
                _sweep(run.release, [*PUBLISHED, "answers/"])
            check_release(run, ledger)
            yield ledger
    except OSError as error:
        raise StorageFailed(f"{error}; what was charged stays charged, what was answered is kept") from error


def load_votes(run: Run, ledger: Ledger) -> Ballots:
    """The run's votes, if its own teachers cast them and earlier charges were answered from them; else names files."""
    try:
        ballots = Ballots.load(run)
        token = json.loads((run.private / "queries.json").read_text()).get("token")
    except PateError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{run.private / 'queries.json'} is torn or was changed: {error!r}") from None
    store = VoteStore(run.private / "votes", *ballots.votes.shape)
    store.done(token)  # refuses another run's
    found, path = store.manifest(), run.private / "ledger" / "votes.json"
    if not ledger.charges() or not path.exists():
        write_json(path, found, mode=0o600)
    known = json.loads(path.read_text())
    changed = sorted(name for name in known.keys() | found.keys() if known.get(name) != found.get(name))
    if changed:
        raise DataError(
            f"{', '.join(changed[:3])}{', ...' if len(changed) > 3 else ''} in {store.folder}: not the votes that "
            f"earlier charges were answered from ({len(changed)} files differ). Restore them, or use another run=NAME"
        )
    return ballots


def check_release(run: Run, ledger: Ledger) -> list[str]:
    """Compare every answer and every published file with the ledger's record of it.

    Returns:
        Files that are missing or older than the record, which publishing again makes new.

    Raises:
        DataError: some were changed, or an answer is gone; all of them are named.
    """
    answers = [_answer_state(ledger, charge) for charge in ledger.charges() if charge.answer is not None]
    found = {name: _hash(run.release / name) for name in ledger.published()}
    records = ledger.published()  # asked after the files: whoever publishes meanwhile records first, then writes
    files = [(name, _file_state(digest, records[name])) for name, digest in found.items()]
    changed = [name for name, state in (*answers, *files) if state == "changed"]
    if changed:
        raise DataError(
            f"{', '.join(changed)} in {run.release} {'is' if len(changed) == 1 else 'are'} not what "
            f"{ledger.path.name} recorded: restore it (a published file may also be deleted, and is made again)"
        )
    return [name for name, state in files if state == "outdated"]


@dataclass(frozen=True)
class Answered:
    """What the desk answered.

    Attributes:
        ids: (N,) all queries in their public order; those without an answer stay unlabelled.
        released: one charged answer, or one per batch.
        stopped: the refusal that ended the batches before the last query.
    """

    ids: np.ndarray
    released: tuple[Released, ...]
    stopped: str | None = None

    @property
    def labels(self) -> Labels:
        """All answers as one."""
        return merge([part.labels for part in self.released], self.ids)

    def __str__(self) -> str:
        found = self.labels.report()
        lines = [
            f"answered {found['answered']} of {found['queries']} queries ({100 * found['answered_fraction']:.1f} %)"
        ]
        if found["mean_k"] is not None:
            sizes = ", ".join(f"{k}: {count}" for k, count in found["histogram_k"].items())
            lines.append(f"labels per answer: {found['mean_k']:.2f} on average; how often each number: {sizes}")
        if self.stopped is not None:
            asked = sum(len(part.labels.ids) for part in self.released)
            rest = f"the other {len(self.ids) - asked} are unanswered: {self.stopped}"
            lines.append(f"the budget ends after {asked} queries, {rest}")
        return "\n".join(lines)


def answer(
    ballots: Ballots,
    mechanism: Mechanism,
    ledger: Ledger,
    *,
    budget: Budget,
    queries: int | Literal["until_budget"] | None = None,
    batch: int = 10,
    noise_seed: int | None = None,
) -> Answered:
    """Answer queries in their public order: at once, or in batches until the next would pass the budget.

    An `OnlineStable` mechanism answers one stream, whose price is known beforehand, and `ProjectedBallots` all queries
    at once: they are never cut into batches.

    Raises:
        BudgetExceeded: nothing fits; nothing was drawn.
    """
    require(batch >= 1, "batch", ">= 1", batch)

    def ask(part: Ballots, *stream: int) -> Released:
        request = Request(mechanism, part.ids, part.digest, _source(mechanism, noise_seed, *stream), unit=part.unit)
        return release(request, part.votes, ledger, budget)

    if queries != UNTIL_BUDGET:
        chosen = ballots.first(queries)
        return Answered(chosen.ids, (ask(chosen),))
    require(budget.epsilon is not None, "budget.epsilon", "given with queries=until_budget", None)
    whole = isinstance(mechanism, (OnlineStable, ProjectedBallots))
    size, done = len(ballots.ids) if whole else batch, []
    for start in range(0, len(ballots.ids), size):
        ids, votes = ballots.ids[start : start + size], ballots.votes[:, start : start + size]
        try:
            done.append(ask(replace(ballots, ids=ids, votes=votes), start))
        except BudgetExceeded as error:
            if not done:
                raise
            return Answered(ballots.ids, tuple(done), str(error))
    return Answered(ballots.ids, tuple(done))


def _source(mechanism: Mechanism, seed: int | None, *stream: int) -> noise.Noise:
    """The operating system's entropy unless a seed is given; batches of a seeded release draw different noise."""
    if mechanism.exact:
        require(seed is None, "noise_seed", "null where the mechanism is exact, which has no seeded form", seed)
        return noise.ExactNoise()
    return noise.system() if seed is None else noise.seeded(seed, *stream)


def publish(
    run: Run, answered: Answered, ledger: Ledger, *, delta: float, unit: str | None, weights: str | None = None
) -> Statement:
    """Make charged answers the run's labels, and state what everything in the ledger costs together.

    Of what was answered, only the charges are believed: their answers are read back from disk and checked against the
    ledger, so that nothing gets into the release folder that was not paid for.
    """
    with ledger.witness.lock("publish"):  # two at once would each state less than both spent
        covers = ledger.head()  # before the charges: if another desk charges meanwhile, more is counted than claimed
        charges = {charge.id: charge for charge in ledger.charges()}
        unpaid = [part.charge.id for part in answered.released if part.charge.id not in charges]
        require(not unpaid, "answers", f"to charges of {ledger.path.name}", unpaid)
        answers = tuple(stored(charges[part.charge.id], ledger) for part in answered.released)
        labels = replace(answered, released=answers).labels
        current = _current(run, ledger, labels)
        if current is not None:
            return current
        statement = state(
            list(charges.values()),
            delta=delta,
            unit=unit,
            num_teachers=labels.num_teachers,
            budget=ledger.terms(),
            covers=covers,
            weights=weights,
        )
        write_files(run, _files(labels, [part.charge.id for part in answers], statement, ledger.status(delta)), ledger)
    return statement


def _files(labels: Labels, rows: list[int], statement: Statement, status: Status) -> dict[str, bytes]:
    """Everything that is published, by name."""
    report = labels.report() | {"charges": rows, "sha256": labels.digest}
    contents = (
        labels.encode(),
        _json(report),
        _json(statement.facts),
        f"{statement.text}\n".encode(),
        odometer.picture(status),
    )
    return dict(zip(PUBLISHED, contents, strict=True))


def write_files(run: Run, files: Mapping[str, bytes], ledger: Ledger | None) -> None:
    """Record what is new, then write it: after a crash between, a file is older than its record, never unknown to it.

    Args:
        files: contents by name; what is there already is left alone.
        ledger: whose `publish` lock is held; None where a release was handed on without its private room.
    """
    digests = {name: sha256(data) for name, data in files.items()}
    if ledger is not None:
        known = ledger.published()
        new = {name: digest for name, digest in digests.items() if known.get(name, [""])[0] != digest}
        if new:
            ledger.record(new)
    _sweep(run.release, files)
    for name, data in files.items():
        try:
            if _hash(run.release / name) != digests[name]:
                write_bytes(run.release / name, data)
        except OSError as error:
            raise StorageFailed(
                f"{run.release / name} could not be written: {error}; everything charged is kept, and the same "
                "command goes on from here at no cost"
            ) from error


def _current(run: Run, ledger: Ledger, labels: Labels) -> Statement | None:
    """What is published already, if it is about these labels and the whole ledger."""
    outdated = set(PUBLISHED) & set(check_release(run, ledger))
    if ledger.published().get("labels.npz", [""])[0] != labels.digest or outdated:
        return None
    facts = json.loads((run.release / "statement.json").read_text())
    if _behind(facts, ledger):
        return None
    return Statement((run.release / "statement.txt").read_text().rstrip("\n"), facts)


def _behind(facts: Mapping[str, Any], ledger: Ledger) -> bool:
    """Does the ledger hold more than a statement covers, other than the record of its publication?"""
    return any(entry.kind != "published" for entry in ledger.verify()[facts["ledger"]["rows"] :])


def status(
    run: Run, mechanisms: Mapping[str, Mapping[str, Any]], neighbours: Neighbours, delta: float, queries: int = 100
) -> Status:
    """The run's odometer, with the price of the next queries by each configured mechanism. Needs no private folder."""
    if not run.folder.exists():
        raise MissingInput(f"{run.folder} is missing: make it with `python train_teachers.py run={run.name}`")
    with Ledger(run.release / "ledger.sqlite") as ledger:
        remarks = _remarks(run, ledger, check_release(run, ledger))
        how = ledger.terms().neighbours or neighbours
        found = odometer.read(ledger, delta, _made(run, mechanisms, how, queries, delta), queries)
        return replace(found, remarks=remarks)


def _remarks(run: Run, ledger: Ledger, outdated: Sequence[str]) -> tuple[str, ...]:
    """What a person should do about published files that are missing or behind the ledger."""
    path, again = run.release / "statement.json", "run the labelling command again, at no cost, to publish anew"
    taught = [name for name in outdated if name in TAUGHT]
    own = [name for name in outdated if name not in TAUGHT]
    found = [f"missing, or older than the ledger: {', '.join(own)}; {again}"] if own else []
    if not own and path.exists() and _behind(json.loads(path.read_text()), ledger):
        found.append(f"statement.json does not cover the last rows of the ledger; {again}")
    if taught:
        make = f"`python train_student.py run={run.name}` makes what is missing"
        found.append(f"missing, or older than the ledger: {', '.join(taught)}; {make}")
    return tuple(found)


def _made(
    run: Run, configs: Mapping[str, Mapping[str, Any]], neighbours: Neighbours, queries: int, delta: float
) -> dict[str, Mechanism | str]:
    """Every configured mechanism for this run's labels and teachers, or the sentence why it does not fit them."""
    path = run.private / "queries.json"
    if not path.exists():
        return {}
    index, made = json.loads(path.read_text()), dict[str, Mechanism | str]()
    for name, config in configs.items():
        try:
            made[name] = prepare_mechanism(
                config,
                num_labels=len(index["label_names"]),
                num_teachers=index["teachers"],
                neighbours=neighbours,
                queries=queries,
                delta=delta,
                target=Target(),
                directions=Directions.of(np.eye(queries)),  # any: the price is the same
            )
        except SettingError as error:
            made[name] = str(error)
    return made


def _answer_state(ledger: Ledger, charge: Charge) -> tuple[str, str]:
    path = answer_path(charge, ledger)
    return f"answers/{path.name}", "sound" if _hash(path) == charge.answer else "changed"


def _file_state(digest: str | None, recorded: Sequence[str]) -> str:
    """sound; outdated, if it is missing or an earlier record's; changed, if no record knows it."""
    if digest == recorded[0]:
        return "sound"
    return "outdated" if digest is None or digest in recorded else "changed"


def _hash(path: Path) -> str | None:
    return sha256(path.read_bytes()) if path.exists() else None


def _sweep(release: Path, names: Iterable[str]) -> None:
    """Remove what killed writers of these files left behind; only while nobody else is writing them."""
    for name in names:
        folder, _, file = name.rpartition("/")
        for path in (release / folder).glob(f".{file}*.tmp"):
            path.unlink(missing_ok=True)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def lost(ledger: Ledger) -> list[str]:
    """A sentence per charge without an answer."""
    return [
        f"charge {charge.id} of {charge.time} ({charge.queries} queries) has no answer: the process ended between "
        "charge and answer. Its price stays spent; new noise is drawn only under a new charge."
        for charge in ledger.unanswered()
    ]

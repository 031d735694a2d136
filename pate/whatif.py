"""What-if releases: votes seen in some way, mechanisms asked about them, answers charged to a study's ledgers.

Nothing here is free: every answer is charged like any other. The ledgers, one per neighbour relation, say what all of
them cost together if they were published.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from pate import noise
from pate.accounting import Neighbours
from pate.ballots import Ballots
from pate.labels import Request, Target, prepare_mechanism, release
from pate.ledger import Ledger
from pate.mechanisms import Mechanism

Array = np.ndarray


@dataclass(frozen=True)
class View:
    """Which labels are asked for: the k-th holds where labels first[k] and second[k] both do (the same twice: itself).

    >>> View((1, 0), (1, 1)).of(np.array([[True, False], [True, True]])).tolist()
    [[False, False], [True, True]]
    """

    first: tuple[int, ...]
    second: tuple[int, ...]

    def of(self, labels: Array) -> Array:
        """(..., K) bool to the labels of this view, for votes as for the truth."""
        seen: Array = labels[..., self.first]
        seen &= labels[..., self.second]
        return seen


def label_view(num_labels: int, wanted: int, seed: int) -> View:
    """The first labels of a public order; when all are there, conjunctions of two, in a public order too.

    >>> label_view(3, 5, seed=0)
    View(first=(2, 0, 1, 1, 0), second=(2, 0, 1, 2, 2))
    """
    rng = np.random.default_rng(seed)
    single = [(int(k), int(k)) for k in rng.permutation(num_labels)]
    pairs = list(combinations(range(num_labels), 2))
    chosen = (single + [pairs[place] for place in rng.permutation(len(pairs))])[:wanted]
    first, second = zip(*chosen, strict=True)
    return View(first, second)


@dataclass(frozen=True, eq=False)
class Scene:
    """Votes as a study sees them: its own, or those at one place of a sweep.

    Attributes:
        axis: what a sweep varies; empty for the study itself.
        ballots: a run's votes on the queries.
        view: which labels are asked for; None: all, as they are.
    """

    axis: str
    ballots: Ballots
    view: View | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """T, N and K."""
        teachers, queries, labels = self.ballots.votes.shape
        return teachers, queries, labels if self.view is None else len(self.view.first)

    def look(self) -> Ballots:
        """The votes under this view. Private."""
        if self.view is None:
            return self.ballots
        names = self.ballots.label_names
        pairs = zip(self.view.first, self.view.second, strict=True)
        digest = hashlib.sha256(f"{self.ballots.digest} {self.view}".encode()).hexdigest()
        return replace(
            self.ballots,
            votes=self.view.of(self.ballots.votes),
            label_names=tuple(names[a] if a == b else f"{names[a]} and {names[b]}" for a, b in pairs),
            digest=digest,
        )


@dataclass(frozen=True, eq=False)
class Point:
    """One mechanism under one neighbour relation, asked about one scene.

    Attributes:
        target: what its noise was calibrated to; without an epsilon the noise was given.
        note: what a reader must know about it.
    """

    name: str
    neighbours: Neighbours
    target: Target
    mechanism: Mechanism
    scene: Scene
    note: str = ""

    def epsilon(self, delta: float) -> float:
        """What its queries really cost, by the conversion that it was calibrated with."""
        cost = self.mechanism.cost(self.scene.size[1])
        return cost.epsilon(delta, self.target.conversion_of(cost))

    def source(self, noise_seed: int | None, seed: int) -> noise.Noise:
        """Fresh noise; or, for studies to be repeated, the same whatever else the study asks."""
        if noise_seed is None:
            return noise.system()
        about = f"{self.scene.axis} {self.scene.size} {self.name} {self.neighbours} {self.target.epsilon}"
        stream = int.from_bytes(hashlib.sha256(about.encode()).digest()[:8], "big")
        return noise.seeded(noise_seed, stream, seed)


def make_point(
    name: str, config: Mapping[str, Any], scene: Scene, *, neighbours: Neighbours, delta: float, target: Target
) -> Point:
    """A mechanism calibrated to a target, or with the noise of its configuration; a `note` there goes along."""
    settings = {key: value for key, value in config.items() if key != "note"}
    facts = scene.ballots.facts | {"num_labels": scene.size[2]}
    mechanism = prepare_mechanism(settings, **facts, neighbours=neighbours, delta=delta, target=target)
    return Point(name, neighbours, target, mechanism, scene, str(config.get("note", "")))


def label(points: Sequence[Point], seeds: Mapping[str, int], noise_seed: int | None, folder: Path) -> list[list[Path]]:
    """Release each point's labels once per seed; what a ledger has is not drawn again.

    Args:
        seeds: how many, by the axis of a point's scene.
        folder: gets `<relation>/ledger.sqlite` and the answers beside it.

    Returns:
        Each point's answers, as files.
    """
    ledgers = {how: Ledger(folder / how / "ledger.sqlite") for how in dict.fromkeys(p.neighbours for p in points)}
    paths: list[list[Path]] = []
    with tqdm(total=sum(seeds[p.scene.axis] for p in points), desc="label", unit="release", delay=2) as progress:
        for scene, group in groupby(points, key=lambda point: point.scene):
            ballots = scene.look()  # one view at a time: a large one takes much memory
            for point in group:
                paths.append([])
                for seed in range(seeds[scene.axis]):
                    source = point.source(noise_seed, seed)
                    request = Request(point.mechanism, ballots.ids, ballots.digest, source, seed, unit=ballots.unit)
                    paths[-1].append(release(request, ballots.votes, ledgers[point.neighbours]).path)
                    progress.update()
    for ledger in ledgers.values():
        ledger.close()
    return paths

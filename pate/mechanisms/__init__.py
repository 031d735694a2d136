"""Mechanisms: frozen settings that price and answer queries on vote counts."""

from pate.mechanisms.base import Answer, Mechanism, Tally
from pate.mechanisms.choices import GaussianChoice, GumbelChoice
from pate.mechanisms.counts import NoisyCounts, TauBallots
from pate.mechanisms.fixed_topk import FixedTopK
from pate.mechanisms.gnmax import BinaryVotes, GNMax
from pate.mechanisms.limited_domain import LimitedDomain, PayWhatYouGet
from pate.mechanisms.oneshot import OneshotLaplace, Ranked
from pate.mechanisms.online import OnlineStable
from pate.mechanisms.peeling import PeelingExponential
from pate.mechanisms.projected import Directions, ProjectedBallots
from pate.mechanisms.sparse_vector import AboveThreshold, SharedTest
from pate.mechanisms.stability import GaussianTest, LaplaceTest, StableSet
from pate.mechanisms.stable_topk import PublishedFigure, StableTopK
from pate.mechanisms.top_stable import Majority, StableAnswer, TopSet, TopStable

__all__ = [
    "AboveThreshold",
    "Answer",
    "BinaryVotes",
    "Directions",
    "FixedTopK",
    "GNMax",
    "GaussianChoice",
    "GaussianTest",
    "GumbelChoice",
    "LaplaceTest",
    "LimitedDomain",
    "Majority",
    "Mechanism",
    "NoisyCounts",
    "OneshotLaplace",
    "OnlineStable",
    "PayWhatYouGet",
    "PeelingExponential",
    "ProjectedBallots",
    "PublishedFigure",
    "Ranked",
    "SharedTest",
    "StableAnswer",
    "StableSet",
    "StableTopK",
    "Tally",
    "TauBallots",
    "TopSet",
    "TopStable",
]

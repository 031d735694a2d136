"""Mechanisms: frozen settings that price and answer queries on vote counts."""

from pate.mechanisms.base import Answer, Mechanism, Tally
from pate.mechanisms.choices import GaussianChoice, GumbelChoice
from pate.mechanisms.counts import NoisyCounts, TauBallots
from pate.mechanisms.fixed_topk import FixedTopK
from pate.mechanisms.peeling import PeelingExponential
from pate.mechanisms.stability import GaussianTest, LaplaceTest, StableSet
from pate.mechanisms.stable_topk import PublishedFigure, StableTopK

__all__ = [
    "Answer",
    "FixedTopK",
    "GaussianChoice",
    "GaussianTest",
    "GumbelChoice",
    "LaplaceTest",
    "Mechanism",
    "NoisyCounts",
    "PeelingExponential",
    "PublishedFigure",
    "StableSet",
    "StableTopK",
    "Tally",
    "TauBallots",
]

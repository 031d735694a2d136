"""The four papers' experiments, one module each: `python reproduce.py experiment=NAME`.

Runs are seeded: this is evaluation on public data, not a release. Every method is charged by the library, except those
called `as coded`, which do what a paper's code does, are valid for nothing, and live only here.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pate.reproduction.experiment import Experiment

# Every experiment and the class that its conf/experiment/NAME.yaml names.
NAMES = {
    "exp1_fixed_k": "fixed_k.FixedK",
    "exp1_range_of_k": "range_of_k.RangeOfK",
    "exp2_covid": "covid.Covid",
    "exp2_large_k": "large_k.LargeK",
    "exp3_celeba": "celeba.Celeba",
    "composition_ratio": "composition_ratio.CompositionRatio",
    "pay_what_you_get": "pay_what_you_get.Stream",
    "oneshot": "oneshot.Oneshot",
    "spectral": "spectral.Spectral",
}


def named(name: str) -> "Experiment":
    """An experiment by its name, with its own settings."""
    module, _, cls = NAMES[name].partition(".")
    made: Experiment = getattr(import_module(f"pate.reproduction.{module}"), cls)()
    return made

"""Curves, composition, conversion, calibration: what a mechanism's queries cost."""

from pate.accounting.calibration import calibrate
from pate.accounting.cost import NEIGHBOURS, Neighbours, PrivacyCost, total

__all__ = ["NEIGHBOURS", "Neighbours", "PrivacyCost", "calibrate", "total"]

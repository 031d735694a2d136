"""The teacher factory: settings, one teacher's training, the engines that run it, and all teachers together."""

from pate.teachers.estimate import Estimate, estimate_teachers
from pate.teachers.factory import Summary, train_teachers
from pate.teachers.features import View, on_features
from pate.teachers.pool import Mapped, Pool, Result, find_devices
from pate.teachers.settings import Ray, Teachers

__all__ = [
    "Estimate",
    "Mapped",
    "Pool",
    "Ray",
    "Result",
    "Summary",
    "Teachers",
    "View",
    "estimate_teachers",
    "find_devices",
    "on_features",
    "train_teachers",
]

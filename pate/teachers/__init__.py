"""The teacher factory: settings, one teacher's training, the pool of devices, and all teachers together."""

from pate.teachers.factory import Summary, train_teachers
from pate.teachers.pool import Mapped, Pool, Result, find_devices
from pate.teachers.settings import Teachers

__all__ = ["Mapped", "Pool", "Result", "Summary", "Teachers", "find_devices", "train_teachers"]

"""The student: public pictures in, released labels as targets, a model that may be given away out.

Nothing here sees a vote, a count or a true label of a public picture: `targets` takes what a mechanism released,
`train_student` takes targets. All of it is post-processing and costs no privacy.

Which targets? Student accuracy in %, 300 faces (seed 1), 250 teachers, mean of 5 seeds, at noise of 0.1, 0.3, 0.5, 1, 2
in the shares of votes; prior-only 80.2, without noise 85.9.
    shares as they are                         85.7 85.1 84.5 82.9 80.7    (without `_caution` 85.7 85.0 84.3 82.5 79.4)
    clipped to [0, 1]                          85.8 85.3 84.4 80.6 74.5
    shrunk to each label's mean by the noise's
    part of the label's variance               85.6 84.0 82.3 80.7 79.9
    hard labels                                85.6 85.2 84.0 80.0 74.3
"""

from pate.student.files import load_student, network_of, read_image, save_student
from pate.student.settings import NothingReleased, Student, Targets, targets
from pate.student.training import predict, train_student

__all__ = [
    "NothingReleased",
    "Student",
    "Targets",
    "load_student",
    "network_of",
    "predict",
    "read_image",
    "save_student",
    "targets",
    "train_student",
]

"""Stage 3: train the student on the released labels and judge it on the test records.

python train_student.py run=mine
"""

from dataclasses import asdict, dataclass
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from pate.ballots import positions
from pate.commands import command, run_script
from pate.data.records import Source
from pate.labels import Labels
from pate.metrics import evaluate
from pate.models import Network
from pate.runs import Run, board, write_bytes, write_json
from pate.settings import pick
from pate.student import Student, load_student, predict, save_student, targets, train_student
from pate.teachers import find_devices


@dataclass(frozen=True)
class Settings:
    """What this stage reads from conf/train_student.yaml."""

    run: str
    runs: str
    data: Source
    model: Network
    student: Student
    devices: str
    seed: int


def recipe(settings: Settings, labels: Labels, label_names: tuple[str, ...], shape: tuple[int, ...]) -> dict[str, Any]:
    """Everything that decides a student; stored with it, so that a rerun knows whether it is this one."""
    own = {"network": asdict(settings.model), "student": asdict(settings.student), "seed": settings.seed}
    return own | {"labels": labels.digest, "label_names": list(label_names), "input_shape": list(shape)}


@hydra.main(version_base="1.3", config_path="conf", config_name="train_student")
@command
def main(config: DictConfig) -> None:
    settings = pick(Settings, OmegaConf.to_container(config, resolve=True))
    run = Run(settings.runs, settings.run)
    labels = Labels.load(run.release / "labels.npz")
    split = settings.data.load()
    public = split.public.take(positions(labels.ids, split.public.ids))
    device, path = find_devices(settings.devices)[0], run.release / "student.safetensors"
    wanted = recipe(settings, labels, split.label_names, public.inputs.shape[1:])
    if path.exists() and load_student(path)[1] == wanted:
        model = load_student(path)[0].to(device)
    else:
        goal = targets(
            labels.labels, labels.answered, labels.scores, labels.num_teachers, settings.student, labels.score_sd
        )
        with board(run.release / "tensorboard" / "student") as log:
            model = train_student(
                public.inputs,
                goal,
                settings.model,
                settings.student,
                seed=settings.seed,
                device=device,
                log=log,
                progress=True,
            )
        save_student(path, model, wanted)
    metrics = evaluate(predict(model, split.test.inputs, settings.model, device), split.test.labels, split.label_names)
    write_json(run.release / "metrics.json", metrics.scalars())
    write_bytes(run.release / "metrics.csv", metrics.csv().encode())
    print(", ".join(f"{name.replace('_', ' ')} {100 * value:.1f} %" for name, value in metrics.scalars().items()))
    print(f"student in {path}; per-attribute table in {run.release / 'metrics.csv'}")


if __name__ == "__main__":
    run_script(main)

"""The teacher factory against a plain loop, and whole runs: what they take, on real pictures.

    python benchmarks/teachers.py ratios PATH/celeba       (about 4 minutes of one core)
    python benchmarks/teachers.py runs PATH/celeba         (cold runs with 50 and with 800 teachers)
    python benchmarks/teachers.py workers                  (one worker process against two; wants two idle cores)

Ratios are of CPU seconds, which a busy machine does not spoil much: both sides do the same teachers in turns, in one
process with one thread. The plain loop is what scripts do: per teacher, JPEG files through PIL and torchvision
transforms in a DataLoader, epoch after epoch; it is charged nothing for imports. Ours is charged its part of decoding
and of the queries' features.

Accuracies are on the public records' true labels: evaluation, of a kind that a private run must not print.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, PIPE

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from pate.backbone import features
from pate.ballots import Ballots
from pate.data.celeba import CelebA
from pate.data.faces import Faces
from pate.data.records import Records, Split
from pate.models import MEAN, STD, Network, find_head, start_from_rates
from pate.partition import partition
from pate.runs import Run
from pate.teachers import Teachers, train_teachers
from pate.teachers.heads import spread, train_head
from pate.teachers.training import train_teacher

LITE0 = Network("efficientnet_lite0", "IMAGENET1K", 112, channels_last=True)
HOME = Path(__file__).resolve().parent.parent
Task = Callable[[int], np.ndarray]


class Files(Dataset):
    """JPEG files, decoded whenever they are asked for."""

    def __init__(self, folder: Path, records: Records, size: int, mirror: bool) -> None:
        steps = [transforms.Resize((size, size)), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        self.steps = transforms.Compose([transforms.RandomHorizontalFlip()] * mirror + steps)
        self.folder, self.records = folder, records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = Image.open(self.folder / self.records.ids[index]).convert("RGB")
        return self.steps(image), torch.as_tensor(self.records.labels[index], dtype=torch.float32)


def plain_loop(
    model: nn.Module, part: nn.Module, folder: Path, own: Records, queries: Records, size: int, epochs: int, rate: float
) -> np.ndarray:
    """Train a part of a model, or all of it, with a DataLoader over files, then vote."""
    start_from_rates(model, torch.as_tensor((own.labels.sum(0) + 0.5) / (len(own) + 1)))
    optimizer = torch.optim.AdamW(part.parameters(), rate, weight_decay=0.05)
    model.eval().requires_grad_(False)
    part.train().requires_grad_(True)
    for _ in range(epochs):
        for x, y in DataLoader(Files(folder, own, size, mirror=True), batch_size=64, shuffle=True):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        loader = DataLoader(Files(folder, queries, size, mirror=False), batch_size=64)
        return torch.cat([model(x) > 0 for x, _ in loader]).numpy()


def in_turns(teachers: int, tasks: dict[str, Task], truth: np.ndarray) -> dict[str, tuple[float, float]]:
    """CPU seconds and accuracy of each side, the sides taking turns."""
    spent, right = dict.fromkeys(tasks, 0.0), dict.fromkeys(tasks, 0.0)
    for teacher in range(teachers):
        for name, task in tasks.items():
            began = time.process_time()
            votes = task(teacher)
            spent[name] += time.process_time() - began
            right[name] += float((votes == truth).mean()) / teachers
    return {name: (spent[name], right[name]) for name in tasks}


def finetune(root: Path, teachers: int = 6) -> None:
    """A small CNN at 32 px, 100 teachers on the whole set, of which some are timed; 30 epochs on both sides."""
    folder, settings = root / "img_align_celeba", Teachers(count=100)
    with tempfile.TemporaryDirectory() as cache:
        began = time.process_time()
        split = CelebA(str(root), size=32, cache=cache, workers=1).load()
        decode = (time.process_time() - began) * teachers / settings.count
        parts, public = partition(split.private, settings.count, "record", "pate"), split.public

        def plain(teacher: int) -> np.ndarray:
            model = Network().build(split.num_labels, teacher, (32, 32, 3))
            own = split.private.take(parts[teacher])
            return plain_loop(model, model, folder, own, public, 32, settings.epochs, 0.005)

        def ours(teacher: int) -> np.ndarray:
            own = split.private.take(parts[teacher])
            return train_teacher(own, public.inputs, Network(), settings, 40, 0, teacher, "cpu")[0]

        show("small CNN, finetune", in_turns(teachers, {"plain": plain, "ours": ours}, public.labels), decode, 2.5)


def heads(root: Path, teachers: int = 4) -> None:
    """A frozen EfficientNet-Lite0 at 112 px, 100 teachers, of which some are timed; 5 passes against one."""
    folder, settings = root / "img_align_celeba", Teachers(count=100, mode="heads")
    with tempfile.TemporaryDirectory() as cache:
        began = time.process_time()
        split = CelebA(str(root), size=112, cache=cache, workers=1).load()
        parts, public = partition(split.private, settings.count, "record", "pate"), split.public
        queries = torch.from_numpy(features(LITE0, public.inputs, mirror=True))
        unit = spread(queries)
        once = (time.process_time() - began) * teachers / settings.count

        def plain(teacher: int) -> np.ndarray:
            model = Network("efficientnet_lite0", "IMAGENET1K", 112).build(split.num_labels, teacher, (112, 112, 3))
            own = split.private.take(parts[teacher])
            return plain_loop(model, find_head(model)[1], folder, own, public, 112, 5, 0.003)

        def ours(teacher: int) -> np.ndarray:
            own = split.private.take(parts[teacher])
            return train_head(own, queries, unit, LITE0, settings, teacher, "cpu")[0]

        show("frozen backbone", in_turns(teachers, {"plain": plain, "ours": ours}, public.labels), once, 10.0)


def show(what: str, found: dict[str, tuple[float, float]], shared: float, goal: float) -> None:
    """One line: CPU seconds, ratio, accuracies."""
    (plain, plain_right), (ours, ours_right) = found["plain"], found["ours"]
    print(
        f"{what}: plain loop {plain:.1f} s, ours {ours:.1f} s + {shared:.1f} s shared: "
        f"{plain / (ours + shared):.1f} times faster (goal {goal:g}); "
        f"a teacher's accuracy {100 * plain_right:.1f} % and {100 * ours_right:.1f} %",
        flush=True,
    )


def accuracies(votes: np.ndarray, split: Split) -> dict[str, float]:
    """Of the majority, of a teacher, of always saying what is frequent."""
    truth = split.public.labels
    guesses = {"majority": votes.mean(0) > 0.5, "teacher": votes, "prior": split.private.labels.mean(0) > 0.5}
    return {name: float((guess == truth).mean()) for name, guess in guesses.items()}


def runs(root: Path) -> None:
    """Whole runs of train_teachers.py from cold: no decoded picture, no feature, no vote."""
    for teachers in (800, 50):
        with tempfile.TemporaryDirectory() as folder:
            words = f"train_teachers.py experiment=celeba_subset run=run teachers.count={teachers} seed=0".split()
            places = [f"data.root={root.absolute()}", f"data.cache={folder}/cache", f"runs={folder}"]
            began = time.perf_counter()
            command = [sys.executable, *words, *places]
            process = subprocess.Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, cwd=HOME)
            said = process.stdout.read() if process.stdout else ""
            _, code, used = os.wait4(process.pid, 0)
            if code:
                raise SystemExit(f"the run with {teachers} teachers failed")
            seconds, cpu = time.perf_counter() - began, used.ru_utime + used.ru_stime
            backbone = float(re.findall(r"backbone (\d+) s of CPU", said)[0])
            split = CelebA(str(root), size=112, cache=f"{folder}/cache").load()
            right = accuracies(Ballots.load(Run(Path(folder), "run")).votes, split)
        print(
            f"{teachers} teachers: {cpu:.0f} s of CPU, {seconds:.0f} s at a load of {os.getloadavg()[1]:.1f}; "
            f"backbone {backbone:.0f} s ({100 * backbone / cpu:.1f} %), "
            f"largest process {used.ru_maxrss / 1024:.0f} MB; "
            + ", ".join(f"{name} {100 * value:.2f} %" for name, value in right.items()),
            flush=True,
        )


def workers() -> None:
    """The same finetune run with one and with two worker processes; the start of processes counts."""
    data = Faces(private=5000, public=100, test=1).load()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for round_ in range(3):
        for slots in seconds:
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                settings = Teachers(count=100, epochs=60, slots_per_device=slots)
                train_teachers(Run(Path(folder), "run"), data, Network(), settings, devices="cpu", seed=round_)
                seconds[slots].append(time.perf_counter() - began)
    one, two = min(seconds[1]), min(seconds[2])
    print(f"one worker {one:.1f} s, two workers {two:.1f} s: {one / two:.2f} times (goal 1.7 on idle cores)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ratios", "runs", "workers"))
    parser.add_argument("root", type=Path, nargs="?", help="CelebA, or a subset in its layout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "workers":
        return workers()
    if options.root is None:
        parser.error("give the folder of CelebA")
    if options.what == "runs":
        return runs(options.root)
    finetune(options.root)
    return heads(options.root)


if __name__ == "__main__":
    main()

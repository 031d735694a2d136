"""The page docs/reproduction.md, from the text beside it and the CSVs that the experiments wrote.

python -m pate.reproduction.page              writes docs/reproduction.md from docs/reproduction/
python -m pate.reproduction.page runs/papers  takes over that run's results first
"""

import re
import shutil
import sys
from pathlib import Path

from pate.commands import command
from pate.errors import DataError, MissingInput, SettingError
from pate.reproduction import NAMES, named
from pate.reproduction.experiment import from_csv, read_about

DOCS = Path("docs")
# What the page shows and the experiment that made it: one has results of two kinds.
PARTS = {name: name for name in NAMES} | {"exp3_celeba_votes": "exp3_celeba"}


def take_over(run: Path, docs: Path = DOCS) -> None:
    """Copy a run's results into docs/reproduction."""
    found = [path for name in PARTS for path in sorted((run / "release" / "reproduction" / name).glob(f"{name}.*"))]
    if not found:
        raise MissingInput(f"{run} has no results; python reproduce.py experiment=NAME run={run.name} makes them")
    for path in found:
        shutil.copyfile(path, docs / "reproduction" / path.name)


def page(docs: Path = DOCS) -> str:
    """The text of docs/reproduction/text.md with every {{name}} replaced by that result's table and picture."""
    text = (docs / "reproduction" / "text.md").read_text()
    unknown = set(re.findall(r"{{(\w+)}}", text)) ^ set(PARTS)
    if unknown:
        raise DataError(f"docs/reproduction/text.md must name every result once, got {sorted(unknown)}")
    return re.sub(r"{{(\w+)}}", lambda found: section(docs, found[1]), text)


def section(docs: Path, name: str) -> str:
    """How it was made, the table, the picture."""
    path = docs / "reproduction" / name
    rows, about = from_csv(path.with_suffix(".csv").read_text()), read_about(path.with_suffix(".json"))
    trials = f", {rows[0]['trials']} trials" if "trials" in rows[0] else ""
    made = f"`{about['command']}` · {about['seconds']:.1f} s of CPU · seed {about['seed']}{trials} · {about['date']}"
    experiment = named(PARTS[name])
    picture = f"![{experiment.title}](reproduction/{name}.png)"
    files = f"[{name}.csv](reproduction/{name}.csv) has every cell with its settings."
    return f"{made}\n\n{experiment.table(rows)}\n\n{picture}\n\n{files}"


@command
def main(arguments: list[str]) -> None:
    """Write the page, after taking over a run's results if one is named."""
    if len(arguments) > 1:
        raise SettingError("arguments", "a run folder or nothing", arguments)
    for run in arguments:
        take_over(Path(run))
    (DOCS / "reproduction.md").write_text(page())
    print(f"{DOCS / 'reproduction.md'}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The card that goes with a student: what it is, what it costs, how good it is, and what it is not for."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pate.metrics import COLUMNS, SCALARS, TITLES, percent
from pate.student.files import STUDENT, network_of

SHORT = {"f1": "F1", "ap": "AP"}
LIMITS = """\
For studying what a private release is worth, and for guessing these attributes of pictures like the public ones, where
a wrong guess does no harm. Not for decisions about people: not to recognise, judge, choose, refuse or watch anyone.

- Epsilon covers the private records that the teachers learned from, in everything that was released together. It
  covers neither the public records this student learned from, nor the test records it was judged on, nor the data
  behind public weights, nor a picture that is shown to it later.
- A student repeats the habits of whoever labelled the private data, and adds errors of the noise.
- The figures are means over the test records, which come from the same source as the training data. Elsewhere, and for
  groups of people that are rare in it, expect worse. Nobody measured the differences between groups.
- Probabilities are guesses learned from noisy labels; they are not calibrated."""


def card(meta: Mapping[str, Any], judged: Mapping[str, Any], statement: str | None, digest: str) -> str:
    """The model card as Markdown; equal arguments give equal text.

    Args:
        meta: what the student's file says about itself.
        judged: `metrics.json`: `rows` (name -> four figures), `attributes`, `queries`, `answered`, `test`, `always`
            and `never` (attributes that the released labels hold in one form only).
        statement: the text of `statement.txt`, None if there is none.
        digest: SHA-256 of the student's file.
    """
    parts = {
        "Privacy": _privacy(statement),
        "What it is": _architecture(meta, digest),
        "How it was trained": _training(meta, judged),
        "How good it is": _figures(judged),
        "Intended use and limits": LIMITS,
        "How to use it": _usage(meta),
        "Attributes": _attributes(judged),
    }
    title = "# A student of noisy labels"
    return "\n\n".join([title, *(f"## {name}\n\n{text}" for name, text in parts.items())]) + "\n"


def _privacy(statement: str | None) -> str:
    """The statement as it is, quoted, so that its first line stays the first."""
    if statement is None:
        return (
            "There is no privacy statement beside this student: nothing is claimed. Ask for `statement.txt` of the "
            "labels it learned from before you give it away."
        )
    lines = [f"> {line}".rstrip() for line in statement.strip().splitlines()]
    return "\n".join(
        [*lines, "", "A student is computed from released labels and public records: it costs nothing more."]
    )


def _architecture(meta: Mapping[str, Any], digest: str) -> str:
    shape, network = meta["input_shape"], network_of(meta)
    weights = meta["network"]["weights"]
    size = f"{network.image_size} x {network.image_size}" if network.image_size else None
    pictures = (
        f"pictures: their centre square, resized to {shape[0]} x {shape[1]} pixels"
        + (f", then to {size}" if size else "")
        if len(shape) == 3
        else f"rows of {shape[0]} features"
    )
    start = "random weights" if weights is None else f"the public weights {Path(weights).name}"
    facts = {
        "Task": f"{len(meta['label_names'])} yes/no attributes of each record, one probability each",
        "Architecture": f"{network.name}" + (", frozen but for its last layer" if meta.get("mode") == "heads" else ""),
        "Started from": start,
        "Input": pictures,
        "Prediction": "by the picture and its mirror image, mean of the logits" if meta["mirror"] else "by the record",
        "File": f"`{STUDENT}`, SHA-256 `{digest}`",
    }
    return _rows(("", ""), facts.items())


def _training(meta: Mapping[str, Any], judged: Mapping[str, Any]) -> str:
    """The recipe: every setting, as it stands in the file's header."""
    settings = {"seed": meta.get("seed"), "labels": meta.get("labels"), **meta.get("student", {})}
    text = (
        f"On {judged['queries']} public records, of which the teachers' mechanism answered {judged['answered']}, and "
        "on the released labels (`labels` is the SHA-256 of `labels.npz`). Training reads no true label of a public "
        "record, no vote and no private record. Its settings are given beforehand; a person who chose them by the "
        "figures below made these look better than they are."
    )
    found = [text, _rows(("Setting", "Value"), ((f"`{name}`", f"`{value}`") for name, value in settings.items()))]
    for word, names in (("yes", judged["always"]), ("no", judged["never"])):
        if names:
            found.append(
                f"In the released labels {'this is' if len(names) == 1 else 'these are'} always {word}, so the student "
                f"has seen one class only and says what it has seen: {', '.join(names)}."
            )
    return "\n\n".join(found)


def _figures(judged: Mapping[str, Any]) -> str:
    rows = ((name, *(percent(row[key]) for key in SCALARS)) for name, row in judged["rows"].items())
    text = (
        f"On {judged['test']} test records. An attribute is predicted where its probability is at least 1/2. The other "
        "rows are for comparison, and took no part in making the student: *prior-only* says each attribute's majority "
        "among the public records, whatever the picture; *all zeros* always says no; *non-private* is the same recipe "
        "with the true labels of the public records."
    )
    return f"{text}\n\n{_rows(('', *TITLES.values()), rows)}"


def _usage(meta: Mapping[str, Any]) -> str:
    command = f"python -m pate.student predict --student {STUDENT} picture.jpg"
    if len(meta["input_shape"]) != 3:
        command = "rows of features have no command: use the lines below"
    return f"""```
{command}
```

```python
from pathlib import Path
from pate.student import load_student, network_of, predict

model, meta = load_student(Path("{STUDENT}"))
probabilities = predict(model, inputs, network_of(meta))  # inputs (N, {", ".join(map(str, meta["input_shape"]))})
```"""


def _attributes(judged: Mapping[str, Any]) -> str:
    rows = ((row["attribute"], *(percent(row[column]) for column in COLUMNS)) for row in judged["attributes"])
    silent = sum(not row["f1"] for row in judged["attributes"])
    text = f"{silent} of {len(judged['attributes'])} are never found (F1 of 0). " if silent else ""
    text += "AP is average precision, prevalence the share of test records that have the attribute; - is not defined."
    return f"{text}\n\n{_rows(('Attribute', *(SHORT.get(column, column) for column in COLUMNS)), rows)}"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, aligned so that it also reads well as text; figures to the right."""
    lines = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(head))]
    left = [column == 0 or len(head) == 2 for column in range(len(head))]

    def shown(line: Sequence[str]) -> str:
        cells = zip(line, widths, left, strict=True)
        return (
            "| " + " | ".join(cell.ljust(width) if first else cell.rjust(width) for cell, width, first in cells) + " |"
        )

    rule = "|" + "|".join(
        f":{'-' * (w + 1)}" if first else f"{'-' * (w + 1)}:" for w, first in zip(widths, left, strict=True)
    )
    return "\n".join([shown(lines[0]), f"{rule}|", *map(shown, lines[1:])])

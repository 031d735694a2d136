"""Small multiples: what stands where, nothing clipped, nothing on top of anything else."""

import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from pate.errors import SettingError
from pate.report import Row, panels
from pate.report.canvas import blank
from pate.report.measures import MEASURES, gain_among
from pate.report.rows import ordered

ALL = list(MEASURES.values())


def draw(rows: list[Row], axis: str, measures: list | None = None) -> Figure:
    figure = blank()
    facts = {"data": "cartoon faces, seed 0", "teachers": "100", "queries": "400"}
    panels._draw(figure, ordered(rows), axis, measures or ALL, "A heading", facts)
    figure.canvas.draw()
    return figure


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def words(figure: Figure) -> list[Text]:
    """Every text that is drawn; matplotlib also keeps ticks beyond an axis, which are not."""
    beyond = set()
    for axes in figure.axes:
        low, high = axes.get_ylim()
        beyond |= {id(tick) for tick in axes.get_yticklabels() if not low <= tick.get_position()[1] <= high}
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return [text for text in shown if id(text) not in beyond]


def test_a_column_per_epsilon_and_a_row_per_measure(swept: list[Row]) -> None:
    found = titles(draw(swept, "labels"))
    assert len(found) == 2 * len(ALL)
    assert found[:2] == ["student accuracy, ε = 4", "student accuracy, ε = 16"]


def test_one_case_flows_in_two_columns(swept: list[Row]) -> None:
    figure = draw([row for row in swept if row.is_reference or row.epsilon > 10], "labels")
    assert titles(figure) == [measure.heading for measure in ALL]
    lefts = [round(axes.get_position().x0, 3) for axes in figure.axes]
    assert lefts[0] == lefts[2] != lefts[1]


def test_both_columns_have_the_same_scale_and_lines_stand_at_their_values(swept: list[Row]) -> None:
    first, second = draw(swept, "labels").axes[:2]
    assert first.get_ylim() == second.get_ylim()
    assert [label.get_text() for label in first.get_xticklabels()] == ["10", "40", "160", "400"]
    by_colour = {line.get_color(): line for line in second.lines if line.get_marker() == "o"}
    (noisy,) = by_colour.values()
    assert list(noisy.get_ydata()) == pytest.approx([88.0, 87.0, 82.0, 75.0])


def test_what_was_not_answered_has_no_point(swept: list[Row]) -> None:
    first = draw(swept, "labels").axes[0]
    drawn = [len(line.get_xdata()) for line in first.lines if line.get_marker() != "None"]
    assert drawn == [4, 4, 0]  # noisy counts, tau ballots, the silent stable top-k


def test_references_are_levels_over_epsilon_and_lines_over_a_sweep(rows: list[Row], swept: list[Row]) -> None:
    over_epsilon = draw(rows, "epsilon", [MEASURES["accuracy"]]).axes[0]
    levels = [line for line in over_epsilon.lines if line.get_marker() == "None" and len(line.get_xdata())]
    assert sorted(line.get_ydata()[0] for line in levels) == pytest.approx([80.0, 91.5])
    over_labels = draw(swept, "labels", [MEASURES["accuracy"], MEASURES["answered"]])
    assert sum(len(line.get_xdata()) == 4 and line.get_marker() == "None" for line in over_labels.axes[0].lines) == 2
    assert all(line.get_marker() != "None" for line in over_labels.axes[2].lines)  # no level of answered queries


def test_gain_is_drawn_where_it_is_known(rows: list[Row], noiseless: Row) -> None:
    every = [*rows, noiseless]
    axes = draw(every, "epsilon", [gain_among(every)]).axes[0]
    noisy = next(line for line in axes.lines if line.get_marker() == "o")
    assert list(noisy.get_ydata()) == pytest.approx([30.0, 59.0, 78.0, 89.0])


@pytest.mark.parametrize("axis", ["epsilon", "labels"])
def test_no_words_overlap_or_leave_the_picture(rows: list[Row], swept: list[Row], axis: str) -> None:
    added = [replace(row, neighbours="teacher_added") for row in rows if not row.is_reference]
    figure = draw(rows + added if axis == "epsilon" else swept, axis)
    boxes = [(text.get_text(), text.get_window_extent()) for text in words(figure)]
    assert len(boxes) > 50
    for (one, a), (other, b) in combinations(boxes, 2):
        assert not a.overlaps(b), (one, other)
    for text, box in boxes:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
        assert inside, text


def test_hostile_names_are_drawn_as_text_without_a_warning(swept: list[Row], tmp_path: Path) -> None:
    evil = [replace(row, mechanism=r"$\frac$ 名前" + row.mechanism * 9) for row in swept if not row.is_reference]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        panels.panels(evil, tmp_path / "evil.png", axis="labels", measures=ALL, heading="x")
    assert imread(tmp_path / "evil.png").std() > 0.05


def test_an_unknown_axis_and_no_rows_are_refused(swept: list[Row], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="axis must be one of epsilon"):
        panels.panels(swept, tmp_path / "x.png", axis="moon", measures=ALL, heading="x")
    with pytest.raises(SettingError, match="rows must be at least one"):
        panels.panels([], tmp_path / "x.png", axis="labels", measures=ALL, heading="x")

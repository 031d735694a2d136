"""The picture: decodes, is not blank, shows what the rows say, and its words do not run into each other."""

import math
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.text import Text

from pate.errors import SettingError
from pate.report import NOT_A_GUARANTEE, Row, frontier, picture
from pate.report.rows import ordered


def draw(rows: list[Row], facts: dict[str, str] | None = None) -> Figure:
    figure = Figure(figsize=(picture.WIDTH, picture.HEIGHT), dpi=picture.DPI)
    FigureCanvasAgg(figure)
    picture._draw(figure, ordered(rows), facts or {})
    return figure


def words(figure: Figure) -> list[Text]:
    """Every text that is drawn; matplotlib also keeps ticks beyond the axis, which are not."""
    low, high = figure.axes[0].get_ylim()
    beyond = [t for t in figure.axes[0].get_yticklabels() if not low <= t.get_position()[1] <= high]
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    return [text for text in shown if text not in beyond]


def said(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in words(figure))


def markers(figure: Figure) -> list[Line2D]:
    return [line for line in figure.axes[0].lines if line.get_marker() not in (None, "None", "_", "")]


def ticks(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def test_png_decodes_in_its_size_and_shows_every_colour(rows: list[Row], tmp_path: Path) -> None:
    frontier(rows, tmp_path / "deep" / "frontier.png")
    image = imread(tmp_path / "deep" / "frontier.png")
    assert image.shape[:2] == (750, 1200)
    for colour in picture.COLOURS[:4]:
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        assert (np.abs(image[..., :3] - rgb).max(axis=-1) < 0.02).sum() > 200
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["frontier.png"]


def test_title_ticks_lines_and_levels(rows: list[Row], facts: dict[str, str]) -> None:
    figure = draw(rows, facts)
    text = said(figure)
    for part in ("cartoon faces, seed 0", "100 teachers", "400 queries", "δ = 1e-6", "neighbours: teacher_changed"):
        assert part in text
    assert ticks(figure) == ["0.5", "1", "2", "4"]
    for name in ("noisy_counts", "tau_ballots", "stable_topk_gumbel", "stable_topk_gaussian"):
        assert name in text
    assert "prior-only  80.0 %" in text
    assert "non-private  91.5 %" in text
    levels = [line.get_ydata()[0] for line in figure.axes[0].lines if list(line.get_xdata()) == [0, 1]]
    assert levels == pytest.approx([80.0, 91.5])


def test_hollow_crossed_and_filled_points(rows: list[Row]) -> None:
    figure = draw(rows)
    faces = [line.get_markerfacecolor() for line in markers(figure) if line.get_marker() != "x"]
    assert sum(face == "white" for face in faces) == 6
    assert len(faces) == 14
    crosses = [line for line in markers(figure) if line.get_marker() == "x"]
    assert [line.get_ydata()[0] for line in crosses] == pytest.approx([80.0, 80.0])
    text = said(figure)
    assert all(f"{share} % answered" in text for share in (11, 48, 83, 6, 31, 72))
    assert "drawn on the prior, not measured" in text.replace("\n", " ")


def test_no_words_overlap_or_leave_the_picture(rows: list[Row], facts: dict[str, str]) -> None:
    figure = draw(rows, facts)
    figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in words(figure)}
    assert len(boxes) > 18
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        assert not a.overlaps(b), (one, other)
    for text, box in boxes.items():
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y1 <= figure.bbox.height, text


def test_many_lines_make_the_picture_taller_not_the_labels_smaller(rows: list[Row]) -> None:
    many = [replace(row, mechanism=f"{row.mechanism}_{i}") for i in range(6) for row in rows if row.epsilon]
    figure = draw(many)
    assert figure.get_figheight() > picture.HEIGHT
    labels = [text.get_window_extent() for text in words(figure) if text.get_text()[-2:-1] == "_"]
    assert len(labels) == 24
    assert not any(a.overlaps(b) for a, b in combinations(labels, 2))


def test_infinite_and_zero_epsilon_stand_outside_the_scale(rows: list[Row]) -> None:
    ends = [replace(rows[5], epsilon=math.inf), replace(rows[5], epsilon=0.0, answered=0.0)]
    figure = draw(rows + ends)
    assert ticks(figure) == ["0", "0.5", "1", "2", "4", "∞"]
    places = figure.axes[0].get_xticks()
    assert np.all(np.diff(places) > 0.2)
    assert np.all(np.isfinite(places))
    longest = max(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "None")
    assert longest == 4  # the line joins the finite epsilons only
    assert "no privacy" in said(figure)


def test_one_seed_has_no_bars(rows: list[Row]) -> None:
    single = draw([replace(row, accuracy=row.accuracy[:1], macro_f1=row.macro_f1[:1]) for row in rows])
    several = draw(rows)

    def bars(figure: Figure) -> int:
        return sum(c.has_yerr for c in figure.axes[0].containers)

    assert (bars(single), bars(several)) == (0, 14)
    assert "no spread is known" in said(single)


def test_two_relations_get_a_line_each(rows: list[Row]) -> None:
    added = [replace(row, neighbours="teacher_added") for row in rows if not row.is_reference]
    text = said(draw(rows + added))
    assert "noisy_counts\nteacher_changed" in text
    assert "noisy_counts\nteacher_added" in text
    assert "neighbours: teacher_changed and teacher_added" in text


def test_what_is_not_a_guarantee_says_so_beside_its_line(rows: list[Row]) -> None:
    note = f"{NOT_A_GUARANTEE}: charged as published"
    text = said(draw([*rows, replace(rows[5], mechanism="as_published", epsilon=1.5, note=note)]))
    assert f"as_published¹\n{NOT_A_GUARANTEE}" in text
    assert f"¹ {note}." in text.replace("\n", " ")


def test_a_note_on_one_row_marks_its_point(rows: list[Row]) -> None:
    text = said(draw([*rows[:-1], replace(rows[-1], note="search hit its bound")]))
    assert "72 % answered¹" in text
    assert "stable_topk_gaussian¹" not in text


@pytest.mark.parametrize("with_references", [True, False])
def test_nothing_answered_anywhere(rows: list[Row], references: list[Row], with_references: bool) -> None:
    silent = [replace(row, answered=0.0, accuracy=(), macro_f1=()) for row in rows if not row.is_reference]
    figure = draw(silent + references * with_references)
    assert len(markers(figure)) == 16 * with_references
    assert ("Not drawn, for want of a student" in said(figure)) != with_references


def test_a_measured_student_without_answers_stands_where_it_was_measured(rows: list[Row]) -> None:
    figure = draw([*rows[:2], replace(rows[2], answered=0.0)])
    (cross,) = markers(figure)
    assert cross.get_ydata()[0] == pytest.approx(83.0)
    assert "the measured student is shown" in said(figure).replace("\n", " ")


@pytest.mark.parametrize("name", [r"$\frac$", "名前" * 30, "\x1b[31m\nred", "\udcff" + "a" * 500])
def test_hostile_names_are_drawn_as_text_without_a_warning(rows: list[Row], name: str, tmp_path: Path) -> None:
    evil = [replace(row, mechanism=name, neighbours=name, note=name) for row in rows if not row.is_reference]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frontier(evil[:4], tmp_path / "evil.png", facts={"data": name, "teachers": name})
    assert imread(tmp_path / "evil.png").std() > 0.05


def test_ticks_that_would_collide_lose_their_words_not_their_mark(rows: list[Row]) -> None:
    close = [replace(rows[2], epsilon=epsilon) for epsilon in (1.0, 1.02, 100.0)]
    assert ticks(draw(close)) == ["1", "", "100"]


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="rows must be at least one"):
        frontier([], tmp_path / "none.png")
    assert not list(tmp_path.iterdir())


def test_pyplot_and_its_global_state_stay_out() -> None:
    code = "import sys, pate.report; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

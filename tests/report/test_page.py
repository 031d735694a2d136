"""The page: whole, harmless, self-contained, and looked at in a browser where there is one."""

import base64
import csv
import json
import re
import shutil
import stat
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread

from pate.errors import SettingError
from pate.report import NOT_A_GUARANTEE, Row, finding, write_report

VOID = {"meta", "link", "img", "br", "col"}
STATEMENT = "One record reaches one teacher.\n\nEach row alone is\nprivate; together they compose.\n"
SETTINGS = {"data": {"name": "faces", "seed": 0}, "target": {"epsilon": [0.5, 1]}, "noise_seed": None}


class Page(HTMLParser):
    """Checks that tags balance, and collects them with the text inside each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append((self.open[-1] if self.open else "", data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def words(self, tag: str) -> list[str]:
        return [text for name, text in self.text if name == tag]


def write(folder: Path, rows: list[Row], facts: dict[str, str], **changes: object) -> Path:
    given = {"title": "A study", "facts": facts, "statement": STATEMENT, "settings": SETTINGS} | changes
    return write_report(folder, rows, **given)  # type: ignore[arg-type]


def test_a_csv_beside_each_picture_and_all_parts(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "report", rows, facts)
    assert path == tmp_path / "report" / "index.html"
    names = ["details.csv", "details.png", "frontier.csv", "frontier.png", "index.html", "summary.csv"]
    assert sorted(p.name for p in path.parent.iterdir()) == names
    with (path.parent / "summary.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    page = Page(path.read_text())
    assert page.words("h1") == ["A study"]
    assert page.words("title") == ["A study"]
    assert finding(rows) in [text.replace("\xa0", " ") for text in page.words("p")]
    assert page.words("p")[-2:] == STATEMENT.replace("is\np", "is p").strip().split("\n\n")
    assert page.words("dd") == list(facts.values())
    assert {"data.seed", "target.epsilon", "[0.5, 1]", "noise_seed", "choose.scale=39.0"} <= set(page.words("code"))


def test_every_row_stands_in_the_table_with_references_last(
    rows: list[Row], facts: dict[str, str], tmp_path: Path
) -> None:
    text = write(tmp_path, rows, facts).read_text()
    table = Page(text[text.index('<table class="results">') : text.index("</table>")] + "</table>")
    names = table.words("th")[10 - 2 :]  # epsilon and mAP stand inside an abbr
    assert len(table.all("tr")) == 1 + len(rows)
    assert names == [row.mechanism for row in rows[2:]] + ["prior-only", "non-private"]
    assert table.words("td").count("nothing") == 2
    assert "88.9 ± 0.3" in table.words("td")
    best = re.findall(r'class="best">([^<]*)<', text)
    assert best == ["83.0 ± 0.3", "85.9 ± 0.3", "87.8 ± 0.3", "88.9 ± 0.3"]


def test_it_can_be_read_without_eyes(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    page = Page(write(tmp_path, rows, facts).read_text())
    first, second = page.all("img")
    assert "the best mechanism is noisy_counts" in (first["alt"] or "")
    assert "micro F1 of released labels" in (second["alt"] or "")
    assert len(page.words("caption")) == 1
    assert all(attrs.get("scope") in ("row", "col") for attrs in page.all("th"))
    assert page.all("html") == [{"lang": "en"}]


def test_it_is_self_contained(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path, rows, facts)
    text = path.read_text()
    page = Page(text)
    addresses = [v or "" for _, attrs in page.tags for k, v in attrs.items() if k in ("src", "href", "srcset")]
    assert len(addresses) == 3
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"https?:|url\(|@import|//\w", re.sub(r"base64,[^\"]+", "", text))
    assert not page.all("script")
    for address, name in zip(addresses[1:], ("frontier.png", "details.png"), strict=True):
        assert base64.b64decode(address.removeprefix("data:image/png;base64,")) == (tmp_path / name).read_bytes()


def test_hostile_text_stays_text(rows: list[Row], tmp_path: Path) -> None:
    evil = "<script>alert('\"&</main>\x00\udcff"
    bad = [replace(r, mechanism=evil, neighbours=evil, note=evil, settings={evil: evil}) for r in rows]
    path = write(
        tmp_path, bad, {evil: evil}, title=evil, statement=evil, settings={evil: {evil: evil}}, warnings=[evil]
    )
    page = Page(path.read_text())
    assert not page.all("script")
    assert page.words("h1")[0].startswith("<script>alert('\"&</main>")
    assert len(page.all("main")) == 1
    assert "\x00" not in path.read_text()


def test_warnings_come_first_and_only_when_there_are_any(
    rows: list[Row], facts: dict[str, str], tmp_path: Path
) -> None:
    warned = write(tmp_path / "a", rows, facts, warnings=["NOT PRIVATE: the noise was seeded", "two"]).read_text()
    assert Page(warned).words("p")[:2] == ["NOT PRIVATE: the noise was seeded", "two"]
    assert warned.index('role="alert"') < warned.index("<h1>")
    assert 'role="alert"' not in write(tmp_path / "b", rows, facts).read_text()


def test_notes_are_numbered_and_false_claims_labelled(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    note = f"{NOT_A_GUARANTEE}: charged as published"
    page = Page(write(tmp_path, [*rows, replace(rows[5], mechanism="as_published", note=note)], facts).read_text())
    assert page.words("li") == [note]
    assert page.words("sup") == ["1"]
    assert page.words("small") == [NOT_A_GUARANTEE]


def test_a_page_of_references_alone_with_nothing_to_say(references: list[Row], tmp_path: Path) -> None:
    page = Page(write(tmp_path, references, {}, statement="", settings={}).read_text())
    assert len(page.all("tr")) == 3
    assert not page.all("details")
    assert not page.all("dl")


def test_writing_twice_gives_the_same_bytes(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    first = {p.name: p.read_bytes() for p in write(tmp_path, rows, facts).parent.iterdir()}
    second = {p.name: p.read_bytes() for p in write(tmp_path, rows[::-1][::-1], facts).parent.iterdir()}
    assert first == second


def test_a_picture_per_relation(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    added = [replace(row, neighbours="teacher_added") for row in rows if not row.is_reference]
    path = write(tmp_path, rows + added, facts)
    assert (tmp_path / "frontier_teacher_added.png").exists()
    with (tmp_path / "frontier.csv").open(newline="") as file:
        assert {row["neighbours"] for row in csv.DictReader(file)} == {"teacher_changed", ""}
    assert len(Page(path.read_text()).all("img")) == 3


def test_sweeps_have_a_section_a_picture_a_csv_and_every_points_settings(
    rows: list[Row], swept: list[Row], facts: dict[str, str], tmp_path: Path
) -> None:
    remarks = ["No peeling at 5 labels: k must be <= 5."]
    text = write(tmp_path, rows, facts, sweeps={"labels": swept}, remarks=remarks).read_text()
    page = Page(text)
    assert "How many labels?" in page.words("h2")
    assert remarks[0] in page.words("li")
    assert any("from 160 labels on" in line.replace("\xa0", " ") for line in page.words("li"))
    with (tmp_path / "labels.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(swept)
    assert text.count("<code>kind=StableTopK</code>") == 8
    assert "Labels" in page.words("th")


def test_what_must_not_leave_is_refused_on_a_page_that_may(
    rows: list[Row], noiseless: Row, facts: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match="must not leave"):
        write(tmp_path / "page", [*rows, noiseless], facts)
    with pytest.raises(SettingError, match="must not leave"):
        write(tmp_path / "page", rows, facts, sweeps={"queries": [*rows, noiseless]})
    assert not (tmp_path / "page").exists()


def test_the_private_page_is_its_owners_and_shows_gains(
    rows: list[Row], noiseless: Row, facts: dict[str, str], tmp_path: Path
) -> None:
    path = write(tmp_path, [*rows, noiseless], facts, private=True)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
    page = Page(path.read_text())
    assert "Gain %" in page.words("th")
    assert "89.0" in page.words("td")  # (88.9 - 80) / (90 - 80)
    assert "Gain %" not in Page(write(tmp_path / "public", rows, facts).read_text()).words("th")


def test_a_very_long_paragraph_opens_on_a_click(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    page = Page(write(tmp_path, rows, facts, statement="Short.\n\nIt rests on this. " + "more " * 400).read_text())
    assert "It rests on this …" in page.words("summary")


# --- in a browser ------------------------------------------------------------------------------------------


def chromium(tmp_path: Path, page: Path, *wanted: str) -> str:
    """Open a page 1100 pixels wide; what the browser printed."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not on PATH: the page is not looked at in a browser")
    quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    quiet += " --disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [program, *quiet.split(), profile, "--window-size=1100,1600", *wanted, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_screenshot_shows_picture_and_table(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    page = write(tmp_path / "report", rows, facts)
    chromium(tmp_path, page, f"--screenshot={tmp_path / 'page.png'}", "--blink-settings=preferredColorScheme=1")
    image = imread(tmp_path / "page.png")[..., :3]
    assert image.shape[:2] == (1600, 1100)
    assert all(part.std() > 0.02 for part in (image[:400], image[400:800], image[800:1200], image[1200:]))
    blue = abs(image - [0, 0x72 / 255, 0xB2 / 255]).max(axis=-1) < 0.05
    assert blue[:1000].sum() > 100  # the line of the first mechanism, inside the picture


def test_nothing_overflows_sideways(rows: list[Row], facts: dict[str, str], tmp_path: Path) -> None:
    text = write(tmp_path / "report", rows, facts).read_text()
    probe = """<script>
      const wide = e => e.scrollWidth - e.clientWidth;
      const boxes = [...document.querySelectorAll("main, main div, main table, details")].map(wide);
      document.title = JSON.stringify({page: wide(document.documentElement), boxes: Math.max(...boxes),
        image: document.querySelector("img").naturalWidth, width: innerWidth});
    </script></body>"""
    probed = tmp_path / "probed.html"
    text = re.sub(r"<meta http-equiv=.*?>", "", text).replace("<details>", "<details open>")
    probed.write_text(text.replace("</body>", probe))
    title = re.search(r"<title>(.*?)</title>", chromium(tmp_path, probed, "--dump-dom"))
    assert title
    assert json.loads(title[1]) == {"page": 0, "boxes": 0, "image": 1200, "width": 1100}

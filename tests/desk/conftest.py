"""Folders of these tests lie in memory where possible: they sync a great deal, and none of them cuts the power."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk.office import make_run, memory_folder

from pate.runs import Run


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that is ready to be labelled."""
    return make_run(tmp_path)

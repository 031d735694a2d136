"""Rules of the privacy core that no single mechanism's test can show."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pate.accounting
import pate.mechanisms
import pate.ranking
from pate.mechanisms import Mechanism

PACKAGE = Path(pate.accounting.__file__).resolve().parent.parent
CORE = sorted(
    path
    for name in ("mechanisms", "accounting", "noise.py", "ledger.py", "ranking.py", "audit.py", "errors.py")
    for path in ([PACKAGE / name] if name.endswith(".py") else (PACKAGE / name).glob("*.py"))
)
PUBLIC = [
    (module.__name__, name)
    for module in (pate.mechanisms, pate.accounting)
    for name in module.__all__
    if callable(getattr(module, name)) and name not in ("Neighbours",)
]
WITHOUT_EXAMPLE = {"Answer", "Mechanism", "PublishedFigure", "Ranked"}  # made by others, shown in their examples


def test_the_core_was_found():
    assert len(CORE) > 20


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_no_assert_no_bare_except_no_global_randomness(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}"
            if ast.unparse(node.type) in ("Exception", "BaseException"):  # only to clean up on the way out
                assert isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None, f"line {node.lineno}"
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("np.random.", "random.")):
            allowed = ("np.random.Generator", "np.random.default_rng")
            assert ast.unparse(node) in allowed, f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_noise_is_drawn_in_one_place(path):
    """A generator may be passed on, but only pate.noise turns one into draws."""
    if path.name == "noise.py":
        pytest.skip("this is the place")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng"):
            assert path.name == "noise.py", f"line {node.lineno} makes a generator"


@pytest.mark.parametrize("heavy", ["torch", "hydra", "omegaconf", "matplotlib"])
def test_analysts_need_no_torch(heavy):
    code = (
        "import sys, pate.mechanisms, pate.accounting, pate.ranking, pate.noise, pate.ledger, pate.audit, pate.labels;"
        f"sys.exit({heavy!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_public_names_say_what_they_guarantee_and_show_how(module, name):
    thing = getattr(sys.modules[module], name)
    text = inspect.getdoc(thing) or ""
    assert len(text) > 40
    if name not in WITHOUT_EXAMPLE:
        assert ">>>" in text, "no example"
    if inspect.isclass(thing) and issubclass(thing, Mechanism) and thing is not Mechanism:
        assert "Guarantee" in text and thing.theorem

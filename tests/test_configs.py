"""Every YAML composes and makes what it names; the paper's setting is spelled as the paper has it."""

from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pate.commands import WORDS
from pate.mechanisms import Directions, GaussianChoice, StableTopK
from pate.settings import build

CONF = Path(__file__).resolve().parent.parent / "conf"
SCRIPTS = ("train_teachers", "label_student", "train_student", "compare")
GROUPS = [
    (path.parent.name, path.stem)
    for group in ("data", "model", "teachers", "mechanism", "student")
    for path in sorted((CONF / group).glob("*.yaml"))
]
EXPERIMENTS = [path.stem for path in sorted((CONF / "experiment").glob("*.yaml"))]


def composed(script: str, *overrides: str) -> dict:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(script, list(overrides)), resolve=True)


def instantiate(config: dict, name: str):
    given = {"num_labels": 40, "num_teachers": 100, "neighbours": "teacher_changed"}
    return build(config, name, **given, directions=Directions.of(np.eye(5)))


def test_there_is_something_in_every_group():
    found = {group for group, _ in GROUPS}
    assert found == {"data", "model", "teachers", "mechanism", "student"} and "celeba_paper" in EXPERIMENTS


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("group", "option"), GROUPS)
def test_every_option_composes_and_is_made(script, group, option):
    config = composed(script, f"{group}={option}")
    made = instantiate(config[group], group)
    target = config[group]["_target_"]
    assert f"{type(made).__module__}.{type(made).__name__}".split(".")[-1] == target.split(".")[-1]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes_and_all_of_it_is_made(script, experiment):
    config = composed(script, f"experiment={experiment}")
    made = [instantiate(config[group], group) for group in ("data", "model", "teachers", "mechanism", "student")]
    studied = config["mechanisms"].items() if script == "compare" else ()
    study = [instantiate(mechanism, name) for name, mechanism in studied]
    assert all(made) and len(study) >= (5 if script == "compare" else 0)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("word", "small"), [("quick=true", True), ("quick=false", False)])
def test_quick_is_a_word_of_every_script(script, word, small):
    config = composed(script, WORDS[word])
    assert (instantiate(config["teachers"], "teachers").count < 50) == small


@pytest.mark.parametrize(("group", "option"), GROUPS)
def test_yaml_shows_every_setting_with_its_default(group, option):
    """A person reads the YAML to learn what can be set: what the program fills in is all that may be absent."""
    config = dict(composed("compare", f"{group}={option}")[group])
    cls = type(instantiate(config, group))
    known = {"num_labels", "num_teachers", "neighbours", "regulariser", "test", "exact", "directions"}
    filled = known if group == "mechanism" else set()
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    assert required - filled <= set(config)
    shown = set(config) - {"_target_"}
    assert {f.name for f in fields(cls)} - filled <= shown <= {f.name for f in fields(cls)}


def test_the_papers_setting():
    config = composed("compare", "experiment=celeba_paper")
    assert config["teachers"]["count"] == 800 and config["model"]["name"] == "resnet50"
    assert config["queries"] == 600 and config["data"]["public"] == 600 and config["seeds"] == 5
    assert config["budget"]["delta"] == 1e-6
    made = instantiate(config["mechanism"], "mechanism")
    assert isinstance(made, StableTopK) and made.choose == GaussianChoice(50.0)
    assert (made.num_labels, made.sigma, made.delta_t) == (40, 60.0, 1e-9)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiment_headers_give_command_time_and_result(experiment):
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    assert f"experiment={experiment}" in text and "python " in text
    assert "Time:" in text and "Expected:" in text

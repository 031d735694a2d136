"""Frozen backbones: features are the last layer's input, the same for the same pictures; heads can be mounted."""

import numpy as np
import pytest
import torch

from pate.backbone import Mirrored, features, mount, trunk
from pate.errors import PateError, SettingError
from pate.models import Network, find_head, prepare

PICTURE = (32, 32, 3)


def pictures(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *PICTURE), dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "wide"), [("small_cnn", 768), ("resnet18", 512), ("squeezenet1_1", 512), ("mobilenet_v3_small", 1024)]
)
def test_features_are_what_the_last_layer_sees(name, wide):
    network, batch = Network(name), pictures(3)
    model, seen = network.build(1, 0, PICTURE).eval(), []
    find_head(model)[1].register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        model(prepare(batch, network))
    wanted = seen[0].flatten(2).mean(2) if seen[0].ndim == 4 else seen[0]
    found = features(network, batch)
    assert found.shape == (3, wide) and found.dtype == np.float32
    assert np.allclose(found, wanted.numpy(), atol=1e-4)


def test_features_of_a_table_are_the_table():
    rows = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    assert np.array_equal(features(Network("linear"), rows), rows)


def test_the_same_pictures_give_the_same_bits_whatever_was_done_before():
    network, batch = Network("resnet18"), pictures(21)
    first = features(network, batch)
    features(network, pictures(5, seed=1))
    torch.manual_seed(5)
    trunk.cache_clear()
    assert np.array_equal(features(network, batch), first)
    assert np.array_equal(features(network, batch[:16]), first[:16])  # batches of 16: what follows does not matter


def test_a_picture_and_its_mirror_image_can_be_seen_as_one():
    network, batch = Network("resnet18"), pictures(4)
    both = features(network, batch, mirror=True)
    assert np.allclose(both, features(network, batch[:, :, ::-1], mirror=True), atol=1e-5)
    assert np.allclose(both, (features(network, batch) + features(network, batch[:, :, ::-1])) / 2, atol=1e-5)
    assert not np.allclose(both, features(network, batch), atol=1e-2)


def test_a_mirrored_network_says_what_a_head_says_about_mirrored_features():
    """One definition: the mean of two logits is the logit of the mean of two rows of features."""
    network, batch = Network("resnet18"), pictures(4)
    found = features(network, batch, mirror=True)
    linear = Network("linear").build(5, 3, found.shape[1:])
    mean, spread = found.mean(0), float(found.std())
    both = Mirrored(mount(network, linear, PICTURE, mean, spread))
    with torch.no_grad():
        wanted = linear(torch.from_numpy((found - mean) / spread))
        assert torch.allclose(both(prepare(batch, network)), wanted, atol=1e-4)
        assert torch.equal(Mirrored(linear)(torch.from_numpy(found)), linear(torch.from_numpy(found)))


def test_a_backbone_does_not_learn():
    model = trunk(Network("resnet18"), PICTURE)
    assert not model.training and not any(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1"])
def test_a_mounted_head_says_what_it_said_about_features(name):
    network, batch = Network(name), pictures(6)
    found = features(network, batch)
    mean, spread = found.mean(0), float(found.std())
    linear = Network("linear").build(5, 3, found.shape[1:])
    model = mount(network, linear, PICTURE, mean, spread)
    with torch.no_grad():
        wanted = linear(torch.from_numpy((found - mean) / spread))
        logits = model(prepare(batch, network))
    assert logits.shape == (6, 5) and torch.allclose(logits, wanted, atol=1e-4)


def test_efficientnet_lite0_brings_its_public_weights():
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra `backbone`")
    public, random = (Network("efficientnet_lite0", weights, 64, True) for weights in ("IMAGENET1K", None))
    assert public.describe() == "efficientnet_lite0, public weights IMAGENET1K, 64 px"
    batch = pictures(4)
    found = features(public, batch)
    assert found.shape == (4, 1280) and (found >= 0).all() and found.std() > 0.05
    assert not np.allclose(found, features(random, batch), atol=1e-2)
    assert find_head(public.build(40, 0, PICTURE))[1].out_features == 40
    with pytest.raises(SettingError, match=r"model.weights must be .* or one of IMAGENET1K, got 'DEFAULT'"):
        Network("efficientnet_lite0", "DEFAULT").build(4, 0, PICTURE)


def test_channels_last_changes_the_speed_and_nothing_else():
    one, other = (features(Network("resnet18", channels_last=last), pictures(4)) for last in (False, True))
    assert np.allclose(one, other, atol=1e-3)
    assert prepare(pictures(2), Network(channels_last=True)).is_contiguous(memory_format=torch.channels_last)


def test_an_extra_that_is_absent_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(PateError, match=r"needs the extra `backbone`: pip install -e '.\[backbone\]'"):
        Network("efficientnet_lite0").build(4, 0, PICTURE)


@pytest.mark.parametrize(("name", "least"), [("squeezenet1_1", 17), ("small_cnn", 4), ("densenet121", 29)])
def test_a_picture_that_is_too_small_is_told_the_smallest_size(name, least):
    pattern = rf"model.image_size must be a size that {name} can take, {least} is the smallest \(.*\), got \(2, 2\)"
    with pytest.raises(SettingError, match=pattern):
        features(Network(name), np.zeros((1, 2, 2, 3), np.uint8))
    assert features(Network(name), np.zeros((1, least, least, 3), np.uint8)).shape[0] == 1
    with pytest.raises(SettingError, match="got"):
        Network(name).build(2, 0, (least - 1, least - 1, 3))

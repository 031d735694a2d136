"""Networks by name: K logits, weights from the seed alone or from public files, mistakes told in a sentence."""

import shutil
import urllib.error

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pate.errors import DataError, PateError, SettingError
from pate.models import MEAN, STD, Network, find_head, half, new_head, prepare, start_from_rates

PICTURE = (32, 32, 3)
# One of each family, the smallest that is quick to make.
FAMILIES = [
    *("resnet18", "resnet50", "squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5"),
    *("mnasnet0_5", "regnet_x_400mf", "efficientnet_b0", "densenet121"),
]


def same(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def pictures(count, shape=PICTURE, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(32, 32, 3), (64, 64, 3), (48, 40, 3), (112, 112, 3), (30, 33, 3), (8, 8, 3)])
def test_small_cnn_takes_any_size(shape):
    model = Network().build(5, 0, shape)
    assert model(prepare(pictures(2, shape), Network())).shape == (2, 5)


def test_small_cnn_is_small():
    weights = sum(p.numel() for p in Network().build(40, 0, PICTURE).parameters())
    assert 20_000 < weights < 60_000


@pytest.mark.parametrize("name", ["small_mlp", "linear"])
@pytest.mark.parametrize("shape", [(17,), PICTURE])
def test_features_have_their_own_networks(name, shape):
    network = Network(name)
    batch = np.ones((3, 17), np.float32) if len(shape) == 1 else pictures(3)
    assert network.build(4, 0, shape)(prepare(batch, network)).shape == (3, 4)


@pytest.mark.parametrize("name", FAMILIES)
def test_any_torchvision_classifier_gets_k_logits_of_both_signs(name):
    network = Network(name)
    model = network.build(60, 0, PICTURE).eval()
    logits = model(prepare(pictures(4), network))
    assert logits.shape == (4, 60)
    assert (logits > 0).any() and (logits < 0).any()  # nothing after the last layer clips them
    assert find_head(model)[1].bias is not None


@pytest.mark.slow
def test_all_of_torchvisions_classifiers_get_a_new_head():
    from torchvision import models

    for name in models.list_models(module=models):
        if "regnet" in name:  # cannot be made without memory; two of them are small enough to be made with it
            continue
        extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        with torch.device("meta"):
            model = new_head(models.get_model(name, weights=None, **extra), 7).eval()
            side = 224 if not name.startswith("inception") else 299
            assert model(torch.empty(1, 3, side, side)).shape == (1, 7), name


@pytest.mark.slow
def test_a_transformer_takes_the_size_it_is_built_for():
    network = Network("vit_b_32", image_size=64)
    assert network.build(3, 0, PICTURE).eval()(prepare(pictures(1), network)).shape == (1, 3)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18"])
def test_weights_come_from_the_seed_alone(name):
    torch.manual_seed(1)
    first = Network(name).build(4, 7, PICTURE)
    torch.manual_seed(2)
    torch.rand(5)
    assert same(first, Network(name).build(4, 7, PICTURE))
    assert not same(first, Network(name).build(4, 8, PICTURE))


def test_building_moves_nobodys_random_state():
    before = torch.random.get_rng_state()
    numpy_before = np.random.get_state()[1].tolist()  # noqa: NPY002
    Network().build(4, 7, PICTURE)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == numpy_before  # noqa: NPY002


@pytest.mark.parametrize(
    ("name", "close"), [("resnet5O", "resnet50"), ("smal_cnn", "small_cnn"), ("efficientnetb0", "efficientnet_b0")]
)
def test_an_unknown_name_is_told_what_is_close(name, close):
    with pytest.raises(SettingError, match=f"model.name must be .*did you mean .*{close}.*got {name!r}"):
        Network(name).build(4, 0, PICTURE)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18"])
def test_features_are_refused_by_networks_for_pictures(name):
    with pytest.raises(SettingError, match="small_mlp or linear for features"):
        Network(name).build(4, 0, (17,))


def test_a_size_that_a_network_cannot_take_is_a_sentence():
    with pytest.raises(SettingError, match=r"model.image_size must be a size that inception_v3 can take"):
        Network("inception_v3").build(4, 0, PICTURE)


@pytest.mark.parametrize("field", [{"image_size": 0}, {"image_size": 5000}, {"name": ""}, {"weights": ""}])
def test_fields_are_checked(field):
    with pytest.raises(SettingError, match=f"model.{next(iter(field))}"):
        Network(**field)


def test_weights_that_cannot_be_fetched_say_what_to_do(monkeypatch, tmp_path):
    def no_network(*args, **kwargs):
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", no_network)
    with pytest.raises(
        PateError, match=r"IMAGENET1K_V2 of resnet50 .*no network.*model.weights=/path/to/resnet50-.*pth"
    ):
        Network("resnet50", weights="IMAGENET1K_V2").build(4, 0, PICTURE)


@pytest.mark.parametrize("name", ["resnet18", "small_cnn"])
def test_an_unknown_weights_name_lists_those_there_are(name):
    with pytest.raises(SettingError, match=r"model.weights must be null, a .safetensors or .pth file") as caught:
        Network(name, weights="IMAGENET").build(4, 0, PICTURE)
    assert ("IMAGENET1K_V1, DEFAULT" in str(caught.value)) == (name == "resnet18")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_gives_every_weight_but_a_head_for_other_labels(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    source = Network("resnet18").build(1000, 5, PICTURE)
    state = source.state_dict()
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    other = Network("resnet18", weights=str(path)).build(4, 9, PICTURE)
    assert torch.equal(other.conv1.weight, source.conv1.weight) and other.fc.out_features == 4
    assert same(source, Network("resnet18", weights=str(path)).build(1000, 9, PICTURE))  # the head too, where it fits


def test_wrapped_checkpoints_are_unwrapped(tmp_path):
    source = Network().build(4, 5, PICTURE)
    torch.save({"state_dict": {f"module.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "w.pth")
    assert same(source, Network(weights=str(tmp_path / "w.pth")).build(4, 6, PICTURE))


class Trap:
    """Would run code when unpickled."""

    def __reduce__(self):
        return (print, ("trapped",))


def test_files_that_are_no_public_weights_are_refused(tmp_path, capsys):
    torch.save({"a": Trap()}, tmp_path / "trap.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "noise.pth").write_bytes(b"\0" * 99)
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    (tmp_path / "empty.pth").touch()
    for name in ("trap.pth", "list.pth", "noise.pth", "noise.safetensors", "empty.pth", "absent.pth"):
        with pytest.raises(DataError, match=rf"model.weights: .*{name}"):
            Network(weights=str(tmp_path / name)).build(4, 0, PICTURE)
    assert "trapped" not in capsys.readouterr().out


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save(Network("linear").build(4, 0, PICTURE).state_dict(), tmp_path / "w.pth")
    with pytest.raises(DataError, match="does not fit"):
        Network(weights=str(tmp_path / "w.pth")).build(4, 0, PICTURE)


def test_pictures_are_scaled_by_public_constants_only():
    batch = pictures(3)
    found = prepare(batch, Network()).numpy()
    wanted = ((batch / 255 - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)
    assert found.dtype == np.float32 and np.allclose(found, wanted, atol=1e-5)
    assert np.array_equal(prepare(batch[1:2], Network()).numpy(), found[1:2])  # whatever else is in the batch
    assert np.array_equal(prepare(torch.from_numpy(batch), Network()).numpy(), found)


def test_pictures_are_resized_where_asked():
    flat = np.full((2, 20, 24, 3), 51, np.uint8)
    found = prepare(flat, Network(image_size=16))
    assert found.shape == (2, 3, 16, 16) and torch.allclose(found[0, 0], torch.tensor((0.2 - MEAN[0]) / STD[0]))


def test_features_stay_as_they_are():
    batch = np.random.default_rng(0).normal(size=(3, 5))
    assert np.array_equal(prepare(batch, Network("linear")).numpy(), batch.astype(np.float32))


def test_an_untrained_network_says_how_frequent_labels_are():
    rates = torch.tensor([0.1, 0.5, 0.9])
    model = Network("linear").build(3, 0, (4,))
    start_from_rates(model, rates)
    assert torch.allclose(model(torch.zeros(1, 4)).sigmoid(), rates)


def test_half_precision_is_for_gpus():
    x = torch.ones(2, 3)
    with half("cpu", "bfloat16"):
        assert (x @ x.T).dtype == torch.float32


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_network_is_the_same_network():
    plain, compiled = (Network("small_mlp", compile=word).build(3, 0, (8,)).eval() for word in (False, True))
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    assert same(plain, compiled) and torch.allclose(plain(x), compiled(x), atol=1e-5)


def test_batch_mates_do_not_matter_to_small_cnn():
    model = Network().build(3, 0, PICTURE)
    x = prepare(pictures(4), Network())
    assert isinstance(model, nn.Module) and torch.allclose(model(x)[2:3], model(x[2:3]), atol=1e-5)


def test_a_network_says_where_it_comes_from():
    assert Network().describe() == "small_cnn, random weights"
    assert Network("resnet50", "DEFAULT", 64).describe() == "resnet50, public weights DEFAULT, 64 px"

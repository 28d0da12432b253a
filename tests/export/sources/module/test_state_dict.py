"""Weights from a file are loaded into the module, and no pickle is ever run."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.pickle_trap import PickleTrap
from turnpike.export.errors import ExportError, RefusedError, SourceError
from turnpike.export.network import Messages
from turnpike.export.sources.module.state_dict import fit_weights, read_weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def incremented(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor + 1 for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt", "w.pth", "w.bin", "w.ckpt"])
def test_weights_are_loaded_into_the_module(tmp_path: Path, net: nn.Module, name: str) -> None:
    """Parameters and buffers, from each kind of file."""
    expected = incremented(net)
    path = tmp_path / name
    save_file(expected, path) if path.suffix == ".safetensors" else torch.save(expected, path)
    fit_weights(net, read_weights(path).tensors, str(path))
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_names_of_wrapped_networks_are_read(net: nn.Module, prefix: str) -> None:
    """DataParallel and torch.compile add to the names; the module may be wrapped instead of the file."""
    expected = incremented(net)
    message = f"w.pt: '{prefix}0.weight' was loaded into '0.weight', and 6 other names likewise: DataParallel"
    (note,) = fit_weights(net, {prefix + name: tensor for name, tensor in expected.items()}, "w.pt").notes
    assert note.startswith(message)
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in expected.items())
    wrapped = nn.ModuleDict({"module": net})
    (note,) = fit_weights(wrapped, incremented(net), "w.pt").notes
    assert "'0.weight' was loaded into 'module.0.weight'" in note
    assert torch.equal(wrapped.state_dict()["module.0.weight"], expected["0.weight"] + 1)


def test_only_a_wrapper_s_part_of_a_name_is_left_out(net: nn.Module) -> None:
    """A module with a part of that name is loaded without a word, and other names stay unknown."""
    twice = nn.ModuleDict({"module": net, "0": nn.Linear(3, 2)})
    assert fit_weights(twice, incremented(twice), "w.pt") == Messages()
    with pytest.raises(SourceError, match="expected a tensor '0.weight', which is missing"):
        fit_weights(net, {f"model.{name}": tensor for name, tensor in incremented(net).items()}, "w.pt")
    ambiguous = {"_orig_mod.0.weight": net.state_dict()["0.weight"]}
    with pytest.raises(SourceError, match="expected a tensor 'module.0.weight', which is missing"):
        fit_weights(twice, ambiguous, "w.pt")


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_weights_are_found_beside_an_optimizer(tmp_path: Path, net: nn.Module, key: str) -> None:
    """Under the keys that training scripts use."""
    path = tmp_path / "w.pt"
    torch.save({"epoch": 3, key: net.state_dict(), "optimizer": {"lr": 0.1}}, path)
    weights = read_weights(path)
    assert weights.tensors.keys() == net.state_dict().keys()
    (note,) = weights.messages.notes
    assert note == f"{path}: the weights were read from {key!r}, and 'epoch', 'optimizer' left out"
    torch.save({key: net.state_dict()}, path)
    assert read_weights(path).messages.notes == (f"{path}: the weights were read from {key!r}",)


def test_the_format_of_old_torch_is_read(tmp_path: Path, net: nn.Module) -> None:
    """Files from before zip archives."""
    path = tmp_path / "w.pt"
    torch.save(net.state_dict(), path, _use_new_zipfile_serialization=False)
    assert read_weights(path).tensors.keys() == net.state_dict().keys()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_code_is_not_run(tmp_path: Path, zipped: bool) -> None:
    ran, path = tmp_path / "ran", tmp_path / "w.pt"
    torch.save({"w": torch.ones(1), "trap": PickleTrap(ran)}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(RefusedError, match=r"w.pt: .* could run code: save the tensors alone"):
        read_weights(path)
    assert not ran.exists()
    torch.load(path, weights_only=False)
    assert ran.exists(), "expected torch.load to run the code"


def test_a_bare_pickle_is_not_run(tmp_path: Path) -> None:
    """A bare pickle was not written by torch.save."""
    ran, path = tmp_path / "ran", tmp_path / "w.pth"
    path.write_bytes(pickle.dumps({"w": PickleTrap(ran)}))
    with pytest.raises(ExportError, match="w.pth"):
        read_weights(path)
    assert not ran.exists()


def test_a_pickled_module_is_rejected_with_a_remedy(tmp_path: Path, net: nn.Module) -> None:
    torch.save(net, tmp_path / "w.pt")
    with pytest.raises(RefusedError, match=r"torch.save\(model.state_dict\(\)"):
        read_weights(tmp_path / "w.pt")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    """It is an archive like those of torch.save, and contains code."""
    torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "w.pt"))
    with pytest.raises(RefusedError, match="TorchScript"):
        read_weights(tmp_path / "w.pt")


def test_a_compressed_archive_is_rejected(tmp_path: Path, net: nn.Module) -> None:
    """torch.save compresses nothing; a small archive could decompress to gigabytes."""
    torch.save(net.state_dict(), tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive, zipfile.ZipFile(tmp_path / "b.pt", "w") as bomb:
        for name in archive.namelist():
            bomb.writestr(name, archive.read(name), compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(RefusedError, match="is compressed"):
        read_weights(tmp_path / "b.pt")


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
@pytest.mark.parametrize("keep", [0, 9, 300, -1])
def test_a_truncated_file_is_an_error(tmp_path: Path, net: nn.Module, name: str, keep: int) -> None:
    path = tmp_path / name
    save_file(net.state_dict(), path) if name.endswith("s") else torch.save(net.state_dict(), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ExportError, match=name):
        read_weights(path)


@pytest.mark.parametrize(
    "content", [{}, {"a": 1}, [torch.ones(1)], torch.ones(1), {"state_dict": {"a": "b"}}]
)
def test_other_contents_than_named_tensors_are_an_error(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(SourceError, match="expected a dict of tensors, or one under state_dict"):
        read_weights(tmp_path / "w.pt")


def test_missing_and_other_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="absent.pt: no such file"):
        read_weights(tmp_path / "absent.pt")
    (tmp_path / "w.h5").touch()
    with pytest.raises(SourceError, match="expected weights in .safetensors, or .pt, .* got '.h5'"):
        read_weights(tmp_path / "w.h5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("0.bias"),
            "w: expected a tensor '0.bias', which is missing; the file holds 0.weight, 1.weight, 1.bias, "
            "1.running_mean and 2 more$",
        ),
        (
            lambda t: t.update(extra=torch.ones(1)),
            "w: 'extra' belongs to no part of the module, which has 0.weight, 0.bias, 1.weight, 1.bias and",
        ),
        (lambda t: t.update({"0.bias": torch.ones(3)}), r"w: 0.bias: expected \[2\] .*, got \[3\]"),
        (lambda t: t.update({"0.bias": torch.ones(2).half()}), "w: 0.bias: expected .* got .* torch.float16"),
    ],
)
def test_weights_must_match_the_module(net: nn.Module, change: object, message: str) -> None:
    """The first tensor that does not is named, and the module is not changed."""
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    tensors = incremented(net)
    change(tensors)  # type: ignore[operator]
    with pytest.raises(SourceError, match=message):
        fit_weights(net, tensors, "w")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize("normalize", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_weight_norm_on_one_side_only_is_named(normalize: Callable[[nn.Module], nn.Module]) -> None:
    """Old and new, which have other names for the two parts of a weight."""
    with pytest.raises(SourceError, match="saved without weight_norm, so build the module without it$"):
        fit_weights(normalize(nn.Linear(3, 2)), nn.Linear(3, 2).state_dict(), "w")
    with pytest.raises(SourceError, match="saved with weight_norm, so apply it in the factory$"):
        fit_weights(nn.Linear(3, 2), normalize(nn.Linear(3, 2)).state_dict(), "w")
    with pytest.raises(SourceError, match="missing; the file holds 0.weight, 0.bias$"):
        fit_weights(normalize(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2)).state_dict(), "w")


def test_one_of_two_tied_tensors_is_enough() -> None:
    """Files of safetensors contain a shared tensor once. Tensors that are merely equal are not shared."""
    net = Tied()
    fit_weights(net, {"b.weight": torch.eye(3)}, "w")
    assert torch.equal(net.a.weight, torch.eye(3))
    untied = nn.ModuleDict({name: nn.Linear(3, 3, bias=False) for name in "ab"})
    untied["b"].load_state_dict(untied["a"].state_dict())
    with pytest.raises(SourceError, match="expected a tensor 'a.weight'"):
        fit_weights(untied, {"b.weight": torch.eye(3)}, "w")


def test_a_lazy_layer_is_an_error() -> None:
    """Its shape is unknown before its first call."""
    with pytest.raises(SourceError, match="give lazy layers their sizes"):
        fit_weights(nn.LazyLinear(2), {"weight": torch.ones(2, 3), "bias": torch.ones(2)}, "w")

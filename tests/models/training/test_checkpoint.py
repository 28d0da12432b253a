"""Checkpoints: complete, self-describing, and checked before they are used."""

from __future__ import annotations

import json
import pickle
import resource
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.support.pickle_trap import PickleTrap
from tests.support.tiny_checkpoint import CONFIG, tiny_record
from turnpike.common.durable_files import WriteError
from turnpike.models.errors import CheckpointError
from turnpike.models.networks.base import Net
from turnpike.models.networks.families import build_network
from turnpike.models.training.checkpoint import (
    METADATA_KEY,
    TrainingRecord,
    load_network,
    read_checkpoint,
    save_checkpoint,
)


@pytest.fixture
def net() -> Net:
    return build_network(CONFIG)


@pytest.fixture
def record() -> TrainingRecord:
    return tiny_record()


def test_a_saved_checkpoint_can_be_loaded(tmp_path: Path, net: Net, record: TrainingRecord) -> None:
    """Network and record are restored, the network in eval mode with the same logits."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, net.state_dict(), record)
    loaded, loaded_record = load_network(path)
    x = torch.randn(3, 4)
    assert torch.equal(loaded(x), net.eval()(x))
    assert not loaded.training
    assert asdict(loaded_record) == json.loads(json.dumps(asdict(record)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="absent.safetensors: no such file"):
        load_network(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, net: Net, record: TrainingRecord, keep: int) -> None:
    """It may be cut anywhere."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, net.state_dict(), record)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="expected a .safetensors file, got a damaged file"):
        load_network(path)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    """A pickle named model.safetensors is refused without running its code."""
    ran = tmp_path / "ran"

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(PickleTrap(ran)))
    with pytest.raises(CheckpointError, match="a damaged file or one of another format"):
        load_network(path)
    torch.save({"w": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="a damaged file or one of another format"):
        load_network(path)
    assert not ran.exists()


def test_a_safetensors_file_of_another_program_is_refused(tmp_path: Path) -> None:
    """Weights without a record were written by another program."""
    path = tmp_path / "other.safetensors"
    save_file({"w": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="without a 'turnpike' record"):
        load_network(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("not json", "malformed"),
        ("[]", "malformed"),
        ("{}", "expected checkpoint format 1, got None"),
        ('{"format": 99}', "expected checkpoint format 1, got 99"),
        ('{"format": 1}', "malformed"),
        ('{"format": 1, "surprise": 2}', "malformed"),
    ],
)
def test_an_invalid_record_is_refused(tmp_path: Path, values: str, message: str) -> None:
    """Damaged, foreign and future records each give a clear one-line error."""
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(1)}, path, metadata={METADATA_KEY: values})
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("output.bias"), "expected a tensor 'output.bias', which is missing"),
        (lambda t: t.update(extra=torch.ones(1)), "the network has no tensor 'extra'"),
        (lambda t: t.update({"output.bias": torch.ones(3)}), r"output.bias: expected \[2\] .* got \[3\]"),
        (lambda t: t.update({"output.bias": torch.ones(2).double()}), "got .* torch.float64"),
    ],
)
def test_weights_must_match_the_network(
    tmp_path: Path, net: Net, record: TrainingRecord, change: object, message: str
) -> None:
    """A tensor that is missing, unknown, or of another shape or dtype is named."""
    tensors = dict(net.state_dict())
    change(tensors)
    save_checkpoint(tmp_path / "model.safetensors", tensors, record)
    with pytest.raises(CheckpointError, match=message):
        load_network(tmp_path / "model.safetensors")


def test_a_claimed_size_is_not_allocated(tmp_path: Path, net: Net, record: TrainingRecord) -> None:
    """A small file whose config claims a network of terabytes is refused before memory is allocated."""
    huge = replace(record, config={**record.config, "width": 1_000_000})
    save_checkpoint(tmp_path / "model.safetensors", net.state_dict(), huge)
    with pytest.raises(CheckpointError, match="expected .*1000000"):
        load_network(tmp_path / "model.safetensors")


def test_the_state_of_a_run_is_no_network(tmp_path: Path, net: Net, record: TrainingRecord) -> None:
    """The message names the file with the network."""
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    save_checkpoint(tmp_path / "last.safetensors", tensors, replace(record, progress={"step": 3}))
    with pytest.raises(CheckpointError, match="state from which --resume continues.* in model.safetensors"):
        load_network(tmp_path / "last.safetensors")


def test_an_invalid_config_is_refused(tmp_path: Path, net: Net, record: TrainingRecord) -> None:
    """An unknown family or setting is reported with the file's name."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, net.state_dict(), replace(record, config={"family": "perceptron"}))
    with pytest.raises(CheckpointError, match=r"model.safetensors: family: expected one of mlp"):
        load_network(path)


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, net: Net, record: TrainingRecord) -> None:
    """The error names the file and the reason. A limit of the kernel stops the write halfway."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, net.state_dict(), record)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(WriteError, match=f"^{path}: cannot be written .File too large.$"):
            save_checkpoint(path, net.state_dict(), record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]

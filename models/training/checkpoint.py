"""Checkpoints: a trained network as one `.safetensors` file that describes itself and is never unpickled.

Besides the weights, the file's metadata hold one JSON record under the key `turnpike`: the network's config,
the data, the recipe, the seed and the results.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from turnpike.common.durable_files import replacing
from turnpike.models.errors import CheckpointError, ConfigError, MissingRecordError
from turnpike.models.networks.base import Net
from turnpike.models.networks.families import build_network, config_from_dict

METADATA_KEY = "turnpike"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TrainingRecord:
    """The JSON record in a checkpoint.

    Attributes:
        preset: Name of the preset.
        config: Settings of the network, as `NetConfig.to_dict` returns them.
        data: Name, digest, kind, labels and alphabet of the data set.
        recipe: Settings of the training.
        seed: The seed of the run.
        metrics: Loss and accuracies of the best network; with the test results once the run is finished.
        history: Loss and accuracies of every epoch.
        torch: Version of PyTorch.
        progress: State needed to resume the run; empty in the checkpoint of the best network.
        format: Version of this record's format.
    """

    preset: str
    config: dict[str, Any]
    data: dict[str, Any]
    recipe: dict[str, Any]
    seed: int
    metrics: dict[str, float]
    history: list[dict[str, float]]
    torch: str
    progress: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT_VERSION


def save_checkpoint(path: Path, tensors: dict[str, Tensor], record: TrainingRecord) -> None:
    """Write a checkpoint atomically: on any error the old file stays."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        # save_file would write to a temporary file of its own, which a killed process leaves for ever
        draft.write_bytes(save(tensors, metadata={METADATA_KEY: json.dumps(asdict(record))}))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], TrainingRecord]:
    """Return the tensors and the record of a checkpoint; a CheckpointError says what is wrong with it."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: expected a .safetensors file, got a damaged file or one of another format"
        ) from error
    if METADATA_KEY not in metadata:
        raise MissingRecordError(
            f"{path}: expected a turnpike checkpoint, "
            f"got a file without a {METADATA_KEY!r} record in its metadata"
        )
    try:
        values = json.loads(metadata[METADATA_KEY])
        if values.get("format") != FORMAT_VERSION:
            raise CheckpointError(
                f"{path}: expected checkpoint format {FORMAT_VERSION}, got {values.get('format')!r}: "
                "another version of turnpike wrote it"
            )
        record = TrainingRecord(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: the {METADATA_KEY!r} record in its metadata is malformed") from error
    return tensors, record


def expect_matching_weights(net: Net, tensors: dict[str, Tensor], path: Path) -> None:
    """Raise a CheckpointError unless the tensors are those of the network: all of them, and no others."""
    state = net.state_dict()
    for name, tensor in state.items():
        if name not in tensors:
            raise CheckpointError(f"{path}: expected a tensor {name!r}, which is missing")
        if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
            raise CheckpointError(
                f"{path}: {name}: expected {list(tensor.shape)} {tensor.dtype}, "
                f"got {list(tensors[name].shape)} {tensors[name].dtype}"
            )
    if unknown := sorted(tensors.keys() - state.keys()):
        raise CheckpointError(f"{path}: the network has no tensor {unknown[0]!r}")


def load_network(path: Path) -> tuple[Net, TrainingRecord]:
    """Return the network of a checkpoint, in eval mode, and the record."""
    tensors, record = read_checkpoint(path)
    if record.progress:
        raise CheckpointError(
            f"{path}: expected a network, got the state from which --resume continues a run: the run's "
            "best network is in model.safetensors, in the same folder"
        )
    try:
        config = config_from_dict(record.config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # a config can claim any size: compare it with the weights on the meta device, which allocates nothing
    with torch.device("meta"):
        expect_matching_weights(build_network(config), tensors, path)
    net = build_network(config)
    net.load_state_dict(tensors)
    return net.eval(), record

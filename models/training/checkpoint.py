"""A trained network on disk: one `.safetensors` file that says what it is, and is never unpickled.

Beside the weights, the file's metadata hold one JSON record under the key `turnpike`: the network's
config, what it was trained on and how, the seed, and what it reached.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from models.atomic import replacing
from models.errors import CheckpointError, ConfigError, MissingRecordError
from models.networks.base import Net
from models.networks.families import build_network, config_from_dict

METADATA_KEY = "turnpike"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TrainingRecord:
    """What a checkpoint says of itself. `data` holds name, digest, kind, labels and alphabet."""

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
    """Write a checkpoint whole, or leave the old one."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_file(flat, draft, metadata={METADATA_KEY: json.dumps(asdict(record))})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], TrainingRecord]:
    """The tensors and the record of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: expected a whole .safetensors file, and this is damaged or another kind of file"
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
                "it comes from another version of turnpike"
            )
        record = TrainingRecord(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: the {METADATA_KEY!r} record in its metadata cannot be understood"
        ) from error
    return tensors, record


def expect_matching_weights(net: Net, tensors: dict[str, Tensor], path: Path) -> None:
    """Stop with a CheckpointError unless each part of the network has its tensor, and there are no others."""
    own = net.state_dict()
    for name, tensor in own.items():
        if name not in tensors:
            raise CheckpointError(f"{path}: expected a tensor {name!r}, which is missing")
        if tensors[name].shape != tensor.shape or tensors[name].dtype != tensor.dtype:
            raise CheckpointError(
                f"{path}: {name}: expected {list(tensor.shape)} {tensor.dtype}, "
                f"got {list(tensors[name].shape)} {tensors[name].dtype}"
            )
    if strange := sorted(tensors.keys() - own.keys()):
        raise CheckpointError(f"{path}: {strange[0]!r} belongs to no part of the network")


def load_network(path: Path) -> tuple[Net, TrainingRecord]:
    """The network of a checkpoint, in eval mode, and the record beside it."""
    tensors, record = read_checkpoint(path)
    try:
        config = config_from_dict(record.config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # a config may claim any size: on the meta device nothing is allocated until the weights bear it out
    with torch.device("meta"):
        expect_matching_weights(build_network(config), tensors, path)
    net = build_network(config)
    net.load_state_dict(tensors)
    return net.eval(), record

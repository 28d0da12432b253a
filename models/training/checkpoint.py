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
from models.errors import CheckpointError, ConfigError
from models.networks.base import Net
from models.networks.families import build, config_from_dict

KEY = "turnpike"
FORMAT = 1


@dataclass(frozen=True)
class Record:
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
    format: int = FORMAT


def save(path: Path, tensors: dict[str, Tensor], record: Record) -> None:
    """Write a checkpoint whole, or leave the old one."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_file(flat, draft, metadata={KEY: json.dumps(asdict(record))})


def read(path: Path) -> tuple[dict[str, Tensor], Record]:
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
    if KEY not in metadata:
        raise CheckpointError(
            f"{path}: expected a checkpoint of turnpike, and this file's metadata have no {KEY!r} record"
        )
    try:
        values = json.loads(metadata[KEY])
        if values.get("format") != FORMAT:
            raise CheckpointError(
                f"{path}: expected checkpoint format {FORMAT}, got {values.get('format')!r}: "
                "it comes from another version of turnpike"
            )
        record = Record(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: the {KEY!r} record in its metadata cannot be understood") from error
    return tensors, record


def fit_weights(net: Net, tensors: dict[str, Tensor], path: Path) -> None:
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


def load(path: Path) -> tuple[Net, Record]:
    """The network of a checkpoint, in eval mode, and the record beside it."""
    tensors, record = read(path)
    try:
        config = config_from_dict(record.config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    # a config may claim any size: on the meta device nothing is allocated until the weights bear it out
    with torch.device("meta"):
        fit_weights(build(config), tensors, path)
    net = build(config)
    net.load_state_dict(tensors)
    return net.eval(), record

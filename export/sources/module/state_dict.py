"""Loads weights from .safetensors or .pt files into a module, without unpickling anything but tensors.

Every tensor of the file must belong to the module, and every tensor of the module must be in the file.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from turnpike.export.errors import RefusedError, SourceError, one_line
from turnpike.export.network import Messages

PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
# keys under which training scripts store the state_dict, beside the state of the optimizer
STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")
# parts that DataParallel and torch.compile add to the names of tensors
WRAPPERS = ("module", "_orig_mod")
# the magnitude beside which torch.nn.utils.weight_norm, old and new, stores the direction of a weight
WEIGHT_NORM_PARTS = ("weight_g", "weight.original0")
# names of tensors that an error lists
MAX_SHOWN_NAMES = 4
REMEDY = "save the tensors alone: torch.save(model.state_dict(), ...), or safetensors.torch.save_file"


@dataclass(frozen=True)
class Weights:
    """The tensors of a file by name, and what the user should know about how they were found."""

    tensors: dict[str, Tensor]
    messages: Messages


def read_weights(path: Path) -> Weights:
    """The tensors of a .safetensors file, or of a .pt file that holds tensors and nothing else."""
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        return Weights(_read_safetensors(path), Messages())
    if path.suffix in PICKLE_SUFFIXES:
        return _find_tensors(_read_pickle(path), path)
    raise SourceError(
        f"{path}: expected weights in .safetensors, or {', '.join(PICKLE_SUFFIXES)}, got {path.suffix!r}"
    )


def fit_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> Messages:
    """Load tensors into a module; a SourceError names the first that is missing, left over or does not fit.

    Returns a note if names of tensors were changed.

    A tensor that shares its memory with another one may be missing: .safetensors files keep one of the two.
    """
    state = module.state_dict()
    tensors, messages = _without_wrappers(tensors, state, where)
    loaded_memory = {_memory(state[name]) for name in tensors if isinstance(state.get(name), Tensor)}
    for name, current in state.items():
        if name not in tensors:
            if isinstance(current, Tensor) and _memory(current) in loaded_memory:
                continue
            raise SourceError(
                f"{where}: expected a tensor {name!r}, which is missing; the file holds {_some(tensors)}"
                f"{_weight_norm_hint(state, tensors)}"
            )
        _expect_same_kind(f"{where}: {name}", current, tensors[name])
    if unknown := sorted(tensors.keys() - state.keys()):
        raise SourceError(
            f"{where}: {unknown[0]!r} belongs to no part of the module, which has {_some(state)}"
            f"{_weight_norm_hint(state, tensors)}"
        )
    try:
        module.load_state_dict(dict(tensors), strict=False)
    except Exception as error:  # a module may override how it reads its state
        raise SourceError(f"{where}: the module does not accept these weights ({one_line(error)})") from error
    return messages


def _without_wrappers(
    tensors: Mapping[str, Tensor], state: Mapping[str, Any], where: str
) -> tuple[Mapping[str, Tensor], Messages]:
    """The tensors under the module's names, which a wrapper around either of the two may have extended.

    A note says what was renamed.
    """
    own_names: dict[str, list[str]] = {}  # the module's names, by the names without wrappers
    for own in state:
        own_names.setdefault(_unwrapped(own), []).append(own)
    renamed: dict[str, str] = {}
    for name in (name for name in tensors if name not in state):
        match own_names.get(_unwrapped(name)):
            case [own] if own not in tensors:
                renamed[name] = own
    if not renamed or len(set(renamed.values())) < len(renamed):
        return tensors, Messages()
    name, own = next(iter(renamed.items()))
    others = f", and {len(renamed) - 1} other names likewise" if len(renamed) > 1 else ""
    note = (
        f"{where}: {name!r} was loaded into {own!r}{others}: DataParallel adds 'module.' to the names of a "
        "network, and torch.compile '_orig_mod.'"
    )
    return {renamed.get(name, name): tensor for name, tensor in tensors.items()}, Messages(notes=(note,))


def _weight_norm_hint(state: Mapping[str, Any], tensors: Mapping[str, Any]) -> str:
    """What to do if only one of the module and the file has the two parts of a normalized weight."""
    in_module, in_file = (
        any(name.endswith(WEIGHT_NORM_PARTS) for name in names) for names in (state, tensors)
    )
    if not state.keys() & tensors.keys():  # another network
        return ""
    if in_module and not in_file:
        return ": the file was saved without weight_norm, so build the module without it"
    if in_file and not in_module:
        return ": the file was saved with weight_norm, so apply it in the factory"
    return ""


def _some(names: Iterable[str]) -> str:
    """The first of some names."""
    known = list(names)
    more = f" and {len(known) - MAX_SHOWN_NAMES} more" if len(known) > MAX_SHOWN_NAMES else ""
    return f"{', '.join(known[:MAX_SHOWN_NAMES])}{more}" if known else "no tensors"


def _unwrapped(name: str) -> str:
    """The name of a tensor without the parts that DataParallel and torch.compile add."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _expect_same_kind(where: str, current: Any, tensor: Tensor) -> None:
    if not isinstance(current, Tensor) or torch.nn.parameter.is_lazy(current):
        raise SourceError(
            f"{where}: expected a tensor whose shape is known, and the module has none until its first call: "
            "give lazy layers their sizes in the factory"
        )
    if current.shape != tensor.shape or current.dtype != tensor.dtype:
        raise SourceError(
            f"{where}: expected {list(current.shape)} {current.dtype}, "
            f"got {list(tensor.shape)} {tensor.dtype}"
        )


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    """Equal for two names of one tensor, and different for different tensors."""
    if torch.nn.parameter.is_lazy(tensor) or tensor.numel() == 0:
        return (id(tensor),)
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise SourceError(
            f"{path}: expected a .safetensors file, got a damaged file or one of another format"
        ) from error


def _read_pickle(path: Path) -> Any:
    _expect_tensor_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RefusedError(
            f"{path}: expected a dict of tensors, got a pickle that would create other objects, which could "
            f"run code: {REMEDY}"
        ) from error
    except Exception as error:  # a damaged file makes torch and zipfile raise almost anything
        raise SourceError(
            f"{path}: expected a file of torch.save, cannot read it ({one_line(error)})"
        ) from error


def _expect_tensor_archive(path: Path) -> None:
    """Reject archives that contain code or compressed members: torch.save compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise SourceError(
            f"{path}: expected a file of torch.save, cannot read it ({one_line(error)})"
        ) from error
    if any("/code/" in member.filename for member in members):
        raise RefusedError(f"{path}: expected a dict of tensors, got a TorchScript module: {REMEDY}")
    # a small compressed file may decompress to more than the memory
    compressed = [member.filename for member in members if member.compress_type != zipfile.ZIP_STORED]
    if compressed:
        raise RefusedError(
            f"{path}: expected an archive as torch.save writes it, and {compressed[0]} is compressed"
        )


def _find_tensors(content: Any, path: Path) -> Weights:
    """The dict of tensors that a file holds, at the top or under one of the usual keys."""
    if _are_named_tensors(content):
        return Weights(dict(content), Messages())
    for key in STATE_DICT_KEYS if isinstance(content, dict) else ():
        if _are_named_tensors(content.get(key)):
            others = ", ".join(map(repr, [name for name in content if name != key][:MAX_SHOWN_NAMES]))
            note = f"{path}: the weights were read from {key!r}{f', and {others} left out' if others else ''}"
            return Weights(dict(content[key]), Messages(notes=(note,)))
    kind = (
        f"a dict of {', '.join(map(repr, list(content)[:5]))}"
        if isinstance(content, dict)
        else type(content).__name__
    )
    raise SourceError(
        f"{path}: expected a dict of tensors, or one under {', '.join(STATE_DICT_KEYS)}, got {kind}"
    )


def _are_named_tensors(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items())
    )

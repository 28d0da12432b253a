"""Loads weights from .safetensors or .pt files into a module, without unpickling anything but tensors.

Every tensor of the file must belong to the module, and every tensor of the module must be in the file.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from export.errors import RefusedError, SourceError

PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
# keys under which training scripts store the state_dict, beside the state of the optimizer
STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")
REMEDY = "save the tensors alone: torch.save(model.state_dict(), ...), or safetensors.torch.save_file"


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a .pt file that holds tensors and nothing else."""
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in PICKLE_SUFFIXES:
        return _find_tensors(_read_pickle(path), path)
    raise SourceError(
        f"{path}: expected weights in .safetensors, or {', '.join(PICKLE_SUFFIXES)}, got {path.suffix!r}"
    )


def fit_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load tensors into a module; a SourceError names the first that is missing, left over or does not fit.

    A tensor that shares its memory with another one may be missing: .safetensors files keep one of the two.
    """
    state = module.state_dict()
    loaded_memory = {_memory(state[name]) for name in tensors if isinstance(state.get(name), Tensor)}
    for name, current in state.items():
        if name not in tensors:
            if isinstance(current, Tensor) and _memory(current) in loaded_memory:
                continue
            raise SourceError(f"{where}: expected a tensor {name!r}, which is missing")
        _expect_same_kind(f"{where}: {name}", current, tensors[name])
    if unknown := sorted(tensors.keys() - state.keys()):
        raise SourceError(f"{where}: {unknown[0]!r} belongs to no part of the module")
    try:
        module.load_state_dict(dict(tensors), strict=False)
    except Exception as error:  # a module may override how it reads its state
        raise SourceError(
            f"{where}: the module does not accept these weights ({_one_line(error)})"
        ) from error


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
            f"{path}: expected a file of torch.save, cannot read it ({_one_line(error)})"
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
            f"{path}: expected a file of torch.save, cannot read it ({_one_line(error)})"
        ) from error
    if any("/code/" in member.filename for member in members):
        raise RefusedError(f"{path}: expected a dict of tensors, got a TorchScript module: {REMEDY}")
    # a small compressed file may decompress to more than the memory
    compressed = [member.filename for member in members if member.compress_type != zipfile.ZIP_STORED]
    if compressed:
        raise RefusedError(
            f"{path}: expected an archive as torch.save writes it, and {compressed[0]} is compressed"
        )


def _find_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    """The dict of tensors that a file holds, at the top or under one of the usual keys."""
    nested = (content.get(key) for key in STATE_DICT_KEYS if isinstance(content, dict))
    for candidate in (content, *nested):
        if isinstance(candidate, dict) and candidate and all(map(_is_named_tensor, candidate.items())):
            return dict(candidate)
    kind = (
        f"a dict of {', '.join(map(repr, list(content)[:5]))}"
        if isinstance(content, dict)
        else type(content).__name__
    )
    raise SourceError(
        f"{path}: expected a dict of tensors, or one under {', '.join(STATE_DICT_KEYS)}, got {kind}"
    )


def _is_named_tensor(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

"""Weights from a file into a module: a place for every tensor, a tensor for every place, and no pickle."""

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
# where training scripts put the state_dict beside the optimizer's
STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model")
REMEDY = "save the tensors alone: torch.save(model.state_dict(), ...), or safetensors.torch.save_file"


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of an old .pt that holds tensors and nothing else."""
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in PICKLE_SUFFIXES:
        return _find_tensors(_read_pickled(path), path)
    raise SourceError(
        f"{path}: expected weights in .safetensors, or {', '.join(PICKLE_SUFFIXES)}, got {path.suffix!r}"
    )


def fit_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put the tensors into the module; a SourceError names the first that is missing, left over or a misfit.

    A tensor that shares its memory with another may be missing: .safetensors files keep one of the two.
    """
    own = module.state_dict()
    there = {_memory(own[name]) for name in tensors if isinstance(own.get(name), Tensor)}
    for name, mine in own.items():
        if name not in tensors:
            if isinstance(mine, Tensor) and _memory(mine) in there:
                continue
            raise SourceError(f"{where}: expected a tensor {name!r}, which is missing")
        _expect_same_kind(f"{where}: {name}", mine, tensors[name])
    if strange := sorted(tensors.keys() - own.keys()):
        raise SourceError(f"{where}: {strange[0]!r} belongs to no part of the module")
    try:
        module.load_state_dict(dict(tensors), strict=False)
    except Exception as error:  # a module may read its state as it likes
        raise SourceError(f"{where}: the module does not take these weights ({_one_line(error)})") from error


def _expect_same_kind(where: str, mine: Any, given: Tensor) -> None:
    if not isinstance(mine, Tensor) or torch.nn.parameter.is_lazy(mine):
        raise SourceError(
            f"{where}: expected a tensor whose shape is known, and the module has none until its first call: "
            "give lazy layers their sizes in the factory"
        )
    if mine.shape != given.shape or mine.dtype != given.dtype:
        raise SourceError(
            f"{where}: expected {list(mine.shape)} {mine.dtype}, got {list(given.shape)} {given.dtype}"
        )


def _memory(tensor: Tensor) -> tuple[Any, ...]:
    """What two names of one tensor have in common, and no two tensors."""
    if torch.nn.parameter.is_lazy(tensor) or tensor.numel() == 0:
        return (id(tensor),)
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise SourceError(
            f"{path}: expected a whole .safetensors file, and this is damaged or another kind of file"
        ) from error


def _read_pickled(path: Path) -> Any:
    _expect_tensors_alone(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RefusedError(
            f"{path}: expected a dict of tensors, and this pickle wants to make other objects, which could "
            f"run code: {REMEDY}"
        ) from error
    except Exception as error:  # a damaged file makes torch and zipfile raise almost anything
        raise SourceError(
            f"{path}: expected a file of torch.save, cannot read it ({_one_line(error)})"
        ) from error


def _expect_tensors_alone(path: Path) -> None:
    """Stop at an archive with code, or one made to unfold: torch.save compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise SourceError(
            f"{path}: expected a file of torch.save, cannot read it ({_one_line(error)})"
        ) from error
    if any("/code/" in one.filename for one in members):
        raise RefusedError(f"{path}: expected a dict of tensors, got a TorchScript module: {REMEDY}")
    if folded := [one.filename for one in members if one.compress_type != zipfile.ZIP_STORED]:
        raise RefusedError(
            f"{path}: expected an archive as torch.save writes it, and {folded[0]} is compressed"
        )


def _find_tensors(found: Any, path: Path) -> dict[str, Tensor]:
    for candidate in (found, *(found.get(key) for key in STATE_DICT_KEYS if isinstance(found, dict))):
        if isinstance(candidate, dict) and candidate and all(map(_is_named_tensor, candidate.items())):
            return dict(candidate)
    kind = (
        f"a dict of {', '.join(map(repr, list(found)[:5]))}"
        if isinstance(found, dict)
        else type(found).__name__
    )
    raise SourceError(
        f"{path}: expected a dict of tensors, or one under {', '.join(STATE_DICT_KEYS)}, got {kind}"
    )


def _is_named_tensor(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__

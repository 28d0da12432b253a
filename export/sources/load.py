"""Reads whatever the user gives to export: a checkpoint, Python file, .pt2 or .onnx file, or an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn
from torch.export import ExportedProgram

from turnpike.export.errors import (
    RefusedError,
    SourceError,
    SourceWarning,
    UsageError,
    errors_of_option,
    one_line,
    warn_user,
)
from turnpike.export.input_spec import InputSpec, batch_dimension, model_name
from turnpike.export.module_copy import copy_module
from turnpike.export.network import Network, Rows
from turnpike.export.sources.checkpoint import read_checkpoint
from turnpike.export.sources.data.features import named_features
from turnpike.export.sources.data.labels import read_labels
from turnpike.export.sources.data.rows import (
    dataset_rows,
    is_dataset_name,
    is_embedded,
    load_as_in_training,
    read_rows,
)
from turnpike.export.sources.graph.onnx_graph import read_onnx
from turnpike.export.sources.module.dict_argument import with_dict_argument
from turnpike.export.sources.module.rows_first import with_rows_first
from turnpike.export.sources.module.state_dict import PICKLE_SUFFIXES
from turnpike.export.sources.module.user_module import (
    FACTORY_SPEC,
    expect_arguments,
    expect_ready,
    read_factory,
)
from turnpike.export.sources.program.torch_program import from_program, read_program
from turnpike.export.text_input import parse_text_alphabet
from turnpike.models.data.download import cache_folder
from turnpike.models.errors import ModelsError
from turnpike.models.training.checkpoint import TrainingRecord

__all__ = ["SourceWarning", "load_source"]


def load_source(
    source: str | Path | nn.Module | ExportedProgram,
    *,
    inputs: tuple[InputSpec, ...] = (),
    weights: str | Path | None = None,
    data: str | Path | None = None,
    data_dir: str | Path | None = None,
    labels: Path | Sequence[str] | None = None,
    features: Path | Sequence[str] | None = None,
    text_alphabet: str | None = None,
    with_texts: bool = False,
    name: str | None = None,
) -> Network:
    """Read the network to export, with its inputs, labels and rows.

    Notes for the user are issued as SourceWarnings. A module that is passed as an object is not changed.

    Args:
        source: A checkpoint or folder of a training run, file.py:factory, .pt2 or .onnx file, or an object.
        inputs: The inputs of the network. For sources that know their inputs: other names for them.
        weights: File of weights for the module of file.py:factory.
        data: Rows to measure on: an .npz file, a table, a folder of images, or the name of a data set. The
            default for a checkpoint is the test rows of its own data, if they are on this machine.
        data_dir: Folder of the data sets.
        labels: Names of the classes, or a file of them.
        features: Names of the columns of a table, or a file of them.
        text_alphabet: How texts become the ids of an input: see `parse_text_alphabet`.
        with_texts: Whether to read the texts of an .npz file also without `text_alphabet`.
        name: Name of the model; by default, that of the source.
    """
    opened = _open_source(source, inputs, weights)
    if (record := opened.training) is None:
        opened = with_rows_first(opened)
        warn_of_fixed_rows(opened)
    if labels is not None:
        with errors_of_option("--labels"):
            opened = replace(opened, labels=read_labels(labels))
    if text_alphabet is not None:
        opened = replace(opened, text=parse_text_alphabet(text_alphabet, opened))
    folder = None if data_dir is None else Path(data_dir)
    rows: Rows | None = None
    labels_of_rows = opened.labels
    if data is not None:
        with errors_of_option("--data"):
            rows, labels_of_rows = read_rows(
                data,
                opened.inputs,
                opened.labels,
                folder,
                record,
                with_texts=with_texts or opened.text is not None,
            )
    elif record is not None:
        rows = _training_test_rows(record, opened, folder)
    opened = replace(opened, rows=rows)
    if features is not None:
        with errors_of_option("--features"):
            opened = replace(opened, features=named_features(features, opened))
    return replace(
        opened,
        name=model_name(name, opened.name),
        public=rows is not None and (data is None or not Path(data).exists()),
        labels=opened.labels or labels_of_rows,
    )


def _open_source(
    source: str | Path | nn.Module | ExportedProgram,
    inputs: tuple[InputSpec, ...],
    weights: str | Path | None,
) -> Network:
    """The source without rows."""
    text = str(source) if isinstance(source, str | Path) else ""
    if weights is not None and not FACTORY_SPEC.match(text):
        raise UsageError(
            "--weights: works only with path/to/file.py:factory, as other sources contain theirs"
        )
    if isinstance(source, nn.Module):
        expect_ready(source, type(source).__name__)
        module = with_dict_argument(_copy(source), inputs, type(source).__name__)
        expect_arguments(module, inputs, type(source).__name__)
        return Network(type(source).__name__, "module", inputs, module=module)
    if isinstance(source, ExportedProgram):
        return from_program(source, inputs, "program")
    if not text:
        shown = repr(source) if isinstance(source, str) else type(source).__name__
        raise UsageError(f"source: expected a path, a torch.nn.Module or an ExportedProgram, got {shown}")
    path = Path(text)
    if FACTORY_SPEC.match(text):
        opened = read_factory(text, inputs, weights)
        if opened.random_weights:
            warn_user(
                f"random weights: {opened.name} makes them at random and loads none; "
                "give the trained ones with --weights"
            )
        return opened
    if not path.exists():
        raise SourceError(f"{text}: no such file")
    if path.is_dir() or path.suffix == ".safetensors":
        return read_checkpoint(path, inputs)
    if path.suffix == ".pt2":
        return read_program(path, inputs)
    if path.suffix == ".onnx":
        return read_onnx(path, inputs)
    if path.suffix in PICKLE_SUFFIXES:
        raise RefusedError(
            f"{text}: a pickle runs code when it is opened, and does not contain the network: give the code "
            f"as file.py:factory, with --weights {path.name} if that holds a state_dict"
        )
    hint = f": add the factory, as in {path.name}:make" if path.suffix == ".py" else ""
    raise SourceError(
        f"{text}: expected a checkpoint (.safetensors), a run's folder, file.py:factory, .pt2 or .onnx{hint}"
    )


def warn_of_fixed_rows(network: Network) -> None:
    """Warn if no dimension of a module's inputs varies, so that the first is taken for the batch."""
    if network.module is None or batch_dimension(network.inputs) is not None:
        return
    first = network.inputs[0]
    if not first.dims:
        return
    rows, row = first.dims[0], first.dims[1:] or first.dims
    what = "single numbers" if row is first.dims else "rows"
    warn_user(
        f"--input {first}: no dimension varies, so the file takes exactly {rows} {what}: write "
        f"{replace(first, dims=('batch', *row))} for any number of rows"
    )


def _training_test_rows(record: TrainingRecord, network: Network, data_dir: Path | None) -> Rows | None:
    """The rows that a checkpoint was tested on; None if they would have to be downloaded."""
    name, digest = record.data.get("name"), record.data.get("digest")
    if not isinstance(name, str) or not is_dataset_name(name):
        return None
    try:
        folder = None if is_embedded(name) else data_dir or cache_folder(name)
        data = load_as_in_training(name, folder, record)
        rows, _ = dataset_rows(data, network.inputs, network.labels)
    except (ModelsError, SourceError) as error:
        if is_embedded(name) or data_dir is not None:
            warn_user(f"no rows: {error}")
        return None
    if digest != data.digest:
        warn_user(f"data: {name} has other rows here than the ones that the checkpoint was trained on")
    return rows


def _copy(module: nn.Module) -> nn.Module:
    """A copy in eval mode, on the CPU."""
    try:
        return copy_module(module).eval().cpu()
    except Exception as error:  # a module may hold a lock or an open file
        raise SourceError(f"{type(module).__name__}: cannot be copied ({one_line(error)})") from error

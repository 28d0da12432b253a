"""Reads whatever the user gives to export: a checkpoint, Python file, .pt2 or .onnx file, or an object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn
from torch.export import ExportedProgram

from turnpike.export.errors import (
    RefusedError,
    SourceError,
    UsageError,
    errors_of_option,
    one_line,
)
from turnpike.export.input_spec import InputSpec, batch_dimension, model_name, parse_inputs, parse_ranges
from turnpike.export.module_copy import copy_module
from turnpike.export.network import AnySource, Messages, Network, Rows
from turnpike.export.options import SourceOptions
from turnpike.export.sources.checkpoint import read_checkpoint
from turnpike.export.sources.data.datasets import is_dataset_name, is_embedded, load_as_in_training
from turnpike.export.sources.data.features import named_features
from turnpike.export.sources.data.labels import read_labels
from turnpike.export.sources.data.pixels import parse_pixels
from turnpike.export.sources.data.rows import dataset_rows, read_rows
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
from turnpike.export.sources.preprocess.compose import with_preprocessing, with_ranges
from turnpike.export.sources.preprocess.scale_file import with_scale
from turnpike.export.sources.program.torch_program import from_program, read_program
from turnpike.export.sources.text_form import parse_text_alphabet
from turnpike.models.data.download import data_set_folder
from turnpike.models.errors import ModelsError
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Task


def load_source(source: AnySource, options: SourceOptions, *, with_texts: bool = False) -> Network:
    """Read the network to export, with its inputs, labels and rows, and messages for the user.

    A module that is passed as an object is not changed.

    Args:
        source: A checkpoint or folder of a training run, file.py:factory, .pt2 or .onnx file, or an object.
        options: How to read it, and what comes with it.
        with_texts: Whether to read the texts of an .npz file also without `text_alphabet`.
    """
    network = _open_source(source, parse_inputs(options.inputs), options.weights)
    if network.training is None:
        network = with_rows_first(network)
        network = network.with_messages(Messages(warnings_of_fixed_rows(network)))
    network = _with_preprocessing(network, options)
    if options.labels is not None:
        with errors_of_option("--labels"):
            network = replace(network, labels=read_labels(options.labels))
    if options.text_alphabet is not None:
        network = replace(network, text=parse_text_alphabet(options.text_alphabet, network))
    if options.pixels is not None:
        network = replace(network, pixels=parse_pixels(options.pixels, network))
    network = with_rows(network, options, with_texts=with_texts)
    if options.preprocess is not None and network.features:
        network = with_ranges(network)
    if options.features is not None:
        with errors_of_option("--features"):
            network = replace(network, features=named_features(options.features, network))
    return replace(
        network,
        name=model_name(options.name, network.name),
        ranges=parse_ranges(options.input_range, network.inputs),
    )


def _with_preprocessing(network: Network, options: SourceOptions) -> Network:
    """The network with what the user wants before it in the file."""
    if options.preprocess is not None and options.scale is not None:
        raise UsageError("preprocess and scale: each of them prepares the rows; give one")
    if options.preprocess is not None:
        return with_preprocessing(network, options.preprocess)
    if options.scale is None:
        return network
    with errors_of_option("--scale"):
        return with_scale(network, options.scale)


def with_rows(network: Network, options: SourceOptions, *, with_texts: bool = False) -> Network:
    """The network with the rows that the user gives, or else those that it was tested on in its training.

    It gets the labels of the rows if it has none.
    """
    record, data = network.training, options.data
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    if data is not None:
        with errors_of_option("--data"):
            rows, labels = read_rows(
                data,
                network.inputs,
                network.labels,
                data_dir,
                record,
                features=network.features,
                unused=network.unused,
                target=network.target,
                task=network.task,
                with_texts=with_texts or network.text is not None,
            )
        is_public = not Path(data).exists()
        task: Task = network.task if rows.numbers is None else "number"
        network = replace(network, rows=rows, public=is_public, labels=network.labels or labels, task=task)
        return _with_pixels(network)
    if record is None:
        return network
    test_rows, warnings = _training_test_rows(record, network, data_dir)
    network = network.with_messages(Messages(warnings))
    return _with_pixels(replace(network, rows=test_rows, public=test_rows is not None))


def _with_pixels(network: Network) -> Network:
    """The network with the numbers of black and white that its rows have, unless they are known."""
    if network.pixels is not None or network.rows is None or network.rows.white is None:
        return network
    return replace(network, pixels=(0.0, network.rows.white))


def _open_source(source: AnySource, inputs: tuple[InputSpec, ...], weights: str | Path | None) -> Network:
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
        return read_factory(text, inputs, weights)
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


def warnings_of_fixed_rows(network: Network) -> tuple[str, ...]:
    """A warning if no dimension of a module's inputs varies, so that the first is taken for the batch."""
    if network.module is None or batch_dimension(network.inputs) is not None:
        return ()
    first = network.inputs[0]
    if not first.dims:
        return ()
    rows, row = first.dims[0], first.dims[1:] or first.dims
    what = "single numbers" if row is first.dims else "rows"
    return (
        f"--input {first}: no dimension varies, so the file takes exactly {rows} {what}: write "
        f"{replace(first, dims=('batch', *row))} for any number of rows",
    )


def _training_test_rows(
    record: TrainingRecord, network: Network, data_dir: Path | None
) -> tuple[Rows | None, tuple[str, ...]]:
    """The rows that a checkpoint was tested on, and warnings; None if they would have to be downloaded."""
    name, digest = record.data.get("name"), record.data.get("digest")
    if not isinstance(name, str) or not is_dataset_name(name):
        return None, ()
    try:
        folder = None if is_embedded(name) else data_dir or data_set_folder(name)
        data = load_as_in_training(name, folder, record)
        rows, _ = dataset_rows(data, network.inputs, network.labels, network.features)
    except (ModelsError, SourceError) as error:
        is_expected = is_embedded(name) or data_dir is not None
        return None, (f"no rows: {error}",) if is_expected else ()
    if digest != data.digest:
        return rows, (f"data: {name} has other rows here than the ones that the checkpoint was trained on",)
    return rows, ()


def _copy(module: nn.Module) -> nn.Module:
    """A copy in eval mode, on the CPU."""
    try:
        return copy_module(module).eval().cpu()
    except Exception as error:  # a module may hold a lock or an open file
        raise SourceError(f"{type(module).__name__}: cannot be copied ({one_line(error)})") from error

"""Reads programs of torch.export, from a .pt2 file or passed as an object."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch.export import ExportedProgram

from turnpike.export.errors import SourceError, one_line
from turnpike.export.input_spec import DTYPES, InputSpec, check_batch_dimension, with_user_names
from turnpike.export.network import Messages, Network
from turnpike.export.sources.program.pt2_archive import safe_archive
from turnpike.export.trace.trace_network import silence_exporter
from turnpike.service.artifact.limits import MAX_ROWS

# a plain dynamic dimension, such as s0; anything else is computed from others
SYMBOL = re.compile(r"[a-z]+\d+\Z")


def read_program(path: Path, inputs: tuple[InputSpec, ...] = ()) -> Network:
    """The program of a .pt2 file. Opening it runs no code of its author."""
    archive = safe_archive(path)
    try:
        with silence_exporter():
            program = torch.export.load(archive)
    except Exception as error:  # inconsistent contents make PyTorch raise almost anything
        raise SourceError(
            f"{path}: PyTorch {torch.__version__} cannot read this program ({one_line(error)})"
        ) from error
    return from_program(program, inputs, path.stem)


def from_program(program: ExportedProgram, inputs: tuple[InputSpec, ...], name: str) -> Network:
    """A program whose inputs are tensors; `inputs` may rename them and their dimensions."""
    specs = program_inputs(program)
    messages = Messages(check_batch(program, specs))
    return Network(name, "program", with_user_names(specs, inputs), program=program, messages=messages)


def program_inputs(program: ExportedProgram) -> tuple[InputSpec, ...]:
    """The program's inputs. The first dynamic dimension is called batch, the others dim1, dim2, ..."""
    spec = program.call_spec.in_spec
    positional, keywords = spec.children() if spec is not None else (None, None)
    if keywords is None or positional is None or keywords.num_leaves:
        raise SourceError("the program takes keyword arguments: export it with all arguments by position")
    if any(not child.is_leaf() for child in positional.children()):
        raise SourceError("the program takes tensors inside of lists or dictionaries: make each an argument")
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    symbols: dict[str, str] = {}
    return tuple(_input(name, values.get(str(name)), symbols) for name in program.graph_signature.user_inputs)


def _input(name: object, value: object, symbols: dict[str, str]) -> InputSpec:
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        raise SourceError(f"the program takes {name!r}, which is no tensor: export it without this argument")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise SourceError(f"{name}: expected a dtype of {', '.join(DTYPES)}, got {dtype}")
    dims: list[int | str] = []
    for axis, size in enumerate(value.shape):
        if isinstance(size, int):
            dims.append(size)
        elif SYMBOL.match(str(size)):
            dims.append(symbols.setdefault(str(size), f"dim{len(symbols)}" if symbols else "batch"))
        else:
            raise SourceError(
                f"{name}: dimension {axis} is {size}: expected a number, or an independent dimension"
            )
    return InputSpec(name, dtype, tuple(dims))


def check_batch(program: ExportedProgram, specs: tuple[InputSpec, ...]) -> tuple[str, ...]:
    """Raise a SourceError unless the program takes all numbers of rows that the service may run.

    Returns a warning if it takes one number only.
    """
    warnings = check_batch_dimension(specs, "the program")
    first = specs[0]
    if isinstance(first.dims[0], int):
        return warnings
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    limits = program.range_constraints.get(values[first.name].shape[0].node.expr)
    if limits is not None and not (limits.lower <= 2 and limits.upper >= MAX_ROWS):
        raise SourceError(
            f"{first.name}: the program takes {limits.lower} to {limits.upper} rows at a time, and the "
            f"service runs 1 to {MAX_ROWS}: export it with Dim('batch') alone"
        )
    return warnings

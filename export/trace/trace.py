"""From a network to a graph: torch.export, torch.onnx, and a few passes that leave every weight alone."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest.mock import patch

import onnx_ir as ir
import onnx_ir.passes.common as passes
import torch
from onnxscript.optimizer import fold_constants
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch._dynamo.exc import UserError
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import MappingKey, tree_flatten_with_path, tree_unflatten

from export.errors import RequestError, UntraceableError
from export.input_spec import InputSpec
from export.source import Source
from export.trace.untraceable import expect_opset, expect_stateless, explain_errors

RECURRENT_OPS = (torch.ops.aten.gru.input, torch.ops.aten.lstm.input)


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Tell torch.export the shapes that nn.GRU and nn.LSTM answer with, while the block runs.

    Left to itself it finds them by stepping through time, which fixes the number of steps.
    """
    own = {torch._C.DispatchKey.CompositeImplicitAutograd: recurrent_outputs}
    with contextlib.ExitStack() as patched:
        patched.enter_context(
            patch.dict(decomposition_table, dict.fromkeys(RECURRENT_OPS, recurrent_outputs))
        )
        for operator in RECURRENT_OPS:
            patched.callback(operator._dispatch_cache.clear)
            patched.enter_context(patch.dict(operator.py_kernels, own, clear=True))
            operator._dispatch_cache.clear()
        yield


def recurrent_outputs(
    x: Tensor,
    state: Tensor | list[Tensor],
    weights: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """What a recurrent layer answers with, but for the values: outputs, then each state."""
    states = [state] if isinstance(state, Tensor) else state
    units = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:2], units)), *(torch.empty_like(one) for one in states))


DEFAULT_OPSET = 20
# what torch.onnx can write and onnxruntime can run
OPSETS = range(18, 24)
# sizes given to dynamic dimensions while tracing: at 1 torch would take a dimension for fixed
TRACING_SIZES = (3, 17, 19, 23, 29, 31, 37, 41, 43, 47)


@dataclass(frozen=True)
class TracedGraph:
    """The graph, and the program it was made from.

    Initializers are called as the parameters, buffers and constants of the network are, and hold their
    bits. A value of the graph has the name of the program's node it came from, where it came from one.
    """

    model: ir.Model
    program: ExportedProgram


def trace(source: Source, opset: int = DEFAULT_OPSET) -> TracedGraph:
    """The graph of a network, every named dimension dynamic; a module is left as it was."""
    names = list(dict.fromkeys(dim for one in source.inputs for dim in one.dims if isinstance(dim, str)))
    with silence_exporter(), recurrent_shapes(), explain_errors(names):
        if source.program is not None:
            program = source.program
        elif source.module is not None:
            program = export_program(copy.deepcopy(source.module), source.inputs, names)
        else:
            raise UntraceableError("an .onnx file has its graph already")
        made = torch.onnx.export(program, (), dynamo=True, verbose=False, optimize=False, opset_version=opset)
        if made is None or made.exported_program is None:  # only when it is told to write a file
            raise UntraceableError("torch.onnx gave no graph")
        expect_stateless(made.exported_program)
    expect_opset(opset, made.model.opset_imports.get(""))
    clean_up(made.model)
    name_io(made.model, program, source.inputs)
    return TracedGraph(made.model, made.exported_program)


def export_program(module: nn.Module, inputs: tuple[InputSpec, ...], names: list[str]) -> ExportedProgram:
    """The program of a module in eval mode; dimensions of one name are one.

    torch.export keeps a condition for each size that it was unsure of, and most are its own. One that holds
    for some batches only is refused. Those on other dimensions are let be, as parity is proved on many sizes.
    """
    args = tuple(example_tensor(one, dict(zip(names, TRACING_SIZES, strict=False))) for one in inputs)
    with torch.no_grad():
        copy.deepcopy(module)(*args)  # what does not run at all is said by PyTorch itself, in real sizes

    def attempt(axis: Callable[[str], Any]) -> ExportedProgram:
        axes = {name: axis(name) for name in names}
        recurrent_outputs = tuple(
            {at: axes[dim] for at, dim in enumerate(one.dims) if isinstance(dim, str)} for one in inputs
        )
        return torch.export.export(module, args, dynamic_shapes=recurrent_outputs, strict=False)

    try:
        return attempt(Dim)
    except UserError as error:
        if "specialized it to be a constant" in str(error) or f"{names[0]} = " in str(error):
            raise
        return attempt(lambda name: Dim.AUTO)


def example_tensor(one: InputSpec, sizes: dict[str, int]) -> Tensor:
    """Any values will do: a graph that depends on them is refused."""
    dtype = getattr(torch, one.dtype)
    shape = one.shape(**sizes)
    return torch.rand(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def clean_up(model: ir.Model) -> None:
    """Fold what follows from literals and shapes, and nothing that comes from a weight; drop the unused."""
    weights = set(model.graph.initializers)

    def should_fold(node: ir.Node) -> bool | None:
        return False if any(value is not None and value.name in weights for value in node.inputs) else None

    passes.InlinePass()(model)
    fold_constants(model, onnx_shape_inference=True, should_fold=should_fold)
    passes.RemoveUnusedNodesPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveUnusedOpsetsPass()(model)
    strip_metadata(model)


def strip_metadata(model: ir.Model) -> None:
    """Remove what the exporter noted about the machine: stack traces, source lines, folders."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
                value.doc_string = None
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()
            value.doc_string = None
        graph.metadata_props.clear()
        graph.doc_string = None
    model.metadata_props.clear()
    model.doc_string = None


@contextlib.contextmanager
def silence_exporter() -> Iterator[None]:
    """Without the exporter's talk of its own affairs, which no user can act upon."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def name_io(model: ir.Model, program: ExportedProgram, inputs: tuple[InputSpec, ...]) -> None:
    """Call inputs and their dimensions as the user does, and outputs by what they are.

    A dictionary's outputs have its keys; a lone one is `output`, several are `output0`, `output1`, ...
    """
    passes.OutputFixPass()(model)  # where an output is an input, or another output too
    symbols: dict[str, str] = {}
    for value, one in zip(model.graph.inputs, inputs, strict=True):
        claim_name(model, value, one.name)
        sizes = value.shape or ()  # none where the input is a single number
        symbols |= {str(size): str(dim) for size, dim in zip(sizes, one.dims, strict=True)}
    for value, name in zip(model.graph.outputs, output_names(program), strict=True):
        claim_name(model, value, name)
    nodes = [output for node in model.graph.all_nodes() for output in node.outputs]
    for value in (*model.graph.inputs, *nodes):
        if value.shape is not None:
            value.shape = ir.Shape(
                [
                    size if isinstance(size, int) else rename_symbols(size.value, symbols)
                    for size in value.shape
                ]
            )


def claim_name(model: ir.Model, value: ir.Value, name: str) -> None:
    """Give a value its name; another one that had it takes a number more, but for a weight's, which stays."""
    if name in model.graph.initializers:
        raise RequestError(f"--input: {name!r} is the name of a weight: call the input otherwise")
    others = [other for node in model.graph.all_nodes() for other in node.outputs if other is not value]
    taken = {other.name for other in (*others, *model.graph.inputs)}
    for other in others:
        if other.name == name:
            other.name = next(free for at in count(1) if (free := f"{name}_{at}") not in taken)
    value.name = name


def rename_symbols(size: str | None, symbols: dict[str, str]) -> str | None:
    """A size that torch worked out, as `2*s77`, in the user's names of dimensions."""
    return size and re.sub(r"\w+", lambda word: symbols.get(word[0], word[0]), size)


def output_names(program: ExportedProgram) -> list[str]:
    """A name for each tensor that the program answers with."""
    answers = tree_unflatten(list(program.graph_signature.user_outputs), program.call_spec.out_spec)
    leaves = tree_flatten_with_path(answers)[0]
    tensors = [path for path, node in leaves if isinstance(node, str)]
    keys = ["_".join(str(key.key) for key in path if isinstance(key, MappingKey)) for path in tensors]
    plain = ["output"] if len(tensors) == 1 else [f"output{at}" for at in range(len(tensors))]
    names = [key if key and keys.count(key) == 1 else other for key, other in zip(keys, plain, strict=True)]
    weights = program.state_dict.keys() | program.constants.keys()
    return [f"{name}_out" if name in weights else name for name in names]

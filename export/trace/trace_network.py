"""Traces a network into an ONNX graph with torch.export and torch.onnx, and cleans the graph up.

The clean-up neither folds, merges nor renames weights: parity is proved by finding every parameter in the
graph, bit for bit, under its name. Named dimensions stay dynamic, and inputs and outputs have the names that
callers will use.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, dropwhile
from typing import Any
from unittest.mock import patch

import onnx_ir as ir
import onnx_ir.passes.common as passes
import torch
from onnxscript.optimizer import fold_constants
from torch import Tensor, nn
from torch._decomp import decomposition_table
from torch._dynamo.exc import UserError
from torch._higher_order_ops import utils as higher_order
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import GetAttrKey, MappingKey, SequenceKey, tree_flatten_with_path, tree_unflatten

from turnpike.export.defaults import DEFAULT_OPSET
from turnpike.export.errors import UntraceableError, UsageError
from turnpike.export.input_spec import NAME_PATTERN, InputSpec
from turnpike.export.module_copy import copy_module
from turnpike.export.network import Network
from turnpike.export.trace.bfloat16 import computes_in_bfloat16, without_bfloat16
from turnpike.export.trace.exact_operators import (
    TRANSLATIONS,
    UNFOLDED,
    correct_masked_attention,
    with_equal_dtypes,
)
from turnpike.export.trace.first_call import call_once
from turnpike.export.trace.less_work import less_work
from turnpike.export.trace.untraceable import (
    all_nodes,
    expect_exact_operators,
    expect_no_loop_operators,
    expect_opset,
    expect_stateless,
    explain_conversion,
    explain_errors,
    source_location,
)

# sizes of dynamic dimensions while tracing; torch takes a dimension of size 1 for fixed
TRACING_SIZES = (3, 17, 19, 23, 29, 31, 37, 41, 43, 47)
# operators that are kept whole while tracing, as ONNX has an operator for each
ATEN_RECURRENT_OPS = (torch.ops.aten.gru.input, torch.ops.aten.lstm.input)


@dataclass(frozen=True)
class TracedGraph:
    """A graph and the program that it was made from.

    Initializers have the names and the bits of the network's parameters, buffers and constants. Values of the
    graph have the name of the program node that they came from, if there is one.

    Attributes:
        model: The graph.
        program: The program.
        places: The line of the user's code that computes a value, by the name of the value.
        warnings: Sentences for the user.
    """

    model: ir.Model
    program: ExportedProgram
    places: dict[str, str]
    warnings: tuple[str, ...] = ()


def trace(network: Network, opset: int = DEFAULT_OPSET) -> TracedGraph:
    """Trace a module or a program, with every named dimension dynamic. The module is not changed."""
    dims = list(dict.fromkeys(dim for spec in network.inputs for dim in spec.dims if isinstance(dim, str)))
    with silence_exporter(), less_work(), recurrent_shapes(), explain_errors(dims):
        if network.program is not None:
            program = network.program
        elif network.module is not None:
            program = export_program(copy_module(network.module), network.inputs, dims)
        else:
            raise UntraceableError("an .onnx file is a graph already and cannot be traced")
        expect_no_loop_operators(program)
        expect_exact_operators(program)
        bfloat16_place = computes_in_bfloat16(program)
        program = with_equal_dtypes(without_bfloat16(program))
        with explain_conversion(program):
            onnx_program = torch.onnx.export(
                program,
                (),
                dynamo=True,
                verbose=False,
                optimize=False,
                opset_version=opset,
                custom_translation_table=TRANSLATIONS,
            )
        # torch.onnx returns None only if it writes a file
        if onnx_program is None or onnx_program.exported_program is None:
            raise UntraceableError("torch.onnx returned no graph")
        expect_stateless(onnx_program.exported_program)
    expect_opset(opset, onnx_program.model.opset_imports.get(""))
    correct_masked_attention(onnx_program.model, onnx_program.exported_program)
    clean_up(onnx_program.model)
    lines = {node.name: source_location(node) for node in all_nodes(onnx_program.exported_program)}
    located = locate(onnx_program.model, lines)
    name_io(onnx_program.model, program, network.inputs)
    places = {str(value.name): line.removesuffix(": ") for value, line in located.items()}
    warnings: tuple[str, ...] = ()
    if bfloat16_place is not None:
        warnings = (f"{bfloat16_place}the network computes in bfloat16, and the file in float32",)
    return TracedGraph(onnx_program.model, onnx_program.exported_program, places, warnings)


def locate(model: ir.Model, lines: Mapping[str, str]) -> dict[ir.Value, str]:
    """The line of the user's code for each value, given those of the program's nodes by name.

    The exporter writes some operators as several nodes. The inner ones have the line of their last.
    """
    located: dict[ir.Value, str] = {}
    for node in reversed(list(model.graph.all_nodes())):
        for value in node.outputs:
            users = (output for user in value.consumers() for output in user.outputs)
            line = lines.get(str(value.name)) or next(filter(None, map(located.get, users)), None)
            if line is not None:
                located[value] = line
    return located


def export_program(module: nn.Module, inputs: tuple[InputSpec, ...], dims: list[str]) -> ExportedProgram:
    """Run torch.export on a module in eval mode; dimensions with the same name have the same size.

    torch.export notes a condition for each size that it was unsure of, most of which come from its own
    operators. A condition on a dimension of the user that does not hold for all sizes stops the export.
    Conditions on other dimensions are ignored, since parity is proved on many sizes.
    """
    args = tuple(example_tensor(spec, dict(zip(dims, TRACING_SIZES, strict=False))) for spec in inputs)
    with torch.no_grad(), uncompiled_branches():
        call_once(module, args, inputs)  # if it does not run at all, PyTorch's own error names the real sizes

    def attempt(dynamic: Callable[[str], Any]) -> ExportedProgram:
        axes = {dim: dynamic(dim) for dim in dims}
        shapes: tuple[Any, ...] = tuple(
            {number: axes[dim] for number, dim in enumerate(spec.dims) if isinstance(dim, str)}
            for spec in inputs
        )
        parameters = inspect.signature(module.forward).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            named = sum(parameter.kind in kinds for parameter in parameters)
            shapes = (*shapes[:named], shapes[named:])  # those of *args are a tuple of their own
        return torch.export.export(module, args, dynamic_shapes=shapes, strict=False)

    try:
        return attempt(Dim)
    except UserError as error:
        if "specialized it to be a constant" in str(error) or f"{dims[0]} = " in str(error):
            raise
        return attempt(lambda dim: Dim.AUTO)


def example_tensor(spec: InputSpec, sizes: dict[str, int]) -> Tensor:
    """A tensor for an input; its values do not matter, as a graph that depends on them is rejected."""
    dtype = getattr(torch, spec.dtype)
    shape = spec.shape(**sizes)
    return torch.rand(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def uncompiled_branches() -> contextlib.AbstractContextManager[object]:
    """Make `torch.cond` call its branches; it would compile them, again for each batch."""
    return patch.object(higher_order, "_hop_compile_and_call", lambda function, args: function(*args))


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Keep nn.GRU and nn.LSTM whole while the block runs, for sequences of any length.

    torch.export would find the shapes of their outputs by stepping through time, which fixes the number of
    steps. Here it gets a function that computes these shapes.
    """
    kernel = {torch._C.DispatchKey.CompositeImplicitAutograd: recurrent_outputs}
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            patch.dict(decomposition_table, dict.fromkeys(ATEN_RECURRENT_OPS, recurrent_outputs))
        )
        for operator in ATEN_RECURRENT_OPS:
            stack.callback(operator._dispatch_cache.clear)
            stack.enter_context(patch.dict(operator.py_kernels, kernel, clear=True))
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
    """Uninitialized tensors in the shapes that aten.gru and aten.lstm return: outputs, then each state."""
    states = [state] if isinstance(state, Tensor) else state
    units = states[0].shape[-1] * (2 if bidirectional else 1)
    return (x.new_empty((*x.shape[:2], units)), *(torch.empty_like(tensor) for tensor in states))


def clean_up(model: ir.Model) -> None:
    """Fold what is computed from literals and shapes, never from a weight, and remove unused nodes."""
    weights = set(model.graph.initializers)

    def should_fold(node: ir.Node) -> bool | None:
        of_weight = any(value is not None and value.name in weights for value in node.inputs)
        return False if of_weight or (node.name or "").startswith(UNFOLDED) else None

    passes.InlinePass()(model)
    fold_constants(model, onnx_shape_inference=True, should_fold=should_fold)
    passes.RemoveUnusedNodesPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveUnusedOpsetsPass()(model)
    strip_metadata(model)


def strip_metadata(model: ir.Model) -> None:
    """Remove what the exporter recorded about the machine: stack traces, source lines, folders."""
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
    """Suppress the exporter's log lines, warnings and stderr output, none of which a user can act upon."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def name_io(model: ir.Model, program: ExportedProgram, inputs: tuple[InputSpec, ...]) -> None:
    """Name inputs and dimensions as the user does, and outputs by the structure that the network returns."""
    passes.OutputFixPass()(model)  # where an output is an input, or is another output too
    symbols: dict[str, str] = {}  # torch's name of a dimension -> the user's
    for value, spec in zip(model.graph.inputs, inputs, strict=True):
        claim_name(model, value, spec.name)
        sizes = value.shape or ()  # a scalar input has no shape
        symbols |= {str(size): str(dim) for size, dim in zip(sizes, spec.dims, strict=True)}
    names = output_names(program, [spec.name for spec in inputs])
    for value, name in zip(model.graph.outputs, names, strict=True):
        claim_name(model, value, name)
    computed = [output for node in model.graph.all_nodes() for output in node.outputs]
    for value in (*model.graph.inputs, *computed):
        if value.shape is not None:
            value.shape = ir.Shape(
                [
                    size if isinstance(size, int) else rename_symbols(size.value, symbols)
                    for size in value.shape
                ]
            )


def claim_name(model: ir.Model, value: ir.Value, name: str) -> None:
    """Rename a value; another value with this name gets a number appended. Weights keep their names."""
    if name in model.graph.initializers:
        raise UsageError(f"--input: {name!r} is the name of a weight: choose another name for the input")
    others = [other for node in model.graph.all_nodes() for other in node.outputs if other is not value]
    names_in_use = {other.name for other in (*others, *model.graph.inputs)}
    for other in others:
        if other.name == name:
            other.name = next(free for number in count(1) if (free := f"{name}_{number}") not in names_in_use)
    value.name = name


def rename_symbols(size: str | None, symbols: dict[str, str]) -> str | None:
    """A size that torch computed, such as `2*s77`, in the user's names of dimensions."""
    return size and re.sub(r"\w+", lambda word: symbols.get(word[0], word[0]), size)


def output_names(program: ExportedProgram, input_names: Collection[str]) -> list[str]:
    """A name for each tensor that the program returns, that no input and no weight has.

    The tensors of dictionaries and named tuples are named by their keys and fields, nested ones as in
    `state.hidden`. Several in a list have its name and their number, as in `states.0`. Of tensors without any
    name, a single one is `output`, and several are `output0`, `output1` and so on.
    """
    outputs = tree_unflatten(list(program.graph_signature.user_outputs), program.call_spec.out_spec)
    paths = [path for path, node in tree_flatten_with_path(outputs)[0] if isinstance(node, str)]
    # from short to long: without numbers, with those in named lists, and with the place in the outer tuple
    forms = [
        [joined(key for key in path if not is_place(key)) for path in paths],
        [joined(dropwhile(is_place, path)) for path in paths],
        [joined(path) for path in paths],
    ]
    names: list[str] = []
    taken = {*program.state_dict, *program.constants, *input_names}
    for number in range(len(paths)):
        if not forms[0][number]:
            name = f"output{number}" if len(paths) > 1 else "output"
        else:
            name = next((form[number] for form in forms if form.count(form[number]) == 1), forms[-1][number])
        name = re.sub(r"[^A-Za-z0-9_.]", "_", name)
        name = name if NAME_PATTERN.match(name) else f"output{name}"
        while name in taken:
            name = f"{name}_out"
        names.append(name)
        taken.add(name)
    return names


def joined(path: Iterable[Any]) -> str:
    """The keys, fields and numbers on the way to a tensor in the structure that a program returns."""
    return ".".join(
        str(key.key if isinstance(key, MappingKey) else key.name if isinstance(key, GetAttrKey) else key.idx)
        for key in path
    )


def is_place(key: Any) -> bool:
    """Whether a step on the way is a number in a list or tuple."""
    return isinstance(key, SequenceKey)

"""From a network to a graph: torch.export, then torch.onnx, then the few passes that keep every weight itself."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import onnx_ir as ir
import onnx_ir.passes.common as passes
import torch
from onnxscript.optimizer import fold_constants
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from export.signature import Input
from export.source import Source

DEFAULT_OPSET = 20
# sizes given to dynamic dimensions while tracing: at 1 torch would take a dimension for fixed
TRACED_SIZES = (3, 5, 7, 11, 13, 17, 19, 23)


@dataclass(frozen=True)
class Traced:
    """The graph, and the program it was made from.

    Initializers are called as the parameters, buffers and constants of the network are, and hold their
    bits. A value of the graph has the name of the program's node it came from, where it came from one.
    """

    model: ir.Model
    program: ExportedProgram


def trace(source: Source, opset: int = DEFAULT_OPSET) -> Traced:
    """The graph of a network, every named dimension dynamic."""
    with quiet():
        program = source.program or export_program(source.module, source.inputs)
        made = torch.onnx.export(program, (), dynamo=True, verbose=False, optimize=False, opset_version=opset)
    assert made is not None
    model = made.model
    tidy(model)
    return Traced(model, made.exported_program)


def export_program(module: nn.Module, inputs: tuple[Input, ...]) -> ExportedProgram:
    """The program of a module in eval mode; dimensions of one name are one."""
    names = list(dict.fromkeys(dim for one in inputs for dim in one.dims if isinstance(dim, str)))
    sizes = dict(zip(names, TRACED_SIZES, strict=False))
    axes = {name: Dim(name) for name in names}
    shapes = tuple({at: axes[dim] for at, dim in enumerate(one.dims) if isinstance(dim, str)} for one in inputs)
    args = tuple(example(one, sizes) for one in inputs)
    return torch.export.export(module, args, dynamic_shapes=shapes, strict=False)


def example(one: Input, sizes: dict[str, int]) -> Tensor:
    """Any values will do: a graph that depends on them is refused."""
    dtype = getattr(torch, one.dtype)
    shape = one.shape(**sizes)
    return torch.rand(shape).to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def tidy(model: ir.Model) -> None:
    """Fold what follows from literals and shapes, and nothing that comes from a weight; drop what is unused."""
    weights = set(model.graph.initializers)

    def should_fold(node: ir.Node) -> bool | None:
        return False if any(value is not None and value.name in weights for value in node.inputs) else None

    passes.InlinePass()(model)
    fold_constants(model, onnx_shape_inference=True, should_fold=should_fold)
    passes.RemoveUnusedNodesPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveUnusedOpsetsPass()(model)
    strip(model)


def strip(model: ir.Model) -> None:
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


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's talk of its own affairs, which no user can act upon."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)

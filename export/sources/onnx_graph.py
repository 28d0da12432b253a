"""An .onnx file from anywhere as a source: checked, of a recent opset, its inputs and dimensions named."""

from __future__ import annotations

import math
import re
from pathlib import Path

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from export.errors import RefusedError, RequestError, SourceError
from export.input_spec import DTYPES, NAME_PATTERN, InputSpec, expect_batch_dimension, with_user_names
from export.source import Source
from export.sources.onnx_checks import MAX_ELEMENTS, STANDARD_DOMAINS, read_model
from export.sources.onnx_opset import upgrade
from export.trace.trace import strip_metadata

# what torch.onnx writes; functions, the one thing that newer versions have more of, are gone by then
IR_VERSION = 10
# numbers of a bias, at most, that are worth a copy of their own
MAX_COPIED_ELEMENTS = 1 << 16
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def read_onnx(path: Path, inputs: tuple[InputSpec, ...] = ()) -> Source:
    """The graph of a file; `inputs` may call its inputs and their dimensions otherwise."""
    model, where = read_model(path), str(path)
    expect_numeric_tensors(model, where)
    model.ir_version = IR_VERSION
    drop_defaults(model.graph)
    own = graph_inputs(model.graph, where)
    expect_batch_dimension(own, where)
    model = upgrade(validate(model, where), own, where)
    called = with_user_names(own, inputs)
    model = apply_names(model, called)
    expect_value_sizes(model, where)
    return Source(path.stem, "onnx", called, graph=model)


def expect_numeric_tensors(model: ModelProto, where: str) -> None:
    """Stop with a SourceError unless inputs and outputs are tensors of numbers, one output of floats."""
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            _dtype(value, f"{where}: {kind} {value.name!r}")
    if not any(value.type.tensor_type.elem_type in FLOATS for value in model.graph.output):
        raise SourceError(f"{where}: expected an output of floating point numbers, got none")


def drop_defaults(graph: GraphProto) -> None:
    """Old files list their weights among the inputs, where a caller could change them: take them off."""
    weights = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(kept)


def graph_inputs(graph: GraphProto, where: str) -> tuple[InputSpec, ...]:
    """The inputs as the file has them; dimensions without a name get one: batch the first, then dim1, ..."""
    if not graph.input:
        raise SourceError(f"{where}: expected a graph with an input, got none")
    made: dict[str, str] = {}
    found = []
    for value in graph.input:
        said = f"{where}: input {value.name!r}"
        if not value.type.tensor_type.HasField("shape"):
            raise SourceError(f"{said}: expected a shape, of numbers and names, got none")
        dims: list[int | str] = []
        for at, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value > 0:
                dims.append(dim.dim_value)
            elif dim.HasField("dim_value") and dim.dim_value == 0:
                raise SourceError(f"{said}: expected dimensions of 1 or more, got 0")
            else:
                # what has no name is the batch where it comes first, and a size of its own elsewhere
                key = dim.dim_param or ("" if at == 0 else f"{value.name} {at}")
                dims.append(made.setdefault(key, _dimension_name(dim.dim_param, made)))
        if math.prod(size for size in dims if isinstance(size, int)) > MAX_ELEMENTS:
            raise RefusedError(f"{said}: its shape {dims} claims more than 2^31 numbers a row")
        found.append(InputSpec(_valid_name(value.name), _dtype(value, said), tuple(dims)))
    return tuple(found)


def validate(model: ModelProto, where: str) -> ModelProto:
    """The model without leftovers, or a SourceError with what ONNX's checker says of it."""
    for one in list(model.opset_import):
        if one.domain not in STANDARD_DOMAINS:
            model.opset_import.remove(one)
    try:
        onnx.checker.check_model(model, full_check=True)
        made = ir.from_proto(model)
    except Exception as error:  # the checker's own exceptions share no base with those of shape inference
        said = " ".join(str(error).split())[:300]
        raise SourceError(f"{where}: ONNX's checker says: {said}") from error
    passes.RemoveUnusedNodesPass()(made)
    passes.OutputFixPass()(made)  # where an output is an input, or another output too
    strip_metadata(made)
    untie_biases(made.graph)
    return ir.to_proto(made)


def untie_biases(graph: ir.Graph) -> None:
    """Give each gate its own bias, where PyTorch's older exporter wrote equal ones once and copied them.

    What is a gate's own can be its lever, and needs no operator.
    """
    for node in list(graph):
        source, made = (node.inputs[0], node.outputs[0]) if node.op_type == "Identity" else (None, None)
        held = None if source is None else source.const_value
        if made is None or held is None or held.size > MAX_COPIED_ELEMENTS or made.is_graph_output():
            continue
        name = f"{made.name}.own"
        own = ir.Value(name=name, const_value=ir.tensor(held.numpy().copy(), name=name))
        graph.register_initializer(own)
        made.replace_all_uses_with(own)
        graph.remove(node, safe=True)


def apply_names(model: ModelProto, inputs: tuple[InputSpec, ...]) -> ModelProto:
    """The graph with these names for its inputs and dimensions, words for its outputs, and all shapes."""
    made = ir.from_proto(model)
    name_inputs_and_outputs(made, [one.name for one in inputs])
    name_dimensions(made, inputs)
    return onnx.shape_inference.infer_shapes(ir.to_proto(made), data_prop=True)


def name_inputs_and_outputs(model: ir.Model, inputs: list[str]) -> None:
    """Call the inputs so, and the outputs by words; an inner value of such a name gets another."""
    ends = [*model.graph.inputs, *model.graph.outputs]
    wanted = [*inputs, *(_valid_name(str(value.name)) for value in model.graph.outputs)]
    if twice := [name for name in wanted if wanted.count(name) > 1]:
        raise RequestError(f"--input: expected names that no other input or output has, got {twice[0]!r}")
    inner = [value for value in _all_values(model) if value not in set(ends)]
    taken = {str(value.name) for value in inner} | set(wanted)
    for value in inner:
        if value.name in wanted:
            value.name = next(name for at in range(len(taken)) if (name := f"{value.name}_{at}") not in taken)
            taken.add(value.name)
    for value, name in zip(ends, wanted, strict=True):
        value.name = name


def name_dimensions(model: ir.Model, inputs: tuple[InputSpec, ...]) -> None:
    """Call dimensions as the inputs do; one with such a name that was not an input's is left to inference."""
    called: dict[str, str | None] = {dim: None for one in inputs for dim in one.dims if isinstance(dim, str)}
    for value, one in zip(model.graph.inputs, inputs, strict=True):
        for size, dim in zip(value.shape or (), one.dims, strict=True):
            if isinstance(size, ir.SymbolicDim) and size.value is not None:
                called[size.value] = str(dim)
        value.shape = ir.Shape(one.dims)
    for value in set(_all_values(model)) - set(model.graph.inputs):
        if value.const_value is None and value.shape is not None:
            sizes = [size if isinstance(size, int) else size.value for size in value.shape]
            value.shape = ir.Shape(
                [called.get(size, size) if isinstance(size, str) else size for size in sizes]
            )


def expect_value_sizes(model: ModelProto, where: str) -> None:
    """Stop with a RefusedError where a value would take more room than any row of data needs."""
    for value in (*model.graph.value_info, *model.graph.output):
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.dim_value > 0]
        if math.prod(sizes) > MAX_ELEMENTS:
            raise RefusedError(f"{where}: value {value.name!r} of {sizes} would hold more than 2^31 numbers")


def _all_values(model: ir.Model) -> list[ir.Value]:
    """Every value of the graph and of those inside of it."""
    found: dict[int, ir.Value] = {}
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        found[id(value)] = value
    for node in model.graph.all_nodes():
        for value in (*node.outputs, *(one for one in node.inputs if one is not None)):
            found[id(value)] = value
    return list(found.values())


def _dtype(value: ValueInfoProto, said: str) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise SourceError(f"{said}: expected a tensor of numbers, got a {str(kind).removesuffix('_type')}")
    name = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    if dtype not in DTYPES:
        raise SourceError(f"{said}: expected a dtype of {', '.join(DTYPES)}, got {dtype}")
    return dtype


def _dimension_name(param: str, made: dict[str, str]) -> str:
    """A name for a dimension that no other has."""
    name = param if NAME_PATTERN.match(param) else f"dim{len(made)}" if made else "batch"
    while name in made.values():
        name += "_"
    return name


def _valid_name(name: str) -> str:
    """The name of an input or output with only what names have here: `x:0` becomes x_0."""
    word = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    return word if NAME_PATTERN.match(word) else f"x{word}"

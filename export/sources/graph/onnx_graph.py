"""Reads an .onnx file from any tool: checks it, upgrades its opset, and names its inputs and dimensions."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, version_converter

from turnpike.export.defaults import DEFAULT_OPSET
from turnpike.export.errors import RefusedError, SourceError, UsageError, one_line
from turnpike.export.input_spec import (
    DTYPES,
    NAME_PATTERN,
    InputSpec,
    check_batch_dimension,
    with_user_names,
)
from turnpike.export.network import Array, Messages, Network
from turnpike.export.sources.graph.onnx_file import MAX_ELEMENTS, STANDARD_DOMAINS, read_model
from turnpike.export.trace.trace_network import strip_metadata
from turnpike.service.artifact.runtime import Runtime, open_model

# the IR version that torch.onnx writes; newer ones add to functions only, which are inlined here
IR_VERSION = 10
# the oldest opset that is exported as it is
MIN_OPSET = 17
# sizes to try for dynamic dimensions other than the batch: image networks need images of some size
TRIAL_SIZES = (8, 64, 224)
# elements; a larger bias is not copied for each gate that uses it
MAX_COPIED_ELEMENTS = 1 << 16
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def read_onnx(path: Path, inputs: tuple[InputSpec, ...] = ()) -> Network:
    """The graph of a file; `inputs` may rename its inputs and their dimensions."""
    where = str(path)
    model, warnings = read_model(path)
    expect_numeric_tensors(model, where)
    model.ir_version = IR_VERSION
    drop_default_inputs(model.graph)
    specs = graph_inputs(model.graph, where)
    warnings += check_batch_dimension(specs, where)
    model, warnings_of_upgrade = upgrade(validate(model, where), specs, where)
    named_specs = with_user_names(specs, inputs)
    model = apply_names(model, named_specs)
    expect_value_sizes(model, where)
    messages = Messages((*warnings, *warnings_of_upgrade))
    return Network(path.stem, "onnx", named_specs, graph=model, messages=messages)


def expect_numeric_tensors(model: ModelProto, where: str) -> None:
    """Raise a SourceError unless inputs and outputs are tensors of numbers, and an output is of floats."""
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            _dtype(value, f"{where}: {kind} {value.name!r}")
    if not any(value.type.tensor_type.elem_type in FLOATS for value in model.graph.output):
        raise SourceError(f"{where}: expected an output of floating point numbers, got none")


def drop_default_inputs(graph: GraphProto) -> None:
    """Remove weights from the inputs: old files list them there, and a caller could override them."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


def graph_inputs(graph: GraphProto, where: str) -> tuple[InputSpec, ...]:
    """The inputs of a graph; dimensions without a name are called batch (the first), dim1, dim2, ..."""
    if not graph.input:
        raise SourceError(f"{where}: expected a graph with an input, got none")
    dim_names: dict[str, str] = {}  # the file's name of a dimension, or a key for one without a name -> ours
    specs = []
    for value in graph.input:
        described = f"{where}: input {value.name!r}"
        if not value.type.tensor_type.HasField("shape"):
            raise SourceError(f"{described}: expected a shape, of numbers and names, got none")
        dims: list[int | str] = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value > 0:
                dims.append(dim.dim_value)
            elif dim.HasField("dim_value") and dim.dim_value == 0:
                raise SourceError(f"{described}: expected dimensions of 1 or more, got 0")
            else:
                # without a name, a first dimension is the batch, and any other is a size of its own
                key = dim.dim_param or ("" if axis == 0 else f"{value.name} {axis}")
                dims.append(dim_names.setdefault(key, _dimension_name(dim.dim_param, dim_names)))
        if math.prod(size for size in dims if isinstance(size, int)) > MAX_ELEMENTS:
            raise RefusedError(f"{described}: its shape {dims} claims more than 2^31 numbers a row")
        specs.append(InputSpec(_valid_name(value.name), _dtype(value, described), tuple(dims)))
    return tuple(specs)


def validate(model: ModelProto, where: str) -> ModelProto:
    """Check a model with ONNX's own checker, and return it without unused nodes and metadata."""
    for opset in list(model.opset_import):
        if opset.domain not in STANDARD_DOMAINS:
            model.opset_import.remove(opset)
    try:
        onnx.checker.check_model(model, full_check=True)
        clean = ir.from_proto(model)
    except Exception as error:  # the errors of the checker and of shape inference share no base class
        raise SourceError(f"{where}: rejected by ONNX's checker: {one_line(error)}") from error
    passes.RemoveUnusedNodesPass()(clean)
    passes.OutputFixPass()(clean)  # where an output is an input, or is another output too
    strip_metadata(clean)
    untie_biases(clean.graph)
    return ir.to_proto(clean)


def untie_biases(graph: ir.Graph) -> None:
    """Give each gate a bias of its own.

    PyTorch's older exporter writes equal biases once, and copies them with Identity nodes. A gate that shares
    its bias would need an additional operator for its lever.
    """
    for node in list(graph):
        if node.op_type != "Identity":
            continue
        source, output = node.inputs[0], node.outputs[0]
        data = None if source is None else source.const_value
        if data is None or data.size > MAX_COPIED_ELEMENTS or output.is_graph_output():
            continue
        name = f"{output.name}.own"
        bias = ir.Value(name=name, const_value=ir.tensor(data.numpy().copy(), name=name))
        graph.register_initializer(bias)
        output.replace_all_uses_with(bias)
        graph.remove(node, safe=True)


def upgrade(
    model: ModelProto, inputs: tuple[InputSpec, ...], where: str
) -> tuple[ModelProto, tuple[str, ...]]:
    """The model, converted if its opset is too old, and a warning if it was.

    A conversion must compute the same on random rows.
    """
    old = next(opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS)
    if old >= MIN_OPSET:
        return model, ()
    try:
        converted = version_converter.convert_version(model, DEFAULT_OPSET)
        onnx.checker.check_model(converted, full_check=True)
    except Exception as error:  # the converter raises whatever its C++ side raises
        raise SourceError(
            f"{where}: expected opset {MIN_OPSET} or later, got {old}, which cannot be converted "
            f"({one_line(error)}): export the model again"
        ) from error
    expect_same_results(model, converted, inputs, f"{where}: opset {old} converted to {DEFAULT_OPSET}")
    return converted, (f"{where}: opset {old} was converted to {DEFAULT_OPSET}",)


def expect_same_results(old: ModelProto, new: ModelProto, inputs: tuple[InputSpec, ...], where: str) -> None:
    """Raise a SourceError unless both models return the same for the same rows, within rounding."""
    try:
        before, after = (open_model(model.SerializeToString(), where=where) for model in (old, new))
        expected, feeds = run_on_random_rows(before, inputs)
        outputs = after.run(feeds)
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise SourceError(f"{where}: cannot be compared with the original ({one_line(error)})") from error
    for tensor, reference, output in zip(before.outputs, expected, outputs, strict=True):
        same = reference.shape == output.shape and np.allclose(
            reference, output, rtol=1e-4, atol=1e-5, equal_nan=True
        )
        if not same:
            raise SourceError(f"{where}: {tensor.name!r} computes something else: export the model again")


def run_on_random_rows(
    runtime: Runtime, inputs: tuple[InputSpec, ...]
) -> tuple[list[Array], dict[str, Array]]:
    """Run a model on random rows; returns its outputs and the rows."""
    random = np.random.default_rng(0)
    for size in TRIAL_SIZES:
        feeds = {}
        for tensor, spec in zip(runtime.inputs, inputs, strict=True):
            dims = [dim for dim in spec.dims if isinstance(dim, str)]
            shape = spec.shape(**{dim: 2 if dim == spec.dims[0] else size for dim in dims})
            values = random.standard_normal(shape) if "float" in spec.dtype else np.zeros(shape)
            feeds[tensor.name] = values.astype(spec.dtype)
        try:
            return runtime.run(feeds), feeds
        except Exception:
            if size == TRIAL_SIZES[-1]:
                raise
    raise AssertionError


def apply_names(model: ModelProto, inputs: tuple[InputSpec, ...]) -> ModelProto:
    """Rename inputs, dimensions and outputs, and infer all shapes."""
    renamed = ir.from_proto(model)
    name_inputs_and_outputs(renamed, [spec.name for spec in inputs])
    name_dimensions(renamed, inputs)
    return onnx.shape_inference.infer_shapes(ir.to_proto(renamed), data_prop=True)


def name_inputs_and_outputs(model: ir.Model, inputs: list[str]) -> None:
    """Name the inputs, and give outputs valid names; inner values with these names get a number appended."""
    io_values = [*model.graph.inputs, *model.graph.outputs]
    io_names = [*inputs, *(_valid_name(str(value.name)) for value in model.graph.outputs)]
    if repeated := [name for name in io_names if io_names.count(name) > 1]:
        raise UsageError(f"--input: expected names that no other input or output has, got {repeated[0]!r}")
    inner_values = [value for value in _all_values(model) if value not in set(io_values)]
    names_in_use = {str(value.name) for value in inner_values} | set(io_names)
    for value in inner_values:
        if value.name in io_names:
            numbered = (f"{value.name}_{number}" for number in range(len(names_in_use)))
            value.name = next(name for name in numbered if name not in names_in_use)
            names_in_use.add(value.name)
    for value, name in zip(io_values, io_names, strict=True):
        value.name = name


def name_dimensions(model: ir.Model, inputs: tuple[InputSpec, ...]) -> None:
    """Rename dimensions as in the inputs.

    A name of the user that the file has for another dimension is removed there; shape inference finds what
    that dimension is.
    """
    new_names: dict[str, str | None] = {
        dim: None for spec in inputs for dim in spec.dims if isinstance(dim, str)
    }
    for value, spec in zip(model.graph.inputs, inputs, strict=True):
        for size, dim in zip(value.shape or (), spec.dims, strict=True):
            if isinstance(size, ir.SymbolicDim) and size.value is not None:
                new_names[size.value] = str(dim)
        value.shape = ir.Shape(spec.dims)
    for value in set(_all_values(model)) - set(model.graph.inputs):
        if value.const_value is None and value.shape is not None:
            sizes = [size if isinstance(size, int) else size.value for size in value.shape]
            value.shape = ir.Shape(
                [new_names.get(size, size) if isinstance(size, str) else size for size in sizes]
            )


def expect_value_sizes(model: ModelProto, where: str) -> None:
    """Raise a RefusedError if a value would have more elements than any row of data needs."""
    for value in (*model.graph.value_info, *model.graph.output):
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.dim_value > 0]
        if math.prod(sizes) > MAX_ELEMENTS:
            raise RefusedError(f"{where}: value {value.name!r} of {sizes} would hold more than 2^31 numbers")


def _all_values(model: ir.Model) -> list[ir.Value]:
    """Every value of the graph and of the graphs in its nodes."""
    values: dict[int, ir.Value] = {}
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        values[id(value)] = value
    for node in model.graph.all_nodes():
        for value in (*node.outputs, *(source for source in node.inputs if source is not None)):
            values[id(value)] = value
    return list(values.values())


def _dtype(value: ValueInfoProto, described: str) -> str:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise SourceError(
            f"{described}: expected a tensor of numbers, got a {str(kind).removesuffix('_type')}"
        )
    name = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    if dtype not in DTYPES:
        raise SourceError(f"{described}: expected a dtype of {', '.join(DTYPES)}, got {dtype}")
    return dtype


def _dimension_name(param: str, dim_names: dict[str, str]) -> str:
    """A valid name for a dimension that no other one has."""
    name = param if NAME_PATTERN.match(param) else f"dim{len(dim_names)}" if dim_names else "batch"
    while name in dim_names.values():
        name += "_"
    return name


def _valid_name(name: str) -> str:
    """The name of an input or output with only the characters allowed here: `x:0` becomes x_0."""
    word = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    return word if NAME_PATTERN.match(word) else f"x{word}"

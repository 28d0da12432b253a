"""Reference for adopted .onnx graphs: onnx's reference evaluator, or onnxruntime if that cannot run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx.reference import ReferenceEvaluator

from export.errors import SourceError
from export.gates.instrument import Origin
from export.parity.batches import ProofBatch
from export.parity.reference import RejectedError, TensorValues, complement, one_line, public_outputs
from export.source import Array, Source
from service.artifact.runtime import open_model

NARROW_TYPES = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16))
# attributes that set the type of a node's output
DTYPE_ATTRIBUTES = ("to", "dtype", "softmax_precision")
# relative error of onnxruntime's own rounding, a generous estimate; used if it serves as the reference
ORT_NOISE = 4e-6


class GraphEvaluator:
    """Evaluates chosen values of a graph with onnx's reference evaluator, natively and in float64."""

    def __init__(self, model: onnx.ModelProto, names: Sequence[str]) -> None:
        graph = ir.from_proto(model)
        keep_only(graph, names)
        self._native = ReferenceEvaluator(ir.to_proto(graph))
        widen_to_float64(graph)
        self._float64 = ReferenceEvaluator(ir.to_proto(graph))

    def run(self, feeds: Mapping[str, Array], *, float64: bool) -> TensorValues:
        """The values by name. Exceptions of the evaluator are not translated."""
        evaluator = self._float64 if float64 else self._native
        inputs = {
            name: array.astype(np.float64) if float64 and array.dtype.kind == "f" else array
            for name, array in feeds.items()
            if name in evaluator.input_names
        }
        with np.errstate(all="ignore"):
            results = evaluator.run(None, inputs)
        return dict(zip(evaluator.output_names, map(np.asarray, results), strict=True))


def widen_to_float64(model: ir.Model) -> None:
    """Turn every narrow weight, literal and cast of a graph into float64, in place."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in NARROW_TYPES:
                value.const_value = _widened(value.const_value)
        for node in graph:
            # without a value attribute, ConstantOfShape gives float32 zeros
            if node.op_type == "ConstantOfShape" and "value" not in node.attributes:
                node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(np.zeros(1, np.float64)))
            for name, attribute in list(node.attributes.items()):
                if name in DTYPE_ATTRIBUTES and attribute.type is ir.AttributeType.INT:
                    if attribute.as_int() in NARROW_TYPES:
                        node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.DOUBLE))
                elif (
                    attribute.type is ir.AttributeType.TENSOR and attribute.as_tensor().dtype in NARROW_TYPES
                ):
                    node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))
                elif node.op_type == "Constant" and name in ("value_float", "value_floats"):
                    literal = np.asarray(attribute.value, np.float64)
                    del node.attributes[name]
                    node.attributes["value"] = ir.AttrTensor("value", ir.Tensor(literal))
        for value in (*graph.inputs, *graph.outputs, *(out for node in graph for out in node.outputs)):
            if value.dtype in NARROW_TYPES:
                value.dtype = ir.DataType.DOUBLE


def _widened(tensor: ir.TensorProtocol) -> ir.Tensor[Any]:
    return ir.Tensor(tensor.numpy().astype(np.float64), name=tensor.name)


def keep_only(model: ir.Model, names: Sequence[str]) -> None:
    """Reduce a graph, in place, to what the named values need; they become its outputs."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in (*model.graph.initializers.values(), *model.graph.inputs)}
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in names)
    # levers (biases that a caller may override) become plain weights
    for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
        model.graph.inputs.remove(value)
    passes.RemoveUnusedNodesPass()(model)


class GraphRunner(Protocol):
    """Returns values of a graph by name, natively or in float64."""

    def __call__(self, feeds: Mapping[str, Array], *, float64: bool) -> TensorValues: ...


class OnnxReference:
    """Outputs and inner values of the graph as it was before gates were exposed.

    onnx's reference evaluator does not support every operator. If it fails on the first batch and
    onnxruntime does not, onnxruntime serves as the reference. Then only the changes made to the graph are
    proved.
    """

    def __init__(self, source: Source, model: ir.Model, origins: Mapping[str, Origin]) -> None:
        if source.graph is None:
            raise SourceError("expected the program that the graph was traced from, got none")
        self.description = "the graph as it came, by onnx's reference evaluator in float64"
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.may_drop_nan = True
        self._graph = source.graph
        self._origins = origins
        original_outputs = (value.name for value in source.graph.graph.output)
        self._original_names = dict(zip(public_outputs(model, origins), original_outputs, strict=True))
        names = [*self._original_names.values(), *(origin.value for origin in origins.values())]
        self._value_names = list(dict.fromkeys(names))
        self._run: GraphRunner | None = None

    def native(self, batch: ProofBatch) -> TensorValues:
        """The graph unchanged."""
        try:
            if self._run is None:
                self._run = self._choose_runner(batch)
            return self._by_output(self._run(batch.arrays, float64=False))
        except Exception as exc:  # the evaluator's operators raise almost anything, and so does onnxruntime
            raise RejectedError(one_line(exc)) from exc

    def float64(self, batch: ProofBatch) -> TensorValues:
        """The graph with float64 in place of every narrower floating-point type."""
        if self._run is None:
            self._run = self._choose_runner(batch)
        return self._by_output(self._run(batch.arrays, float64=True))

    def expect_stateless(self, batch: ProofBatch) -> None:
        """A graph has no state."""

    def _choose_runner(self, batch: ProofBatch) -> GraphRunner:
        """The reference evaluator, or onnxruntime if the evaluator cannot run this batch."""
        try:
            evaluator = GraphEvaluator(self._graph, self._value_names)
            evaluator.run(batch.arrays, float64=True)
        except Exception as exc:  # the evaluator's operators raise almost anything
            fallback = onnxruntime_runner(self._graph, self._value_names)
            fallback(batch.arrays, float64=False)
            self.noise = ORT_NOISE
            self.description = "the graph as it came, by onnxruntime alone"
            self.warnings = (
                f"onnx's reference evaluator cannot run the graph ({one_line(exc)}), so onnxruntime served "
                "as the reference: only the changes made to the graph are proved",
            )
            return fallback
        return evaluator.run

    def _by_output(self, values: TensorValues) -> TensorValues:
        named = {name: values[original] for name, original in self._original_names.items()}
        for name, origin in self._origins.items():
            named[name] = complement(values[origin.value], origin)
        return named


def onnxruntime_runner(graph: onnx.ModelProto, names: Sequence[str]) -> GraphRunner:
    """Evaluates the same values of the same graph with onnxruntime, always in its own precision."""
    model = ir.from_proto(graph)
    keep_only(model, names)
    runtime = open_model(ir.to_proto(model).SerializeToString())

    def run(feeds: Mapping[str, Array], *, float64: bool) -> TensorValues:
        del float64
        inputs = {tensor.name: feeds[tensor.name].astype(tensor.dtype) for tensor in runtime.inputs}
        return dict(zip(names, runtime.run(inputs, names), strict=True))

    return run

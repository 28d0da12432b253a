"""Reference for adopted .onnx graphs: onnx's reference evaluator, or onnxruntime if that cannot run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from turnpike.export.errors import SourceError, one_line
from turnpike.export.gates.instrument import Origin
from turnpike.export.gates.levers import drop_levers
from turnpike.export.network import Array, Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.reference import (
    RejectedError,
    TensorValues,
    hidden_value,
    public_outputs,
)
from turnpike.service.artifact.runtime import open_model

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
        reverse_sequences(graph)
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


def reverse_sequences(model: ir.Model) -> None:
    """Let each Scan that goes backwards go forwards over reversed sequences, in place.

    The evaluator knows no other direction.
    """
    for graph in model.graphs():
        for node in [node for node in graph if node.op_type == "Scan"]:
            states = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
            for number, backwards in enumerate(node.attributes.get_ints("scan_input_directions", ())):
                sequence = node.inputs[states + number]
                if backwards and sequence is not None:
                    nodes = _reversal(sequence)
                    graph.insert_before(node, nodes)
                    node.replace_input_with(states + number, nodes[-1].outputs[0])
            for number, backwards in enumerate(node.attributes.get_ints("scan_output_directions", ())):
                if backwards:
                    sequence = node.outputs[states + number]
                    reversed_sequence = ir.Value(name=sequence.name)
                    ir.convenience.replace_all_uses_with(
                        sequence, reversed_sequence, replace_graph_outputs=True
                    )
                    sequence.name = f"{sequence.name}.reversed"
                    graph.insert_after(node, _reversal(sequence, reversed_sequence))
            for name in ("scan_input_directions", "scan_output_directions"):
                node.attributes.pop(name, None)


def _reversal(sequence: ir.Value, output: ir.Value | None = None) -> list[ir.Node]:
    """Nodes that put the last step of a sequence first."""
    bounds = (-1, np.iinfo(np.int64).min, 0, -1)
    constants = [
        ir.node("Constant", [], {"value": ir.tensor(np.array([bound], np.int64))}) for bound in bounds
    ]
    outputs = None if output is None else [output]
    inputs = [sequence, *(constant.outputs[0] for constant in constants)]
    return [*constants, ir.node("Slice", inputs, outputs=outputs)]


def keep_only(model: ir.Model, names: Sequence[str]) -> None:
    """Reduce a graph, in place, to what the named values need; they become its outputs."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in (*model.graph.initializers.values(), *model.graph.inputs)}
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in names)
    drop_levers(model)


class GraphRunner(Protocol):
    """Returns values of a graph by name, natively or in float64."""

    def __call__(self, feeds: Mapping[str, Array], *, float64: bool) -> TensorValues: ...


class OnnxReference:
    """Outputs and inner values of the graph as it was before gates were exposed.

    Values inside its loops are computed from the graph with its gates: they have no name in the other one.
    onnx's reference evaluator does not support every operator. If it fails on the first batch and
    onnxruntime does not, onnxruntime serves as the reference. Then only the changes made to the graph are
    proved.
    """

    def __init__(self, network: Network, model: ir.Model, origins: Mapping[str, Origin]) -> None:
        if network.graph is None:
            raise SourceError("expected the program that the graph was traced from, got none")
        self.description = ""  # known after the first batch
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.may_drop_nan = True
        self._graph, self._graph_name = network.graph, network.graph_name
        self._origins = origins
        original_outputs = (value.name for value in network.graph.graph.output)
        self._original_names = dict(zip(public_outputs(model, origins), original_outputs, strict=True))
        known = [origin.value for origin in origins.values() if origin.value is not None]
        self._value_names = list(dict.fromkeys([*self._original_names.values(), *known]))
        self._run: GraphRunner | None = None
        self._inside_loops = [name for name, origin in origins.items() if origin.value is None]
        self._model = ir.to_proto(model)

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
        """Runs the graph as it came and, for values inside loops, the graph with its gates."""
        run_graph = self._runner_of(self._graph, self._value_names, self._graph_name, batch)
        if not self._inside_loops:
            return run_graph
        place = f"the graph with its gates for {', '.join(self._inside_loops)}"
        run_loops = self._runner_of(self._model, self._inside_loops, place, batch)

        def run(feeds: Mapping[str, Array], *, float64: bool) -> TensorValues:
            return run_graph(feeds, float64=float64) | run_loops(feeds, float64=float64)

        return run

    def _runner_of(
        self, graph: onnx.ModelProto, names: Sequence[str], place: str, batch: ProofBatch
    ) -> GraphRunner:
        """The reference evaluator, or onnxruntime if the evaluator cannot run this batch.

        Adds `place` to the description of the reference, and a warning if onnxruntime is used.
        """
        try:
            evaluator = GraphEvaluator(graph, names)
            evaluator.run(batch.arrays, float64=True)
        except Exception as exc:  # the evaluator's operators raise almost anything
            fallback = onnxruntime_runner(graph, names)
            fallback(batch.arrays, float64=False)
            self.noise = ORT_NOISE
            self._add_description(f"{place}, by onnxruntime alone")
            self.warnings += (
                f"onnx's reference evaluator cannot run the graph ({one_line(exc)}), so onnxruntime served "
                "as the reference: only the changes made to the graph are proved",
            )
            return fallback
        self._add_description(f"{place}, by onnx's reference evaluator in float64")
        return evaluator.run

    def _add_description(self, text: str) -> None:
        self.description = f"{self.description}; {text}" if self.description else text

    def _by_output(self, values: TensorValues) -> TensorValues:
        named = {name: values[original] for name, original in self._original_names.items()}
        for name, origin in self._origins.items():
            named[name] = values[name] if origin.value is None else hidden_value(values[origin.value], origin)
        return named


def onnxruntime_runner(graph: onnx.ModelProto, names: Sequence[str]) -> GraphRunner:
    """Evaluates the same values of the same graph with onnxruntime, always in its own precision."""
    model = ir.from_proto(graph)
    keep_only(model, names)
    model.metadata_props.clear()  # a manifest describes more outputs than are kept
    runtime = open_model(ir.to_proto(model).SerializeToString())

    def run(feeds: Mapping[str, Array], *, float64: bool) -> TensorValues:
        del float64
        inputs = {tensor.name: feeds[tensor.name].astype(tensor.dtype) for tensor in runtime.inputs}
        return dict(zip(names, runtime.run(inputs, names), strict=True))

    return run

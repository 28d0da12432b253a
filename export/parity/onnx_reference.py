"""The truth of a graph that came as it is: onnx's reference evaluator, or where that cannot, onnxruntime."""

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
# attributes that name the type of what a node gives
DTYPE_ATTRIBUTES = ("to", "dtype", "softmax_precision")


class GraphEvaluator:
    """What some values of a graph are, and nothing that they do not need."""

    def __init__(self, model: onnx.ModelProto, wanted: Sequence[str]) -> None:
        made = ir.from_proto(model)
        keep_only(made, wanted)
        self._own = ReferenceEvaluator(ir.to_proto(made))
        widen_to_float64(made)
        self._wide = ReferenceEvaluator(ir.to_proto(made))

    def run(self, feeds: Mapping[str, Array], *, wide: bool) -> dict[str, Array]:
        """The wanted values by name; what the evaluator itself raises comes out as it is."""
        evaluator = self._wide if wide else self._own
        given = {
            name: array.astype(np.float64) if wide and array.dtype.kind == "f" else array
            for name, array in feeds.items()
            if name in evaluator.input_names
        }
        with np.errstate(all="ignore"):
            results = evaluator.run(None, given)
        return dict(zip(evaluator.output_names, map(np.asarray, results), strict=True))


def widen_to_float64(model: ir.Model) -> None:
    """Make every narrow weight, literal and cast of a graph float64."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype in NARROW_TYPES:
                value.const_value = _widened(value.const_value)
        for node in graph:
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


def keep_only(model: ir.Model, wanted: Sequence[str]) -> None:
    """Leave of a graph only what these values need; they become its outputs."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    values |= {value.name: value for value in (*model.graph.initializers.values(), *model.graph.inputs)}
    model.graph.outputs.clear()
    model.graph.outputs.extend(values[name] for name in wanted)
    # biases that a caller may override are weights here
    for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
        model.graph.inputs.remove(value)
    passes.RemoveUnusedNodesPass()(model)


# onnxruntime's own rounding, generously, where it stands for the truth
ORT_NOISE = 4e-6


class GraphRunner(Protocol):
    """Values of a graph by name, in its own precision or in float64."""

    def __call__(self, feeds: Mapping[str, Array], *, wide: bool) -> TensorValues: ...


class OnnxReference:
    """The outputs and inner values of the graph before anything was done to it.

    Not every operator is known to the reference evaluator. Where it fails at the first batch and onnxruntime
    does not, the latter stands for the truth: what was done to the graph is then proved, and no more.
    """

    def __init__(self, source: Source, model: ir.Model, origins: Mapping[str, Origin]) -> None:
        if source.graph is None:
            raise SourceError("expected the program that the graph was traced from, got none")
        self.reference = "the graph as it came, by onnx's reference evaluator in float64"
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.forgets = True
        self._graph = source.graph
        self._origins = origins
        own = (value.name for value in source.graph.graph.output)
        self._public = dict(zip(public_outputs(model, origins), own, strict=True))
        wanted = [*self._public.values(), *(origin.value for origin in origins.values())]
        self._wanted = list(dict.fromkeys(wanted))
        self._run: GraphRunner | None = None

    def own(self, batch: ProofBatch) -> TensorValues:
        """The graph as it is."""
        try:
            if self._run is None:
                self._run = self._chosen(batch)
            return self._named(self._run(batch.arrays, wide=False))
        except Exception as exc:  # the evaluator's operators raise almost anything, and so does onnxruntime
            raise RejectedError(one_line(exc)) from exc

    def wide(self, batch: ProofBatch) -> TensorValues:
        """The graph with float64 in place of every narrower type."""
        if self._run is None:
            self._run = self._chosen(batch)
        return self._named(self._run(batch.arrays, wide=True))

    def expect_stateless(self, batch: ProofBatch) -> None:
        """A graph keeps nothing."""

    def _chosen(self, batch: ProofBatch) -> GraphRunner:
        """Who answers for the graph: the first that can."""
        try:
            evaluator = GraphEvaluator(self._graph, self._wanted)
            evaluator.run(batch.arrays, wide=True)
        except Exception as exc:  # the evaluator's operators raise almost anything
            stand_in = onnxruntime_runner(self._graph, self._wanted)
            stand_in(batch.arrays, wide=False)
            self.noise = ORT_NOISE
            self.reference = "the graph as it came, by onnxruntime alone"
            self.warnings = (
                f"onnx's reference evaluator cannot run the graph ({one_line(exc)}): onnxruntime served "
                "as the reference, so that only the changes made to the graph are proved",
            )
            return stand_in
        return evaluator.run

    def _named(self, values: TensorValues) -> TensorValues:
        found = {name: values[own] for name, own in self._public.items()}
        for name, origin in self._origins.items():
            found[name] = complement(values[origin.value], origin)
        return found


def onnxruntime_runner(graph: onnx.ModelProto, wanted: Sequence[str]) -> GraphRunner:
    """The same graph, asked for the same values, by onnxruntime."""
    model = ir.from_proto(graph)
    keep_only(model, wanted)
    runtime = open_model(ir.to_proto(model).SerializeToString())

    def run(feeds: Mapping[str, Array], *, wide: bool) -> TensorValues:
        del wide  # it knows its own precision only
        given = {one.name: feeds[one.name].astype(one.dtype) for one in runtime.inputs}
        return dict(zip(wanted, runtime.run(given, wanted), strict=True))

    return run

"""Reference for PyTorch networks: the original module for outputs, its traced program for inner values."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from torch import Tensor

from turnpike.export.errors import ParityError, UntraceableError, one_line
from turnpike.export.gates.instrument import Origin
from turnpike.export.network import Array, Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.network_runs import NetworkCopy, TracedValues
from turnpike.export.parity.onnx_reference import GraphEvaluator, GraphRunner, onnxruntime_runner
from turnpike.export.parity.reference import (
    RejectedError,
    TensorValues,
    equal_up_to_rounding,
    hidden_value,
    network_inputs,
    public_outputs,
)
from turnpike.export.trace.trace_network import TracedGraph


class TorchReference:
    """Takes outputs from the original network, and gates and layers from the program traced from it.

    A hidden value that is not a node of the program (inside an operator that was split into several, or
    inside a loop) is computed from the graph by onnx's reference evaluator. With `falls_back`, onnxruntime
    computes it if that evaluator cannot: then its rounding is not measured.
    """

    def __init__(
        self,
        network: Network,
        traced: TracedGraph,
        model: ir.Model,
        origins: Mapping[str, Origin],
        *,
        falls_back: bool = True,
    ) -> None:
        self.description = "the original network in float64"
        self._no_float64 = ""
        self.noise = 0.0
        self.may_drop_nan = False
        self._network = NetworkCopy(network)
        self._public_outputs = public_outputs(model, origins)
        self._origins = origins
        values = [origin.value for origin in origins.values() if origin.value is not None]
        self._traced = TracedValues(traced.program, values)
        source_names = (spec.name for spec in network.inputs)
        self._source_inputs = dict(zip(network_inputs(model), source_names, strict=True))
        unknown = [name for name, origin in origins.items() if origin.value not in self._traced.known]
        self._unknown = unknown
        self._model, self._falls_back = model, falls_back
        self._not_measured = ""
        self._run_graph: GraphRunner | None = None
        if unknown:
            self._run_graph = GraphEvaluator(ir.to_proto(model), unknown).run
            names = ", ".join(unknown)
            self.description += f"; the graph by onnx's reference evaluator in float64 for {names}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the network does not run in float64, what was not measured, and branches that were not run."""
        return (*filter(None, [self._no_float64, self._not_measured]), *self._traced.branches_not_run())

    def native(self, batch: ProofBatch) -> TensorValues:
        """Outputs of the original network, and if layers are compared, the program's inner values."""
        try:
            outputs = self._named(self._network.native(batch), batch)
        except ParityError:
            raise
        except Exception as exc:  # the user's code may raise anything
            raise RejectedError(one_line(exc)) from exc
        if not batch.compare_layers:
            return outputs
        try:
            inner = self._traced.native(self._network.tensors(batch))
        except Exception as exc:  # operators may raise anything
            raise ParityError(
                f"the traced program does not accept the batch {batch.name!r}, which the network accepts: "
                f"{one_line(exc)}"
            ) from exc
        return outputs | self._hidden(inner, batch, float64=False)

    def float64(self, batch: ProofBatch) -> TensorValues:
        """The same in float64; a ParityError if the program and the network differ."""
        original = self._original(batch)
        # the traced program also shows which branches a batch takes
        if original is not None and not batch.compare_layers and not self._traced.has_branches:
            return original
        inner, outputs = self._traced.float64(
            self._network.tensors(batch), self._network.float64_weights(), ordinary=batch.ordinary
        )
        traced = self._named([tensor.numpy() for tensor in outputs], batch)
        if original is not None:
            expect_traced_equal(original, traced, batch)
        return (original or traced) | self._hidden(inner, batch, float64=True)

    def expect_stateless(self, batch: ProofBatch) -> None:
        """Raise an UntraceableError if a run changes a parameter or a buffer."""
        if (changed := self._network.changed_by(batch)) is not None:
            raise UntraceableError(
                f"{changed}: forward changes it, so each answer would depend on earlier requests: expected "
                "parameters and buffers that do not change in eval mode; pass state in and out instead"
            )

    def _original(self, batch: ProofBatch) -> TensorValues | None:
        """Outputs of the original network in float64, or None if its code cannot run in float64."""
        if self._no_float64:
            return None
        try:
            outputs = self._network.float64(batch)
        except Exception as exc:  # the user's code may raise anything
            self.description = self.description.replace("the original network", "the traced program", 1)
            self._no_float64 = (
                f"the network does not run in float64 ({one_line(exc)}), so its traced program served as "
                "the reference"
            )
            return None
        return self._named(outputs, batch)

    def _named(self, outputs: list[Array], batch: ProofBatch) -> TensorValues:
        if len(outputs) != len(self._public_outputs):
            raise ParityError(
                f"outputs: expected the network's {len(outputs)} tensors with the batch {batch.name!r}, "
                f"the graph has {len(self._public_outputs)} ({', '.join(self._public_outputs)})"
            )
        return dict(zip(self._public_outputs, outputs, strict=True))

    def _hidden(self, inner: Mapping[str, Tensor], batch: ProofBatch, float64: bool) -> TensorValues:
        values: TensorValues = {}
        if self._run_graph is not None:
            feeds = {name: batch.arrays[source_name] for name, source_name in self._source_inputs.items()}
            try:
                values = self._run_graph(feeds, float64=float64)
            except Exception as exc:  # the evaluator's operators raise almost anything
                names = ", ".join(self._unknown)
                reason = (
                    f"onnx's reference evaluator cannot compute {names} with the batch {batch.name!r}: "
                    f"{one_line(exc)}"
                )
                if not self._falls_back or self._not_measured:
                    raise ParityError(reason) from exc
                self._not_measured = f"the rounding of {names} was not measured: {reason}"
                self.description = self.description.replace(
                    "onnx's reference evaluator in float64", "onnxruntime"
                )
                self._run_graph = onnxruntime_runner(ir.to_proto(self._model), self._unknown)
                values = self._run_graph(feeds, float64=float64)
        for name, origin in self._origins.items():
            if origin.value is not None and origin.value in inner:
                values[name] = hidden_value(inner[origin.value].numpy(), origin)
        return values


def expect_traced_equal(original: TensorValues, traced: TensorValues, batch: ProofBatch) -> None:
    """Raise a ParityError unless both are equal up to the rounding of float64."""
    for name, expected in original.items():
        if not equal_up_to_rounding(expected, traced[name]):
            raise ParityError(
                f"{name}: the traced program does not compute what the network does with the batch "
                f"{batch.name!r}: tracing recorded a random number, a Python branch or a number computed "
                "in Python as a constant"
            )

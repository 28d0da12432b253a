"""The truth of a network: its own code for the outputs, the program traced from it for what is inside."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from torch import Tensor

from export.errors import ParityError, UntraceableError
from export.gates.instrument import Origin
from export.parity.batches import Batch
from export.parity.evaluator import Evaluator
from export.parity.inner import Inner
from export.parity.network import Network
from export.parity.reference import Answers, RejectedError, alike, complemented, own_inputs, public, reason
from export.source import Array, Source
from export.trace.trace import Traced


class NetworkTruth:
    """Outputs of the original network itself, values inside of it of the program that was traced.

    A hidden value that is no node of the program, as inside an operator that became several, is worked
    out from the graph by onnx's reference evaluator.
    """

    def __init__(
        self, source: Source, traced: Traced, model: ir.Model, origins: Mapping[str, Origin]
    ) -> None:
        self.reference = "the original network in float64"
        self.warnings: tuple[str, ...] = ()
        self.noise = 0.0
        self.forgets = False
        self._network = Network(source)
        self._public = public(model, origins)
        self._origins = origins
        self._inner = Inner(traced.program, [origin.value for origin in origins.values()])
        self._feeds = dict(zip(own_inputs(model), (one.name for one in source.inputs), strict=True))
        unknown = [name for name, origin in origins.items() if origin.value not in self._inner.known]
        self._evaluator = Evaluator(ir.to_proto(model), unknown) if unknown else None
        if unknown:
            self.reference += f"; the graph by onnx's reference evaluator in float64 for {', '.join(unknown)}"

    def own(self, batch: Batch) -> Answers:
        """The original as it is, and in small batches the program's inner values."""
        try:
            outputs = self._named(self._network.own(batch), batch)
        except ParityError:
            raise
        except Exception as exc:  # whatever their code raises
            raise RejectedError(reason(exc)) from exc
        if not batch.small:
            return outputs
        try:
            inner = self._inner.own(self._network.tensors(batch))
        except Exception as exc:  # whatever an operator raises
            raise ParityError(
                f"the traced program does not take the batch {batch.name!r} that the network takes: "
                f"{reason(exc)}"
            ) from exc
        return outputs | self._hidden(inner, batch, wide=False)

    def wide(self, batch: Batch) -> Answers:
        """Both in float64; a ParityError where the program is not the network."""
        original = self._original(batch)
        if original is not None and not batch.small:
            return original
        inner, outputs = self._inner.wide(self._network.tensors(batch), self._network.wide_weights())
        traced = self._named([tensor.numpy() for tensor in outputs], batch)
        if original is not None:
            expect_same(original, traced, batch)
        return (original or traced) | self._hidden(inner, batch, wide=True)

    def expect_stateless(self, batch: Batch) -> None:
        """Stop with an UntraceableError where a run changes a parameter or a buffer."""
        if (changed := self._network.changed_by(batch)) is not None:
            raise UntraceableError(
                f"{changed}: forward changes it, so that an answer would depend on those before it: expected "
                "parameters and buffers that stay as they are in eval mode; hand state in and out instead"
            )

    def _original(self, batch: Batch) -> Answers | None:
        """The original in float64, or None where its code has no mind for such numbers."""
        if self.warnings:
            return None
        try:
            outputs = self._network.wide(batch)
        except Exception as exc:  # whatever their code raises
            self.reference = self.reference.replace("the original network", "the traced program", 1)
            self.warnings = (
                f"the network does not run in float64 ({reason(exc)}): its traced program stood for it",
            )
            return None
        return self._named(outputs, batch)

    def _named(self, outputs: list[Array], batch: Batch) -> Answers:
        if len(outputs) != len(self._public):
            raise ParityError(
                f"outputs: expected the network's {len(outputs)} tensors, the graph has {len(self._public)} "
                f"({', '.join(self._public)}), with the batch {batch.name!r}"
            )
        return dict(zip(self._public, outputs, strict=True))

    def _hidden(self, inner: Mapping[str, Tensor], batch: Batch, wide: bool) -> Answers:
        found: Answers = {}
        if self._evaluator is not None:
            feeds = {name: batch.arrays[own] for name, own in self._feeds.items()}
            found = self._evaluator.run(feeds, wide=wide)
        for name, origin in self._origins.items():
            if origin.value in inner:
                found[name] = complemented(inner[origin.value].numpy(), origin)
        return found


def expect_same(original: Answers, traced: Answers, batch: Batch) -> None:
    """Stop with a ParityError unless both are the same but for the rounding of float64."""
    for name, expected in original.items():
        if not alike(expected, traced[name]):
            raise ParityError(
                f"{name}: the traced program does not compute what the network does with the batch "
                f"{batch.name!r}: a random number, a Python branch or a number that Python worked out was "
                "baked in while tracing"
            )

"""Proves a compressed file again: against the network it was made from, with the removed units carried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from turnpike.export.compress.graph.carried_reference import carried_reference
from turnpike.export.compress.graph.removable_layers import find_removable_layers
from turnpike.export.compress.whole_network import WholeNetwork, read_whole_network, with_reference
from turnpike.export.errors import ParityError
from turnpike.export.gates.instrument import Instrumentation, Origin
from turnpike.export.graph_identity import decide_identity, expect_not_different
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.network import AnySource
from turnpike.export.options import SourceOptions
from turnpike.export.parity.prove import Proof, prove
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.steps import Steps
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import Runtime


def verify_cut(
    path: Path,
    runtime: Runtime,
    manifest: Manifest,
    against: AnySource,
    options: SourceOptions,
    *,
    seed: int,
    steps: Steps,
) -> tuple[Proof, Decision, WholeNetwork]:
    """The proof of a compressed file in fp32, the decision about it, and the network that it was made from.

    Args:
        path: The file.
        runtime: The file, open on a device.
        manifest: The file's manifest, which says what units each layer has kept.
        against: The source of the compression.
        options: How to read the source, and the rows to compare on besides random ones.
        seed: Seed of the random rows.
        steps: The steps that are shown to the user.

    Raises:
        ParityError: The file was made from another network, or computes something else.
    """
    with steps.step("load"):
        whole = read_whole_network(against, options, seed, steps)
        layers = find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers
    gates = {gate.name: gate for gate in manifest.gates}
    if unknown := sorted(gates.keys() - {gate.name for gate in whole.graph.gates.gates}):
        raise ParityError(f"{path}: gates: expected those of the source, got another, {unknown[0]}")
    kept: dict[str, Sequence[int]] = {}
    for layer in layers:
        gate = gates.get(layer.gate.name)
        units = () if gate is None else gate.kept
        kept[layer.gate.name] = range(layer.units) if units is None else units
    with steps.step("verify"):
        model = ir.from_proto(onnx.load(path))
        hidden = [str(value.name) for value in model.graph.outputs if value.name not in manifest.outputs]
        network = with_reference(
            whole.network, carried_reference(whole.graph.model, whole.graph.public_outputs, layers, kept)
        )
        instrumentation = Instrumentation(manifest.gates, {name: Origin(name) for name in hidden}, ())
        try:
            cut = PreparedGraph(None, model, instrumentation, (), (), b"")
            identity = decide_identity(network, cut, model)
            expect_not_different(identity, "the file")
            proof = prove(
                network,
                None,
                model,
                instrumentation.origins,
                runtimes=[runtime],
                seed=seed,
                progress=steps.listener.advanced,
                decided=identity.verdict is Verdict.IDENTICAL,
            )
        except ParityError as error:
            raise ParityError(
                f"{path}: this file does not compute what its source does with the removed units carried, or "
                f"was made from another source: {error}",
                error.table,
            ) from error
    return proof, identity, whole

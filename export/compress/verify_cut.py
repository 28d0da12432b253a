"""Proves a compressed file again: against the network it was made from, with the removed units carried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from turnpike.export.compress.graph.carried_reference import carried_reference
from turnpike.export.compress.graph.cut_graph import CutGraph, cut_units
from turnpike.export.compress.graph.removable_layers import RemovableLayer, find_removable_layers
from turnpike.export.compress.whole_network import WholeNetwork, read_whole_network, with_reference
from turnpike.export.errors import ParityError
from turnpike.export.gates.instrument import Instrumentation, Origin
from turnpike.export.graph_identity import decide_file
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.network import AnySource, Network
from turnpike.export.options import SourceOptions
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.steps import Steps
from turnpike.service.artifact.manifest import Gate, Manifest
from turnpike.service.artifact.runtime import Runtime

# characters of a list that an error shows
MAX_SHOWN = 80


@dataclass(frozen=True)
class VerifiedCut:
    """A compressed file that computes what its source does with the removed units carried.

    Attributes:
        whole: The network that it was made from.
        network: That network, whose graph carries the removed units.
        layers: The layers that can be cut.
        kept: The units that each of them keeps, by the name of its gate.
        graph: The graph without the other units, as cut here.
        model: The graph of the file.
        prepared: `graph`, with the hidden outputs of the file.
        identity: Whether the file is the function of `network` for every input.
        proof: The proof.
    """

    whole: WholeNetwork
    network: Network
    layers: tuple[RemovableLayer, ...]
    kept: Mapping[str, Sequence[int]]
    graph: CutGraph
    model: ir.Model
    prepared: PreparedGraph
    identity: Decision
    proof: Rounding


def verify_cut(
    path: Path,
    runtime: Runtime,
    manifest: Manifest,
    against: AnySource,
    options: SourceOptions,
    *,
    seed: int,
    steps: Steps,
) -> VerifiedCut:
    """Prove a compressed file in fp32 against the network that it was made from.

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
        layers = tuple(find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers)
    gates = {gate.name: gate for gate in manifest.gates}
    if unknown := sorted(gates.keys() - {gate.name for gate in whole.graph.gates.gates}):
        raise ParityError(f"{path}: gates: expected those of the source, got another, {unknown[0]}")
    kept = {layer.gate.name: kept_units(path, layer, gates.get(layer.gate.name)) for layer in layers}
    with steps.step("verify"):
        model = ir.from_proto(onnx.load(path))
        hidden = [str(value.name) for value in model.graph.outputs if value.name not in manifest.outputs]
        origins = {name: Origin(name) for name in hidden}
        cut = cut_units(whole.graph.model, whole.graph.gates.gates, layers, kept)
        prepared = PreparedGraph(
            None, cut.model, Instrumentation(cut.gates, origins, ()), (), (), to_bytes(cut.model)
        )
        reference = carried_reference(whole.graph.model, whole.graph.public_outputs, layers, kept)
        network = with_reference(whole.network, reference)
        try:
            identity = decide_file("the graph", network, prepared, model, runtime)
            proof = measure_rounding(
                network,
                None,
                model,
                origins,
                runtimes=[runtime],
                seed=seed,
                progress=steps.listener.advanced,
                decided=identity.verdict is Verdict.IDENTICAL,
                coupled=identity.coupled,
            )
        except ParityError as error:
            raise ParityError(
                f"{path}: this file does not compute what its source does with the removed units carried, or "
                f"was made from another source: {error}",
                error.table,
            ) from error
    return VerifiedCut(whole, network, layers, kept, cut, model, prepared, identity, proof)


def kept_units(path: Path, layer: RemovableLayer, gate: Gate | None) -> Sequence[int]:
    """The units of a layer that a manifest says are kept; none without its gate."""
    units = () if gate is None else gate.kept
    if units is None:
        return range(layer.units)
    if list(units) != sorted({*units} & {*range(layer.units)}):
        raise ParityError(
            f"{path}: manifest: {layer.gate.name}: kept: expected ascending numbers from 0 to "
            f"{layer.units - 1}, got {', '.join(map(str, units))[:MAX_SHOWN]}"
        )
    return units

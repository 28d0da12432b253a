"""The network before the cut, as a graph with named gates: an exported file, or any other source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from turnpike.export.errors import SourceError, UsageError, errors_of_option
from turnpike.export.gates.graph.shapes import infer_shapes
from turnpike.export.gates.instrument import Instrumentation, Origin
from turnpike.export.input_spec import model_name
from turnpike.export.network import AnySource, Network
from turnpike.export.options import SourceOptions
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.export.proved_graph import prove_graph
from turnpike.export.sources.data.labels import read_labels
from turnpike.export.sources.graph.onnx_file import parse_model
from turnpike.export.sources.graph.onnx_graph import drop_default_inputs, graph_inputs
from turnpike.export.sources.load import load_source, with_rows
from turnpike.export.steps import Steps
from turnpike.service.artifact.manifest import METADATA_KEY, Manifest
from turnpike.service.artifact.onnx_file.constants import expect_self_contained
from turnpike.service.artifact.onnx_file.protobuf import content_digest

# what a cut graph is proved against, for the record of the proof
REFERENCE_NAME = "the whole graph with the removed units carried"


@dataclass(frozen=True)
class WholeNetwork:
    """A network and its graph, which was proved to compute what the network does.

    Attributes:
        network: Name, inputs, labels, features and rows. Its graph is what the cut graph is proved against
            later.
        graph: The graph, with hidden outputs and levers.
        manifest: That of the file, if the source is one of `turnpike export`.
        warnings: Sentences for the user about the source, its gates and its proof.
    """

    network: Network
    graph: PreparedGraph
    manifest: Manifest | None
    warnings: tuple[str, ...]


def read_whole_network(source: AnySource, options: SourceOptions, seed: int, steps: Steps) -> WholeNetwork:
    """Read a source of `turnpike export`, and prove its graph unless its file says that it was proved."""
    if isinstance(source, str | Path) and (path := Path(source)).suffix == ".onnx" and path.is_file():
        proto = parse_model(path)
        metadata = {entry.key: entry.value for entry in proto.metadata_props}
        if (text := metadata.get(METADATA_KEY)) is not None:
            return _read_exported(path, proto, Manifest.from_json(text, str(path)), options)
    network = load_source(source, options)
    graph = prepare(network)
    warnings = (*network.messages.warnings, *graph.warnings)
    if network.graph is None:
        # the cut graph is compared with this one, so this one must be that of the network
        warnings = (*warnings, *prove_graph(graph, network, seed, steps).proof.warnings)
    return WholeNetwork(network, graph, None, warnings)


def _read_exported(
    path: Path, proto: onnx.ModelProto, manifest: Manifest, options: SourceOptions
) -> WholeNetwork:
    """A file of `turnpike export`, with the gates that its manifest describes."""
    for option, value in (("--input", options.inputs), ("--weights", options.weights)):
        if value:
            raise UsageError(
                f"{option}: expected none with {path}, because a file of turnpike export has its own inputs "
                "and weights"
            )
    data = path.read_bytes()
    expect_self_contained(data, str(path))
    if manifest.content != content_digest(data):
        raise SourceError(f"{path}: expected the graph and weights that were exported, got others")
    if manifest.compression is not None:
        raise SourceError(
            f"{path}: expected a whole network, got one that is compressed already: compress its original "
            "with a smaller --keep or a larger --max-drop"
        )
    if manifest.precision != "fp32":
        raise SourceError(
            f"{path}: expected a file in fp32, whose weights can be cut, got one in {manifest.precision}: "
            "compress the fp32 file, and lower the precision of the result"
        )
    del proto.metadata_props[:]
    model = ir.from_proto(proto)
    # shortened sums have operators without shapes, and a value without a shape cannot be cut
    infer_shapes(model)
    without_levers = onnx.ModelProto()
    without_levers.CopyFrom(proto)
    drop_default_inputs(without_levers.graph)
    network = Network(
        model_name(options.name, manifest.name),
        manifest.source,
        graph_inputs(without_levers.graph, str(path)),
        labels=manifest.labels,
        alphabet=manifest.alphabet,
        pixels=None if manifest.picture is None else (manifest.picture.black, manifest.picture.white),
        features=manifest.features,
        task=manifest.task,
        target=manifest.target,
        ranges={bounds.input: (bounds.low, bounds.high) for bounds in manifest.parity.input_ranges},
        random_weights=manifest.random_weights,
    )
    if options.labels is not None:
        with errors_of_option("--labels"):
            network = replace(network, labels=read_labels(options.labels))
    network = with_rows(network, options)
    hidden = [str(value.name) for value in model.graph.outputs if value.name not in manifest.outputs]
    gates = Instrumentation(manifest.gates, {output: Origin(output) for output in hidden}, ())
    return WholeNetwork(network, PreparedGraph(None, model, gates, (), (), to_bytes(model)), manifest, ())


def with_reference(network: Network, reference: onnx.ModelProto) -> Network:
    """The network whose graph is the reference of the cut graph."""
    return replace(network, graph=reference, graph_name=REFERENCE_NAME, module=None, program=None)

"""The proof that a graph computes what its network does: as close to the truth as PyTorch itself is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from export.errors import ParityError, UntraceableError
from export.gates.instrument import Origin
from export.parity.batches import BatchGenerator, choose_sizes
from export.parity.compare import BatchComparison
from export.parity.error_stats import TensorErrors, TensorKind
from export.parity.input_domains import input_domains
from export.parity.onnx_reference import OnnxReference
from export.parity.reference import Reference, RejectedError, network_inputs, public_outputs
from export.parity.torch_reference import TorchReference
from export.parity.verdict import ErrorTable, format_table
from export.parity.weight_origins import check_weights
from export.source import Rows, Source
from export.trace.trace import TracedGraph
from service.artifact import manifest
from service.artifact.limits import MAX_ROWS
from service.artifact.runtime import Runtime

# on the CPU the first seven keep or drop a NaN by its place among the numbers they choose from, and the
# recurrent ones clip it away before they squash
NAN_DROPPING_OPS = frozenset(
    ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "GRU", "LSTM", "RNN")
)


def nan_dropping_values(model: ir.Model) -> frozenset[str]:
    """The names of all values that a lossy operator has a part in."""
    found: set[str] = set()
    for node in model.graph:
        if any(one.op_type in NAN_DROPPING_OPS for one in (node, *_nested_nodes(node))) or any(
            value is not None and value.name in found for value in node.inputs
        ):
            found |= {str(value.name) for value in node.outputs}
    return frozenset(found)


def _nested_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the graphs that a node holds, as loops and branches do."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Proof:
    """What was compared and what came of it: the manifest's record, and what a report shows beside it.

    `histograms` count the errors of each tensor, onnxruntime's and PyTorch's, as `error_stats.Histogram`
    does. `figures` are those of every tensor and batch, of the first provider and then of the others.
    `drawn` are rows such as the network takes, for whoever has none of their own.
    """

    parity: manifest.Parity
    batch_coupled: bool
    warnings: tuple[str, ...]
    histograms: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    figures: tuple[TensorErrors, ...]
    drawn: Rows

    def table(self) -> str:
        """The errors of each tensor beside PyTorch's own, as lines of text."""
        return format_table(self.parity.tensors)


def prove(
    source: Source,
    traced: TracedGraph | None,
    model: ir.Model,
    origins: Mapping[str, Origin],
    *,
    runtimes: Sequence[Runtime],
    seed: int = 0,
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Proof:
    """Show that the open model computes what the source does, in every output and in every hidden one.

    A ParityError names the first tensor, in the order data flow, that does not; an UntraceableError a
    network that gives two answers to one question, or keeps something from one call to the next.
    """
    expect_same_inputs(source, model, runtimes)
    weights = check_weights(source, traced, model)
    truth: Reference = (
        OnnxReference(source, model, origins)
        if traced is None
        else TorchReference(source, traced, model, origins)
    )
    maker = choose_batch_generator(source, truth, model, seed, max_rows)
    tally = ErrorTable(tensor_kinds(model, origins), len(runtimes))
    trial = BatchComparison(
        truth, runtimes, [one.name for one in source.inputs], tally, nan_dropping_values(model)
    )
    batches = maker.all(source.rows)
    for done, batch in enumerate(batches):
        if progress is not None:
            progress(done, len(batches))
        trial.run(batch)
    if progress is not None:
        progress(len(batches), len(batches))
    if (broken := tally.broken(truth.noise)) is not None:
        raise ParityError(broken.says, format_table(tally.tensors(), broken.tensor))
    parity = manifest.Parity(
        reference=truth.reference,
        providers=tuple(runtime.provider for runtime in runtimes),
        seed=seed,
        batches=tuple(trial.records),
        tensors=tally.tensors(),
        identical=weights.identical,
        derived=weights.derived,
        ulp=weights.ulp,
    )
    return Proof(
        parity,
        trial.coupled,
        (*truth.warnings, *trial.warnings),
        tally.histograms(),
        tuple(figure for of_provider in tally.figures for figure in of_provider),
        maker.drawn(),
    )


def tensor_kinds(model: ir.Model, origins: Mapping[str, Origin]) -> dict[str, TensorKind]:
    """What each output of a graph is, by its name, in the order data flow."""
    order = {value.name: place for place, node in enumerate(model.graph) for value in node.outputs}
    found: dict[str, TensorKind] = dict.fromkeys(public_outputs(model, origins), "output")
    for name in origins:
        found[name] = "gate" if name.endswith("_gate") else "layer"
    return {name: found[name] for name in sorted(found, key=lambda name: order.get(name, -1))}


def expect_same_inputs(source: Source, model: ir.Model, runtimes: Sequence[Runtime]) -> None:
    """Stop with a ParityError unless the graph takes as many inputs as the network."""
    expected = [one.name for one in source.inputs]
    for names in (network_inputs(model), *([one.name for one in runtime.inputs] for runtime in runtimes)):
        if len(names) != len(expected):
            raise ParityError(
                f"inputs: expected the network's {len(expected)} ({', '.join(expected)}), the graph has "
                f"{len(names)} ({', '.join(names)})"
            )


def choose_batch_generator(
    source: Source, truth: Reference, model: ir.Model, seed: int, max_rows: int
) -> BatchGenerator:
    """A maker of batches that the network takes: other lengths and fewer ids are tried where it does not."""
    layout = choose_sizes(source)
    known = input_domains(source, model, network_inputs(model))
    choices = {name: [domain, *domain.smaller()] for name, domain in known.items()}
    refused = ""
    for tried in range(max(map(len, choices.values()))):
        of = {name: some[min(tried, len(some) - 1)] for name, some in choices.items()}
        for sizes in (layout, *layout.others()):
            maker = BatchGenerator(sizes, of, seed, max_rows)
            try:
                truth.own(maker.probe())
            except RejectedError as error:
                refused = refused or str(error)
            else:
                return maker
    inputs = ", ".join(map(str, source.inputs))
    raise UntraceableError(f"the network takes no batch of {inputs} that was tried: {refused}")

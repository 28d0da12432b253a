"""`measure_rounding`: measures on batches of rows how far a graph strays from its network, beside PyTorch.

If the graph is decided to be the network's function of every input, this is about rounding alone. If not, the
batches are all that shows that it computes what the network computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from turnpike.export.errors import ParityError, UntraceableError
from turnpike.export.gates.instrument import Origin
from turnpike.export.network import Network, Rows
from turnpike.export.parity.batches import BatchGenerator, ProofBatch, choose_sizes
from turnpike.export.parity.branches import chosen_branch
from turnpike.export.parity.compare import BatchComparison
from turnpike.export.parity.error_stats import TensorErrors, TensorKind
from turnpike.export.parity.input_domains import expect_accepted_ids, input_domains
from turnpike.export.parity.onnx_reference import OnnxReference
from turnpike.export.parity.reference import Reference, RejectedError, network_inputs, public_outputs
from turnpike.export.parity.torch_reference import TorchReference
from turnpike.export.parity.verdict import ErrorTable, Failure, format_table
from turnpike.export.trace.trace_network import TracedGraph
from turnpike.service.artifact import proof_records
from turnpike.service.artifact.limits import MAX_ROWS
from turnpike.service.artifact.runtime import Runtime

# on the CPU, onnxruntime's maxima keep or drop a NaN by its position, and its recurrent layers clip NaN away
NAN_DROPPING_OPS = frozenset(
    ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "GRU", "LSTM", "RNN")
)

# is called with the number of batches done, and of all batches
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Rounding:
    """What was measured of a graph that passed.

    Attributes:
        parity: The manifest's record.
        batch_coupled: Whether the network mixes the rows of a batch, so that it must not be micro-batched.
        warnings: What a user should know about the network and its rounding.
        histograms: For each tensor, the counts of onnxruntime's errors by magnitude and of PyTorch's, in the
            bins of `error_stats.ErrorHistogram`.
        errors: The errors of every tensor and batch, provider by provider.
        random_rows: Rows that the network accepts, for comparisons if the user gave none.
        keeps_bounds: Whether every tensor is within its bounds in every batch.
    """

    parity: proof_records.Parity
    batch_coupled: bool
    warnings: tuple[str, ...]
    histograms: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    errors: tuple[TensorErrors, ...]
    random_rows: Rows
    keeps_bounds: bool

    def table(self) -> str:
        """The errors of each tensor beside PyTorch's, as lines of text."""
        return format_table(self.parity.tensors)


def measure_rounding(
    network: Network,
    traced: TracedGraph | None,
    model: ir.Model,
    origins: Mapping[str, Origin],
    *,
    runtimes: Sequence[Runtime],
    seed: int = 0,
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
    decided: bool = False,
    source_graph: ir.Model | None = None,
    coupled: str | None = None,
) -> Rounding:
    """Compare the open model with the network on batches, in every output and every hidden output.

    Args:
        network: The network.
        traced: Its traced program; None for an adopted graph.
        model: The graph.
        origins: The value of the network behind each hidden output, by the output's name.
        runtimes: The graph, open on each device to prove.
        seed: Seed of the random rows.
        max_rows: Rows of the largest batch.
        progress: Is called before each batch and at the end.
        decided: Whether the graph is decided to be the network's function. Then only ordinary batches refuse
            it, and only if it is much worse than PyTorch and far from the reference.
        source_graph: The graph that was exported from the network here, if `model` is another one. Its tables
            say which ids the network takes.
        coupled: An output that is decided to change with the other rows of a batch.

    Returns:
        The errors, and what else the batches showed.

    Raises:
        ParityError: The first tensor, in data-flow order, that differs.
        UntraceableError: The network gives different answers to the same input, keeps state between calls,
            or accepts no batch that was tried.
        SourceError: The network does not accept its rows.
    """
    expect_same_inputs(network, model, runtimes)

    # run every batch on all sides
    reference: Reference = (
        OnnxReference(network, model, origins)
        if traced is None
        else TorchReference(network, traced, model, origins, falls_back=decided)
    )
    generator = choose_batch_generator(network, reference, source_graph or model, seed, max_rows)
    table = ErrorTable(tensor_kinds(model, origins), len(runtimes))
    comparison = BatchComparison(
        reference,
        runtimes,
        [spec.name for spec in network.inputs],
        table,
        nan_dropping_values(model),
        decided=decided,
    )
    if (branch := chosen_branch(model, traced, row_inputs(generator, model))) is not None:
        comparison.mark_coupled(f"one branch is chosen for all of them: {branch}")
    if coupled is not None:
        comparison.mark_coupled(f"a row of {coupled} changes with the rows beside it")
    batches = generator.all(network.rows)
    for done, batch in enumerate(batches):
        if progress is not None:
            progress(done, len(batches))
        comparison.run(batch)
    if progress is not None:
        progress(len(batches), len(batches))

    expect_enough_batches(batches, comparison)

    failure = table.failure(reference.noise, decided=decided)
    if failure is not None:
        raise ParityError(f"{failure.reason}{remedy(failure)}", format_table(table.tensors(), failure))
    beyond = table.first_beyond(reference.noise)
    parity = proof_records.Parity(
        reference=reference.description,
        providers=tuple(runtime.provider for runtime in runtimes),
        seed=seed,
        batches=tuple(comparison.records),
        tensors=table.tensors(),
        input_ranges=tuple(
            proof_records.InputRange(input=name, low=low, high=high)
            for name, (low, high) in network.ranges.items()
        ),
    )
    return Rounding(
        parity,
        comparison.batch_coupled,
        (
            *reference.warnings,
            *comparison.warnings,
            *warning_of_skipped(comparison.skipped),
            *warnings_of_guesses(generator),
            *([] if beyond is None else [f"rounding: {beyond.reason}{remedy(beyond)}"]),
        ),
        table.histograms(),
        tuple(errors for provider_errors in table.errors for errors in provider_errors),
        generator.random_rows(),
        beyond is None,
    )


def remedy(failure: Failure) -> str:
    """What helps if a tensor is beyond its bounds in an extreme batch alone."""
    if failure.errors is None or failure.errors.ordinary:
        return ""
    return "; if the network never gets such values, give --input-range LOW:HIGH"


def warning_of_skipped(skipped: Mapping[str, str]) -> list[str]:
    """A sentence about the batches that were not compared, given the network's reason for each."""
    if not skipped:
        return []
    names = ", ".join(map(repr, skipped))
    return [
        f"the network itself does not accept these batches, so they were not compared: {names} "
        f"(the reason for the first: {next(iter(skipped.values()))})"
    ]


def warnings_of_guesses(generator: BatchGenerator) -> list[str]:
    """A sentence for each input of which nothing shows what integers it takes."""
    return [
        f"{name}: drew integers from {domain.low} to {domain.high}, a guess: no table, row or range shows "
        f"what the network takes; give --data, or --input-range {name}=LOW:HIGH"
        for name, domain in generator.domains.items()
        if domain.guessed
    ]


def expect_same_inputs(network: Network, model: ir.Model, runtimes: Sequence[Runtime]) -> None:
    """Raise a ParityError unless the graph takes as many inputs as the network."""
    expected = [spec.name for spec in network.inputs]
    runtime_inputs = ([tensor.name for tensor in runtime.inputs] for runtime in runtimes)
    for names in (network_inputs(model), *runtime_inputs):
        if len(names) != len(expected):
            raise ParityError(
                f"inputs: expected the network's {len(expected)} ({', '.join(expected)}), the graph has "
                f"{len(names)} ({', '.join(names)})"
            )


def choose_batch_generator(
    network: Network, reference: Reference, model: ir.Model, seed: int, max_rows: int
) -> BatchGenerator:
    """A generator of batches that the network accepts.

    If the network rejects the first choice, other sizes and narrower ranges of ids are tried. A range that
    the user gave for ids is never narrowed.
    """
    first_sizes = choose_sizes(network)
    domains = input_domains(network, model, network_inputs(model))
    choices = {
        name: [domain, *(() if name in network.ranges else domain.narrower())]
        for name, domain in domains.items()
    }
    first_reason = ""
    for attempt in range(max(map(len, choices.values()))):
        attempted = {name: options[min(attempt, len(options) - 1)] for name, options in choices.items()}
        for sizes in (first_sizes, *first_sizes.alternatives()):
            generator = BatchGenerator(sizes, attempted, seed, max_rows)
            try:
                reference.native(generator.probe())
            except RejectedError as error:
                first_reason = first_reason or str(error)
            else:
                return generator
    if network.ranges:
        without = choose_batch_generator(replace(network, ranges={}), reference, model, seed, max_rows)
        expect_accepted_ids(network, without.domains, first_reason)
    inputs = ", ".join(map(str, network.inputs))
    raise UntraceableError(f"the network accepts no batch of {inputs} that was tried: {first_reason}")


def expect_enough_batches(batches: Sequence[ProofBatch], comparison: BatchComparison) -> None:
    """Raise unless the network accepts more than half of the batches of random rows, of 1 row and more."""
    compared = {record.name for record in comparison.records}
    names = [batch.name for batch in batches if batch.shared]
    rejected = [name for name in names if name not in compared]
    if 2 * len(rejected) >= len(names):
        raise UntraceableError(
            f"the network accepts too few batches of random rows to measure: expected more than half of "
            f"{len(names)}, got {len(names) - len(rejected)}; it does not accept "
            f"{', '.join(map(repr, rejected))} ({comparison.first_rejection})"
        )


def row_inputs(generator: BatchGenerator, model: ir.Model) -> set[str]:
    """The inputs of a graph that have rows; none if the network takes a single row."""
    sizes = generator.sizes
    names = zip(network_inputs(model), sizes.inputs, strict=True)
    single = generator.row_counts[-1] == 1
    return set() if single else {name for name, spec in names if sizes.row_axis(spec) is not None}


def tensor_kinds(model: ir.Model, origins: Mapping[str, Origin]) -> dict[str, TensorKind]:
    """The kind of each output of a graph, by name, in data-flow order."""
    order = {value.name: index for index, node in enumerate(model.graph) for value in node.outputs}
    kinds: dict[str, TensorKind] = dict.fromkeys(public_outputs(model, origins), "output")
    for name in origins:
        kinds[name] = "gate" if name.endswith("_gate") else "layer"
    return {name: kinds[name] for name in sorted(kinds, key=lambda name: order.get(name, -1))}


def nan_dropping_values(model: ir.Model) -> frozenset[str]:
    """The names of all values computed by, or after, an operator that may drop a NaN."""
    names: set[str] = set()
    for node in model.graph:
        drops = any(nested.op_type in NAN_DROPPING_OPS for nested in (node, *_nested_nodes(node)))
        if drops or any(value is not None and value.name in names for value in node.inputs):
            names |= {str(value.name) for value in node.outputs}
    return frozenset(names)


def _nested_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes inside a loop or branch."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()

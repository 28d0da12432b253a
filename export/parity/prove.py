"""`prove`: shows that a graph computes what its network computes, as accurately as PyTorch does."""

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

# on the CPU, onnxruntime's maxima keep or drop a NaN by its position, and its recurrent layers clip NaN away
NAN_DROPPING_OPS = frozenset(
    ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "GRU", "LSTM", "RNN")
)

# is called with the number of batches done, and of all batches
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Proof:
    """The result of a proof that succeeded.

    Attributes:
        parity: The manifest's record.
        batch_coupled: Whether the network mixes the rows of a batch, so that it must not be micro-batched.
        warnings: What a user should know about the network and the proof.
        histograms: For each tensor, the counts of onnxruntime's errors by magnitude and of PyTorch's, in the
            bins of `error_stats.ErrorHistogram`.
        errors: The errors of every tensor and batch, provider by provider.
        random_rows: Rows that the network accepts, for comparisons if the user gave none.
    """

    parity: manifest.Parity
    batch_coupled: bool
    warnings: tuple[str, ...]
    histograms: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    errors: tuple[TensorErrors, ...]
    random_rows: Rows

    def table(self) -> str:
        """The errors of each tensor beside PyTorch's, as lines of text."""
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
    """Prove that the open model computes what the source does, in every output and every hidden output.

    Args:
        source: The network.
        traced: Its traced program; None for an adopted graph.
        model: The graph, whose weights are compared with the network's.
        origins: The value of the network behind each hidden output, by the output's name.
        runtimes: The graph, open on each device to prove.
        seed: Seed of the random rows.
        max_rows: Rows of the largest batch.
        progress: Is called before each batch and at the end.

    Returns:
        The proof.

    Raises:
        ParityError: The first tensor, in data-flow order, that differs, or a weight that differs.
        UntraceableError: The network gives different answers to the same input, keeps state between calls,
            or accepts no batch that was tried.
        SourceError: The network does not accept the source's rows.
    """
    # compare the weights bit for bit
    expect_same_inputs(source, model, runtimes)
    weights = check_weights(source, traced, model)

    # run every batch on all sides
    reference: Reference = (
        OnnxReference(source, model, origins)
        if traced is None
        else TorchReference(source, traced, model, origins)
    )
    generator = choose_batch_generator(source, reference, model, seed, max_rows)
    table = ErrorTable(tensor_kinds(model, origins), len(runtimes))
    comparison = BatchComparison(
        reference, runtimes, [spec.name for spec in source.inputs], table, nan_dropping_values(model)
    )
    batches = generator.all(source.rows)
    for done, batch in enumerate(batches):
        if progress is not None:
            progress(done, len(batches))
        comparison.run(batch)
    if progress is not None:
        progress(len(batches), len(batches))

    # decide
    if (failure := table.first_failure(reference.noise)) is not None:
        raise ParityError(failure.reason, format_table(table.tensors(), failure.tensor))
    parity = manifest.Parity(
        reference=reference.description,
        providers=tuple(runtime.provider for runtime in runtimes),
        seed=seed,
        batches=tuple(comparison.records),
        tensors=table.tensors(),
        identical=weights.identical,
        derived=weights.derived,
        ulp=weights.ulp,
    )
    return Proof(
        parity,
        comparison.batch_coupled,
        (*reference.warnings, *comparison.warnings),
        table.histograms(),
        tuple(errors for provider_errors in table.errors for errors in provider_errors),
        generator.random_rows(),
    )


def expect_same_inputs(source: Source, model: ir.Model, runtimes: Sequence[Runtime]) -> None:
    """Raise a ParityError unless the graph takes as many inputs as the network."""
    expected = [spec.name for spec in source.inputs]
    runtime_inputs = ([tensor.name for tensor in runtime.inputs] for runtime in runtimes)
    for names in (network_inputs(model), *runtime_inputs):
        if len(names) != len(expected):
            raise ParityError(
                f"inputs: expected the network's {len(expected)} ({', '.join(expected)}), the graph has "
                f"{len(names)} ({', '.join(names)})"
            )


def choose_batch_generator(
    source: Source, reference: Reference, model: ir.Model, seed: int, max_rows: int
) -> BatchGenerator:
    """A generator of batches that the network accepts.

    If the network rejects the first choice, other sizes and narrower ranges of ids are tried.
    """
    first_sizes = choose_sizes(source)
    domains = input_domains(source, model, network_inputs(model))
    choices = {name: [domain, *domain.narrower()] for name, domain in domains.items()}
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
    inputs = ", ".join(map(str, source.inputs))
    raise UntraceableError(f"the network accepts no batch of {inputs} that was tried: {first_reason}")


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

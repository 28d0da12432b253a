"""Tries cuts of one network: opens each, takes the fastest form, and measures what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from turnpike.export.compress.agreement import AnswerComparison
from turnpike.export.compress.graph.cut_graph import FORMS, CutGraph, Form, Kept, cut_units
from turnpike.export.compress.graph.removable_layers import RemovableLayer
from turnpike.export.compress.speed import expect_quiet_machine, measure_speed
from turnpike.export.errors import CompressionError
from turnpike.export.network import Rows
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.service.artifact.manifest import CompressionPoint
from turnpike.service.artifact.runtime import Runtime, open_model

# times that a cut must be faster: a smaller gain may be noise, since the whole graph measured against itself
# was up to 1.04 times as fast
MIN_GAIN = 1.05


class Cutter:
    """Cuts one network.

    Attributes:
        layers: The layers to cut.
        runtime: The whole graph.
        public_outputs: The names of the network's own outputs.
    """

    def __init__(self, graph: PreparedGraph, layers: Sequence[RemovableLayer]) -> None:
        self._graph, self.layers = graph, layers
        self.runtime = open_model(graph.data)
        self.public_outputs = graph.public_outputs

    @property
    def units(self) -> int:
        """The number of units of all layers."""
        return sum(layer.units for layer in self.layers)

    @property
    def output(self) -> str:
        """Name of the output whose answers are compared."""
        return self.public_outputs[0]

    def cut(self, kept: Kept, form: Form = FORMS[0]) -> OpenCut:
        """Cut the network, and open the result."""
        cut = cut_units(self._graph.model, self._graph.gates.gates, self.layers, kept, form)
        data = to_bytes(cut.model)
        return OpenCut(cut, sum(map(len, kept.values())), self.units, data, open_model(data))


@dataclass(frozen=True)
class OpenCut:
    """A cut graph, open on the CPU.

    Attributes:
        graph: The graph.
        units: The number of units that its layers keep.
        units_whole: The number of units that they had.
        data: The bytes of the graph.
        runtime: The graph, open.
    """

    graph: CutGraph
    units: int
    units_whole: int
    data: bytes
    runtime: Runtime

    @property
    def share(self) -> float:
        """The share of the units that is kept."""
        return self.units / self.units_whole


def fastest_cut(cutter: Cutter, kept: Kept, rows: Rows) -> tuple[OpenCut, dict[int, float]]:
    """The form of the cut graph that runs fastest here, and how many times faster than the whole it is."""
    cuts = [cutter.cut(kept, form) for form in FORMS]
    whole_timing, *timings = measure_speed(
        [cutter.runtime, *(cut.runtime for cut in cuts)], cutter.public_outputs, rows
    )
    expect_quiet_machine(whole_timing)
    faster = [timing.times_faster_than(whole_timing) for timing in timings]
    fastest = max(range(len(cuts)), key=lambda index: geometric_mean(faster[index].values()))
    return cuts[fastest], faster[fastest]


def is_gain(faster: Mapping[int, float]) -> bool:
    """Whether a cut is faster, over all numbers of rows, by more than noise."""
    return geometric_mean(faster.values()) >= MIN_GAIN


def expect_possible_gain(cutter: Cutter, rows: Rows) -> None:
    """Raise a CompressionError if the graph is no faster even with a single unit in each layer.

    Before any unit is chosen, since that may take minutes.
    """
    cut, faster = fastest_cut(cutter, {layer.gate.name: [0] for layer in cutter.layers}, rows)
    if not is_gain(faster):
        raise CompressionError(
            f"not written: this network does not get faster. With one unit in each layer, {cut.units:,} of "
            f"{cutter.units:,}, a run takes as long as before ({times_by_rows(faster)}): small networks "
            "spend their time elsewhere"
        )


def measure_point(
    cutter: Cutter, comparison: AnswerComparison, cut: OpenCut, runtime: Runtime, rows: Rows
) -> CompressionPoint:
    """What a cut gives, as a point of the curve.

    Args:
        cutter: Has the whole graph, which is timed in turn with the cut one.
        comparison: Its answers, on the rows that judge cuts.
        cut: The cut.
        runtime: Runs it, or it in a lower precision.
        rows: Rows to time both on.
    """
    quality = comparison.quality_of(runtime)
    whole_timing, timing = measure_speed([cutter.runtime, runtime], cutter.public_outputs, rows)
    return CompressionPoint(
        share=cut.share,
        macs=cut.graph.macs_share,
        agreement=quality.agreement,
        metric=quality.accuracy,
        faster=timing.times_faster_than(whole_timing),
    )


def times_by_rows(times: Mapping[int, float]) -> str:
    """How many times faster something is, by the rows of a run, in words."""
    return ", ".join(
        f"{number:.2f}x with {size} row{'' if size == 1 else 's'}" for size, number in times.items()
    )

"""Tries cuts of one network: which share of the units keeps a limit, and which form is fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from export.compress.agreement import AnswerComparison, points_lost
from export.compress.cut_graph import FORMS, CutGraph, Form, cut_units
from export.compress.removable_layers import RemovableLayer
from export.compress.selection import Kept, most_important, smallest_share
from export.compress.speed import measure_speed
from export.errors import CompressionError, UsageError
from export.output.model_bytes import to_bytes
from export.prepared_graph import PreparedGraph
from export.source import Array
from export.sources.rows import SplitRows
from export.steps import Steps
from service.artifact.manifest import CompressionPoint
from service.artifact.runtime import Runtime, open_model

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
        units = sum(map(len, kept.values()))
        return OpenCut(cut, units, units / self.units, (data := to_bytes(cut.model)), open_model(data))


@dataclass(frozen=True)
class OpenCut:
    """A cut graph, open on the CPU.

    Attributes:
        graph: The graph.
        units: The number of units that its layers keep.
        share: The share of all units that these are.
        data: Its bytes.
        runtime: The graph, open.
    """

    graph: CutGraph
    units: int
    share: float
    data: bytes
    runtime: Runtime


def search_share(
    cutter: Cutter, importance: Mapping[str, Array], rows: SplitRows, max_drop: float, steps: Steps
) -> float:
    """The smallest share of units that loses at most `max_drop` points on the calibration rows."""
    comparison = AnswerComparison(cutter.runtime, cutter.output, rows.calibration)
    if not comparison.has_classes:
        raise UsageError(
            f"--max-drop: expected an output with a number for each class, and {cutter.output!r} has none: "
            "use --keep"
        )

    def keeps_limit(share: float) -> bool:
        cut = cutter.cut(most_important(importance, share))
        return points_lost(comparison, comparison.quality_of(cut.runtime)) <= max_drop

    share = smallest_share(keeps_limit, steps.listener.advanced)
    if share is None or share == 1.0:
        raise CompressionError(
            f"--max-drop: expected a share of the units that loses at most {max_drop:g} points, and each "
            "that was tried loses more"
        )
    return share


def fastest_cut(cutter: Cutter, kept: Kept, rows: SplitRows) -> OpenCut:
    """The form of the cut graph that runs fastest here; a CompressionError if none is faster."""
    cuts = [cutter.cut(kept, form) for form in FORMS]
    whole_timing, *timings = measure_speed(
        [cutter.runtime, *(cut.runtime for cut in cuts)], cutter.public_outputs, rows.test
    )
    faster = [timing.times_faster_than(whole_timing) for timing in timings]
    gains = [geometric_mean(times.values()) for times in faster]
    fastest = max(range(len(cuts)), key=gains.__getitem__)
    if gains[fastest] < MIN_GAIN:
        raise CompressionError(
            f"expected a smaller graph that is faster, and with {cuts[0].units:,} of {cutter.units:,} units "
            f"it is not: its speed here is {times_by_rows(faster[fastest])}, where that of the whole graph "
            "is 1. Narrow layers gain too little, and so does a large share of the units"
        )
    return cuts[fastest]


def measure_cut(
    cutter: Cutter, comparison: AnswerComparison, cut: OpenCut, runtime: Runtime, rows: SplitRows
) -> CompressionPoint:
    """Measure a cut graph on the test rows; `runtime` runs it, or it in a lower precision."""
    quality = comparison.quality_of(runtime)
    whole_timing, timing = measure_speed([cutter.runtime, runtime], cutter.public_outputs, rows.test)
    return CompressionPoint(
        share=cut.share,
        macs=cut.graph.macs_share,
        agreement=quality.agreement,
        metric=quality.accuracy,
        faster=timing.times_faster_than(whole_timing),
    )


def times_by_rows(times: Mapping[int, float]) -> str:
    """Numbers by the rows of a run, in words."""
    return ", ".join(
        f"{number:.2f} with {size} row{'' if size == 1 else 's'}" for size, number in times.items()
    )

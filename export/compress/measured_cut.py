"""Cuts a network, proves the cut graph, measures it, and writes the results into a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnpike.export.compress.agreement import AnswerComparison
from turnpike.export.compress.graph.carried_reference import carried_reference
from turnpike.export.compress.selection import UnitChoice, UnitRanking
from turnpike.export.compress.trials import OpenCut, fastest_cut, is_gain, measure_point, times_by_rows
from turnpike.export.compress.whole_network import WholeNetwork, with_reference
from turnpike.export.errors import CompressionError
from turnpike.export.gates.instrument import Instrumentation, Origin
from turnpike.export.measure.gate_profile import profile_gates
from turnpike.export.measure.lesion_curve import lesion_curve
from turnpike.export.measure.run_rows import rows_digest, spread_rows
from turnpike.export.measure.sample_rows import input_ranges
from turnpike.export.network import Rows
from turnpike.export.options import PrecisionOptions
from turnpike.export.output.model_bytes import tool_versions, weights_digest
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.proved_graph import ProvedGraph, lower_precision, prove_graph
from turnpike.export.sources.data.pixels import picture_input
from turnpike.export.sources.data.row_arrays import MAX_ROWS_USED
from turnpike.export.sources.data.rows import SplitRows
from turnpike.export.steps import Steps
from turnpike.service.artifact.manifest import (
    Compression,
    CompressionPoint,
    LesionCurve,
    Manifest,
    Precision,
    Profile,
)
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.text_records import TextInput

# shares of the units in the table of the result
CURVE_SHARES = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
# shares that are tried where that of the file is no faster
SMALL_SHARES = (0.2, 0.1, 0.05, 0.02)


@dataclass(frozen=True)
class MeasuredCut:
    """A cut that was proved and measured.

    Attributes:
        cut: The cut graph in fp32.
        proved: The graph to write, with its proof.
        precision: The precision of this graph.
        gate_rows: The rows on which its gates were measured.
        profile: The profile of its gates, if it has any.
        lesion: Its lesion curve, if it has gates.
        comparison: Compares answers with those of the whole network of the source.
        point: What the graph to write gives.
        curve: What other shares of the units would have given.
    """

    cut: OpenCut
    proved: ProvedGraph
    precision: Precision
    gate_rows: Rows
    profile: Profile | None
    lesion: LesionCurve | None
    comparison: AnswerComparison
    point: CompressionPoint
    curve: tuple[CompressionPoint, ...]


def cut_and_measure(
    ranking: UnitRanking, choice: UnitChoice, rows: Rows, options: PrecisionOptions, seed: int, steps: Steps
) -> MeasuredCut:
    """Cut a network in the form that runs fastest, prove the result, measure it, and lower its precision.

    Args:
        ranking: The units of the source, for other shares of them.
        choice: The units to keep.
        rows: Rows on which no units were chosen.
        options: The precision, and how far its answers may differ.
        seed: Seed of the random rows that parity is proved on.
        steps: The steps that are shown to the user.
    """
    cutter = ranking.cutter
    with steps.step("time"):
        cut, faster = fastest_cut(choice.cutter, choice.kept, rows)
        if not is_gain(faster):
            raise _no_gain_error(ranking, cut, faster, rows)
        comparison = AnswerComparison(cutter.runtime, cutter.output, rows)
        curve = tuple(
            measure_point(cutter, comparison, trial, trial.runtime, rows)
            for share in CURVE_SHARES
            for trial in [cutter.cut(ranking.choose(share).kept, cut.graph.form)]
        )
    with steps.step("verify"):
        proved = _prove_cut(choice, cut, seed, steps)

    # gates are measured in fp32, the point in the precision of the file
    with steps.step("measure"):
        gate_rows, gates = spread_rows(rows, MAX_ROWS_USED), cut.graph.gates
        labels = ranking.whole.network.labels
        profile = profile_gates(proved.runtime, gates, gate_rows, labels) if gates else None
        biases = proved.graph.biases
        lesion = lesion_curve(proved.runtime, gates, gate_rows, cutter.output, biases) if gates else None
    if options.precision != "fp32":
        with steps.step(f"lower to {options.precision}"):
            proved = lower_precision(proved, gate_rows, options)
    with steps.step("judge"):
        point = measure_point(
            cutter,
            comparison,
            cut,
            open_model(proved.data, disabled_optimizers=proved.served.disabled_optimizers),
            rows,
        )
        _expect_faster(point, options.precision)
    return MeasuredCut(cut, proved, options.precision, gate_rows, profile, lesion, comparison, point, curve)


def cut_manifest(
    whole: WholeNetwork,
    measured: MeasuredCut,
    rows: SplitRows,
    text: TextInput | None,
    finetune_epochs: int,
    version: int,
) -> Manifest:
    """The manifest of a cut graph.

    Args:
        whole: The network of the source.
        measured: The cut graph.
        rows: The rows that units were chosen and the cut was judged on.
        text: How the service converts texts to the ids of an input, if it does.
        finetune_epochs: The epochs for which the network was trained after the cut.
        version: The version of the model.
    """
    network, proved = whole.network, measured.proved
    return Manifest(
        name=network.name,
        version=version,
        source=network.kind,
        precision=measured.precision,
        outputs=proved.graph.public_outputs,
        labels=network.labels or rows.labels,
        alphabet=network.alphabet,
        text=text,
        picture=picture_input(network),
        features=network.features,
        task=network.task,
        target=network.target,
        gates=measured.cut.graph.gates,
        batch_axes=network.batch_axes(proved.graph.public_outputs)
        if whole.manifest is None
        else whole.manifest.batch_axes,
        profile=measured.profile,
        lesion=measured.lesion,
        ranges=input_ranges(measured.gate_rows),
        samples=() if whole.manifest is None else whole.manifest.samples,
        random_weights=network.random_weights,
        tools=tool_versions(),
        compression=_compression(whole, measured, rows, finetune_epochs),
        **proved.manifest_fields,
    )


def _compression(
    whole: WholeNetwork, measured: MeasuredCut, rows: SplitRows, finetune_epochs: int
) -> Compression:
    """What was removed."""
    cut, point = measured.cut, measured.point
    return Compression(
        original=weights_digest(whole.graph.model),
        units=cut.units,
        units_whole=cut.units_whole,
        macs=cut.graph.macs,
        macs_whole=cut.graph.macs_whole,
        calibration_rows=len(rows.calibration),
        calibration_digest=rows_digest(rows.calibration),
        rows=len(rows.test),
        agreement=point.agreement,
        metric=point.metric,
        metric_whole=measured.comparison.accuracy_whole,
        bytes_whole=len(whole.graph.data),
        faster=point.faster,
        finetune_epochs=finetune_epochs,
        curve=measured.curve,
    )


def _prove_cut(choice: UnitChoice, cut: OpenCut, seed: int, steps: Steps) -> ProvedGraph:
    """Prove that the cut graph computes what the whole one does if the removed units carry their input."""
    whole = choice.whole
    reference = carried_reference(
        whole.graph.model, whole.graph.public_outputs, choice.cutter.layers, choice.kept
    )
    outputs = [str(value.name) for value in cut.graph.model.graph.outputs]
    origins = {name: Origin(name) for name in outputs if name in whole.graph.gates.origins}
    gates = Instrumentation(cut.graph.gates, origins, ())
    prepared = PreparedGraph(None, cut.graph.model, gates, (), (), cut.data)
    return prove_graph(prepared, with_reference(whole.network, reference), seed, steps)


def _no_gain_error(
    ranking: UnitRanking, cut: OpenCut, faster: Mapping[int, float], rows: Rows
) -> CompressionError:
    """Says how fast a cut is that is no faster, and with which share of the units one is."""
    remedy = "With fewer units it is no faster either: small networks spend their time elsewhere"
    for share in SMALL_SHARES:
        if share < cut.share and is_gain(
            gain := fastest_cut(ranking.cutter, ranking.choose(share).kept, rows)[1]
        ):
            remedy = f"With --keep {share:g} it would be faster: {times_by_rows(gain)}"
            break
    return CompressionError(
        f"not written: with {cut.units:,} of {cut.units_whole:,} units the graph is no faster: "
        f"{times_by_rows(faster)}. {remedy}"
    )


def _expect_faster(point: CompressionPoint, precision: Precision) -> None:
    """Raise a CompressionError if the file in a lower precision is slower than the whole network in fp32."""
    if precision != "fp32" and not is_gain(point.faster):
        raise CompressionError(
            f"--precision {precision}: expected a graph that is faster than the whole one in fp32, and its "
            f"speed here is {times_by_rows(point.faster)}: use fp32"
        )

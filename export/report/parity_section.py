"""The parity section of the report: each tensor's error against the reference, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence

from turnpike.export.parity.verdict import RMS_FACTOR
from turnpike.export.report.charts import Series, chart, histogram
from turnpike.export.report.data import ReportData, gates_by_depth
from turnpike.export.report.html import Markup, Part, section, side_by_side, table, tag
from turnpike.service.artifact.manifest import Manifest, Parity, TensorParity

# with more tensors than this the table has one row per layer and kind, with the largest errors
MAX_TABLE_ROWS = 80
# names in a row of the table of tensors that were not judged
MAX_SHOWN_NAMES = 12


def parity_sections(report: ReportData) -> list[Markup]:
    """The verdict in words, the errors by tensor, and their distribution."""
    parity = report.manifest.parity
    rows = parity_rows(report.manifest)
    baseline = baseline_name(report.manifest)
    ort_errors = Series("onnxruntime", [row.rms for row in rows], "series-4")
    baseline_errors = Series(baseline, [row.rms_torch for row in rows], "series-2")
    charts = [
        chart(
            "Root mean square error by tensor, in data-flow order",
            [baseline_errors, ort_errors],
            below="tensor",
            places=[row.name for row in rows],
            level=(f"passes below {RMS_FACTOR:g} x {baseline}'s error", [_pass_level(row) for row in rows]),
            log=True,
            joined=False,
        ),
        *_histograms(report),
    ]
    weights = f"{parity.identical} weights are identical to the network's bit for bit"
    if parity.derived:
        weights += f", {parity.derived} were computed from its weights and agree to {parity.ulp:g} ulp"
    cells: list[list[Part]] = [
        [
            row.name,
            f"{row.rms:.2e}",
            f"{row.rms_torch:.2e}",
            _ratio(row.rms, row.rms_torch),
            f"{row.max:.2e}",
            f"{row.max_torch:.2e}",
        ]
        for row in rows
    ]
    head = ["tensor", "rms error", baseline, "ratio", "largest error", baseline]
    figures = table(head, cells, text_columns=(0,))
    folded = tag("details", tag("summary", f"All {len(rows)} rows"), figures) if len(rows) > 12 else figures
    notes = "" if len(rows) == len(parity.tensors) else " Each row shows the largest errors in one layer."
    if parity.input_ranges:
        notes += f" This was proved {parity.range_text} only."
    if parity.explained is not None:
        notes += f" From {parity.explained} on, bounds are kept only without errors that rounding explains."
    if report.manifest.precision != "fp32":
        notes += " All of this is about the fp32 graph that this file was made from."
    parity_section = section(
        "Parity",
        f"Errors of onnxruntime ({', '.join(parity.providers)}) and of {baseline} against "
        f"{parity.reference}. onnxruntime passes if it is as accurate as {baseline}; {weights}.{notes}",
        side_by_side(*charts),
        folded,
    )
    return [parity_section, *_unjudged(parity, baseline)]


def _unjudged(parity: Parity, baseline: str) -> list[Markup]:
    """The tensors that were not judged, batch by batch."""
    rows: list[list[Part]] = []
    for unjudged in parity.unjudged:
        names = parity.unjudged_names(unjudged.batch)
        shown = names if len(names) <= MAX_SHOWN_NAMES else (*names[: MAX_SHOWN_NAMES - 2], "…", names[-1])
        rows.append([unjudged.batch, f"{unjudged.tensors} of {len(parity.tensors)}", ", ".join(shown)])
    if not rows:
        return []
    intro = (
        "In these batches rounding decides: if the inputs move by a few units in the last place, the values "
        f"of {baseline} move by more than 1e-4 of their size. So of the first of these tensors, and of those "
        "that come after it, only shapes and the places of NaN and infinities were compared. 'large x100' is "
        "a row of usual numbers times 100."
    )
    return [
        section(
            "Tensors that were not judged",
            intro,
            table(["batch", "tensors", "in data-flow order"], rows, text_columns=(0, 2)),
        )
    ]


def baseline_name(manifest: Manifest) -> str:
    """The implementation that onnxruntime is compared with."""
    # a compressed file is proved against the graph that it was cut from
    is_graph = manifest.source == "onnx" or manifest.compression is not None
    return "onnx's own evaluator" if is_graph else "PyTorch"


def parity_rows(manifest: Manifest) -> Sequence[TensorParity]:
    """A row for each tensor; if there are too many for a page, for each kind of tensor in each layer."""
    tensors = manifest.parity.tensors
    if len(tensors) <= MAX_TABLE_ROWS:
        return tensors
    groups: dict[str, str] = {}
    for layer, gates in gates_by_depth(manifest.gates).items():
        for gate in gates:
            kinds = ((gate.name, "transform gate"), (gate.carry_gate, "carry gate"), (gate.output, "output"))
            groups |= {name: f"layer {layer}: {kind}" for name, kind in kinds if name is not None}
    worst: dict[str, TensorParity] = {}
    for tensor in tensors:
        name = groups.get(tensor.name, tensor.name)
        previous = worst.get(name, tensor)
        worst[name] = TensorParity(
            name=name,
            rms=max(previous.rms, tensor.rms),
            rms_torch=max(previous.rms_torch, tensor.rms_torch),
            max=max(previous.max, tensor.max),
            max_torch=max(previous.max_torch, tensor.max_torch),
        )
    return tuple(worst.values())


def _histograms(report: ReportData) -> list[Markup]:
    """Error histograms of the outputs, and of all gates and layers together."""
    public = set(report.manifest.outputs)
    charts = []
    baseline = baseline_name(report.manifest)
    for title, names in (
        ("Errors of the outputs", [name for name in report.histograms if name in public]),
        ("Errors of the gates and layers", [name for name in report.histograms if name not in public]),
    ):
        if not names:
            continue
        ort_counts, baseline_counts = (
            [sum(bins) for bins in zip(*(report.histograms[name][side] for name in names), strict=True)]
            for side in (0, 1)
        )
        counts = [(baseline, baseline_counts, "series-2"), ("onnxruntime", ort_counts, "series-4")]
        charts.append(histogram(title, counts, below="absolute error", ends=report.decades))
    return charts


def _pass_level(row: TensorParity) -> float | None:
    """The error up to which a tensor passes, without the margin of one rounding; None if it is zero."""
    return RMS_FACTOR * row.rms_torch or None


def _ratio(ort_error: float, baseline_error: float) -> str:
    return f"{ort_error / baseline_error:.2f}" if baseline_error > 0 else "-"

"""The part of a report about parity: how far each tensor was from the truth, beside PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from export.report.charts import Series, chart, histogram
from export.report.data import ReportData, gates_by_depth
from export.report.html import Markup, Part, section, side_by_side, table, tag
from service.artifact.manifest import Manifest, TensorParity

# more tensors than this are taken together by layer, the worst standing for all
MAX_TABLE_ROWS = 80


def parity_sections(report: ReportData) -> list[Markup]:
    """The verdict in words, the errors by tensor, and how they are spread."""
    parity = report.manifest.parity
    rows = parity_rows(report.manifest)
    rival = baseline_name(report.manifest)
    ours = Series("onnxruntime", [row.rms for row in rows], "blue")
    own = Series(rival, [row.rms_torch for row in rows], "orange")
    charts = [
        chart(
            "Error by tensor, in the order data flows (rms)",
            [own, ours],
            below="tensor",
            log=True,
            joined=False,
        ),
        *_histograms(report),
    ]
    weights = f"{parity.identical} weights are bit for bit the network's own"
    if parity.derived:
        weights += f", {parity.derived} were computed from them and agree to {parity.ulp:g} ulp"
    listed: list[list[Part]] = [
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
    head = ["tensor", "rms error", rival, "ratio", "largest error", rival]
    figures = table(head, listed, words=(0,))
    folded = tag("details", tag("summary", f"All {len(rows)} rows"), figures) if len(rows) > 12 else figures
    notes = "" if len(rows) == len(parity.tensors) else " Each layer is shown by its worst tensors."
    if report.manifest.precision != "fp32":
        notes += " All this is of the graph in single precision, from which this file was made."
    return section(
        "Parity",
        f"Errors of onnxruntime ({', '.join(parity.providers)}) and of {rival} against {parity.reference}. "
        f"onnxruntime passes when it is as close to the truth as {rival} is; {weights}.{notes}",
        side_by_side(*charts),
        folded,
    )


def baseline_name(manifest: Manifest) -> str:
    """Whose errors onnxruntime's are measured by."""
    return "onnx's own evaluator" if manifest.source == "onnx" else "PyTorch"


def parity_rows(manifest: Manifest) -> Sequence[TensorParity]:
    """A row for each tensor, or where there are too many for a page, for each layer's kind of tensor."""
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
        so_far = worst.get(name, tensor)
        worst[name] = TensorParity(
            name=name,
            rms=max(so_far.rms, tensor.rms),
            rms_torch=max(so_far.rms_torch, tensor.rms_torch),
            max=max(so_far.max, tensor.max),
            max_torch=max(so_far.max_torch, tensor.max_torch),
        )
    return tuple(worst.values())


def _histograms(report: ReportData) -> list[Markup]:
    """The outputs' errors, and those of all gates and layers together."""
    public = set(report.manifest.outputs)
    charts = []
    rival = baseline_name(report.manifest)
    for title, chosen in (
        ("Errors of the outputs", [n for n in report.histograms if n in public]),
        ("Errors of the gates and layers", [n for n in report.histograms if n not in public]),
    ):
        if not chosen:
            continue
        ours, own = (
            [sum(bins) for bins in zip(*(report.histograms[n][side] for n in chosen), strict=True)]
            for side in (0, 1)
        )
        counts = [(rival, own, "orange"), ("onnxruntime", ours, "blue")]
        charts.append(histogram(title, counts, below="absolute error", ends=report.decades))
    return charts


def _ratio(ours: float, own: float) -> str:
    return f"{ours / own:.2f}" if own > 0 else "-"

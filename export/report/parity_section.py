"""The sections on proof and rounding: what was decided, and each tensor's error beside PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from turnpike.export.parity.verdict import FAR, RMS_FACTOR
from turnpike.export.report.charts import Series, line_chart
from turnpike.export.report.data import ReportData, gates_by_depth
from turnpike.reporting.chart import Area, Axis, Chart, Color, Line, all_y, linear_axis, position_axis
from turnpike.reporting.markup import Markup, Part
from turnpike.reporting.number_format import power_of_ten
from turnpike.reporting.page import chart_figure, folded, section, side_by_side, table
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.proof_records import TensorParity
from turnpike.service.artifact.verdict_text import identity_text, is_proved

# with more tensors than this the table has one row per layer and kind, with the largest errors
MAX_TABLE_ROWS = 80
# what no verdict says
NOT_PROVED = (
    "This is about exact arithmetic: how far float32 strays is measured, below. onnxruntime itself, and the "
    "step from the Python code to the traced program, are not proved but compared on the batches."
)


def proof_sections(report: ReportData) -> list[Markup]:
    """What is proved in words, the errors by tensor, and their distribution."""
    parity = report.manifest.parity
    rows = parity_rows(report.manifest)
    baseline = baseline_name(report.manifest)
    ort_errors = Series("onnxruntime", [row.rms for row in rows], "4")
    baseline_errors = Series(baseline, [row.rms_torch for row in rows], "2")
    names = [row.name for row in rows]
    charts = [
        line_chart(
            "Root mean square error by tensor, in data-flow order",
            [baseline_errors, ort_errors],
            position_axis("tensor", names),
            names,
            others=[]
            if is_proved(report.manifest)
            else [_pass_levels(f"passes below {RMS_FACTOR:g} x {baseline}'s error", rows)],
            is_log=True,
            joined=False,
        ),
        *_histograms(report),
    ]
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
    if len(rows) > 12:
        figures = folded(f"All {len(rows)} rows", figures)
    notes = "" if len(rows) == len(parity.tensors) else " Each row shows the largest errors in one layer."
    if parity.input_ranges:
        notes += f" This was measured {parity.range_text} only."
    if report.manifest.precision != "fp32":
        notes += " All of this is about the fp32 graph that this file was made from."
    rounding_section = section(
        "Rounding",
        f"Errors of onnxruntime ({', '.join(parity.providers)}) and of {baseline} against "
        f"{parity.reference}. {_rule(report.manifest, baseline)}.{notes}",
        side_by_side(*charts),
        figures,
    )
    return [_identity(report.manifest), rounding_section]


def _rule(manifest: Manifest, baseline: str) -> str:
    """What the errors have to be like."""
    if is_proved(manifest):
        return (
            f"The file is refused if the error of a tensor is more than {RMS_FACTOR:g} times {baseline}'s "
            f"and more than {FAR:.0e} of the tensor's size"
        )
    return f"onnxruntime passes if its error is at most {RMS_FACTOR:g} times {baseline}'s"


def _identity(manifest: Manifest) -> Markup:
    """Whether file and network are the same function, how that is known, and the constants it depends on."""
    text = identity_text(manifest)
    rounded = () if manifest.identity is None else manifest.identity.rounded
    rows: list[list[Part]] = [[constant.name, f"{constant.ulp:g}"] for constant in rounded]
    constants = (
        [table(["rounded constant", "units in the last place"], rows, text_columns=(0,))] if rows else []
    )
    return section("The same function", f"{text[0].upper()}{text[1:]}. {NOT_PROVED}", *constants)


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
        counts: list[tuple[str, list[int], Color]] = [
            (baseline, baseline_counts, "2"),
            ("onnxruntime", ort_counts, "4"),
        ]
        charts.append(_histogram(title, counts, report.decades))
    return charts


def _histogram(
    title: str, counts: Sequence[tuple[str, Sequence[int], Color]], decades: tuple[float, float]
) -> Markup:
    """Shares of errors in equal bins between powers of ten, with an outline for each name and color."""
    low, high = decades
    areas = []
    for name, row, color in counts:
        # each bin has a left and a right end
        ends = [10 ** (low + (high - low) * n / len(row)) for n in range(len(row) + 1)]
        edges = [end for pair in pairwise(ends) for end in pair]
        shares = [n / max(1, sum(row)) for n in row for _ in range(2)]
        areas.append(Area(name, color, edges, [0.0] * len(edges), shares))
    ticks = [(10.0**power, power_of_ten(power)) for power in range(round(low), round(high) + 1, 2)]
    x = Axis("absolute error", 10**low, 10**high, ticks, is_log=True)
    return chart_figure(Chart("", title, "", areas, x, linear_axis("", all_y(areas))))


def _pass_levels(name: str, rows: Sequence[TensorParity]) -> Line:
    """The errors up to which tensors pass, without the margin of one rounding; a gap if it is zero."""
    x: list[float] = []
    y: list[float | None] = []
    for place, row in enumerate(rows):
        x += [place - 0.5, place + 0.5, place + 0.5]
        y += [RMS_FACTOR * row.rms_torch or None] * 2 + [None]
    return Line(name, "text", x, y, "dashed")


def _ratio(ort_error: float, baseline_error: float) -> str:
    return f"{ort_error / baseline_error:.2f}" if baseline_error > 0 else "-"

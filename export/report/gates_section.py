"""The gate sections of the report: the gates, their behavior on data, and what each layer contributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from turnpike.export.report.charts import Series, level, line_chart
from turnpike.export.report.data import ReportData, gates_by_depth
from turnpike.export.report.maps import gate_map, signed_map
from turnpike.reporting.chart import Area, position_axis
from turnpike.reporting.markup import Markup, Part, tag
from turnpike.reporting.page import folded, section, side_by_side, table
from turnpike.service.artifact.manifest import Gate, LayerProfile, LesionCurve, Profile, Task

NO_ROWS = (
    "No rows of data were given, so there is no gate profile and the service cannot measure drift. "
    "Give rows with --data."
)


def gate_sections(report: ReportData) -> list[Markup]:
    """Gates, their panel, contrast and lesions; or a sentence if the network has no gates."""
    manifest = report.manifest
    if not manifest.gates:
        nothing = section("Gates", "There are no transform gates in the file.")
        return [nothing, *_other_gates(report.other_gates)]
    profile = manifest.profile
    return [
        _gate_table(report),
        *_other_gates(report.other_gates),
        *_panel_section(report),
        *_contrast(manifest.gates, profile, manifest.labels),
        *([] if manifest.lesion is None else [_lesion(manifest.lesion, manifest.task)]),
    ]


def _gate_table(report: ReportData) -> Markup:
    gates, profile = report.manifest.gates, report.manifest.profile
    by_name = {} if profile is None else {layer.gate: layer for layer in profile.layers}
    rows: list[list[Part]] = []
    for name, group in gates_by_depth(gates).items():
        first, layers = group[0], [by_name[gate.name] for gate in group if gate.name in by_name]
        row: list[Part] = [
            name,
            first.name if len(group) == 1 else f"{first.name} and {len(group) - 1} more steps",
            first.kind,
            first.carry,
            first.units if first.units is not None else "-",
            "-" if first.bias is None else f"{first.bias.mean:.3f} ± {first.bias.sd:.3f}",
            "yes" if all(gate.levers for gate in group) else "no",
        ]
        rows.append([*row, *_behavior_cells(layers)] if by_name else row)
    head = ["layer", "gate", "kind", "carry", "units", "bias", "lever", "mean T", "closed", "open"]
    gate_table = table(head[: len(rows[0])], rows, text_columns=(1, 2, 3))
    if len(rows) > 12:
        gate_table = folded(f"All {len(rows)} layers", gate_table)
    steps = "" if len(rows) == len(gates) else f", at {len(gates):,} steps"
    count = f"{len(rows)} gated layer{'s' if len(rows) > 1 else ''}"
    intro = f"{count}{steps}. T near 1 transforms the layer's input, T near 0 carries it on."
    behavior = tag("p", NO_ROWS) if profile is None else _openness_charts(gates, profile)
    return section("Gates", intro, behavior, gate_table)


def _other_gates(sentences: Sequence[str]) -> list[Markup]:
    if not sentences:
        return []
    intro = "Sigmoids that multiply something and form no highway, T * H + C * x:"
    return [section("Other gates", intro, tag("ul", *(tag("li", sentence) for sentence in sentences)))]


def _behavior_cells(layers: Sequence[LayerProfile]) -> list[Part]:
    mean, closed, open_ = (
        float(np.mean([getattr(layer, name) for layer in layers])) for name in ("mean", "closed", "open")
    )
    return [f"{mean:.3f}", f"{closed:.1%}", f"{open_:.1%}"]


def _openness_charts(gates: Sequence[Gate], profile: Profile) -> Markup:
    groups = gates_by_depth(gates)
    by_name = {layer.gate: layer for layer in profile.layers}
    middle = profile.levels.index(0.5)

    def by_layer(figure: Callable[[LayerProfile], float]) -> list[float]:
        return [float(np.mean([figure(by_name[gate.name]) for gate in group])) for group in groups.values()]

    mean = Series("mean T", by_layer(lambda layer: layer.mean), "4")
    median = Series("median", by_layer(lambda layer: layer.quantiles[middle]), "1")
    low, high = by_layer(lambda layer: layer.quantiles[1]), by_layer(lambda layer: layer.quantiles[-2])
    band = Area("5 % to 95 %", "4", range(len(groups)), low, high, is_band=True)
    closed = Series(f"T below {profile.epsilon:g}", by_layer(lambda layer: layer.closed), "alarm")
    open_ = Series(f"T above {1 - profile.epsilon:g}", by_layer(lambda layer: layer.open), "4")
    varies = Series(
        "standard deviation over rows", by_layer(lambda layer: float(np.mean(layer.units_sd))), "1"
    )
    layers, x = list(groups), position_axis("layer", list(groups))
    return side_by_side(
        line_chart("How open the layers are", [mean, median], x, layers, others=[band], low=0, high=1),
        line_chart("Share of T near 0 and near 1", [closed, open_], x, layers, low=0, high=1),
        line_chart("How much the units vary", [varies], x, layers, low=0),
    )


def _panel_section(report: ReportData) -> list[Markup]:
    panel = report.panel
    if panel is None:
        return []
    biases = panel.biases[np.isfinite(panel.biases)]
    # biases stay near their initial value, so center the color scale there to show what training changed
    middle = float(np.median(biases)) if biases.size else 0.0
    maps = [signed_map("Biases of the gates", panel.biases, panel.layers, middle=middle)]
    # T = 0 does not carry the input if the carry gate is a gate of its own
    is_independent = any(gate.kind == "independent" for gate in report.manifest.gates)
    ends = ("closed", "open") if is_independent else ("carried", "transformed")
    row_class = f" of class {panel.label}" if panel.label else ""
    if panel.means is not None and panel.gates is not None and panel.outputs is not None:
        maps += [
            gate_map(f"Mean T over {panel.rows:,} rows", panel.means, panel.layers, ends),
            gate_map(f"T for one row{row_class}", panel.gates, panel.layers, ends),
            signed_map("Layer outputs for that row", panel.outputs, panel.layers),
        ]
    intro = (
        "After Figure 2 of “Training Very Deep Networks”: each line is a layer, with the input at the top, "
        "and each column is a unit. Gray cells are beyond the end of a narrower layer, or not known."
    )
    if report.kept:
        intro += " Gates of removed units are gray too; the other units are where they were."
    return [section("Layers by units", intro, side_by_side(*maps))]


def _contrast(gates: Sequence[Gate], profile: Profile | None, labels: Sequence[str]) -> list[Markup]:
    if profile is None or not profile.contrast:
        return []
    by_gate = dict(zip((layer.gate for layer in profile.layers), profile.contrast, strict=True))
    groups = gates_by_depth(gates)
    grid = np.array([np.mean([by_gate[gate.name] for gate in group], axis=0) for group in groups.values()])
    layers = list(groups)
    class_names = [*labels, *map(str, range(len(labels), grid.shape[1]))]
    spread = Series("largest difference between two classes", np.ptp(grid, axis=1).tolist(), "4")
    intro = (
        "How the gates differ between classes: the mean of T over the rows of a class, minus its mean over "
        "all rows."
    )
    return [
        section(
            "Classes",
            intro,
            side_by_side(
                signed_map("Mean T by class, minus mean T", grid, layers, class_names),
                line_chart("Contrast by layer", [spread], position_axis("layer", layers), layers, low=0),
            ),
        )
    ]


def _lesion(curve: LesionCurve, task: Task) -> Markup:
    layers = [str(lesion.layer) for lesion in curve.layers]
    if not layers:
        return section(
            "Lesions",
            "No layer could be closed: none has levers for all its gates and finite outputs when closed.",
        )
    metric, error = ("R2", "mean absolute error") if task == "number" else ("accuracy", "mean cross entropy")
    x = position_axis("closed layer", layers)
    scores = [lesion.accuracy for lesion in curve.layers]
    score = Series(f"{metric} with the layer closed", scores, "4")
    flipped = Series("answers changed", [lesion.flipped for lesion in curve.layers], "alarm")
    loss = Series(f"{error} with the layer closed", [lesion.loss for lesion in curve.layers], "4")
    described = "loss" if task == "classes" else error
    moved = " An answer has changed if it moved by more than this error." if task == "number" else ""
    return section(
        "Lesions",
        f"What the network loses if one layer is closed, so that it carries its input on, over "
        f"{curve.rows:,} rows. With all layers: {metric} {curve.accuracy:.4f}, {described} {curve.loss:.4f}."
        f"{moved}",
        side_by_side(
            line_chart(
                f"{metric[0].upper()}{metric[1:]} and changed answers",
                [score, flipped],
                x,
                layers,
                others=[level("with all layers", curve.accuracy, x)],
                # R2 is below 0 if the answers are worse than the mean
                low=min(0, curve.accuracy, *scores),
                high=1,
            ),
            line_chart(
                described[0].upper() + described[1:],
                [loss],
                x,
                layers,
                others=[level("with all layers", curve.loss, x)],
            ),
        ),
    )

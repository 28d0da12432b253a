"""The part of a report about gates: which there are, how they behave, and what each layer is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from export.report.charts import Series, chart, share_map, signed_map
from export.report.data import ReportData, gates_by_depth
from export.report.html import Markup, Part, section, side_by_side, table, tag
from service.artifact.manifest import Gate, LayerProfile, LesionCurve, Profile

NO_ROWS = "No rows of data were given: there is no profile, and drift cannot be told. Give some with --data."


def gate_sections(report: ReportData) -> list[Markup]:
    """Gates, their panel, contrast and lesions; or a sentence where the network has none."""
    manifest = report.manifest
    if not manifest.gates:
        return section("Gates", "This network has no transform gates: it was exported as it is.")
    profile = manifest.profile
    return [
        *_gate_table(report),
        *([] if profile is None else _openness_charts(manifest.gates, profile)),
        *_panel(report),
        *_contrast(manifest.gates, profile, manifest.labels),
        *([] if manifest.lesion is None else _lesion(manifest.lesion)),
    ]


def _gate_table(report: ReportData) -> list[Markup]:
    gates, profile = report.manifest.gates, report.manifest.profile
    by_name = {} if profile is None else {layer.gate: layer for layer in profile.layers}
    rows: list[list[Part]] = []
    for name, group in gates_by_depth(gates).items():
        one, layers = group[0], [by_name[gate.name] for gate in group if gate.name in by_name]
        row: list[Part] = [
            name,
            one.name if len(group) == 1 else f"{one.name} and {len(group) - 1} more steps",
            one.kind,
            one.carry,
            one.units if one.units is not None else "-",
            "-" if one.bias is None else f"{one.bias.mean:.3g} ± {one.bias.sd:.2g}",
            "yes" if all(gate.levers for gate in group) else "no",
        ]
        rows.append([*row, *_behaviour(layers)] if by_name else row)
    head = ["layer", "gate", "kind", "carry", "units", "bias", "lever", "mean T", "closed", "open"]
    listed = table(head[: len(rows[0])], rows, words=(1, 2, 3))
    folded = tag("details", tag("summary", f"All {len(rows)} layers"), listed) if len(rows) > 12 else listed
    steps = "" if len(rows) == len(gates) else f", at {len(gates):,} steps"
    intro = f"{len(rows)} gated layers{steps}. T near 1 transforms, T near 0 carries the layer's input on."
    return section("Gates", intro, folded, *([] if profile is not None else [tag("p", NO_ROWS)]))


def _behaviour(layers: Sequence[LayerProfile]) -> list[Part]:
    mean, closed, open_ = (
        float(np.mean([getattr(layer, name) for layer in layers])) for name in ("mean", "closed", "open")
    )
    return [f"{mean:.3f}", f"{closed:.1%}", f"{open_:.1%}"]


def _openness_charts(gates: Sequence[Gate], profile: Profile) -> list[Markup]:
    groups = gates_by_depth(gates)
    by_name = {layer.gate: layer for layer in profile.layers}
    middle = profile.levels.index(0.5)

    def of(pick: Callable[[LayerProfile], float]) -> list[float]:
        return [float(np.mean([pick(by_name[gate.name]) for gate in group])) for group in groups.values()]

    mean = Series("mean T", of(lambda layer: layer.mean), "blue")
    median = Series("median", of(lambda layer: layer.quantiles[middle]), "green")
    band = (of(lambda layer: layer.quantiles[1]), of(lambda layer: layer.quantiles[-2]), "5 % to 95 %")
    closed = Series(f"T below {profile.epsilon:g}", of(lambda layer: layer.closed), "red")
    open_ = Series(f"T above {1 - profile.epsilon:g}", of(lambda layer: layer.open), "blue")
    varies = Series("deviation over rows", of(lambda layer: float(np.mean(layer.units_sd))), "green")
    names = list(groups)
    return [
        side_by_side(
            chart(
                "How open the layers are",
                [mean, median],
                below="layer",
                places=names,
                bounds=(0, 1),
                band=band,
            ),
            chart("Shares of T at its ends", [closed, open_], below="layer", places=names, bounds=(0, 1)),
            chart("How much the units vary", [varies], below="layer", places=names, bounds=(0, None)),
        )
    ]


def _panel(report: ReportData) -> list[Markup]:
    shown = report.panel
    if shown is None:
        return []
    known = shown.biases[np.isfinite(shown.biases)]
    # biases stay near where they began: what training made of them shows around their middle
    middle = float(np.median(known)) if known.size else 0.0
    maps = [signed_map("Biases of the gates", shown.biases, shown.layers, middle=middle)]
    of_row = f", of class {shown.label}" if shown.label else ""
    if shown.means is not None and shown.gates is not None and shown.outputs is not None:
        maps += [
            share_map(f"Mean T over {shown.rows:,} rows", shown.means, shown.layers),
            share_map(f"T for one row{of_row}", shown.gates, shown.layers),
            signed_map("That row's layer outputs", shown.outputs, shown.layers),
        ]
    return section(
        "Layers by units",
        "After Figure 2 of “Training Very Deep Networks”: each line is a layer, from the input downwards, "
        "each column a unit. Grey is where a narrower layer ends, or nothing is known.",
        tag("div", *maps, class_="maps"),
    )


def _contrast(gates: Sequence[Gate], profile: Profile | None, labels: Sequence[str]) -> list[Markup]:
    if profile is None or not profile.contrast:
        return []
    rows = dict(zip((layer.gate for layer in profile.layers), profile.contrast, strict=True))
    groups = gates_by_depth(gates)
    grid = np.array([np.mean([rows[gate.name] for gate in group], axis=0) for group in groups.values()])
    names = [*labels, *map(str, range(len(labels), grid.shape[1]))]
    spread = Series("largest difference between two classes", np.ptp(grid, axis=1).tolist(), "blue")
    return section(
        "Classes",
        "Where the gates tell classes apart: the mean of T over the rows of a class, less its mean over all.",
        side_by_side(
            signed_map("T given the class, less T", grid, list(groups), names),
            chart("Contrast by layer", [spread], below="layer", places=list(groups), bounds=(0, None)),
        ),
    )


def _lesion(curve: LesionCurve) -> list[Markup]:
    names = [str(one.layer) for one in curve.layers]
    if not names:
        return section("Lesions", "No layer of this network can be closed from outside.")
    accuracy = Series("accuracy with the layer closed", [one.accuracy for one in curve.layers], "blue")
    flipped = Series("answers flipped", [one.flipped for one in curve.layers], "red")
    loss = Series("mean cross entropy with the layer closed", [one.loss for one in curve.layers], "blue")
    return section(
        "Lesions",
        f"What the network loses when one layer is closed and carries its input on, over {curve.rows:,} "
        f"rows. As it is: accuracy {curve.accuracy:.4f}, loss {curve.loss:.4f}.",
        side_by_side(
            chart(
                "Accuracy, and answers that change",
                [accuracy, flipped],
                below="closed layer",
                places=names,
                bounds=(0, 1),
                level=("as it is", curve.accuracy),
            ),
            chart("Loss", [loss], below="closed layer", places=names, level=("as it is", curve.loss)),
        ),
    )

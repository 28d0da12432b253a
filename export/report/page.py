"""The HTML page of the report: a single file without scripts or external resources."""

from __future__ import annotations

from turnpike.export.report.charts import Series, line_chart
from turnpike.export.report.compression_section import compression_sections
from turnpike.export.report.data import ReportData
from turnpike.export.report.gates_section import gate_sections
from turnpike.export.report.parity_section import proof_sections
from turnpike.reporting.chart import position_axis
from turnpike.reporting.markup import Markup, Part, tag
from turnpike.reporting.number_format import size
from turnpike.reporting.page import (
    badge,
    build_page,
    notes,
    section,
    side_by_side,
    summary,
    table,
    tile,
    tiles,
)
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.verdict_text import is_proved, verdict

PRECISIONS = {"fp32": "fp32", "fp16": "fp16 (half precision)", "int8": "int8 (eight-bit weights)"}


def render_page(report: ReportData) -> str:
    """The complete page."""
    title = f"{report.manifest.name} · version {report.manifest.version}"
    return build_page(
        title,
        _summary(report, title),
        *compression_sections(report),
        *proof_sections(report),
        *gate_sections(report),
        *_precision(report),
        _batches(report),
        _provenance(report),
        has_images=True,
    )


def _summary(report: ReportData, title: str) -> Markup:
    manifest, parity = report.manifest, report.manifest.parity
    profile = manifest.profile
    word = "tensors proved" if is_proved(manifest) else "tensors compared"
    figures = [
        tile(len(parity.tensors), word, "outputs, gates and layers"),
        tile(
            sum(batch.rows for batch in parity.batches),
            "rows for rounding",
            f"in {len(parity.batches)} batches",
        ),
        tile(
            len(manifest.gates),
            "transform gate" if len(manifest.gates) == 1 else "transform gates",
            "hidden outputs of the graph",
        ),
        tile(size(report.size), "in one file", PRECISIONS[manifest.precision]),
        tile("no", "batching allowed", "rows depend on each other")
        if manifest.batch_coupled
        else tile("yes", "batching allowed", "rows are independent"),
    ]
    if profile is not None and profile.layers:
        depth = sum(layer.mean for layer in profile.layers)
        figures.append(tile(f"{depth:.2f}", "effective depth", "sum of mean T"))
    if (compression := manifest.compression) is not None:
        share = f"{compression.units / compression.units_whole:.1%}"
        of_units = f"{compression.units:,} of {compression.units_whole:,}"
        times = ", ".join(f"{rows}: {times:.1f}x" for rows, times in compression.faster.items())
        figures[:0] = [
            tile(share, "of the units kept", of_units),
            tile(
                f"{min(compression.faster.values()):.1f}x",
                "faster at least",
                f"by rows of a run: {times}",
            ),
        ]
    return summary(
        title,
        [_badge(manifest)],
        tag(
            "p",
            f"From {manifest.source}, {PRECISIONS[manifest.precision]}. Inputs ",
            *_codes(report.inputs),
            "; outputs ",
            *_codes(report.outputs),
            ".",
            class_="quiet",
        ),
        notes(report.warnings, "watch"),
        *(tag("p", f"Note: {note}", class_="quiet") for note in report.notes),
        tiles(*figures),
    )


def _badge(manifest: Manifest) -> Markup:
    """The verdict; a lower precision is made from a graph that was proved in fp32."""
    lowered = "" if manifest.precision == "fp32" else " in fp32"
    return badge(f"{verdict(manifest)}{lowered}", "ok" if is_proved(manifest) else "off")


def _codes(names: tuple[str, ...]) -> list[Part]:
    parts: list[Part] = []
    for name in names:
        parts += [", " if parts else None, tag("code", name)]
    return parts


def _precision(report: ReportData) -> list[Markup]:
    comparison = report.comparison
    if comparison is None:
        return []
    agreed = {"highest": "same highest score", "near": "within 1 %", "equal": "equal"}[comparison.kind]
    rows: list[list[Part]] = [
        ["agreement", f"{comparison.agreement:.4f}", "1", agreed],
        [
            "file",
            size(comparison.size),
            size(comparison.size_fp32),
            f"{comparison.size / comparison.size_fp32:.2f} of fp32",
        ],
    ]
    if comparison.metric is not None and comparison.metric_fp32 is not None:
        difference = comparison.metric - comparison.metric_fp32
        rows.insert(
            1,
            [
                comparison.metric_name,
                f"{comparison.metric:.4f}",
                f"{comparison.metric_fp32:.4f}",
                f"{difference:+.4f}",
            ],
        )
    for speed in comparison.speed:
        name = f"ms for {speed.rows} row{'s' if speed.rows > 1 else ''}"
        rows.append([name, f"{speed.ms:.3g}", f"{speed.fp32_ms:.3g}", speed.factor])
    rows += [
        [f"mean difference of {output.name}", f"{output.mean:.2e}", "0", f"at most {output.max:.2e}"]
        for output in comparison.outputs
    ]
    rows[1:1] = [
        [f"relative rms error of {output.name}", f"{output.relative:.4f}", "0", "of its size in fp32"]
        for output in comparison.outputs
    ]
    charts = []
    if comparison.gates:
        gates = list(map(str, range(len(comparison.gates))))
        mean = Series("mean difference of T from fp32", [gate.mean for gate in comparison.gates], "4")
        largest = Series("largest difference", [gate.max for gate in comparison.gates], "2")
        x = position_axis("gate, in order", gates)
        charts.append(line_chart("Change of the gates", [mean, largest], x, gates, is_log=True))
    intro = (
        f"On {comparison.rows:,} {'random rows' if comparison.drawn else 'rows of the data'}, with "
        f"{comparison.provider}. Speeds were measured on the machine that made this report, with one thread."
    )
    return [
        section(
            f"Precision: {comparison.precision} compared with fp32",
            intro,
            side_by_side(table(["", comparison.precision, "fp32", ""], rows, text_columns=(0, 3)), *charts),
        )
    ]


def _batches(report: ReportData) -> Markup:
    rows: list[list[Part]] = [
        [batch.name, batch.rows, tag("code", batch.digest[:16], title=batch.digest)]
        for batch in report.manifest.parity.batches
    ]
    return section(
        "Batches",
        "The batches that rounding was measured on. Random rows have the seed "
        f"{report.manifest.parity.seed}; the digest covers names, types, shapes and bytes of the inputs.",
        table(["batch", "rows", "digest"], rows, text_columns=(0, 2)),
    )


def _provenance(report: ReportData) -> Markup:
    manifest = report.manifest
    tools: list[list[Part]] = [[name, version] for name, version in sorted(manifest.tools.items())]
    seconds: list[list[Part]] = [[step, f"{duration:.2f}"] for step, duration in report.seconds.items()]
    facts: list[list[Part]] = [
        ["digest of the weights", tag("code", manifest.weights)],
        ["labels", ", ".join(manifest.labels) or "none"],
        ["samples", f"{len(manifest.samples)} rows" if manifest.samples else "none"],
    ]
    if manifest.profile is not None:
        facts.append(["digest of the profile's rows", tag("code", manifest.profile.digest)])
    tables = [table(["tool", "version"], tools, text_columns=(0, 1))]
    if seconds:
        tables.append(table(["step", "seconds"], seconds, text_columns=(0,)))
    tables.append(table(["fact", ""], facts, text_columns=(0, 1)))
    return section("Provenance", None, side_by_side(*tables))

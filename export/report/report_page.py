"""The page of a report: one section after the other, without scripts and without anything from elsewhere."""

from __future__ import annotations

from export.report.findings import Report
from export.report.gates_section import gate_sections
from export.report.markup import Markup, Part, tag
from export.report.parity_section import parity_sections
from export.report.report_charts import Series, chart
from export.report.report_parts import figures_row, section, size_of, table, tile
from export.report.report_style import STYLE

# of a lower precision the proof is of the graph it was made from
BADGES = {True: "✓ parity proved", False: "✓ parity proved in fp32"}
PRECISIONS = {"fp32": "single precision", "fp16": "half precision", "int8": "weights in eight bits"}


def page(report: Report) -> str:
    """The whole page."""
    manifest = report.manifest
    title = f"{manifest.name} · version {manifest.version}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} · turnpike"),
        tag("style", Markup(STYLE)),
    )
    body = tag(
        "main",
        *_top(report, title),
        *parity_sections(report),
        *gate_sections(report),
        *_precision(report),
        *_batches(report),
        *_making(report),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _top(report: Report, title: str) -> list[Markup]:
    manifest, parity = report.manifest, report.manifest.parity
    profile = manifest.profile
    tiles = [
        tile(len(parity.tensors), "tensors proved", "outputs, gates and layers"),
        tile(sum(batch.rows for batch in parity.batches), "rows compared", f"{len(parity.batches)} batches"),
        tile(len(manifest.gates), "transform gates", "hidden outputs of the graph"),
        tile(size_of(report.size), "in one file", PRECISIONS[manifest.precision]),
        tile("no", "may be batched", "rows depend on each other")
        if manifest.batch_coupled
        else tile("yes", "may be batched", "rows are independent"),
    ]
    if profile is not None and profile.layers:
        depth = sum(layer.mean for layer in profile.layers)
        tiles.append(tile(f"{depth:.2f}", "effective depth", "sum of mean T"))
    return [
        tag("header", tag("h1", title), tag("span", BADGES[manifest.precision == "fp32"], class_="badge")),
        tag(
            "p",
            f"From {manifest.source}, {PRECISIONS[manifest.precision]}. Inputs ",
            *_codes(report.inputs),
            "; outputs ",
            *_codes(report.outputs),
            ".",
            class_="quiet",
        ),
        *(
            [tag("ul", *(tag("li", warning) for warning in report.warnings), class_="warnings")]
            if report.warnings
            else []
        ),
        tag("div", *tiles, class_="tiles"),
    ]


def _codes(names: tuple[str, ...]) -> list[Part]:
    parts: list[Part] = []
    for name in names:
        parts += [", " if parts else None, tag("code", name)]
    return parts


def _precision(report: Report) -> list[Markup]:
    found = report.comparison
    if found is None:
        return []
    agreed = {"highest": "same highest score", "near": "within 1 %", "equal": "equal"}[found.kind]
    rows: list[list[Part]] = [
        ["agreement", f"{found.agreement:.4f}", "1", agreed],
        [
            "file",
            size_of(found.size),
            size_of(found.size_fp32),
            f"{found.size / found.size_fp32:.2f} of fp32",
        ],
    ]
    if found.metric is not None and found.metric_fp32 is not None:
        apart = found.metric - found.metric_fp32
        rows.insert(1, ["accuracy", f"{found.metric:.4f}", f"{found.metric_fp32:.4f}", f"{apart:+.4f}"])
    for speed in found.speed:
        what = f"ms for {speed.rows} row{'s' if speed.rows > 1 else ''}"
        rows.append([what, f"{speed.ms:.3g}", f"{speed.fp32_ms:.3g}", f"{speed.ratio:.2f}x as fast"])
    rows += [
        [f"difference of {one.name}", f"{one.mean:.2e}", "0", f"at most {one.max:.2e}"]
        for one in found.outputs
    ]
    charts = []
    if found.gates:
        means = Series("mean difference of T from fp32", [gate.mean for gate in found.gates], "blue")
        most = Series("largest", [gate.max for gate in found.gates], "orange")
        charts.append(chart("How far the gates moved", [means, most], below="gate, in order", log=True))
    return section(
        f"Precision: {found.precision} beside fp32",
        f"On {found.rows:,} {'random rows' if found.drawn else 'rows of the data'}, by {found.provider}. "
        "Speeds are of the machine that made this report, and of one thread.",
        figures_row(table(["", found.precision, "fp32", ""], rows, words=(0, 3)), *charts),
    )


def _batches(report: Report) -> list[Markup]:
    rows: list[list[Part]] = [
        [batch.name, batch.rows, tag("code", batch.digest[:16], title=batch.digest)]
        for batch in report.manifest.parity.batches
    ]
    return section(
        "Batches",
        f"What was compared, drawn with the seed {report.manifest.parity.seed}; the digest is of the inputs' "
        "bytes.",
        table(["batch", "rows", "digest"], rows, words=(0, 2)),
    )


def _making(report: Report) -> list[Markup]:
    manifest = report.manifest
    tools: list[list[Part]] = [[name, version] for name, version in sorted(manifest.tools.items())]
    seconds: list[list[Part]] = [[step, f"{taken:.2f}"] for step, taken in report.seconds.items()]
    facts: list[list[Part]] = [
        ["weights", tag("code", manifest.weights)],
        ["labels", ", ".join(manifest.labels) or "none"],
        ["samples", f"{len(manifest.samples)} rows" if manifest.samples else "none"],
    ]
    if manifest.profile is not None:
        facts.append(["rows of the profile", tag("code", manifest.profile.digest)])
    tables = [table(["tool", "version"], tools, words=(0, 1))]
    if seconds:
        tables.append(table(["step", "seconds"], seconds, words=(0,)))
    tables.append(table(["what", ""], facts, words=(0, 1)))
    return section("Made with", None, figures_row(*tables))

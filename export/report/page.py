"""The HTML page of the report and its style: a single file without scripts or external resources."""

from __future__ import annotations

from export.report.charts import Series, chart
from export.report.data import ReportData
from export.report.gates_section import gate_sections
from export.report.html import Markup, Part, format_bytes, section, side_by_side, table, tag, tile
from export.report.parity_section import parity_sections

# works from the width of a phone to that of a wall display, in light and dark mode
STYLE = """
:root { color-scheme: light dark;
  --page: #f6f7f8; --card: #fff; --ink: #1c2126; --quiet: #5c6670; --edge: #dfe3e7; --rule: #e6e9ec;
  --blue: #0072b2; --orange: #c77800; --green: #00795a; --red: #b5400a;
  --good: #e2f3ec; --warn: #fff3d6; --band: #0072b226; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14181c; --card: #1d2329; --ink: #e8ecef; --quiet: #9aa6b1; --edge: #313a43; --rule: #2b333b;
  --blue: #56b4e9; --orange: #f0a830; --green: #3ecf9f; --red: #ff8a5c;
  --good: #143c30; --warn: #41340f; --band: #56b4e92b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 108rem; margin: 0 auto; padding: clamp(1rem, 3vw, 2.5rem); }
header { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: baseline; }
h1 { font-size: clamp(1.6rem, 4vw, 2.3rem); line-height: 1.15; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .3rem; }
p { margin: .3rem 0 .8rem; max-width: 85ch; }
.quiet, .legend, .upright, .across, .key { color: var(--quiet); font-size: .875rem; }
.badge { border-radius: 1rem; padding: .1rem .8rem; font-weight: 600; background: var(--good);
  color: var(--green); white-space: nowrap; }
.warnings { background: var(--warn); border-radius: .6rem; margin: 1rem 0; padding: .8rem 1rem .8rem 2.2rem;
  overflow-wrap: anywhere; }
.tiles { display: grid; gap: .8rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 10.5rem), 1fr)); }
.tile, figure, .table { background: var(--card); border: 1px solid var(--edge); border-radius: .6rem; }
.tile { padding: .7rem 1rem; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; overflow-wrap: anywhere; }
.tile span { color: var(--quiet); font-size: .875rem; }
.figures, .maps { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; margin: .8rem 0; }
.figures > * { flex: 1 1 22rem; max-width: 34rem; }
.maps > * { flex: 1 1 16rem; max-width: 32rem; }
@media (max-width: 44rem) { .figures > *, .maps > * { flex-basis: 100%; } }
figure { margin: 0; padding: .8rem 1rem; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--quiet); }
.rule { stroke: var(--rule); } .level { stroke: var(--quiet); stroke-dasharray: 5 4; }
.band { fill: var(--band); } .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.area { stroke-width: 1.5; fill-opacity: .18; }
.curve.blue, .area.blue { stroke: var(--blue); } .curve.orange, .area.orange { stroke: var(--orange); }
.curve.red, .area.red { stroke: var(--red); } .curve.green, .area.green { stroke: var(--green); }
.dot.blue, .area.blue { fill: var(--blue); } .dot.orange, .area.orange { fill: var(--orange); }
.dot.red { fill: var(--red); } .dot.green { fill: var(--green); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin-top: .4rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem; }
i.blue { background: var(--blue); } i.orange { background: var(--orange); } i.red { background: var(--red); }
i.green { background: var(--green); } i.band { background: var(--band); }
.legend i.level { height: 0; border-top: 2px dashed var(--quiet); vertical-align: middle; border-radius: 0; }
.framed { display: grid; grid-template-columns: auto 1fr; gap: .2rem .4rem; }
.upright { display: flex; flex-direction: column; justify-content: space-between; text-align: right; }
.across { grid-column: 2; display: flex; justify-content: space-between; min-width: 0; }
.names > span { flex: 1 1 0; min-width: 0; text-align: center; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.map { width: 100%; min-width: 0; image-rendering: pixelated; border-radius: 2px; background: var(--rule); }
.key { display: flex; gap: .5rem; align-items: center; margin-top: .5rem; }
.bar { flex: 1; height: .6rem; min-width: 3rem; border-radius: 2px; }
.table { overflow: auto; max-height: 34rem; margin: .8rem 0; }
.figures > .table { margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--card); color: var(--quiet); font-weight: 600; }
th, td { padding: .35rem .8rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th.word, td.word { text-align: left; }
td.word { white-space: normal; min-width: 6.5rem; }
tr:last-child td { border-bottom: 0; }
summary { cursor: pointer; color: var(--blue); margin: .6rem 0; }
code { font-size: .875em; overflow-wrap: anywhere; }
@media print { .table { max-height: none; } body { background: #fff; } }
"""


# the key is whether the file is fp32; a lower precision is made from a graph that was proved in fp32
BADGES = {True: "✓ parity proved", False: "✓ parity proved in fp32"}
PRECISIONS = {"fp32": "fp32", "fp16": "fp16 (half precision)", "int8": "int8 (eight-bit weights)"}


def render_page(report: ReportData) -> str:
    """The complete page."""
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
        *_summary(report, title),
        *parity_sections(report),
        *gate_sections(report),
        *_precision(report),
        *_batches(report),
        *_provenance(report),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _summary(report: ReportData, title: str) -> list[Markup]:
    manifest, parity = report.manifest, report.manifest.parity
    profile = manifest.profile
    tiles = [
        tile(len(parity.tensors), "tensors proved", "outputs, gates and layers"),
        tile(
            sum(batch.rows for batch in parity.batches), "rows compared", f"in {len(parity.batches)} batches"
        ),
        tile(len(manifest.gates), "transform gates", "hidden outputs of the graph"),
        tile(format_bytes(report.size), "in one file", PRECISIONS[manifest.precision]),
        tile("no", "batching allowed", "rows depend on each other")
        if manifest.batch_coupled
        else tile("yes", "batching allowed", "rows are independent"),
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


def _precision(report: ReportData) -> list[Markup]:
    comparison = report.comparison
    if comparison is None:
        return []
    agreed = {"highest": "same highest score", "near": "within 1 %", "equal": "equal"}[comparison.kind]
    rows: list[list[Part]] = [
        ["agreement", f"{comparison.agreement:.4f}", "1", agreed],
        [
            "file",
            format_bytes(comparison.size),
            format_bytes(comparison.size_fp32),
            f"{comparison.size / comparison.size_fp32:.2f} of fp32",
        ],
    ]
    if comparison.metric is not None and comparison.metric_fp32 is not None:
        difference = comparison.metric - comparison.metric_fp32
        rows.insert(
            1, ["accuracy", f"{comparison.metric:.4f}", f"{comparison.metric_fp32:.4f}", f"{difference:+.4f}"]
        )
    for speed in comparison.speed:
        name = f"ms for {speed.rows} row{'s' if speed.rows > 1 else ''}"
        rows.append([name, f"{speed.ms:.3g}", f"{speed.fp32_ms:.3g}", f"{speed.ratio:.2f}x as fast"])
    rows += [
        [f"mean difference of {output.name}", f"{output.mean:.2e}", "0", f"at most {output.max:.2e}"]
        for output in comparison.outputs
    ]
    charts = []
    if comparison.gates:
        mean = Series("mean difference of T from fp32", [gate.mean for gate in comparison.gates], "blue")
        largest = Series("largest difference", [gate.max for gate in comparison.gates], "orange")
        charts.append(chart("Change of the gates", [mean, largest], below="gate, in order", log=True))
    return section(
        f"Precision: {comparison.precision} compared with fp32",
        f"On {comparison.rows:,} {'random rows' if comparison.drawn else 'rows of the data'}, with "
        f"{comparison.provider}. Speeds were measured on the machine that made this report, with one thread.",
        side_by_side(table(["", comparison.precision, "fp32", ""], rows, text_columns=(0, 3)), *charts),
    )


def _batches(report: ReportData) -> list[Markup]:
    rows: list[list[Part]] = [
        [batch.name, batch.rows, tag("code", batch.digest[:16], title=batch.digest)]
        for batch in report.manifest.parity.batches
    ]
    return section(
        "Batches",
        f"The batches that were compared. Random rows have the seed {report.manifest.parity.seed}; the "
        "digest covers names, types, shapes and bytes of the inputs.",
        table(["batch", "rows", "digest"], rows, text_columns=(0, 2)),
    )


def _provenance(report: ReportData) -> list[Markup]:
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

"""The page of a report: one section after the other, without scripts and without anything from elsewhere."""

from __future__ import annotations

from export.report.charts import Series, chart
from export.report.data import ReportData
from export.report.gates_section import gate_sections
from export.report.html import Markup, Part, format_bytes, section, side_by_side, table, tag, tile
from export.report.parity_section import parity_sections

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


# of a lower precision the proof is of the graph it was made from
BADGES = {True: "✓ parity proved", False: "✓ parity proved in fp32"}
PRECISIONS = {"fp32": "single precision", "fp16": "half precision", "int8": "weights in eight bits"}


def render_page(report: ReportData) -> str:
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
        tile(sum(batch.rows for batch in parity.batches), "rows compared", f"{len(parity.batches)} batches"),
        tile(len(manifest.gates), "transform gates", "hidden outputs of the graph"),
        tile(format_bytes(report.size), "in one file", PRECISIONS[manifest.precision]),
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


def _precision(report: ReportData) -> list[Markup]:
    found = report.comparison
    if found is None:
        return []
    agreed = {"highest": "same highest score", "near": "within 1 %", "equal": "equal"}[found.kind]
    rows: list[list[Part]] = [
        ["agreement", f"{found.agreement:.4f}", "1", agreed],
        [
            "file",
            format_bytes(found.size),
            format_bytes(found.size_fp32),
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
        side_by_side(table(["", found.precision, "fp32", ""], rows, words=(0, 3)), *charts),
    )


def _batches(report: ReportData) -> list[Markup]:
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


def _provenance(report: ReportData) -> list[Markup]:
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
    return section("Made with", None, side_by_side(*tables))

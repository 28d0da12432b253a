"""The compression section of the report: what shares of the units give, and what each layer keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnpike.export.report.charts import Series, level, line_chart
from turnpike.export.report.compression_curve import curve_with_file, differs_from_curve, file_point
from turnpike.export.report.data import KeptUnits, ReportData
from turnpike.export.report.maps import unit_map
from turnpike.reporting.chart import Bars, Chart, Color, Content, Marks, linear_axis, position_axis
from turnpike.reporting.markup import Markup, Part
from turnpike.reporting.page import chart_figure, section, side_by_side, table
from turnpike.service.artifact.manifest import Compression, CompressionPoint

# the name of the rings around the points of the file
FILE_SERIES = "this file"
SHARE_AXIS_TITLE = "units kept, %"
# colors of the curves of speed, by the number of rows
SPEED_COLORS: tuple[Color, ...] = ("1", "2", "4")


def compression_sections(report: ReportData) -> list[Markup]:
    """The curve in a table and in charts, and what each layer keeps, if the file is compressed."""
    compression = report.manifest.compression
    if compression is None:
        return []
    metric = "R2" if report.manifest.task == "number" else "accuracy"
    points = curve_with_file(report.manifest.precision, compression)
    own = points.index(file_point(compression))
    head, rows = _curve_table(points, metric)
    judged = "R2 is" if metric == "R2" else "Accuracy and answers are"
    differs = differs_from_curve(report.manifest.precision, compression)
    intro = (
        f"{compression.units:,} of {compression.units_whole:,} units are left in the layers that were cut, "
        f"and {compression.macs:,} of {compression.macs_whole:,} multiplications for one row. The units that "
        f"change most on {compression.calibration_rows:,} rows were kept. {judged} "
        f"of {compression.rows:,} other rows. The last columns say how many times faster a run is than that "
        "of the whole network, by its number of rows, on the machine that compressed the file. The row in "
        "bold is this file."
    )
    if report.manifest.precision != "fp32":
        intro += f" The other rows are of graphs in fp32, and this file is in {report.manifest.precision}."
    if compression.finetune_epochs:
        intro += (
            f" After the cut it was trained for {_counted(compression.finetune_epochs, 'more epoch')}; the "
            "other rows of the table are without training."
        )
    return [
        section(
            "Compression",
            intro,
            table(head, rows, bold=own),
            side_by_side(
                *_curve_charts(compression, points, own, metric, differs=differs),
                *_layer_pictures(report.kept),
            ),
        )
    ]


def _curve_table(points: Sequence[CompressionPoint], metric: str) -> tuple[list[str], list[list[Part]]]:
    """The head and the rows of the table."""
    sizes = list(points[0].faster)
    has_metric = any(point.metric is not None for point in points)
    has_answers = any(point.agreement is not None for point in points)
    head = ["units", "multiplications"]
    head += [*([metric] if has_metric else []), *(["same answers"] if has_answers else [])]
    head += [f"faster, {_counted(size, 'row')}" for size in sizes]
    rows: list[list[Part]] = []
    for point in points:
        score: list[Part] = ["-" if point.metric is None else f"{point.metric:.2%}"]
        faster: list[Part] = [f"{point.faster[size]:.2f}x" if size in point.faster else "-" for size in sizes]
        rows.append(
            [
                f"{point.share:.1%}",
                f"{point.macs:.1%}",
                *(score if has_metric else []),
                *(["-" if point.agreement is None else f"{point.agreement:.2%}"] if has_answers else []),
                *faster,
            ]
        )
    return head, rows


def _curve_charts(
    compression: Compression, points: Sequence[CompressionPoint], own: int, metric: str, *, differs: bool
) -> list[Markup]:
    """Answers, multiplications and speed over the share of the units, with rings at the file's points.

    No line leads to the file if it `differs` from the curve.
    """
    # an axis grows to the right
    ascending, own = points[::-1], len(points) - 1 - own
    at = [100 * point.share for point in ascending]
    places = [f"{share:.1f} % of the units" for share in at]
    x = linear_axis(SHARE_AXIS_TITLE, at, low=None)

    def chart(
        title: str, curves: Sequence[Series], whole: tuple[str, float] | None, low: float | None
    ) -> Markup:
        """A chart of these figures, with that of the whole network as a level."""
        others: list[Content] = [
            Marks(FILE_SERIES, [at[own]], [curve.values[own]], [("ring", "text")], [places[own]])
            for curve in curves
        ]
        others += [] if whole is None else [level(*whole, x)]
        if differs:
            gaps = [[*curve.values[:own], None, *curve.values[own + 1 :]] for curve in curves]
            curves = [replace(curve, values=values) for curve, values in zip(curves, gaps, strict=True)]
        return line_chart(title, curves, x, places, at=at, others=others, low=low)

    answers = []
    if compression.agreement is not None:
        answers.append(Series("same answers, %", [_percent(point.agreement) for point in ascending], "2"))
    title, whole = "Same answers", None
    if compression.metric is not None:
        answers.insert(0, Series(f"{metric}, %", [_percent(point.metric) for point in ascending], "4"))
        title = f"{metric[0].upper()}{metric[1:]}" + (
            "" if compression.agreement is None else " and same answers"
        )
    if compression.metric_whole is not None:
        whole = (f"{metric} of the whole network, %", 100 * compression.metric_whole)
    work = Series("multiplications left, %", [100 * point.macs for point in ascending], "4")
    faster = [
        Series(_counted(size, "row"), [point.faster.get(size) for point in ascending], color)
        for size, color in zip(compression.faster, SPEED_COLORS, strict=False)
    ]
    return [
        *([] if not answers else [chart(title, answers, whole, None)]),
        chart("Multiplications left in the layers", [work], None, 0),
        chart("Times faster, by rows of a run", faster, ("the whole network", 1.0), 0),
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _layer_pictures(layers: Sequence[KeptUnits]) -> list[Markup]:
    """How many units each layer keeps, and which."""
    if not layers:
        return []
    names, places = [layer.layer for layer in layers], range(len(layers))
    kept, whole = [len(layer.units) for layer in layers], [layer.whole for layer in layers]
    content = [
        Bars("kept", "4", places, kept),
        Bars(
            "removed",
            "faint",
            places,
            [all_units - left for left, all_units in zip(kept, whole, strict=True)],
        ),
    ]
    counts = Chart(
        "",
        "Units kept by layer",
        "",
        content,
        position_axis("layer", names),
        linear_axis("", whole),
        places=[f"layer {layer.layer}: {len(layer.units):,} of {layer.whole:,}" for layer in layers],
    )
    which = unit_map("Which units are kept", [(layer.units, layer.whole) for layer in layers], names)
    return [chart_figure(counts), which]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

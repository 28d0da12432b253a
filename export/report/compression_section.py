"""The compression section of the report: what shares of the units give, and what each layer keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from turnpike.export.compression_curve import curve_with_file, differs_from_curve, file_point
from turnpike.export.report.charts import Series, bars, chart
from turnpike.export.report.data import KeptUnits, ReportData
from turnpike.export.report.html import Markup, Part, section, side_by_side, table
from turnpike.export.report.maps import unit_map
from turnpike.service.artifact.manifest import Compression, CompressionPoint

# the name of the rings around the points of the file
FILE_SERIES = "this file"
SHARE_AXIS_TITLE = "units kept, %"
# colors of the curves of speed, by the number of rows
SPEED_COLORS = ("series-1", "series-2", "series-4")


def compression_sections(report: ReportData) -> list[Markup]:
    """The curve in a table and in charts, and what each layer keeps, if the file is compressed."""
    compression = report.manifest.compression
    if compression is None:
        return []
    points = curve_with_file(report.manifest.precision, compression)
    own = points.index(file_point(compression))
    head, rows = _curve_table(points)
    differs = differs_from_curve(report.manifest.precision, compression)
    intro = (
        f"{compression.units:,} of {compression.units_whole:,} units are left in the layers that were cut, "
        f"and {compression.macs:,} of {compression.macs_whole:,} multiplications for one row. The units that "
        f"change most on {compression.calibration_rows:,} rows were kept. Accuracy and answers are "
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
                *_curve_charts(compression, points, own, differs=differs), *_layer_pictures(report.kept)
            ),
        )
    ]


def _curve_table(points: Sequence[CompressionPoint]) -> tuple[list[str], list[list[Part]]]:
    """The head and the rows of the table."""
    sizes = list(points[0].faster)
    has_accuracy = any(point.metric is not None for point in points)
    has_answers = any(point.agreement is not None for point in points)
    head = ["units", "multiplications"]
    head += [*(["accuracy"] if has_accuracy else []), *(["same answers"] if has_answers else [])]
    head += [f"faster, {_counted(size, 'row')}" for size in sizes]
    rows: list[list[Part]] = []
    for point in points:
        accuracy: list[Part] = ["-" if point.metric is None else f"{point.metric:.2%}"]
        faster: list[Part] = [f"{point.faster[size]:.2f}x" if size in point.faster else "-" for size in sizes]
        rows.append(
            [
                f"{point.share:.1%}",
                f"{point.macs:.1%}",
                *(accuracy if has_accuracy else []),
                *(["-" if point.agreement is None else f"{point.agreement:.2%}"] if has_answers else []),
                *faster,
            ]
        )
    return head, rows


def _curve_charts(
    compression: Compression, points: Sequence[CompressionPoint], own: int, *, differs: bool
) -> list[Markup]:
    """Answers, multiplications and speed over the share of the units, with rings at the file's points.

    No line leads to the file if it `differs` from the curve.
    """
    # an axis grows to the right
    ascending, own = points[::-1], len(points) - 1 - own
    at = [100 * point.share for point in ascending]
    places = [f"{share:.1f} % of the units" for share in at]

    def curve(name: str, figure: Callable[[CompressionPoint], float | None], color: str) -> list[Series]:
        values = [figure(point) for point in ascending]
        rings = [value if place == own else None for place, value in enumerate(values)]
        if differs:
            values[own] = None
        return [Series(name, values, color), Series(FILE_SERIES, rings, "", rings=True)]

    def percent(share: float | None) -> float | None:
        return None if share is None else 100 * share

    has_accuracy = compression.metric is not None
    accuracy = curve("accuracy, %", lambda point: percent(point.metric), "series-4") if has_accuracy else []
    has_answers = compression.agreement is not None
    agreement = curve("same answers, %", lambda point: percent(point.agreement), "series-2")
    whole = percent(compression.metric_whole)
    work = curve("multiplications left, %", lambda point: percent(point.macs), "series-4")
    faster: list[Series] = []
    for size, color in zip(compression.faster, SPEED_COLORS, strict=False):
        faster += curve(_counted(size, "row"), partial(_times_faster, size), color)
    chart_over_shares = partial(chart, below=SHARE_AXIS_TITLE, places=places, at=at)
    answers = chart_over_shares(
        "Accuracy and same answers" if has_accuracy else "Same answers",
        [*accuracy, *agreement],
        level=None if whole is None else ("accuracy of the whole network, %", [whole] * len(at)),
    )
    return [
        *([answers] if has_answers else []),
        chart_over_shares("Multiplications left in the layers", work, bounds=(0, None)),
        chart_over_shares(
            "Times faster, by rows of a run",
            faster,
            bounds=(0, None),
            level=("the whole network", [1.0] * len(at)),
        ),
    ]


def _times_faster(size: int, point: CompressionPoint) -> float | None:
    return point.faster.get(size)


def _layer_pictures(layers: Sequence[KeptUnits]) -> list[Markup]:
    """How many units each layer keeps, and which."""
    if not layers:
        return []
    names = [layer.layer for layer in layers]
    return [
        bars(
            "Units kept by layer",
            [(len(layer.units), layer.whole) for layer in layers],
            below="layer",
            places=names,
            names=("kept", "removed"),
        ),
        unit_map("Which units are kept", [(layer.units, layer.whole) for layer in layers], names),
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""The curve of a compression with the point of the file itself, for the report and the terminal."""

from __future__ import annotations

from math import sqrt

from turnpike.service.artifact.manifest import Compression, CompressionPoint, Precision

# standard deviations on both sides of the mean that hold 95 % of a normal distribution
Z_95 = 1.959964


def file_point(compression: Compression) -> CompressionPoint:
    """The point of the curve that the file is."""
    return CompressionPoint(
        share=compression.units / compression.units_whole,
        macs=compression.macs / compression.macs_whole if compression.macs_whole else 1.0,
        agreement=compression.agreement,
        metric=compression.metric,
        faster=compression.faster,
    )


def differs_from_curve(precision: Precision, compression: Compression) -> bool:
    """Whether the file is no point of the curve, which is in fp32 and without training after the cut."""
    return compression.finetune_epochs > 0 or precision != "fp32"


def curve_with_file(precision: Precision, compression: Compression) -> list[CompressionPoint]:
    """The curve with the file's point, from the largest share to the smallest.

    A point with as many units as the file is left out, unless the file differs from the curve.
    """
    differs = differs_from_curve(precision, compression)
    others = [
        point
        for point in compression.curve
        if differs or round(point.share * compression.units_whole) != compression.units
    ]
    return sorted((*others, file_point(compression)), key=lambda point: -point.share)


def share_interval(share: float, rows: int) -> tuple[float, float]:
    """Wilson's interval: where the share of all rows is, with 95 % confidence, by that of some of them."""
    spread = Z_95**2 / rows
    middle = (share + spread / 2) / (1 + spread)
    half_width = Z_95 / (1 + spread) * sqrt(share * (1 - share) / rows + spread / (4 * rows))
    return max(0.0, middle - half_width), min(1.0, middle + half_width)

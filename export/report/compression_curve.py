"""The curve of a compression with the point of the file itself, for the report and the terminal."""

from __future__ import annotations

from turnpike.service.artifact.manifest import Compression, CompressionPoint, Precision


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

"""Strokes of hand-drawn digits, in several variants and sizes, slanted, rotated and slightly shaky."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Point = tuple[float, float]
Stroke = list[Point]


@dataclass(frozen=True)
class Drawing:
    """Strokes on a board of side length 1, with x to the right and y down."""

    label: str
    variant: int
    strokes: list[Stroke]


def arc(cx: float, cy: float, rx: float, ry: float, start: float, end: float) -> Stroke:
    """Part of an ellipse; angles in degrees, clockwise from the right."""
    angles = [math.radians(start + (end - start) * i / 24) for i in range(25)]
    return [(cx + rx * math.cos(angle), cy + ry * math.sin(angle)) for angle in angles]


def line(*corners: Point) -> Stroke:
    """Straight lines from corner to corner."""
    points: Stroke = []
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        points += [(x0 + (x1 - x0) * i / 12, y0 + (y1 - y0) * i / 12) for i in range(13)]
    return points


# strokes per variant, in a box of side length 1
VARIANTS: dict[str, list[list[Stroke]]] = {
    "0": [
        [arc(0.5, 0.5, 0.36, 0.5, -90, -450)],
        [arc(0.5, 0.5, 0.45, 0.5, -60, -420)],
        [arc(0.5, 0.5, 0.28, 0.5, -100, 270)],
    ],
    "1": [
        [line((0.5, 0), (0.5, 1))],
        [line((0.3, 0.2), (0.55, 0), (0.55, 1))],
        [line((0.3, 0.2), (0.52, 0), (0.52, 1)), line((0.25, 1), (0.8, 1))],
    ],
    "2": [
        [arc(0.48, 0.28, 0.36, 0.28, -170, 30) + line((0.8, 0.42), (0.12, 1), (0.88, 1))],
        [arc(0.48, 0.27, 0.34, 0.27, -180, 45) + line((0.7, 0.5), (0.1, 1), (0.9, 0.98))],
        [
            arc(0.45, 0.3, 0.35, 0.3, -150, 50)
            + line((0.62, 0.55), (0.25, 0.9))
            + arc(0.3, 0.9, 0.12, 0.08, 90, 300)
            + line((0.35, 0.85), (0.9, 1))
        ],
    ],
    "3": [
        [arc(0.45, 0.25, 0.35, 0.25, -160, 90) + arc(0.45, 0.75, 0.4, 0.25, -90, 160)],
        [line((0.12, 0), (0.82, 0), (0.42, 0.4)) + arc(0.42, 0.7, 0.4, 0.3, -85, 160)],
        [arc(0.42, 0.24, 0.34, 0.24, -150, 100) + arc(0.42, 0.73, 0.42, 0.27, -95, 150)],
    ],
    "4": [
        [line((0.6, 0), (0.1, 0.65), (0.92, 0.65)), line((0.66, 0.3), (0.66, 1))],
        [line((0.2, 0), (0.15, 0.5), (0.85, 0.5)), line((0.8, 0), (0.75, 1))],
        [line((0.72, 1), (0.72, 0), (0.08, 0.68), (0.95, 0.68))],
    ],
    "5": [
        [line((0.85, 0), (0.22, 0), (0.18, 0.42)) + arc(0.45, 0.68, 0.4, 0.32, -130, 150)],
        [
            line((0.22, 0.02), (0.18, 0.45)) + arc(0.45, 0.7, 0.38, 0.3, -130, 150),
            line((0.2, 0.02), (0.85, 0)),
        ],
        [line((0.8, 0.03), (0.25, 0.03), (0.2, 0.45)) + arc(0.42, 0.7, 0.42, 0.3, -110, 140)],
    ],
    "6": [
        [arc(0.8, 0.62, 0.7, 0.62, -90, -178) + arc(0.48, 0.7, 0.36, 0.3, 180, -180)],
        [line((0.6, 0), (0.3, 0.35), (0.15, 0.65)) + arc(0.48, 0.72, 0.34, 0.28, 180, -180)],
        [arc(0.75, 0.55, 0.6, 0.55, -100, -190) + arc(0.5, 0.72, 0.32, 0.28, 190, -170)],
    ],
    "7": [
        [line((0.1, 0.03), (0.9, 0), (0.4, 1))],
        [line((0.1, 0.05), (0.88, 0.05), (0.45, 1)), line((0.3, 0.5), (0.8, 0.47))],
        [[*line((0.12, 0.15), (0.12, 0.03), (0.9, 0.03)), (0.7, 0.3), (0.55, 0.6), (0.48, 1)]],
        [line((0.05, 0), (0.95, 0), (0.25, 1))],
    ],
    "8": [
        [
            arc(0.5, 0.25, 0.3, 0.25, -60, -270)
            + arc(0.5, 0.75, 0.37, 0.25, -90, 270)
            + arc(0.5, 0.25, 0.3, 0.25, 90, -60)
        ],
        [arc(0.5, 0.26, 0.28, 0.26, -90, 270), arc(0.5, 0.76, 0.34, 0.24, -90, 270)],
    ],
    "9": [
        [arc(0.48, 0.3, 0.34, 0.3, 0, -360) + line((0.82, 0.3), (0.8, 0.6), (0.7, 1))],
        [[*arc(0.48, 0.28, 0.36, 0.28, -20, -380), (0.84, 0.4), (0.8, 0.75), (0.6, 0.97), (0.3, 1)]],
        [arc(0.5, 0.3, 0.34, 0.3, -10, -370) + line((0.84, 0.25), (0.82, 1))],
    ],
}


def digit_drawings(times: int, seed: int = 0) -> list[Drawing]:
    """Each variant of each digit, `times` times; the same on every call with the same seed."""
    generator = random.Random(seed)
    return [
        Drawing(label, variant, [[transform(point) for point in stroke] for stroke in strokes])
        for label, variants in VARIANTS.items()
        for variant, strokes in enumerate(variants)
        for transform in [_handwriting(generator, bar=(label, variant) == ("1", 0)) for _ in range(times)]
    ]


def _handwriting(generator: random.Random, *, bar: bool) -> Callable[[Point], Point]:
    """A random size, position, slant, rotation and shake, as a map from the box to the board."""
    height = generator.uniform(0.35, 0.95)
    width = height * (generator.uniform(0.02, 0.3) if bar else generator.uniform(0.45, 0.85))
    slant, turn = generator.uniform(-0.12, 0.3) * width, generator.uniform(-0.1, 0.1)
    left = generator.uniform(0, max(0.0, 1 - width - abs(slant))) - min(0.0, slant)
    top = generator.uniform(0, 1 - height)
    shake, phases = 0.02 * height, [generator.uniform(0, 2 * math.pi) for _ in range(3)]
    middle_x, middle_y = left + width / 2, top + height / 2

    def transform(point: Point) -> Point:
        x, y = point
        across = left + width * x + slant * (1 - y)
        across += shake * (math.sin(5 * y + phases[0]) + math.sin(9 * x + phases[1]))
        down = top + height * y + shake * math.sin(6 * x + phases[2])
        dx, dy = across - middle_x, down - middle_y
        return (
            middle_x + math.cos(turn) * dx - math.sin(turn) * dy,
            middle_y + math.sin(turn) * dx + math.cos(turn) * dy,
        )

    return transform

"""Draws the digits among the training rows of `drawn-digits`, and writes `models/data/drawn_digits.npz`.

    python -m benchmarks.reading.training_drawings

Strokes are made by rules with random shapes. The page's own code fits them to the frame of 8 x 8 pixels, in
headless Chromium, so that the network learns from what the page sends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.reading.page_rows import DRAWN_ROWS, HIGHEST_VALUE, as_rows, open_page
from turnpike import models

Point = tuple[float, float]
Stroke = list[Point]

FILE = Path(models.__file__).parent / "data/drawn_digits.npz"
COUNT = 1_200
SEED = 77
# pen widths, as multiples of the page's medium brush
PENS = (0.5, 1.6)


def main() -> None:
    generator = random.Random(SEED)
    labels = [number % 10 for number in range(COUNT)]
    drawings = [
        {"strokes": moved(FORMS[label](generator), generator), "pen": generator.uniform(*PENS)}
        for label in labels
    ]
    with open_page() as page:
        rows = as_rows(page, DRAWN_ROWS, [drawings])[:, 0]
    pixels = np.rint(HIGHEST_VALUE * rows).astype(np.uint8).reshape(-1, 1, 8, 8)
    np.savez_compressed(FILE, x=pixels, y=np.array(labels, np.uint8))
    print(f"{FILE}: {len(pixels)} rows, {FILE.stat().st_size:,} bytes")


def arc(cx: float, cy: float, rx: float, ry: float, start: float, end: float) -> Stroke:
    """Part of an ellipse; angles in degrees, clockwise from the right."""
    angles = [math.radians(start + (end - start) * step / 20) for step in range(21)]
    return [(cx + rx * math.cos(angle), cy + ry * math.sin(angle)) for angle in angles]


def zero(draw: random.Random) -> list[Stroke]:
    start = draw.uniform(-150, -20)
    turn = draw.choice([-1, 1]) * draw.uniform(340, 375)
    return [arc(0.5, 0.5, draw.uniform(0.25, 0.48), 0.5, start, start + turn)]


def one(draw: random.Random) -> list[Stroke]:
    """A bar, a bar with a flag, or both with a foot."""
    x, form = draw.uniform(0.4, 0.6), draw.random()
    if form < 0.4:
        return [[(x + draw.uniform(-0.05, 0.05), 0), (x, 1)]]
    flag: Stroke = [
        (x - draw.uniform(0.15, 0.35), draw.uniform(0.12, 0.35)),
        (x, 0),
        (x + draw.uniform(-0.05, 0.05), 1),
    ]
    foot: Stroke = [(x - draw.uniform(0.2, 0.35), 1), (x + draw.uniform(0.2, 0.35), 1)]
    return [flag] if form < 0.7 else [flag, foot]


def two(draw: random.Random) -> list[Stroke]:
    y = draw.uniform(0.22, 0.32)
    start, end = draw.uniform(-190, -140), draw.uniform(20, 60)
    bow = arc(draw.uniform(0.42, 0.52), y, draw.uniform(0.3, 0.4), y, start, end)
    base = [(draw.uniform(0.1, 0.2), draw.uniform(0.95, 1)), (draw.uniform(0.8, 0.95), draw.uniform(0.93, 1))]
    return [bow + base]


def three(draw: random.Random) -> list[Stroke]:
    """Two bows, or a flat top and one bow."""
    y = draw.uniform(0.2, 0.28)
    if draw.random() < 0.3:
        top = [
            (0.1, 0.0),
            (draw.uniform(0.75, 0.9), 0.0),
            (draw.uniform(0.35, 0.5), draw.uniform(0.35, 0.45)),
        ]
        return [top + arc(0.42, 0.7, draw.uniform(0.35, 0.42), 0.3, -80, draw.uniform(130, 170))]
    upper = arc(0.42, y, draw.uniform(0.3, 0.4), y, draw.uniform(-170, -130), draw.uniform(70, 100))
    start, end = draw.uniform(-95, -75), draw.uniform(130, 170)
    return [upper + arc(0.42, y + 0.5, draw.uniform(0.35, 0.45), 0.5 - y, start, end)]


def four(draw: random.Random) -> list[Stroke]:
    """Two strokes with a pointed top, two with an open one, or a single stroke."""
    x, y, form = draw.uniform(0.6, 0.78), draw.uniform(0.5, 0.72), draw.random()
    if form < 0.4:
        corner = [
            (x - draw.uniform(0.02, 0.2), 0.0),
            (draw.uniform(0.05, 0.15), y),
            (draw.uniform(0.88, 1), y),
        ]
        return [corner, [(x, draw.uniform(0.15, 0.4)), (x - draw.uniform(-0.03, 0.08), 1)]]
    if form < 0.75:
        end = (draw.uniform(0.8, 0.98), y - 0.1 + draw.uniform(-0.05, 0.03))
        corner = [(draw.uniform(0.1, 0.25), draw.uniform(0, 0.1)), (draw.uniform(0.08, 0.2), y - 0.1), end]
        return [
            corner,
            [(x + draw.uniform(0, 0.1), draw.uniform(0, 0.1)), (x - draw.uniform(-0.02, 0.08), 1)],
        ]
    return [[(x, 1), (x, 0), (draw.uniform(0.02, 0.15), y), (draw.uniform(0.88, 1), y)]]


def five(draw: random.Random) -> list[Stroke]:
    """One stroke, or a second one for the cap."""
    middle = (draw.uniform(0.4, 0.46), draw.uniform(0.66, 0.72))
    start, end = draw.uniform(-135, -105), draw.uniform(130, 165)
    bow = arc(*middle, draw.uniform(0.36, 0.44), draw.uniform(0.28, 0.33), start, end)
    x = draw.uniform(0.15, 0.26)
    stem = (x, draw.uniform(0.38, 0.46))
    if draw.random() < 0.5:
        cap = [(draw.uniform(0.75, 0.9), draw.uniform(0, 0.05)), (x + 0.03, draw.uniform(0, 0.05))]
        return [[*cap, stem, *bow]]
    return [
        [(x + 0.02, 0), stem, *bow],
        [(x, draw.uniform(0, 0.04)), (draw.uniform(0.75, 0.92), draw.uniform(0, 0.05))],
    ]


def six(draw: random.Random) -> list[Stroke]:
    y, rx = draw.uniform(0.66, 0.74), draw.uniform(0.3, 0.38)
    back = [(draw.uniform(0.5, 0.8), 0.0), (draw.uniform(0.28, 0.4), draw.uniform(0.2, 0.35)), (0.48 - rx, y)]
    return [back + arc(0.48, y, rx, 1 - y, 180, 180 - draw.uniform(330, 370))]


def seven(draw: random.Random) -> list[Stroke]:
    """With or without a bar through the stem."""
    hook = [
        (draw.uniform(0.02, 0.15), draw.uniform(0, 0.1)),
        (draw.uniform(0.85, 0.98), draw.uniform(0, 0.06)),
        (draw.uniform(0.55, 0.7), draw.uniform(0.35, 0.55)),
        (draw.uniform(0.25, 0.5), 1.0),
    ]
    bar = [(draw.uniform(0.25, 0.35), 0.5), (draw.uniform(0.7, 0.85), draw.uniform(0.45, 0.52))]
    return [hook] if draw.random() < 0.7 else [hook, bar]


def eight(draw: random.Random) -> list[Stroke]:
    """Two rings, or one stroke that crosses itself."""
    y, upper, lower = draw.uniform(0.22, 0.28), draw.uniform(0.25, 0.33), draw.uniform(0.3, 0.4)
    ring = arc(0.5, 0.5 + y, lower, 0.5 - y, -90, 270)
    if draw.random() < 0.5:
        return [arc(0.5, y, upper, y, -90, 270), ring]
    return [
        arc(0.5, y, upper, y, draw.uniform(-70, -40), -270) + ring + arc(0.5, y, upper, y, 90, -60),
    ]


def nine(draw: random.Random) -> list[Stroke]:
    """With a straight stem, one of its own, or a hook."""
    y, rx = draw.uniform(0.24, 0.34), draw.uniform(0.28, 0.38)
    x, start, form = 0.48 + rx, draw.uniform(-40, 5), draw.random()
    loop = arc(0.48, y, rx, y, start, start - draw.uniform(330, 370))
    if form < 0.5:
        stem = [(x + draw.uniform(-0.04, 0.03), draw.uniform(0.5, 0.7)), (x - draw.uniform(-0.02, 0.15), 1.0)]
        return [[*loop, (x, y), *stem]]
    if form < 0.65:
        return [loop, [(x, draw.uniform(0, 0.2)), (x - draw.uniform(-0.03, 0.1), 1)]]
    low = (x - draw.uniform(0.15, 0.3), draw.uniform(0.93, 0.98))
    return [[*loop, (x, y), (x - draw.uniform(0, 0.05), 0.72), low, (draw.uniform(0.2, 0.4), 1.0)]]


FORMS: tuple[Callable[[random.Random], list[Stroke]], ...] = (
    zero, one, two, three, four, five, six, seven, eight, nine,
)  # fmt: skip


def moved(strokes: list[Stroke], draw: random.Random) -> list[Stroke]:
    """The strokes scaled, slanted, turned and shaken as a whole."""
    height = draw.uniform(0.4, 0.95)
    width = height * draw.uniform(0.4, 0.9)
    slant, turn = draw.uniform(-0.15, 0.35) * width, draw.uniform(-0.15, 0.15)
    shake, waves = draw.uniform(0, 0.03) * height, draw.uniform(3, 8)
    phase_x, phase_y = draw.uniform(0, 2 * math.pi), draw.uniform(0, 2 * math.pi)

    def move(point: Point) -> Point:
        x, y = point
        across = width * x + slant * (1 - y) + shake * math.sin(waves * y + phase_x)
        down = height * y + shake * math.sin(waves * x + phase_y)
        return across * math.cos(turn) - down * math.sin(turn), across * math.sin(turn) + down * math.cos(
            turn
        )

    return [[move(point) for point in stroke] for stroke in strokes]


if __name__ == "__main__":
    main()

"""Measures how well a digits model reads pictures on the page, fitted to the frame and as they are.

The page's own code runs in headless Chromium. It draws strokes and opens image files as for a user, and the
rows that it would send are given to the model.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reading.page_rows import DRAWN_ROWS, HIGHEST_VALUE, as_rows, open_page
from tests.support.digit_strokes import digit_drawings
from turnpike import service
from turnpike.models.data.load import load_dataset
from turnpike.service.artifact.runtime import open_model

BUNDLED_MODEL = Path(service.__file__).parent / "default/digits-10/1/model.onnx"
SIZES = (8, 16, 28, 64, 200)  # pixels of an image file's side
MNIST_ROWS = 1_000
SEED = 2  # of drawings; 0 and 1 were used to choose the recipe of digits-10
# drawings of each of 30 forms of digits
TIMES = 10
# pen widths, as multiples of the page's medium brush: from finer than its fine one to its broad one
PENS = (0.5, 1.6)

FILE_ROWS = """async ([pictures, side, size]) => {
  const { fitPixels } = await import("/dashboard/pictures/fit_to_frame.js");
  const { readImage } = await import("/dashboard/pictures/image_file.js");
  const { fitInside, toGrey } = await import("/dashboard/pictures/pixels.js");
  const { frameFor } = await import("/dashboard/pictures/training_frame.js");
  const { paintPixels } = await import("/dashboard/pictures/pixel_canvas.js");
  const frame = frameFor(8, 8, []);
  const rows = [];
  for (const data of pictures) {
    const small = document.createElement("canvas");
    paintPixels(small, { height: side, width: side, channels: 1, data });
    const enlarged = new OffscreenCanvas(size, size);
    enlarged.getContext("2d").drawImage(small, 0, 0, size, size);
    const image = toGrey(await readImage(await enlarged.convertToBlob()));
    rows.push([fitPixels(image, frame), fitInside(image, 8, 8)].map((pixels) => [...pixels.data]));
  }
  return rows;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading.digit_pictures", description=__doc__)
    parser.add_argument(
        "models", nargs="*", type=Path, default=[BUNDLED_MODEL], help="model files (default: the bundled one)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST, to measure its pictures, too")
    arguments = parser.parse_args()
    paths = arguments.models
    pictures = page_pictures(arguments.data_dir)
    for path in paths:
        print(f"\n{path}\n\n| pictures | rows | fitted | as they are |\n| --- | ---: | ---: | ---: |")
        for name, rows, labels in pictures:
            shares = (f"{accuracy(path, rows[:, kind], labels):.1%}" for kind in (0, 1))
            print(f"| {name} | {len(labels)} | {' | '.join(shares)} |")


def page_pictures(mnist: Path | None) -> list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return (name, rows, labels) of all kinds of pictures; rows are (rows, fitted or not, pixels)."""
    test = load_dataset("digits").test
    generator = random.Random(SEED)
    drawings = digit_drawings(TIMES, seed=SEED)
    with open_page() as page:
        values = (test.x.flatten(1) / HIGHEST_VALUE).tolist()
        found = [
            (f"test rows, {size} x {size}", as_rows(page, FILE_ROWS, [values, 8, size]), test.y.numpy())
            for size in SIZES
        ]
        if mnist is not None:
            rows = load_dataset("mnist", data_dir=mnist).test.take(torch.arange(MNIST_ROWS))
            values = (rows.x.flatten(1) / 255).tolist()
            found.append(("MNIST, 28 x 28", as_rows(page, FILE_ROWS, [values, 28, 28]), rows.y.numpy()))
        strokes = [{"strokes": drawing.strokes, "pen": generator.uniform(*PENS)} for drawing in drawings]
        labels = np.array([int(drawing.label) for drawing in drawings])
        drawn = as_rows(page, DRAWN_ROWS, [strokes])
        found.append(("drawings", drawn, labels))
        found += [
            (f"drawings of {digit}", drawn[labels == digit], labels[labels == digit]) for digit in range(10)
        ]
    return found


def accuracy(path: Path, rows: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
    logits = open_model(path).run({"x": HIGHEST_VALUE * rows.reshape(-1, 1, 8, 8)})[0]
    return float((logits.argmax(1) == labels).mean())


if __name__ == "__main__":
    main()

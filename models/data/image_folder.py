"""A user's own images: a folder with one sub-folder per class, of PNG or JPEG images of one size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from models.data.dataset import RawDataset, Split
from models.errors import DataError

FORMATS = ("PNG", "JPEG")
GREY_MODES = ("1", "L", "LA")
DEEP_MODES = ("I", "F")  # and those that begin so: more than 8 bits a pixel


def read_image_folder(folder: Path) -> RawDataset:
    """Rows (channels, height, width) of uint8: one channel if every image is greyscale, else RGB.

    Classes and files come in the order of their names; hidden ones are left out.
    """
    places = _visible(folder)
    labels = tuple(place.name for place in places if place.is_dir())
    if len(labels) < 2:
        raise DataError(
            f"{folder}: expected a sub-folder of images for each of 2 classes or more, got {len(labels)}"
        )
    strays = [place.name for place in places if not place.is_dir()]
    if strays:
        raise DataError(f"{folder}: expected only sub-folders, one per class, found {strays[0]}")

    files: list[Path] = []
    classes: list[int] = []
    for number, label in enumerate(labels):
        inside = _visible(folder / label)
        if not inside:
            raise DataError(f"{folder / label}: expected PNG or JPEG images, found none")
        files += inside
        classes += [number] * len(inside)

    headers = [_header(path) for path in files]
    size = headers[0][1]
    for path, (_, came) in zip(files, headers, strict=True):
        if came != size:
            expected = f"{size[0]}x{size[1]} pixels like {files[0].parent.name}/{files[0].name}"
            raise DataError(f"{path}: expected {expected}, got {came[0]}x{came[1]}")
    grey = all(mode in GREY_MODES for mode, _ in headers)
    x = torch.empty((len(files), 1 if grey else 3, size[1], size[0]), dtype=torch.uint8)
    for row, path in enumerate(files):
        pixels = torch.from_numpy(_pixels(path, "L" if grey else "RGB"))
        x[row] = pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1)
    return RawDataset(folder.resolve().name, Split(x, torch.tensor(classes)), None, labels, "image")


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(place for place in folder.iterdir() if not place.name.startswith("."))
    except OSError as exc:
        raise DataError(f"{folder}: cannot be read ({exc.strerror})") from exc


def _header(path: Path) -> tuple[str, tuple[int, int]]:
    """(mode, size) of an image, without its pixels."""
    if not path.is_file():
        raise DataError(f"{path}: expected a PNG or JPEG image, got something that is no file")
    with _opened(path) as image:
        mode, size = image.mode, image.size
    if mode.startswith(DEEP_MODES):
        raise DataError(f"{path}: expected 8 bits a pixel and channel, got more (mode {mode})")
    return mode, size


def _pixels(path: Path, mode: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    with _opened(path) as image:
        return np.array(image.convert(mode))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image file; whatever goes wrong with it is told as one DataError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                yield image
    except Exception as exc:  # a damaged image makes Pillow raise almost anything
        reason = (
            "not an image of these formats" if isinstance(exc, UnidentifiedImageError) else _one_line(exc)
        )
        raise DataError(f"{path}: expected a PNG or JPEG image, cannot read it ({reason})") from exc


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__

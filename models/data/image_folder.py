"""A user's images: a folder with one sub-folder per class, holding PNG or JPEG images of equal size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.errors import DataError

FORMATS = ("PNG", "JPEG")
# Pillow's modes of greyscale images, and prefixes of those with more than 8 bits per pixel and channel
GREY_MODES = ("1", "L", "LA")
DEEP_MODE_PREFIXES = ("I", "F")


def read_image_folder(folder: Path) -> RawDataset:
    """Read rows (channels, height, width) of uint8: one channel if all images are greyscale, otherwise RGB.

    Classes and files are sorted by name; hidden ones are left out.
    """
    # one class per sub-folder
    entries = _visible_entries(folder)
    labels = tuple(entry.name for entry in entries if entry.is_dir())
    if len(labels) < 2:
        raise DataError(
            f"{folder}: expected a sub-folder of images for each of 2 classes or more, got {len(labels)}"
        )
    other_entries = [entry.name for entry in entries if not entry.is_dir()]
    if other_entries:
        raise DataError(f"{folder}: expected only sub-folders, one per class, found {other_entries[0]}")

    files: list[Path] = []
    classes: list[int] = []
    for index, label in enumerate(labels):
        images = _visible_entries(folder / label)
        if not images:
            raise DataError(f"{folder / label}: expected PNG or JPEG images, found none")
        files += images
        classes += [index] * len(images)

    # all images must have the size of the first; their modes decide on the number of channels
    headers = [_read_header(path) for path in files]
    first_size = headers[0][1]
    for path, (_, size) in zip(files, headers, strict=True):
        if size != first_size:
            expected = f"{first_size[0]}x{first_size[1]} pixels like {files[0].parent.name}/{files[0].name}"
            raise DataError(f"{path}: expected {expected}, got {size[0]}x{size[1]}")
    grey = all(mode in GREY_MODES for mode, _ in headers)
    x = torch.empty((len(files), 1 if grey else 3, first_size[1], first_size[0]), dtype=torch.uint8)
    for row, path in enumerate(files):
        pixels = torch.from_numpy(_read_pixels(path, "L" if grey else "RGB"))
        x[row] = pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1)
    rows = Split(x, torch.tensor(classes))
    return RawDataset(folder.resolve().name, rows, None, labels, "image", white=255)


def _visible_entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from error


def _read_header(path: Path) -> tuple[str, tuple[int, int]]:
    """Return (mode, size) of an image without decoding its pixels."""
    if not path.is_file():
        raise DataError(f"{path}: expected a PNG or JPEG image, got something that is not a file")
    with _open_image(path) as image:
        mode, size = image.mode, image.size
    if mode.startswith(DEEP_MODE_PREFIXES):
        raise DataError(f"{path}: expected 8 bits per pixel and channel, got more (mode {mode})")
    return mode, size


def _read_pixels(path: Path, mode: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    with _open_image(path) as image:
        return np.array(image.convert(mode))


@contextmanager
def _open_image(path: Path) -> Iterator[Image.Image]:
    """Open an image file; any error in the block becomes one DataError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                yield image
    except Exception as error:  # a damaged image makes Pillow raise almost anything
        reason = (
            "not an image of these formats" if isinstance(error, UnidentifiedImageError) else _one_line(error)
        )
        raise DataError(f"{path}: expected a PNG or JPEG image, cannot read it ({reason})") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Reading a user's folder of images."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from turnpike.models.data.image_folder import read_image_folder
from turnpike.models.errors import DataError


def image(
    path: Path, mode: str = "L", size: tuple[int, int] = (3, 2), colour: int = 7, kind: str = "PNG"
) -> None:
    """An image of one color: (color, color + 1, color + 2) in RGB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fill: dict[str, int | tuple[int, ...]] = {
        "RGB": (colour, colour + 1, colour + 2),
        "RGBA": (colour, colour + 1, colour + 2, 128),
        "LA": (colour, 128),
    }
    Image.new(mode, size, fill.get(mode, colour)).save(path, kind)


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    image(folder / "dog" / "b.png", colour=3)
    image(folder / "dog" / "a.png", colour=2)
    image(folder / "cat" / "one.png", colour=1)
    return folder


def test_greyscale_images_keep_one_channel(animals: Path) -> None:
    """Classes and files are sorted by name; a row is (1, height, width) of bytes."""
    source = read_image_folder(animals)
    assert source.name == "animals"
    assert source.labels == ("cat", "dog")
    assert source.kind == "image"
    assert source.rows.x.shape == (3, 1, 2, 3)
    assert source.rows.x.dtype == torch.uint8
    assert source.rows.x[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert source.rows.y.tolist() == [0, 1, 1]


def test_pixels_keep_their_positions(tmp_path: Path) -> None:
    """Pixel (row, column) of channel c is x[c, row, column]."""
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        Image.fromarray(pixels).save(tmp_path / label / "1.png")
    x = read_image_folder(tmp_path).rows.x
    assert x.shape == (2, 3, 2, 3)
    assert x[0].tolist() == pixels.transpose(2, 0, 1).tolist()


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_one_colored_image_makes_all_images_rgb(animals: Path, mode: str) -> None:
    """Among colored images, a greyscale image has equal channels; alpha is dropped."""
    image(animals / "cat" / "two.png", mode, colour=100)
    x = read_image_folder(animals).rows.x
    assert x.shape == (4, 3, 2, 3)
    assert x[:, :, 1, 2].tolist() == [[1, 1, 1], [100, 101, 102], [2, 2, 2], [3, 3, 3]]


def test_jpegs_links_and_hidden_files_are_accepted(animals: Path) -> None:
    """JPEG is read whatever its suffix, hidden files and folders are skipped, links are followed."""
    image(animals / "dog" / "c.JPG", colour=200, kind="JPEG")
    (animals / "dog" / ".DS_Store").write_bytes(b"no image")
    (animals / ".git").mkdir()
    (animals / "dog" / "d.png").symlink_to(animals / "cat" / "one.png")
    (animals / "eel").symlink_to(animals / "cat")
    source = read_image_folder(animals)
    assert source.labels == ("cat", "dog", "eel")
    assert source.rows.x[:, 0, 0, 0].tolist() == [1, 2, 3, 200, 1, 1]


def test_the_current_folder_gets_its_real_name(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(animals)
    assert read_image_folder(Path()).name == "animals"


def not_an_image(folder: Path) -> Path:
    path = folder / "dog" / "c.png"
    path.write_bytes(b"no image")
    return path


def cut(folder: Path) -> Path:
    path = folder / "dog" / "c.png"
    pixels = np.random.default_rng(0).integers(0, 255, (2, 3), dtype=np.uint8)
    whole = io.BytesIO()
    Image.fromarray(pixels).save(whole, "PNG")
    path.write_bytes(whole.getvalue()[:-30])
    return path


def gif(folder: Path) -> Path:
    image(folder / "dog" / "c.png", kind="GIF")
    return folder / "dog" / "c.png"


def other_size(folder: Path) -> Path:
    image(folder / "dog" / "c.png", size=(2, 3))
    return folder / "dog" / "c.png"


def deep(folder: Path) -> Path:
    image(folder / "dog" / "c.png", "I;16")
    return folder / "dog" / "c.png"


def nested(folder: Path) -> Path:
    image(folder / "dog" / "more" / "c.png")
    return folder / "dog" / "more"


def broken_link(folder: Path) -> Path:
    (folder / "dog" / "c.png").symlink_to(folder / "nowhere")
    return folder / "dog" / "c.png"


def empty_class(folder: Path) -> Path:
    (folder / "eel").mkdir()
    return folder / "eel"


def stray(folder: Path) -> Path:
    image(folder / "stray.png")
    return folder


def one_class(folder: Path) -> Path:
    return folder / "dog"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (not_an_image, "expected a PNG or JPEG image, cannot read it (not an image of these formats)"),
        (cut, "expected a PNG or JPEG image, cannot read it ("),
        (gif, "expected a PNG or JPEG image, cannot read it (not an image of these formats)"),
        (other_size, "expected 3x2 pixels like cat/one.png, got 2x3"),
        (deep, "expected 8 bits per pixel and channel, got more (mode I;16)"),
        (nested, "expected a PNG or JPEG image, got something that is not a file"),
        (broken_link, "expected a PNG or JPEG image, got something that is not a file"),
        (empty_class, "expected PNG or JPEG images, found none"),
        (stray, "expected only sub-folders, one per class, found stray.png"),
        (one_class, "expected a sub-folder of images for each of 2 classes or more, got 0"),
    ],
)
def test_invalid_folders_are_reported(animals: Path, make: Callable[[Path], Path], message: str) -> None:
    """Every problem of a folder gives a one-line error that begins with the path."""
    place = make(animals)
    with pytest.raises(DataError) as caught:
        read_image_folder(place if make is one_class else animals)
    assert str(caught.value).startswith(f"{place}: {message}")
    assert "\n" not in str(caught.value)


def test_a_decompression_bomb_is_refused(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's warning about a decompression bomb becomes an error."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    with pytest.raises(DataError, match="decompression bomb"):
        read_image_folder(animals)

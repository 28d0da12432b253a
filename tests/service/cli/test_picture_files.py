"""Image files as rows of a model, in the numbers that it has for black and white."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from turnpike.service.artifact.manifest import PictureInput
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.cli.picture_files import picture_of, read_picture
from turnpike.service.cli.table_file import read_rows
from turnpike.service.errors import SettingError

# three levels of grey, and a picture of three colours
GREY = np.uint8([[0, 51, 255], [255, 0, 102]])
COLOURS = np.uint8([[[255, 0, 51], [0, 255, 0]]])


def signature(*dims: int | str, dtype: str = "float32", picture: PictureInput | None = None) -> Signature:
    tensor = Tensor("x", dtype, ("batch", *dims))
    return Signature({"x": tensor}, {}, {}, "batch", frozenset(), picture=picture)


def form(height: int, width: int, channels: Any = 1, black: float = 0, white: float = 1) -> PictureInput:
    return PictureInput(input="x", height=height, width=width, channels=channels, black=black, white=white)


def saved(folder: Path, pixels: Any, name: str = "picture.png") -> Path:
    Image.fromarray(pixels).save(folder / name)
    return folder / name


def row(path: Path, of: Signature) -> Any:
    return read_picture(path, picture_of(of), of.inputs["x"])


@pytest.mark.parametrize("dims", [(1, 2, 3), (2, 3, 1), (2, 3)])
def test_a_grey_row_has_the_shape_of_the_input(tmp_path: Path, dims: tuple[int, ...]) -> None:
    path = saved(tmp_path, GREY)
    got = row(path, signature(*dims, picture=form(2, 3)))
    expected = (GREY / 255).astype(np.float32).reshape(dims)
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize(
    ("black", "white", "expected"),
    [(0, 1, [0, 0.2, 1]), (0, 16, [0, 3.2, 16]), (-1, 1, [-1, -0.6, 1]), (1, 0, [1, 0.8, 0])],
)
def test_black_and_white_have_the_numbers_of_the_training(
    tmp_path: Path, black: float, white: float, expected: list[float]
) -> None:
    """As the file says; dark ink may be the higher number."""
    of = signature(1, 2, 3, picture=form(2, 3, black=black, white=white))
    np.testing.assert_allclose(row(saved(tmp_path, GREY), of)[0, 0], expected, atol=1e-6)


def test_colours_are_an_axis_before_or_after_the_pixels(tmp_path: Path) -> None:
    path = saved(tmp_path, COLOURS)
    before = row(path, signature(3, 1, 2, picture=form(1, 2, 3, white=255)))
    after = row(path, signature(1, 2, 3, picture=form(1, 2, 3, white=255)))
    np.testing.assert_array_equal(after, COLOURS)
    np.testing.assert_array_equal(before, COLOURS.transpose(2, 0, 1))


def test_whole_numbers_are_rounded(tmp_path: Path) -> None:
    of = signature(2, 3, dtype="int64", picture=form(2, 3, white=16))
    assert row(saved(tmp_path, GREY), of).tolist() == [[0, 3, 16], [16, 0, 6]]


def test_bytes_need_no_numbers_of_black_and_white(tmp_path: Path) -> None:
    assert row(saved(tmp_path, GREY), signature(2, 3, dtype="uint8")).tolist() == GREY.tolist()


def test_unknown_numbers_are_an_error(tmp_path: Path) -> None:
    """A conv net that wants 0 to 16 answers anything to 0 to 255."""
    with pytest.raises(ValueError, match="which numbers black and white are.* with --pixels BLACK:WHITE"):
        picture_of(signature(1, 8, 8))
    with pytest.raises(SettingError, match="picture.png: expected a model that says which numbers"):
        read_rows(saved(tmp_path, GREY), signature(1, 8, 8))
    other = re.escape("expected a model of pictures, got one of x:float32[batch,4]")
    with pytest.raises(ValueError, match=other):
        picture_of(signature(4))


def test_other_images_are_refused(tmp_path: Path) -> None:
    of = signature(2, 3, picture=form(2, 3))
    with pytest.raises(ValueError, match="high.png: expected 3x2 pixels, got 2x3"):
        row(saved(tmp_path, GREY.T.copy(), "high.png"), of)
    with pytest.raises(ValueError, match="deep.png: expected 8 bits per pixel and channel, got mode I"):
        row(saved(tmp_path, GREY.astype(np.uint16) * 256, "deep.png"), of)
    (tmp_path / "no.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="no.png: expected a PNG or JPEG image, cannot read it"):
        row(tmp_path / "no.png", of)


def test_a_folder_of_images_is_rows_with_their_files(tmp_path: Path) -> None:
    of = signature(2, 3, picture=form(2, 3, white=255))
    saved(tmp_path, GREY, "b.png")
    saved(tmp_path, 255 - GREY, "a.png")
    (tmp_path / "notes.txt").touch()
    rows, others = read_rows(tmp_path, of)
    assert rows == [(255 - GREY).tolist(), GREY.tolist()]
    assert others == {"file": ["a.png", "b.png"]}
    (tmp_path / "none").mkdir()
    with pytest.raises(SettingError, match="none: expected images"):
        read_rows(tmp_path / "none", of)

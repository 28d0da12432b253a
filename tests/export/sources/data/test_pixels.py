"""Which numbers black and white have: from the option, the training, or the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from turnpike.export.errors import ParityError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import export_model
from turnpike.export.sources.data.pixels import parse_pixels
from turnpike.export.verify import verify_model
from turnpike.service.artifact.manifest import PictureInput

INPUT = "x:float32[batch,1,8,8]"


def network(features: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(features, 3)).eval()


def picture(
    tmp_path: Path, *, source: nn.Module | None = None, inputs: str = INPUT, **options: str | Path
) -> PictureInput | None:
    exported = export_model(source or network(), tmp_path / "repo", name="net", inputs=[inputs], **options)
    return exported.manifest.picture


def grey(white: float, black: float = 0) -> PictureInput:
    return PictureInput(input="x", height=8, width=8, channels=1, black=black, white=white)


def folder_of_images(folder: Path) -> Path:
    for number in range(12):
        path = folder / "images" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        # none of them is white
        Image.fromarray(np.full((8, 8), 10 * number, np.uint8)).save(path)
    return folder / "images"


def test_the_option_says_it(tmp_path: Path) -> None:
    assert picture(tmp_path, pixels="0:16") == grey(16)
    assert picture(tmp_path, pixels="-1:1") == grey(1, -1)


def test_nothing_says_it(tmp_path: Path) -> None:
    assert picture(tmp_path) is None
    np.savez(tmp_path / "rows.npz", x=np.zeros((4, 1, 8, 8), np.float32))
    assert picture(tmp_path, data=tmp_path / "rows.npz") is None


def test_images_and_data_sets_say_it(tmp_path: Path) -> None:
    """White is 255 in a folder, even of dark images, and 16 in the digits; the option decides otherwise."""
    images = folder_of_images(tmp_path)
    assert picture(tmp_path, data=images) == grey(255)
    ten = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    assert picture(tmp_path, source=ten, data="digits") == grey(16)
    assert picture(tmp_path, data=images, pixels="0:1") == grey(1)


def test_pictures_of_any_size_have_no_numbers(tmp_path: Path) -> None:
    """Which the page, and image files, could not be fitted to."""
    convolution = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    data = folder_of_images(tmp_path)
    assert picture(tmp_path, source=convolution, inputs="x:float32[batch,1,h,w]", data=data) is None


def test_a_flat_square_may_be_a_picture(tmp_path: Path) -> None:
    assert picture(tmp_path, inputs="x:float32[batch,64]", pixels="0:1") == grey(1)
    with pytest.raises(
        UsageError, match=r"--pixels: expected one input of pictures, .*got x:float32\[batch,63\]"
    ):
        picture(tmp_path, source=network(63), inputs="x:float32[batch,63]", pixels="0:1")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("255", "expected the numbers of black and white, such as 0:255, got '255'"),
        ("0:white", "expected the numbers of black and white"),
        ("1:1", "expected two finite numbers for black and white, got '1:1'"),
        ("0:inf", "expected two finite numbers"),
        ("nan:1", "expected two finite numbers"),
    ],
)
def test_other_options_are_refused(option: str, message: str) -> None:
    of = Network("net", "module", parse_inputs([INPUT]))
    with pytest.raises(UsageError, match=f"^--pixels: {message}"):
        parse_pixels(option, of)


def test_verification_checks_it(tmp_path: Path) -> None:
    """By the rows; without them whoever exported the file says it. A file of an older version does not."""
    images, net = folder_of_images(tmp_path), network()
    result = export_model(net, tmp_path / "repo", name="net", inputs=[INPUT], data=images)
    assert "picture" in verify_model(result.path, net, data=images).claims.checked
    assert "picture" in verify_model(result.path, net).claims.claimed
    content = result.path.read_bytes()
    older = result.manifest.model_copy(update={"picture": None})
    result.path.write_bytes(embed_manifest(content, older))
    verify_model(result.path, net, data=images)
    false = result.manifest.model_copy(update={"picture": grey(1)})
    result.path.write_bytes(embed_manifest(result.path.read_bytes(), false))
    with pytest.raises(ParityError, match="picture: expected .*255.*, of the rows, got .*white=1"):
        verify_model(result.path, net, data=images)

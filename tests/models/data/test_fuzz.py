"""Fuzz tests of the readers of users' data: any file is read correctly, or refused with a DataError."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.fuzzing import Decoder, check
from turnpike.models.data.image_folder import read_image_folder
from turnpike.models.data.npz import read_npz
from turnpike.models.errors import DataError


def npz(**arrays: Any) -> bytes:
    """An .npz file whose members are stored as they are, so that a change reaches the arrays."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def change_member(data: bytes, draw: random.Random) -> bytes:
    """An .npz file with one byte or number of a member changed, and a correct checksum."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # a damaged file makes zipfile raise almost anything
        return data
    if not members:
        return data
    name = draw.choice(list(members))
    content = bytearray(members[name])
    position = draw.randrange(min(len(content), 140) or 1)
    content[position : position + draw.randrange(3)] = draw.choice(
        (b"0", b"9", b"(", b")", b",", b"<f8", b"|O", b"|S9", b"<U4", b">i2", b"\0", b"\xff", b" ", b"-")
    )
    members[draw.choice((name, name, name, "y.npy", "x_test.npy", "labels.npy", "z"))] = bytes(content)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, value in members.items():
            archive.writestr(member, value)
    return file.getvalue()


def npz_decoder(folder: Path) -> Decoder:
    path = folder / "data.npz"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        dataset = read_npz(path)
        # NumPy as the simpler reader
        with np.load(path) as arrays:
            expected = np.asarray(arrays["x"], dataset.rows.x.numpy().dtype)
            np.testing.assert_array_equal(dataset.rows.x.numpy(), expected)
            assert [dataset.labels[index] for index in dataset.rows.y.tolist()] == [
                str(value) if "labels" not in arrays else str(arrays["labels"][value])
                for value in arrays["y"].tolist()
            ]

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    seeds = [
        npz(x=x, y=np.array([0, 1, 1])),
        npz(x=x.astype(np.uint8).reshape(3, 1, 2, 2), y=np.array(["a", "b", "a"])),
        npz(x=x, y=np.array([0, 1, 1]), labels=np.array(["no", "yes"]), x_test=x, y_test=np.array([1, 0, 0])),
    ]
    # for the size that a header claims, NumPy reserves addresses, not memory
    return Decoder(read, seeds, (DataError,), (b"PK\3\4", b"x.npy"), change_member, (1, 1 << 60), 200)


def image_decoder(folder: Path) -> Decoder:
    images = folder / "images"
    for label in ("a", "b"):
        (images / label).mkdir(parents=True)
        Image.new("L", (5, 4)).save(images / label / "0.png")

    def read(data: bytes) -> None:
        (images / "b" / "0.png").write_bytes(data)
        rows = read_image_folder(images).rows.x
        assert rows.shape[0] == 2
        assert rows.shape[2:] == (4, 5)
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("L" if rows.shape[1] == 1 else "RGB"))
        np.testing.assert_array_equal(rows[1].permute(1, 2, 0).numpy(), pixels.reshape(4, 5, -1))

    seeds = []
    for mode, kind in (("L", "PNG"), ("RGB", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("LA", "PNG")):
        file = io.BytesIO()
        noise = random.Random(0).randbytes(4 * 5 * len(mode))
        Image.frombytes(mode, (5, 4), noise).save(file, kind)
        seeds.append(file.getvalue())
    tokens = (b"IHDR", b"IDAT", b"\xff\xd8", b"tRNS")
    # for the size that a chunk claims, Python reserves addresses, not memory
    return Decoder(read, seeds, (DataError,), tokens, memory=(1, 1 << 60), inputs=300)


DECODERS: dict[str, Callable[[Path], Decoder]] = {"npz": npz_decoder, "images": image_decoder}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DECODERS)
def test_any_file_is_read_correctly_or_refused(name: str, tmp_path: Path) -> None:
    """Only DataError is raised."""
    check(DECODERS[name](tmp_path))

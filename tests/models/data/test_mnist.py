"""Reading MNIST and IDX files: a user's, cached ones, and the real ones if they are on this machine."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from turnpike.models.data import mnist
from turnpike.models.data.download import RemoteFile
from turnpike.models.data.mnist import IDX_DATASETS, TEST, TRAIN, read_idx, read_mnist
from turnpike.models.errors import DataError

REAL = os.environ.get("TURNPIKE_DATA")


def write(folder: Path, names: tuple[str, str], rows: int, side: int = 4, *, zipped: bool = True) -> None:
    """Images in which every pixel is the row's number; the class is the row modulo 10."""
    folder.mkdir(parents=True, exist_ok=True)
    images = struct.pack(">4B3I", 0, 0, 8, 3, rows, side, side)
    images += b"".join(bytes([row]) * side * side for row in range(rows))
    classes = struct.pack(">4BI", 0, 0, 8, 1, rows) + bytes(row % 10 for row in range(rows))
    for name, content in zip(names, (images, classes), strict=True):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("subfolder", ["", "mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_users_folder_is_read(tmp_path: Path, subfolder: str, zipped: bool) -> None:
    """The four files are found in the folder or in its sub-folder mnist, gzipped or not."""
    write(tmp_path / subfolder, TRAIN, 12, zipped=zipped)
    write(tmp_path / subfolder, TEST, 5, zipped=zipped)
    source = read_mnist("mnist", tmp_path)
    assert source.rows.x.shape == (12, 1, 4, 4)
    assert source.rows.x.dtype == torch.uint8
    assert source.rows.x[:, 0, 3, 3].tolist() == list(range(12))
    assert source.rows.y.tolist() == [*range(10), 0, 1]
    assert source.test is not None
    assert source.test.x.shape == (5, 1, 4, 4)
    assert source.labels[7] == "7"


def no_files(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def one_missing(folder: Path) -> None:
    (folder / f"{TEST[0]}.gz").unlink()


def labels_short(folder: Path) -> None:
    (folder / f"{TRAIN[1]}.gz").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 3) + bytes(3))


def label_strange(folder: Path) -> None:
    (folder / f"{TRAIN[1]}.gz").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 12) + bytes(11) + b"\x0a")


def swapped(folder: Path) -> None:
    shutil.copy(folder / f"{TRAIN[1]}.gz", folder / f"{TRAIN[0]}.gz")


def other_size(folder: Path) -> None:
    write(folder, TEST, 5, side=3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_files, f"expected {TRAIN[0]}.gz and three more files, here or in mnist/, found none"),
        (one_missing, f"missing {TEST[0]}"),
        (labels_short, "expected 12 labels, one per image of train-images-idx3-ubyte.gz, got 3"),
        (label_strange, "expected labels from 0 to 9, got 10"),
        (swapped, "expected IDX magic 0x00000803, got 0x00000801"),
        (other_size, "expected images of 4x4 as in training, got 3x3"),
    ],
)
def test_a_folder_without_the_files_is_reported(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    """A missing file, unequal counts, an unknown label and two image sizes each give a one-line error."""
    write(tmp_path, TRAIN, 12)
    write(tmp_path, TEST, 5)
    damage(tmp_path)
    with pytest.raises(DataError) as caught:
        read_mnist("mnist", tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_folder_the_four_files_are_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is fetched once, by its checksum, into the cache folder of the data set."""
    write(tmp_path, TRAIN, 12)
    write(tmp_path, TEST, 5)
    requested: list[tuple[RemoteFile, Path]] = []

    def fetched(remote: RemoteFile, folder: Path, *, progress: object) -> Path:
        requested.append((remote, folder))
        return tmp_path / remote.name

    monkeypatch.setattr(mnist, "fetch", fetched)
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path / "cache"))
    source = read_mnist("fashion-mnist")
    assert len(source.rows) == 12
    assert source.labels[9] == "Ankle boot"
    assert [remote.name for remote, _ in requested] == [f"{name}.gz" for name in (*TRAIN, *TEST)]
    assert {folder for _, folder in requested} == {tmp_path / "cache" / "fashion-mnist"}


@pytest.mark.skipif(REAL is None, reason="TURNPIKE_DATA names no folder with the real files")
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files_have_the_expected_checksums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real files are accepted as a cache: nothing is downloaded, and there are 70,000 images."""
    monkeypatch.setenv("TURNPIKE_CACHE", str(REAL))
    monkeypatch.setattr(
        "turnpike.models.data.download._download", lambda *args: pytest.fail("asked the network")
    )
    source = read_mnist(name)
    assert source.test is not None
    assert (source.rows.x.shape, source.test.x.shape) == ((60000, 1, 28, 28), (10000, 1, 28, 28))
    # each of Fashion-MNIST's classes has exactly a tenth; MNIST's first digits are known by heart
    counts = torch.bincount(source.rows.y).tolist()
    first = source.rows.y[:5].tolist()
    assert first == [5, 0, 4, 1, 9] if name == "mnist" else counts == [6000] * 10
    assert all(
        (Path(str(REAL)) / name / f"{file}.gz").stat().st_size == size
        for file, size, _ in IDX_DATASETS[name].files
    )


def idx(*sizes: int, payload: bytes, magic: bytes | None = None) -> bytes:
    magic = bytes([0, 0, 8, len(sizes)]) if magic is None else magic
    return magic + struct.pack(f">{len(sizes)}I", *sizes) + payload


@pytest.mark.parametrize("zipped", [False, True])
def test_an_idx_file_worked_out_by_hand(tmp_path: Path, zipped: bool) -> None:
    """Two images of 2x3 bytes are read row by row, gzipped or not, whatever the file's name."""
    content = idx(2, 2, 3, payload=bytes(range(12)))
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if zipped else content)
    rows = read_idx(path, 3)
    assert rows.dtype == torch.uint8
    assert rows.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


GOOD = idx(2, 2, payload=b"abcd")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "magic 0x00000802, got an empty file"),
        (b"\x00\x00", "magic 0x00000802, got 0x0000"),
        (idx(2, 2, payload=b"abcd", magic=b"\x00\x00\x0d\x02"), "magic 0x00000802, got 0x00000d02"),
        (GOOD[:9], "2 sizes after the magic"),
        (GOOD[:-1], "4 bytes for sizes 2x2, got 3"),
        (GOOD + b"e", "4 bytes for sizes 2x2, got more"),
        (idx(0, 28, payload=b""), "at least one row, got sizes 0x28"),
        (idx(0xFFFFFFFF, 0xFFFFFFFF, payload=b"abcd"), "got 4"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_an_invalid_file_is_reported(tmp_path: Path, content: bytes, message: str, zipped: bool) -> None:
    """A bad magic, incomplete sizes, and a payload of a wrong length each give a one-line error."""
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError) as caught:
        read_idx(path, 2)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def flip(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 0xFF
    return bytes(changed)


ZIPPED = gzip.compress(GOOD)


@pytest.mark.parametrize(
    "content",
    [flip(ZIPPED, -8), ZIPPED[:-10], ZIPPED[:-4], ZIPPED + b"stray", b"\x1f\x8b\x00"],
    ids=["CRC", "short stream", "short trailer", "stray bytes", "not gzip"],
)
def test_a_damaged_gzip_is_reported(tmp_path: Path, content: bytes) -> None:
    """A gzip file that is cut or has a wrong CRC is damaged, even if its payload looks complete."""
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="got a damaged one"):
        read_idx(path, 2)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing: expected an IDX file, there is none"):
        read_idx(tmp_path / "nothing", 1)


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes beyond the declared sizes are never unpacked."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(idx(2, 2, payload=bytes(10_000_000))))
    unpacked = 0
    read = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        data = read(self, size)
        unpacked += len(data)
        return data

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    with pytest.raises(DataError, match="got more"):
        read_idx(path, 2)
    assert unpacked < 100

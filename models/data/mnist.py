"""MNIST and Fashion-MNIST: four IDX files of 28x28 greyscale images.

An IDX file has a magic number, the sizes of its axes, and then the bytes; it is often gzipped.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.data.download import DownloadProgress, RemoteFile, data_set_folder, fetch
from turnpike.models.errors import DataError

IDX_UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20  # bytes read from a file at a time


# file names without .gz: images, labels
TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True, kw_only=True)
class IdxDataset:
    """A data set in the format of MNIST.

    Attributes:
        labels: Name of each class.
        mirrors: URLs of folders with the files, ending in "/".
        files: Name without .gz, size in bytes and SHA-256 of each file.
    """

    labels: tuple[str, ...]
    mirrors: tuple[str, ...]
    files: tuple[tuple[str, int, str], ...]

    def remotes(self) -> list[RemoteFile]:
        return [
            RemoteFile(name=f"{name}.gz", sha256=sha256, max_bytes=size, mirrors=self.mirrors)
            for name, size, sha256 in self.files
        ]


IDX_DATASETS = {
    # Y. LeCun, C. Cortes and C. J. C. Burges, CC BY-SA 3.0
    "mnist": IdxDataset(
        labels=tuple("0123456789"),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        files=(
            (TRAIN[0], 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (TRAIN[1], 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (TEST[0], 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (TEST[1], 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
    # H. Xiao, K. Rasul and R. Vollgraf, MIT
    "fashion-mnist": IdxDataset(
        labels=(
            "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
            "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
        ),
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        files=(
            (TRAIN[0], 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (TRAIN[1], 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (TEST[0], 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (TEST[1], 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
    ),
}  # fmt: skip


def read_mnist(
    name: str, data_dir: Path | None = None, progress: DownloadProgress | None = None
) -> RawDataset:
    """Read a data set from `data_dir` or, if it is None, from the cache, downloading missing files.

    Files in `data_dir` may be the user's own, so their format is checked but not their checksum.
    """
    dataset = IDX_DATASETS[name]
    if data_dir is None:
        folder = data_set_folder(name)
        paths = {
            remote.name.removesuffix(".gz"): fetch(remote, folder, progress=progress)
            for remote in dataset.remotes()
        }
    else:
        paths = find_idx_files(data_dir, name)
    rows = _read_split(paths[TRAIN[0]], paths[TRAIN[1]], len(dataset.labels))
    test = _read_split(paths[TEST[0]], paths[TEST[1]], len(dataset.labels))
    if rows.x.shape[1:] != test.x.shape[1:]:
        train_size, test_size = ("x".join(map(str, split.x.shape[2:])) for split in (rows, test))
        raise DataError(f"{paths[TEST[0]]}: expected images of {train_size} as in training, got {test_size}")
    return RawDataset(name, rows, test, dataset.labels, "image", white=255)


def find_idx_files(data_dir: Path, name: str) -> dict[str, Path]:
    """Return the paths of the four files, gzipped or not, all in data_dir/<name> or all in data_dir."""
    files = (*TRAIN, *TEST)
    for folder in (data_dir / name, data_dir):
        paths = {
            file: path for file in files for path in (folder / file, folder / f"{file}.gz") if path.is_file()
        }
        missing = [file for file in files if file not in paths]
        if paths and missing:
            raise DataError(f"{folder}: expected the four files of {name}, missing {', '.join(missing)}")
        if paths:
            return paths
    raise DataError(
        f"{data_dir}: expected {TRAIN[0]}.gz and three more files, here or in {name}/, found none"
    )


def _read_split(images: Path, labels: Path, classes: int) -> Split:
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise DataError(f"{labels}: expected {len(x)} labels, one per image of {images.name}, got {len(y)}")
    if int(y.max()) >= classes:
        raise DataError(f"{labels}: expected labels from 0 to {classes - 1}, got {int(y.max())}")
    return Split(x.unsqueeze(1), y.long())


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an IDX file of bytes as a uint8 tensor of the sizes in its header.

    Reads no more bytes than the header declares, however much a compressed file unpacks to, and allocates
    memory only for bytes that are there.
    """
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            if not is_gzip:
                return _read_stream(path, raw, dimensions)
            with gzip.GzipFile(fileobj=raw) as unzipped:
                return _read_stream(path, unzipped, dimensions)
    except FileNotFoundError as error:
        raise DataError(f"{path}: expected an IDX file, there is none") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a whole IDX file, got a damaged one ({error})") from error


def _read_stream(path: Path, stream: IO[bytes] | gzip.GzipFile, dimensions: int) -> Tensor:
    magic = stream.read(4)
    expected = bytes([0, 0, IDX_UNSIGNED_BYTE, dimensions])
    if magic != expected:
        actual = f"0x{magic.hex()}" if magic else "an empty file"
        raise DataError(f"{path}: expected IDX magic 0x{expected.hex()}, got {actual}")
    header = stream.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path}: expected {dimensions} sizes after the magic, the file ends before them")
    sizes = struct.unpack(f">{dimensions}I", header)
    total = math.prod(sizes)
    shape = "x".join(map(str, sizes))
    if total == 0:
        raise DataError(f"{path}: expected at least one row, got sizes {shape}")

    payload = bytearray()
    while len(payload) < total:
        chunk = stream.read(min(CHUNK_BYTES, total - len(payload)))
        if not chunk:
            raise DataError(f"{path}: expected {total} bytes for sizes {shape}, got {len(payload)}")
        payload += chunk
    # this read also makes gzip check its CRC
    if stream.read(1):
        raise DataError(f"{path}: expected {total} bytes for sizes {shape}, got more")
    return torch.frombuffer(payload, dtype=torch.uint8).view(sizes)

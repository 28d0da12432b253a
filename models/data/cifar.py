"""CIFAR-10 in its binary version: records of one label byte and 3x32x32 pixel bytes.

The Python version of the archive is refused, because it holds pickles, which can run code when opened.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path

import torch

from turnpike.models.data.dataset import RawDataset, Split, joined
from turnpike.models.data.download import DownloadProgress, RemoteFile, data_set_folder, fetch
from turnpike.models.errors import DataError

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD_BYTES = 1 + 3 * 32 * 32
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
CHUNK_BYTES = 1 << 20  # bytes read from the archive at a time
MAX_FILE_BYTES = 10_000 * RECORD_BYTES  # size of each real file
MAX_UNPACKED_BYTES = 8 * MAX_FILE_BYTES  # the real archive has six such files and two small ones

# A. Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images"
ARCHIVE = RemoteFile(
    name="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    max_bytes=200_000_000,
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
)


def read_cifar(data_dir: Path | None = None, progress: DownloadProgress | None = None) -> RawDataset:
    """Read the archive or the unpacked folder, from `data_dir` or, if it is None, from the cache."""
    if data_dir is None:
        path = fetch(ARCHIVE, data_set_folder("cifar10"), progress=progress)
    else:
        path = find_cifar_files(data_dir)
    files = _read_folder(path) if path.is_dir() else _read_archive(path)
    missing = [name for name in (*TRAIN, TEST) if name not in files]
    if missing:
        raise DataError(f"{path}: expected the six files of {FOLDER}, missing {', '.join(missing)}")
    batches = [_parse_records(f"{path}: {name}", files[name]) for name in TRAIN]
    rows = joined(*batches)
    test = _parse_records(f"{path}: {TEST}", files[TEST])
    return RawDataset("cifar10", rows, test, LABELS, "image", white=255)


def find_cifar_files(data_dir: Path) -> Path:
    """Return the path of the archive, or of the folder that it unpacks to."""
    if data_dir.is_file():
        return data_dir
    folders = (data_dir / "cifar10", data_dir)
    for folder in folders:
        for unpacked in (folder / FOLDER, folder):
            if any((unpacked / name).is_file() for name in (*TRAIN, TEST)):
                return unpacked
        if (folder / ARCHIVE.name).is_file():
            return folder / ARCHIVE.name
    for folder in folders:
        for name in ("cifar-10-python.tar.gz", "cifar-10-batches-py", TRAIN[0].removesuffix(".bin")):
            if (folder / name).exists():
                raise DataError(_pickle_error(folder / name))
    raise DataError(f"{data_dir}: expected {ARCHIVE.name} or the folder {FOLDER}, found neither")


def _pickle_error(path: Path) -> str:
    return f"{path}: holds Python pickles, which are never opened; use {ARCHIVE.name} instead"


def _read_folder(folder: Path) -> dict[str, bytearray]:
    files = {}
    for name in (*TRAIN, TEST):
        path = folder / name
        try:
            if path.is_file():
                with path.open("rb") as file:
                    files[name] = bytearray(file.read(MAX_FILE_BYTES + 1))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return files


class _BoundedGzip(gzip.GzipFile):
    """A gzip stream that raises an error once it unpacks to more than the real archive."""

    remaining_bytes = MAX_UNPACKED_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.remaining_bytes -= len(data)
        if self.remaining_bytes < 0:
            raise OSError("it unpacks to more than the real archive")
        return data


def _read_archive(archive: Path) -> dict[str, bytearray]:
    """Read the six files from the stream, so that nothing is written to a path from the archive."""
    files: dict[str, bytearray] = {}
    try:
        with (
            _BoundedGzip(archive) as unzipped,
            tarfile.open(fileobj=unzipped, mode="r|", bufsize=CHUNK_BYTES) as tar,
        ):
            for member in tar:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if folder == "cifar-10-batches-py":
                    raise DataError(_pickle_error(archive))
                is_batch = member.isreg() and folder == FOLDER and name in (*TRAIN, TEST)
                content = tar.extractfile(member) if is_batch else None
                if content is not None:
                    files[name] = bytearray(content.read(MAX_FILE_BYTES + 1))
            # gzip checks its CRC only when the stream is read to its end
            while unzipped.read(CHUNK_BYTES):
                pass
    except FileNotFoundError as error:
        raise DataError(f"{archive}: expected {ARCHIVE.name}, there is none") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"{archive}: expected a whole {ARCHIVE.name}, got a damaged one ({error})") from error
    return files


def _parse_records(where: str, content: bytearray) -> Split:
    if not 0 < len(content) <= MAX_FILE_BYTES or len(content) % RECORD_BYTES:
        size = f"{len(content)}" if len(content) <= MAX_FILE_BYTES else "more"
        raise DataError(f"{where}: expected 1 to 10000 records of {RECORD_BYTES} bytes, got {size} bytes")
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD_BYTES)
    y = records[:, 0].long()
    if int(y.max()) >= len(LABELS):
        raise DataError(f"{where}: expected labels from 0 to {len(LABELS) - 1}, got {int(y.max())}")
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), y)

"""CIFAR-10 in its binary form: records of one label byte and 3x32x32 pixel bytes.

The archive's usual form holds Python pickles, which run code when they are opened. It is refused.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path

import torch

from models.data.dataset import RawDataset, Split
from models.data.download import DownloadProgress, RemoteFile, cache_folder, fetch
from models.errors import DataError

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD_BYTES = 1 + 3 * 32 * 32
FOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 10_000 * RECORD_BYTES  # of one file
MAX_UNPACKED_BYTES = (
    8 * MAX_FILE_BYTES
)  # of the archive; the real one holds six such files and two small ones

# A. Krizhevsky 2009, "Learning Multiple Layers of Features from Tiny Images"
ARCHIVE = RemoteFile(
    name="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    most_bytes=200_000_000,
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
)


def read_cifar(data_dir: Path | None = None, progress: DownloadProgress | None = None) -> RawDataset:
    """The rows of the archive, or of the unpacked folder, from the user's place or else from the cache."""
    if data_dir is None:
        place = fetch(ARCHIVE, cache_folder("cifar10"), progress=progress)
    else:
        place = find_cifar_files(data_dir)
    files = _folder_files(place) if place.is_dir() else _archive_files(place)
    missing = [name for name in (*TRAIN, TEST) if name not in files]
    if missing:
        raise DataError(f"{place}: expected the six files of {FOLDER}, missing {', '.join(missing)}")
    parts = [_read_split(f"{place}: {name}", files[name]) for name in TRAIN]
    rows = Split(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
    return RawDataset("cifar10", rows, _read_split(f"{place}: {TEST}", files[TEST]), LABELS, "image")


def find_cifar_files(data_dir: Path) -> Path:
    """The archive itself, or the folder that it unpacks to."""
    if data_dir.is_file():
        return data_dir
    folders = (data_dir / "cifar10", data_dir)
    for folder in folders:
        for place in (folder / FOLDER, folder):
            if any((place / name).is_file() for name in (*TRAIN, TEST)):
                return place
        if (folder / ARCHIVE.name).is_file():
            return folder / ARCHIVE.name
    for folder in folders:
        pickles = ("cifar-10-python.tar.gz", "cifar-10-batches-py", TRAIN[0].removesuffix(".bin"))
        for pickled in pickles:
            if (folder / pickled).exists():
                raise DataError(_pickle_error(folder / pickled))
    raise DataError(f"{data_dir}: expected {ARCHIVE.name} or the folder {FOLDER}, found neither")


def _pickle_error(place: Path) -> str:
    return f"{place}: holds Python pickles, which are never opened; get {ARCHIVE.name} instead"


def _folder_files(folder: Path) -> dict[str, bytearray]:
    files = {}
    for name in (*TRAIN, TEST):
        path = folder / name
        try:
            if path.is_file():
                with path.open("rb") as file:
                    files[name] = bytearray(file.read(MAX_FILE_BYTES + 1))
        except OSError as exc:
            raise DataError(f"{path}: cannot be read ({exc.strerror})") from exc
    return files


class _BoundedGzip(gzip.GzipFile):
    """Ends in an error rather than unpack without end."""

    left = MAX_UNPACKED_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise OSError("it unpacks to more than the real archive")
        return data


def _archive_files(archive: Path) -> dict[str, bytearray]:
    """The wanted members, read as they stream by: nothing is ever written to a path the archive names."""
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
                wanted = member.isreg() and folder == FOLDER and name in (*TRAIN, TEST)
                content = tar.extractfile(member) if wanted else None
                if content is not None:
                    files[name] = bytearray(content.read(MAX_FILE_BYTES + 1))
            # reading on to the end makes gzip check its CRC
            while unzipped.read(CHUNK_BYTES):
                pass
    except FileNotFoundError as exc:
        raise DataError(f"{archive}: expected {ARCHIVE.name}, there is none") from exc
    except (OSError, EOFError, zlib.error, tarfile.TarError) as exc:
        raise DataError(f"{archive}: expected a whole {ARCHIVE.name}, got a damaged one ({exc})") from exc
    return files


def _read_split(where: str, content: bytearray) -> Split:
    if not 0 < len(content) <= MAX_FILE_BYTES or len(content) % RECORD_BYTES:
        came = f"{len(content)}" if len(content) <= MAX_FILE_BYTES else "more"
        raise DataError(f"{where}: expected 1 to 10000 records of {RECORD_BYTES} bytes, got {came} bytes")
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, RECORD_BYTES)
    y = records[:, 0].long()
    if int(y.max()) >= len(LABELS):
        raise DataError(f"{where}: expected labels from 0 to {len(LABELS) - 1}, got {int(y.max())}")
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), y)

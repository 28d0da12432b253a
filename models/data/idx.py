"""IDX files, the format that MNIST came in: a magic number, the sizes, then bytes; often gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from models.errors import DataError

UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The bytes of an IDX file as a uint8 tensor of its declared sizes.

    Never holds more than the header declares, whatever a compressed file would unpack to, and takes
    memory only as bytes really come.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            if not zipped:
                return _read(path, raw, dimensions)
            with gzip.GzipFile(fileobj=raw) as unzipped:
                return _read(path, unzipped, dimensions)
    except FileNotFoundError as exc:
        raise DataError(f"{path}: expected an IDX file, there is none") from exc
    except (OSError, EOFError, zlib.error) as exc:
        raise DataError(f"{path}: expected a whole IDX file, got a damaged one ({exc})") from exc


def _read(path: Path, stream: IO[bytes] | gzip.GzipFile, dimensions: int) -> Tensor:
    magic = stream.read(4)
    expected = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if magic != expected:
        came = f"0x{magic.hex()}" if magic else "an empty file"
        raise DataError(f"{path}: expected IDX magic 0x{expected.hex()}, got {came}")
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
        chunk = stream.read(min(CHUNK, total - len(payload)))
        if not chunk:
            raise DataError(f"{path}: expected {total} bytes for sizes {shape}, got {len(payload)}")
        payload += chunk
    # reading on past the last byte is also what makes gzip check its CRC
    if stream.read(1):
        raise DataError(f"{path}: expected {total} bytes for sizes {shape}, got more")
    return torch.frombuffer(payload, dtype=torch.uint8).view(sizes)

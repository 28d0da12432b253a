"""IDX files, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

from models.data.idx import read_idx
from models.errors import DataError


def idx(*sizes: int, payload: bytes, magic: bytes | None = None) -> bytes:
    magic = bytes([0, 0, 8, len(sizes)]) if magic is None else magic
    return magic + struct.pack(f">{len(sizes)}I", *sizes) + payload


@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_is_read_by_hand(tmp_path: Path, zipped: bool) -> None:
    """Two images of 2x3 bytes come out row by row, gzipped or not, whatever the file is called."""
    content = idx(2, 2, 3, payload=bytes(range(12)))
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(content) if zipped else content)
    rows = read_idx(path, 3)
    assert rows.dtype == torch.uint8
    assert rows.tolist() == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


GOOD = idx(2, 2, payload=b"abcd")


@pytest.mark.parametrize(
    ("content", "said"),
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
def test_a_wrong_file_is_told(tmp_path: Path, content: bytes, said: str, zipped: bool) -> None:
    """A bad magic, sizes cut off, and a payload too short, too long or empty are each told in one line."""
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError) as caught:
        read_idx(path, 2)
    assert said in str(caught.value)
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
def test_a_damaged_gzip_is_told(tmp_path: Path, content: bytes) -> None:
    """A gzip file that is cut, or whose CRC does not agree, is damaged even where its payload looks whole."""
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="got a damaged one"):
        read_idx(path, 2)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(DataError, match="nothing: expected an IDX file, there is none"):
        read_idx(tmp_path / "nothing", 1)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compressed file holds beyond its declared sizes is never unpacked."""
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

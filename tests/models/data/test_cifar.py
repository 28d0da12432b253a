"""Reading CIFAR-10: the binary archive, its folder, and files that are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from turnpike.models.data import cifar
from turnpike.models.data.cifar import ARCHIVE, FOLDER, RECORD_BYTES, TEST, TRAIN, read_cifar
from turnpike.models.errors import DataError


def batch(number: int) -> bytes:
    """Two records of classes `number` and 9; the red, green and blue planes are number, number + 1 and number
    + 2.
    """
    planes = b"".join(bytes([number + channel]) * 1024 for channel in range(3))
    return bytes([number]) + planes + bytes([9]) + planes


FILES = {name: batch(number) for number, name in enumerate((*TRAIN, TEST))}


def unpacked(folder: Path, files: dict[str, bytes] = FILES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def packed(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def in_folder(files: dict[str, bytes] = FILES, folder: str = FOLDER) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in files.items()}


@pytest.mark.parametrize("subfolder", ["", "cifar10"])
@pytest.mark.parametrize("form", ["archive", "folder", "files", "file"])
def test_archive_and_folder_give_the_same_rows(tmp_path: Path, subfolder: str, form: str) -> None:
    """An archive, its folder, or a folder that holds either gives the same rows, batches in order."""
    path = tmp_path
    if form == "folder":
        unpacked(tmp_path / subfolder / FOLDER)
    elif form == "files":
        unpacked(tmp_path / subfolder)
    else:
        packed(tmp_path / subfolder / ARCHIVE.name, in_folder())
        path = tmp_path / subfolder / ARCHIVE.name if form == "file" else tmp_path
    source = read_cifar(path)
    assert source.rows.x.shape == (10, 3, 32, 32)
    assert source.rows.x.dtype == torch.uint8
    assert source.rows.y.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert source.rows.x[4].flatten(1).float().mean(1).tolist() == [2, 3, 4]
    assert source.test is not None
    assert source.test.y.tolist() == [5, 9]
    assert source.labels[0] == "airplane"


def test_the_archive_is_fetched_into_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder, the archive is fetched by its checksum and read from the cache."""
    packed(tmp_path / "there.tar.gz", in_folder())
    requested: list[tuple[object, Path]] = []

    def fetched(remote: object, folder: Path, *, progress: object) -> Path:
        requested.append((remote, folder))
        return tmp_path / "there.tar.gz"

    monkeypatch.setattr(cifar, "fetch", fetched)
    monkeypatch.setenv("TURNPIKE_CACHE", str(tmp_path))
    assert len(read_cifar().rows) == 10
    assert requested == [(ARCHIVE, tmp_path / "cifar10")]


def python_archive(folder: Path) -> None:
    packed(folder / "cifar-10-python.tar.gz", in_folder({"data_batch_1": b"\x80"}, "cifar-10-batches-py"))


def renamed_python_archive(folder: Path) -> None:
    packed(folder / ARCHIVE.name, in_folder({"data_batch_1": b"\x80"}, "cifar-10-batches-py"))


def python_folder(folder: Path) -> None:
    unpacked(folder / "cifar-10-batches-py", {"data_batch_1": b"\x80"})


def python_files(folder: Path) -> None:
    unpacked(folder, {"data_batch_1": b"\x80"})


@pytest.mark.parametrize("make", [python_archive, renamed_python_archive, python_folder, python_files])
def test_pickles_are_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The Python version of the archive is refused, and the message names the right file."""
    make(tmp_path)
    with pytest.raises(DataError, match=rf"pickles, which are never opened; use {ARCHIVE.name} instead$"):
        read_cifar(tmp_path)


def empty(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def one_missing(folder: Path) -> None:
    packed(folder / ARCHIVE.name, in_folder({name: FILES[name] for name in TRAIN}))


def short_record(folder: Path) -> None:
    unpacked(folder, {**FILES, TRAIN[2]: FILES[TRAIN[2]][:-1]})


def no_record(folder: Path) -> None:
    unpacked(folder, {**FILES, TRAIN[2]: b""})


def strange_label(folder: Path) -> None:
    unpacked(folder, {**FILES, TEST: b"\x0a" + bytes(RECORD_BYTES - 1)})


def cut_archive(folder: Path) -> None:
    packed(folder / ARCHIVE.name, in_folder())
    content = (folder / ARCHIVE.name).read_bytes()
    (folder / ARCHIVE.name).write_bytes(content[: len(content) // 2])


def wrong_crc(folder: Path) -> None:
    packed(folder / ARCHIVE.name, in_folder())
    content = bytearray((folder / ARCHIVE.name).read_bytes())
    content[-8] ^= 0xFF
    (folder / ARCHIVE.name).write_bytes(content)


def no_archive(folder: Path) -> None:
    (folder / ARCHIVE.name).write_bytes(b"<html>not found</html>")


def no_tar(folder: Path) -> None:
    (folder / ARCHIVE.name).write_bytes(gzip.compress(b"no tar" * 1000))


def linked(folder: Path) -> None:
    """An archive whose members have the right names but are links to files outside of it."""
    with tarfile.open(folder / ARCHIVE.name, "w:gz") as tar:
        for name in FILES:
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.type = tarfile.SYMTYPE
            member.linkname = "/etc/passwd"
            tar.addfile(member)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (empty, f"expected {ARCHIVE.name} or the folder {FOLDER}, found neither"),
        (one_missing, f"missing {TEST}"),
        (short_record, "data_batch_3.bin: expected 1 to 10000 records of 3073 bytes, got 6145 bytes"),
        (no_record, "data_batch_3.bin: expected 1 to 10000 records of 3073 bytes, got 0 bytes"),
        (strange_label, "test_batch.bin: expected labels from 0 to 9, got 10"),
        (cut_archive, "got a damaged one"),
        (wrong_crc, "got a damaged one"),
        (no_archive, "got a damaged one"),
        (no_tar, "got a damaged one"),
        (linked, f"missing {TRAIN[0]}"),
    ],
)
def test_invalid_files_are_reported(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    """Missing, short, damaged and foreign files each give a one-line error with the path."""
    make(tmp_path)
    with pytest.raises(DataError) as caught:
        read_cifar(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_checksum_covers_the_whole_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong CRC is found even if it comes long after the last member that is read."""
    monkeypatch.setattr(cifar, "CHUNK_BYTES", 512)
    wrong_crc(tmp_path)
    with pytest.raises(DataError, match="CRC"):
        read_cifar(tmp_path)


def test_members_outside_of_the_folder_are_not_written(tmp_path: Path) -> None:
    """Members that name paths outside are skipped; the archive is only read."""
    packed(tmp_path / "a" / ARCHIVE.name, {"../stray": b"stray", f"/{FOLDER}/x": b"x", **in_folder()})
    before = sorted(tmp_path.rglob("*"))
    assert len(read_cifar(tmp_path / "a").rows) == 10
    assert sorted(tmp_path.rglob("*")) == before


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that unpacks to more than the real one is refused before all of it is unpacked."""
    monkeypatch.setattr(cifar._BoundedGzip, "remaining_bytes", 3_000_000)
    packed(tmp_path / ARCHIVE.name, {"filler": bytes(20_000_000), **in_folder()})
    with pytest.raises(DataError, match="unpacks to more than the real archive"):
        read_cifar(tmp_path)

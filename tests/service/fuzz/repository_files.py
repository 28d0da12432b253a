"""Fuzzing of the names of files in a repository."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import orjson

from tests.support.fuzzing import Decoder
from turnpike.service.errors import SettingError
from turnpike.service.repository.scan import MAX_NAME_LENGTH, scan


def scan_decoder(folder: Path) -> Decoder:
    """A repository with the names in the input; a name may be a folder, a file, or a link."""

    def read(data: bytes) -> None:
        root = folder / "repository"
        root.mkdir()
        try:
            files = [path for path in data.split(b"\n") if is_writable(path)][:8]
            for number, path in enumerate(files):
                place = os.path.join(os.fsencode(root), path)  # noqa: PTH118, names are bytes
                with contextlib.suppress(OSError):
                    os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
                    if number % 5 == 4:
                        os.symlink(files[number - 1], place)  # noqa: PTH211
                    else:
                        with open(place, "wb") as file:  # noqa: PTH123
                            file.write(path)
            found = scan(root)
            for name, versions in found.models.items():
                assert name.isprintable()
                numbers = [file.version for file in versions]
                assert numbers == sorted(set(numbers))
                for file in versions:
                    place = root / name / str(file.version) / "model.onnx"
                    assert file.path == place.resolve() or place.is_symlink() or file.path == place
                    assert place.resolve().is_relative_to(root.resolve())
                    assert file.size == place.stat().st_size
            # names and reasons are sent to other processes and to clients
            orjson.dumps([[skipped.name, skipped.reason] for skipped in found.skipped] + list(found.models))
            for path in files:
                parts = path.split(b"/")
                if len(parts) == 3 and parts[1:] == [b"7", b"model.onnx"] and parts[0].isalnum():
                    name = parts[0].decode()[:MAX_NAME_LENGTH]
                    assert name in {*found.models, *(skipped.name for skipped in found.skipped)}
            if not found.models:
                raise SettingError("no models")
        finally:
            shutil.rmtree(root)

    seeds = [b"net/7/model.onnx\nother/1/model.onnx\nother/2/model.onnx\nx/readme", b"a/1/model.onnx\na/.b/c"]
    tokens = (b"/1/", b"/007/", b"model.onnx", b"..", b"/", b"\xff", b"\xc3\xbc", b"\xe2\x80\xae", b"A" * 201)
    return Decoder(read, seeds, (SettingError,), tokens, inputs=60)


def is_writable(path: bytes) -> bool:
    """Whether a relative path can be made, and stays inside."""
    parts = path.split(b"/")
    # the test itself needs much memory to remove folders that are nested more deeply
    return bool(path) and len(parts) < 20 and parts[0] != b"" and b".." not in parts and b"\0" not in path

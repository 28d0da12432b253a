"""A store for `service.remote` that is a folder, and that fails as tests want it to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

PROTOCOL = "stand-in"

# changes a download: gets the path of the file that was written
Spoil = Callable[[Path], Any]


def leave_alone(path: Path) -> None:
    """Spoil nothing."""


class StandInStore(LocalFileSystem):  # type: ignore[misc]
    """Records downloads. `spoil` changes or fails each of them, and `refused` is a folder without access."""

    protocol = PROTOCOL
    cachable = False
    downloads: ClassVar[list[str]] = []
    spoil: ClassVar[list[Spoil]] = [leave_alone]
    refused: ClassVar[str | None] = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return LocalFileSystem._strip_protocol(str(path).removeprefix(f"{PROTOCOL}://"))

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        if self.refused is not None and path.endswith(self.refused):
            raise PermissionError(13, "Permission denied", path)
        return super().ls(path, detail, **options)

    def get_file(self, path1: str, path2: str, callback: Any = None, **options: Any) -> None:
        self.downloads.append("/".join(Path(path1).parts[-3:-1]))
        super().get_file(path1, path2, callback, **options)
        self.spoil[0](Path(path2))


def install() -> type[StandInStore]:
    """Make the store known to fsspec, without records and faults."""
    fsspec.register_implementation(PROTOCOL, StandInStore, clobber=True)
    StandInStore.downloads, StandInStore.refused = [], None
    spoil_downloads(leave_alone)
    return StandInStore


def spoil_downloads(spoil: Spoil) -> None:
    """From now on, each download is changed or failed by this function."""
    StandInStore.spoil = [spoil]


def address(folder: Path) -> str:
    """The address of a folder in this store."""
    return f"{PROTOCOL}://{folder}"

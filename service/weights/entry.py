"""An entry of the cache: the files of one prepared model, with the digests that they must have.

Reading all bytes of the weights takes longer than mapping them. So an entry whose digests were checked gets a
stamp with the identities of its files, which holds until one of them changes or the machine starts anew.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnpike.common.file_digest import sha256_of
from turnpike.service.low_priority import Caller
from turnpike.service.weights.private_files import (
    Identity,
    UntrustedError,
    boot_id,
    expect_private_folder,
    is_settled,
    private_identity,
    read_sealed,
    write_sealed,
)

# the optimized graph, the weights beside it, and the values of the levers
GRAPH, WEIGHTS, LEVERS = "model.onnx", "weights.bin", "levers.npz"
FILES = (GRAPH, WEIGHTS, LEVERS)
DIGESTS, STAMP = "digests.json", "checked.json"


class Entry:
    """The files of one prepared model in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graph, self.levers = folder / GRAPH, folder / LEVERS

    def seal(self) -> None:
        """Make the files private, and store their digests."""
        for name in FILES:
            (self.folder / name).chmod(0o600)
        write_sealed(self.folder / DIGESTS, {name: sha256_of(self.folder / name) for name in FILES})

    def is_intact(self, call: Caller, clock: Callable[[], int] = time.time_ns) -> bool:
        """Whether the files are those that were sealed. Reads them only if their stamp does not hold.

        Args:
            call: Makes the calls that take long.
            clock: The time in nanoseconds.
        """
        with contextlib.suppress(OSError, UntrustedError):
            expect_private_folder(self.folder)
            return self._is_as_sealed(call, clock)
        return False

    def read_fact(self, name: str) -> Any:
        """What `write_fact` stored under this name; None if there is nothing, or it is damaged."""
        return read_sealed(self.folder / f"fact-{name}.json")

    def write_fact(self, name: str, fact: Any) -> None:
        """Store what was found out about the model, as JSON."""
        write_sealed(self.folder / f"fact-{name}.json", fact)

    def touch(self) -> None:
        """Count as used now. Entries that were not used for the longest time are removed first."""
        os.utime(self.folder)

    def size(self) -> int:
        """The bytes of all files."""
        return sum(path.lstat().st_size for path in self.folder.iterdir())

    def _is_as_sealed(self, call: Caller, clock: Callable[[], int]) -> bool:
        # checked before?
        expected = read_sealed(self.folder / DIGESTS)
        if expected is None:
            return False
        identities = self._identities()
        stamp = {"boot": boot_id(), "files": {name: list(known) for name, known in identities.items()}}
        if stamp["boot"] is not None and read_sealed(self.folder / STAMP) == stamp:
            return True
        # check now
        started = clock()
        digests = {name: call(sha256_of, self.folder / name) for name in FILES}
        if digests != expected or self._identities() != identities:
            return False
        if all(is_settled(identity, started) for identity in identities.values()):
            with contextlib.suppress(OSError):  # without a stamp, the next process reads the files again
                write_sealed(self.folder / STAMP, stamp)
        return True

    def _identities(self) -> dict[str, Identity]:
        return {name: private_identity(self.folder / name) for name in FILES}

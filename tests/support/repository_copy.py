"""Copies of the repository, in which programs change the code and run tests."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

ROOT = Path(__file__).parents[2]
# exit status of pytest if tests ran and at least one failed; any other status is no answer
TESTS_PASSED, TESTS_FAILED = 0, 1


def copy_repository(target: Path) -> None:
    """Copy the tracked files as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def in_copies(
    items: Iterable[Item], work: Callable[[Item, Path], Outcome], count: int
) -> Iterator[tuple[Item, Outcome]]:
    """Call `work` with each item and a copy of the repository; yield items and outcomes in their order.

    There are `count` copies, which work at the same time. They are removed at the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(number) for number in range(count)]
        for copy in copies:
            copy_repository(copy)

        def work_in_next(item: Item) -> Outcome:
            copy = copies.pop()
            try:
                return work(item, copy)
            finally:
                copies.append(copy)

        items = list(items)
        with ThreadPoolExecutor(count) as pool:
            yield from zip(items, pool.map(work_in_next, items), strict=True)

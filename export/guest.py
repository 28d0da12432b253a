"""A user's own code beside ours: its imports find its modules, even those called as ours are."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# the names of this house, any of which a user's folder may bear as well
OURS = frozenset({"models", "export", "service", "loadtest", "turnpike"})
INSTALLED = tuple(
    {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}
)


class Guest:
    """Folders of a user's code. Within `host()` they come first on the path, and their modules are theirs.

    Modules of ours with the name of one of theirs are put aside while the block runs, and put back after
    it; theirs are kept, so that the next block finds them as they were.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [str(folder.resolve()) for folder in dict.fromkeys(folders)]
        self._kept: dict[str, ModuleType] = {}

    @contextmanager
    def host(self) -> Iterator[None]:
        """Let the user's code import what it would import on its own."""
        importlib.invalidate_caches()
        names = self._names()
        aside = _take(names)
        sys.modules.update(self._kept)
        path = sys.path[:]
        sys.path[:] = [*self.folders, *path]
        finder = _Finder(names & OURS, self.folders)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            sys.path[:] = path
            self._kept.update(_take(names))
            sys.modules.update(aside)

    def _names(self) -> set[str]:
        """The names of theirs that stand for another module outside."""
        theirs = {name for folder in self.folders for name in _importable(Path(folder))}
        names = {name for name in theirs & OURS if not self._has(sys.modules.get(name))}
        for name in theirs - OURS - set(sys.stdlib_module_names):
            module = sys.modules.get(name)
            if module is not None and not self._has(module) and not _lies_in(module, INSTALLED):
                names.add(name)
        return names | {name.partition(".")[0] for name in self._kept}

    def _has(self, module: ModuleType | None) -> bool:
        """Whether this very module is theirs: they may stand in our own folder."""
        return module is not None and any(
            Path(place).parent == Path(folder) for place in _places(module) for folder in self.folders
        )


class _Finder:
    """Finds some names in some folders alone: a folder of theirs without __init__.py comes before ours."""

    def __init__(self, names: set[str], folders: list[str]) -> None:
        self._names = names
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self._folders) if name in self._names else None


def _importable(folder: Path) -> Iterator[str]:
    """What `import` finds in a folder; a package without __init__.py counts where its name is one of ours."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and entry.suffix in (".py", ".so", ".pyd"):
            yield entry.name.partition(".")[0]
        elif (entry / "__init__.py").is_file() or (entry.name in OURS and any(entry.glob("*.py"))):
            yield entry.name


def _take(names: set[str]) -> dict[str, ModuleType]:
    """Remove modules of these names, and what is inside them, from those that are loaded."""
    taken = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in taken:
        del sys.modules[name]
    return taken


def _places(module: ModuleType) -> list[str]:
    """The file of a module, or the folder of a package."""
    folders = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None)
    return folders or ([file] if file else [])


def _lies_in(module: ModuleType, folders: Sequence[str]) -> bool:
    places = _places(module)
    return not places or any(Path(place).is_relative_to(folder) for place in places for folder in folders)

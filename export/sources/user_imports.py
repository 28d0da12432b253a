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
OWN_PACKAGES = frozenset({"models", "export", "service", "loadtest", "tune", "turnpike"})
INSTALLED_FOLDERS = tuple(
    {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}
)


class UserImports:
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
        theirs = self._theirs()
        names = {*theirs, *(name.partition(".")[0] for name in self._kept)}
        aside = _unload(names)
        sys.modules.update(self._kept)
        path = sys.path[:]
        sys.path[:] = [*self.folders, *path]
        finder = _Finder(theirs)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            sys.path[:] = path
            self._kept.update(_unload(names))
            sys.modules.update(aside)

    def _theirs(self) -> dict[str, str]:
        """The names of theirs that stand for another module outside, and the folders where they lie."""
        found: dict[str, str] = {}
        for folder in self.folders:
            found = {**dict.fromkeys(_importable_names(Path(folder)), folder), **found}
        return {
            name: folder
            for name, folder in found.items()
            if _is_shadowed(name, sys.modules.get(name), folder)
        }


class _Finder:
    """Finds some names each in its folder: one of theirs without __init__.py comes before ours."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self._folders[name]]) if name in self._folders else None


def _importable_names(folder: Path) -> Iterator[str]:
    """What `import` finds in a folder; a package without __init__.py counts where its name is one of ours."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and entry.suffix in (".py", ".so", ".pyd"):
            yield entry.name.partition(".")[0]
        elif (entry / "__init__.py").is_file() or (entry.name in OWN_PACKAGES and any(entry.glob("*.py"))):
            yield entry.name


def _is_shadowed(name: str, loaded: ModuleType | None, folder: str) -> bool:
    """Whether what is loaded under a name of theirs is another module than the one in their folder."""
    if loaded is None:
        return name in OWN_PACKAGES
    if name in sys.stdlib_module_names or (
        name not in OWN_PACKAGES and _is_inside(loaded, INSTALLED_FOLDERS)
    ):
        return False
    return not any(str(Path(place).parent) == folder for place in _locations(loaded))


def _unload(names: set[str]) -> dict[str, ModuleType]:
    """Remove modules of these names, and what is inside them, from those that are loaded."""
    taken = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in taken:
        del sys.modules[name]
    return taken


def _locations(module: ModuleType) -> list[str]:
    """The file of a module, or the folder of a package."""
    folders = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None)
    return folders or ([file] if file else [])


def _is_inside(module: ModuleType, folders: Sequence[str]) -> bool:
    places = _locations(module)
    return not places or any(Path(place).is_relative_to(folder) for place in places for folder in folders)

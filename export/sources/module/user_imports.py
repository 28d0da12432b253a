"""Isolates the imports of the user's code, which may have modules with the names of this package's own.

A user's folder may well contain `models/` or `export.py`. While their code runs, such names must mean their
modules; afterwards they must mean ours again.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# the top-level names of this project
OWN_PACKAGES = frozenset({"models", "export", "service", "loadtest", "score", "tune", "client", "turnpike"})
INSTALLED_FOLDERS = tuple(
    {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}
)


class UserImports:
    """The import state of the user's code, which is in effect within `active()`.

    There, the user's folders come first on the path, and loaded modules with the name of a module of theirs
    are put aside. Modules that their code loads are kept for the next block, which finds them as they were.

    Args:
        folders: Folders that the user's code imports from.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [str(folder.resolve()) for folder in dict.fromkeys(folders)]
        self._user_modules: dict[str, ModuleType] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the user's code import what it would import on its own, while the block runs."""
        importlib.invalidate_caches()
        shadowed = self._shadowed()
        names = {*shadowed, *(name.partition(".")[0] for name in self._user_modules)}
        set_aside = _unload(names)
        sys.modules.update(self._user_modules)
        path = sys.path[:]
        sys.path[:] = [*self.folders, *path]
        finder = _FolderFinder(shadowed)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            sys.path[:] = path
            self._user_modules.update(_unload(names))
            sys.modules.update(set_aside)

    def _shadowed(self) -> dict[str, str]:
        """The user's top-level names that mean another module outside, and the folder of each."""
        folder_of: dict[str, str] = {}
        for folder in self.folders:
            folder_of = {**dict.fromkeys(_importable_names(Path(folder)), folder), **folder_of}
        return {
            name: folder
            for name, folder in folder_of.items()
            if _is_shadowed(name, sys.modules.get(name), folder)
        }


class _FolderFinder:
    """Finds each of some top-level names in its folder only.

    Without it, a regular package of ours would win over a user's folder without __init__.py.
    """

    def __init__(self, folder_of: dict[str, str]) -> None:
        self._folder_of = folder_of

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self._folder_of[name]]) if name in self._folder_of else None


def _importable_names(folder: Path) -> Iterator[str]:
    """The modules in a folder; packages without __init__.py only if they have the name of one of ours."""
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
    """Whether the module loaded under a name is another one than the user's in `folder`.

    Modules of the standard library and installed packages are not replaced, unless they have our names.
    """
    if loaded is None:
        return name in OWN_PACKAGES
    if name in sys.stdlib_module_names:
        return False
    if name not in OWN_PACKAGES and _is_inside(loaded, INSTALLED_FOLDERS):
        return False
    return not any(str(Path(location).parent) == folder for location in _locations(loaded))


def _unload(names: set[str]) -> dict[str, ModuleType]:
    """Remove the modules with these top-level names from sys.modules, and return them."""
    if not names:
        return {}
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in modules:
        del sys.modules[name]
    return modules


def _locations(module: ModuleType) -> list[str]:
    """The file of a module, or the folders of a package."""
    folders = list(getattr(module, "__path__", []))
    file = getattr(module, "__file__", None)
    return folders or ([file] if file else [])


def _is_inside(module: ModuleType, folders: Sequence[str]) -> bool:
    """Whether a module is in one of the folders, or is built in."""
    locations = _locations(module)
    return not locations or any(
        Path(location).is_relative_to(folder) for location in locations for folder in folders
    )

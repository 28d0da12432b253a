"""Isolates the imports of the user's code: two networks may each have a `layers.py` of their own.

While a network's code runs, such a name means the module in its own folder. Afterwards, a name that another
module had before means that module again. A name that was free keeps meaning the network's module.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

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
        names = {*self._shadowed(), *(name.partition(".")[0] for name in self._user_modules)}
        set_aside = _unload(names)
        sys.modules.update(self._user_modules)
        path = sys.path[:]
        sys.path[:] = [*self.folders, *path]
        try:
            yield
        finally:
            sys.path[:] = path
            self._user_modules.update(_unload(names))
            sys.modules.update(set_aside)

    def _shadowed(self) -> set[str]:
        """The user's top-level names under which a module of another folder is loaded."""
        folder_of: dict[str, str] = {}
        for folder in reversed(self.folders):
            folder_of |= dict.fromkeys(_importable_names(Path(folder)), folder)
        return {
            name
            for name, folder in folder_of.items()
            if (loaded := sys.modules.get(name)) and _is_other_user_module(name, loaded, folder)
        }


def _importable_names(folder: Path) -> Iterator[str]:
    """The modules and packages in a folder."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_file() and entry.suffix in (".py", ".so", ".pyd"):
            yield entry.name.partition(".")[0]
        elif (entry / "__init__.py").is_file():
            yield entry.name


def _is_other_user_module(name: str, loaded: ModuleType, folder: str) -> bool:
    """Whether the module loaded under a name is another one than the user's in `folder`.

    Modules of the standard library, installed packages and turnpike are not replaced.
    """
    if name == "turnpike" or name in sys.stdlib_module_names or _is_inside(loaded, INSTALLED_FOLDERS):
        return False
    return not any(str(Path(location).parent) == folder for location in _locations(loaded))


def _unload(names: set[str]) -> dict[str, ModuleType]:
    """Remove the modules with these top-level names from sys.modules, and return them."""
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

"""The interpreters of export/identity in float64, and copies of them that have an error in their source."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import numpy as np

PACKAGE = "turnpike.export.identity"
# dtype.kind: the kind of a term
KINDS = {"f": "f", "i": "i", "u": "i", "b": "b"}

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Interpreters:
    """What a run needs, from one copy of the package."""

    run_program: Callable[..., Any]
    run_graph: Callable[..., Any]
    algebra: Callable[..., Any]
    reals: Callable[[], Any]
    terms: Any
    atom: Any

    @classmethod
    def load(cls) -> Interpreters:
        def module(name: str) -> Any:
            return importlib.import_module(f"{PACKAGE}.{name}")

        return cls(
            module("aten.run_program").run_program,
            module("onnx.run_graph").run_graph,
            module("algebra.arithmetic").Algebra,
            module("numbers.reals").Reals,
            module("algebra.arithmetic.terms"),
            module("numbers.error_bound").ATOM,
        )

    def inputs(self, arrays: Sequence[Array]) -> list[Any]:
        """Each array as a term, as a run on residues would have it."""
        return [
            self.terms.Term(
                array.astype(np.float64)[None], KINDS[array.dtype.kind], self.atom, array.dtype.kind == "b"
            )
            for array in arrays
        ]

    def difference(
        self, expected: Sequence[Array], actual: Sequence[Any], algebra: Any, tolerance: float
    ) -> str | None:
        """What distinguishes results from the expected arrays; None if nothing does."""
        if len(expected) != len(actual):
            return f"expected {len(expected)} outputs, got {len(actual)}"
        for number, (array, value) in enumerate(zip(expected, actual, strict=True)):
            kind = self.terms.kind_of(value)
            if kind != KINDS[array.dtype.kind]:
                return f"output {number}: expected {array.dtype}, got the kind {kind}"
            term = algebra.term(value)
            if term.shape != array.shape:
                return f"output {number}: expected the shape {array.shape}, got {term.shape}"
            wanted, found = array.astype(np.float64), term.data[0]
            if term.is_binary and not np.isin(found, (0, 1)).all():
                return f"output {number} is marked as binary, and has other numbers"
            close = np.isclose(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
            if not close.all():
                place = tuple(int(axis) for axis in np.argwhere(~close)[0])
                return f"output {number}{list(place)}: expected {wanted[place]}, got {found[place]}"
        return None


class _ChangedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, change: Callable[[str], str]) -> None:
        super().__init__(fullname, path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self._change(self.get_data(path).decode()), path)


class _ChangedFinder(MetaPathFinder):
    def __init__(self, module: str, change: Callable[[str], str]) -> None:
        self._module = module
        self._change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == self._module else None
        if spec is not None and spec.origin is not None:
            spec.loader = _ChangedLoader(fullname, spec.origin, self._change)
        return spec


@contextmanager
def changed_interpreters(module: str, old: str, new: str) -> Iterator[Interpreters]:
    """A copy of the interpreters in which one place of a module of the package has another text."""

    def change(source: str) -> str:
        count = source.count(old)
        assert count == 1, f"expected {old!r} once in {module}, found it {count} times"
        return source.replace(old, new)

    def remove() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
        return {name: sys.modules.pop(name) for name in names}

    finder = _ChangedFinder(f"{PACKAGE}.{module}", change)
    parent = importlib.import_module(PACKAGE.rpartition(".")[0])
    kept, package = remove(), getattr(parent, "identity", None)
    sys.meta_path.insert(0, finder)
    try:
        yield Interpreters.load()
    finally:
        sys.meta_path.remove(finder)
        remove()
        sys.modules.update(kept)
        if package is not None:
            parent.__dict__["identity"] = package

"""Name, datatype and shape of an input or output of a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph, or of hooks. A dimension is a number, or a name if its size may vary."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{','.join(map(str, self.dims))}]"

"""The dimensions of a network's inputs: which of them is the batch, and what size the others have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from export.signature import Input
from export.source import Source
from export.trace.trace import TRACED_SIZES

# sizes of the other dimensions, where the network does not take those it was traced with
OTHERS = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Layout:
    """The named dimensions of a network's inputs: which is the batch, and what size each ordinarily has."""

    inputs: tuple[Input, ...]
    batch: str | None
    sizes: dict[str, int]

    def at(self, rows: int, **sizes: int) -> dict[str, int]:
        """A size for every name."""
        return self.sizes | sizes | ({} if self.batch is None else {self.batch: rows})

    def axis(self, one: Input) -> int | None:
        """The axis of an input along which its rows lie; where no size is free, the first axis."""
        if self.batch is not None:
            return one.dims.index(self.batch) if self.batch in one.dims else None
        return 0 if one.dims and one.dims[:1] == self.inputs[0].dims[:1] else None

    def fixed_rows(self) -> int | None:
        """How many rows every batch has, where the network takes no other number of them."""
        if self.batch is not None:
            return None
        first = self.inputs[0].dims[0] if self.inputs[0].dims else 1
        return first if isinstance(first, int) else None

    def others(self) -> list[Layout]:
        """The same with other sizes, for a network that does not take these."""
        free = [dim for dim in self.sizes if dim != self.batch]
        return [replace(self, sizes=self.sizes | dict.fromkeys(free, size)) for size in OTHERS if free]


def lay_out(source: Source) -> Layout:
    """The first dynamic dimension of the first input is the batch; others are as in rows, or as traced."""
    names = list(dict.fromkeys(dim for one in source.inputs for dim in one.dims if isinstance(dim, str)))
    batch = next((dim for dim in source.inputs[0].dims if isinstance(dim, str)), None)
    sizes = dict(zip(names, TRACED_SIZES, strict=False))
    rows = {} if source.rows is None else source.rows.inputs
    for one in source.inputs:
        array = rows.get(one.name)
        if array is not None and array.ndim == len(one.dims):
            found = zip(one.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in found if isinstance(dim, str)}
    return Layout(source.inputs, batch, sizes)

"""All exhibits, in the order of the page docs/explanation/silent-bugs.md."""

from __future__ import annotations

from tests.export.museum import arithmetic, attention, fusions, pictures, recurrent, writes

EXHIBITS = (
    *recurrent.EXHIBITS,
    *attention.EXHIBITS,
    *arithmetic.EXHIBITS,
    *writes.EXHIBITS,
    *pictures.EXHIBITS,
    *fusions.EXHIBITS,
)

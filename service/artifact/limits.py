"""Limits on rows and requests, for modules that must not import onnxruntime or NumPy."""

from __future__ import annotations

from dataclasses import dataclass

# rows that one run may hold; `export` proves parity up to this number of rows
MAX_ROWS = 128


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The largest request that is accepted.

    `max_depth` is how deep its JSON may be nested. `max_json_bytes` also limits texts in binary form, which
    take as long to convert. `max_ids_bytes` limits the ids that texts become.
    """

    max_rows: int = 4096
    max_depth: int = 32
    max_json_bytes: int = 16 << 20
    max_ids_bytes: int = 64 << 20

"""Reads the headers Accept and Accept-Encoding: what a client accepts, and what it prefers."""

from __future__ import annotations

import re
from collections.abc import Iterable

# the value of the parameter q
WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


def prefers_page(accept: str) -> bool:
    """Whether a client wants HTML, as browsers do, and not rather JSON.

    Programs often accept anything, `*/*`. Browsers name HTML first.
    """
    weights = _weights(accept)
    return 0 < weights.get("text/html", 0) >= weights.get("application/json", 0)


def preferred_encoding(accept_encoding: str, offered: Iterable[str]) -> str | None:
    """The encoding among those offered that a client prefers; None if it prefers none of them.

    Of equals, the first is chosen. An answer without an encoding is sent to clients that accept nothing.
    """
    weights = _weights(accept_encoding)
    others = weights.get("*", 0.0)
    best = max(offered, key=lambda name: weights.get(name, others))
    weight = weights.get(best, others)
    return best if 0 < weight >= weights.get("identity", 0) else None


def _weights(header: str) -> dict[str, float]:
    """Weight of each item that a client accepts: 0 refuses it, 1 is the most and the default."""
    weights = {}
    for text in header.lower().split(","):
        item, *parameters = (part.strip() for part in text.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        weights[item] = float(weight) if WEIGHT.fullmatch(weight) else 0.0
    return weights

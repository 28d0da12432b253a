"""What a person should know of a source, and what does not stop its export."""

from __future__ import annotations

import warnings


class SourceWarning(UserWarning):
    """A note on a source: whoever loads one may collect them, and show them."""


def note(text: str) -> None:
    """Say it to whoever loads the source."""
    warnings.warn(text, SourceWarning, stacklevel=3)

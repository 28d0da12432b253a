"""A JSON text with places for figures from 0 to 1, filled for many requests by a few calls into NumPy.

A figure has six decimals and so eight bytes. These are two words of four bytes, and each is looked up. Spaces
before a figure see to it that it begins where a word does; in JSON they mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import orjson

from service.inference_types import Array

WORD = np.dtype(np.uint32)
# the first four bytes of a figure by its hundredths, and the last four by what is left
FIRST = np.frombuffer(b"".join([b"%d.%02d" % divmod(n, 100) for n in range(101)]), WORD)
LAST = np.frombuffer(b"".join([b"%04d" % n for n in range(10_000)]), WORD)
BLANK = b" " * 8
ONE = np.float32(1).view(np.uint32)


class JsonTemplate:
    """What is written before, between and after the figures."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._plain = b"%b".join([piece.replace(b"%", b"%%") for piece in pieces])
        text, places = b"", []
        for piece in pieces[:-1]:
            text = _whole_words(text + piece)
            places.append(len(text) // WORD.itemsize)
            text += BLANK
        self._words = np.frombuffer(_whole_words(text + pieces[-1]), WORD)
        self._places = np.array(places, np.intp)

    def filled(self, figures: Array) -> list[bytes | None]:
        """The text for each line of figures; None for a line that is not all numbers.

        A line with figures that are not from 0 to 1 has digits as they come.
        """
        # taken for whole numbers, all others are greater than 1
        if np.maximum.reduce(figures.view(np.uint32), axis=None) <= ONE:
            return [text.tobytes() for text in self._looked_up(figures)]
        if len(figures) > 1:
            return [self.filled(line[None])[0] for line in figures]
        if not np.isfinite(figures).all():
            return [None]
        return [self.written(orjson.dumps(figures[0], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b","))]

    def written(self, figures: Sequence[bytes]) -> bytes:
        """The text with figures that are in writing already."""
        return self._plain % tuple(figures)

    def _looked_up(self, figures: Array) -> Array:
        last = np.rint(figures * np.float32(1e6)).astype(np.int64)
        first = last // len(LAST)
        last -= first * len(LAST)
        words = np.empty((len(figures), len(self._words)), WORD)
        words[:] = self._words
        words[:, self._places] = FIRST.take(first)
        words[:, self._places + 1] = LAST.take(last)
        return words


def _whole_words(text: bytes) -> bytes:
    return text + b" " * (-len(text) % WORD.itemsize)

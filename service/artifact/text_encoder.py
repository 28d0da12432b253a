"""Converts texts to the ids of a model that reads characters, as the data it was trained on was converted.

`export` proves that this code gives the ids of the training, and the service calls the same code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np

from turnpike.service.artifact.manifest import Manifest, TextInput, TextScheme
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.inference_types import Array

# ids of a word are the code points of a string, because Python converts strings much faster than lists
PADDING = chr(0)
BYTE_IDS = "".join(chr(byte + 1) for byte in range(256))

# ELMo numbers what stands for no byte from 256 on, and adds one to all numbers, so that 0 is free for padding
START_OF_TEXT, END_OF_TEXT = chr(256 + 1), chr(257 + 1)
START_OF_WORD, END_OF_WORD, PADDING_IN_WORD = chr(258 + 1), chr(259 + 1), chr(260 + 1)
MASK = chr(261 + 1)
# words that stand for something else than their letters
ELMO_WORDS = {"<S>": START_OF_TEXT, "</S>": END_OF_TEXT}
BERT_START, BERT_END, BERT_PADDING = "[CLS]", "[SEP]", "[PAD]"
BERT_WORDS = {BERT_START: START_OF_TEXT, BERT_END: END_OF_TEXT, "[MASK]": MASK}

# characters beyond the size of a word up to which it is converted whole
MAX_WASTED_CHARACTERS = 64


class TextEncoder:
    """Converts texts to rows of ids (words, characters). Words are what white space separates.

    A text with fewer words is padded with words of zeros, and further words are cut off, so the ids of a
    text do not depend on the other texts. The schemes:

    - alphabet: an id is the place in `alphabet`. Characters that are not in it are left out. Words are padded
      with zeros.
    - bytes: the bytes of the word in UTF-8, plus 1. Words are padded with zeros.
    - elmo: as AllenNLP's `ELMoCharacterMapper`: the same ids between those of start and end of the word.
      Words are padded with 261.
    - characterbert: as CharacterBERT's `CharacterIndexer`: the same again, with the words [CLS] and [SEP]
      around the text.
    """

    def __init__(self, text: TextInput, alphabet: str, dtype: str) -> None:
        self.text = text
        self.row_shape = (text.words, text.characters)
        self.dtype = np.dtype(dtype)
        self.max_id = _max_id(text.scheme, alphabet)
        self._word_ids = _word_converter(text, alphabet)

    @property
    def input(self) -> str:
        """Name of the input that takes texts."""
        return self.text.input

    @property
    def row_bytes(self) -> int:
        """Bytes of the ids of one text."""
        return self.text.words * self.text.characters * self.dtype.itemsize

    @classmethod
    def of(cls, manifest: Manifest | None, inputs: Mapping[str, Tensor]) -> TextEncoder | None:
        """The encoder for a file with this manifest; None if it takes no texts.

        Raises a ValueError if the graph has no input for such ids.
        """
        if manifest is None or manifest.text is None:
            return None
        text = manifest.text
        tensor = inputs.get(text.input)
        if tensor is None:
            raise ValueError(f"text: expected an input, {', '.join(inputs)}, got {text.input!r}")
        if text.scheme == "alphabet" and not manifest.alphabet:
            raise ValueError("alphabet: expected the character of each id, got none")
        encoder = cls(text, manifest.alphabet, tensor.dtype)
        batch, *row = tensor.dims or ("",)
        fits = len(row) == 2 and all(
            dim == size or isinstance(dim, str) for dim, size in zip(row, encoder.row_shape, strict=True)
        )
        if not fits or not isinstance(batch, str):
            raise ValueError(
                f"text: expected an input of any number of {text.words} x {text.characters} ids, got {tensor}"
            )
        if encoder.dtype.kind not in "iu" or np.iinfo(encoder.dtype).max < encoder.max_id:
            raise ValueError(f"text: expected an input of ids up to {encoder.max_id}, got {tensor}")
        return encoder

    def encode(self, texts: Sequence[str]) -> Array:
        """The ids of texts, of shape (texts, words, characters). The texts contain no lone surrogates."""
        words, characters = self.row_shape
        row_length = words * characters
        is_bert = self.text.scheme == "characterbert"
        rows = []
        for text in texts:
            found = text.split(None, words)[:words]
            if is_bert:
                found = [BERT_START, *found[: words - 2], BERT_END]
            rows.append("".join(map(self._word_ids, found)).ljust(row_length, PADDING))
        # an id may be the number of a surrogate
        data = "".join(rows).encode("utf-32-le", "surrogatepass")
        return np.frombuffer(data, "<u4").reshape(len(texts), words, characters).astype(self.dtype)


class _AlphabetIds(dict[int, int | None]):
    """The id of each character, by its code point, for `str.translate`, which leaves out those with None."""

    def __missing__(self, code_point: int) -> None:
        return None


def _max_id(scheme: TextScheme, alphabet: str) -> int:
    if scheme == "alphabet":
        return max(0, len(alphabet) - 1)
    return {"bytes": 256, "elmo": ord(PADDING_IN_WORD), "characterbert": ord(MASK)}[scheme]


def _word_converter(text: TextInput, alphabet: str) -> Callable[[str], str]:
    """Converts a word to the ids of exactly `text.characters` characters."""
    size = text.characters
    if text.scheme == "alphabet":
        ids = _AlphabetIds((ord(character), number) for number, character in enumerate(alphabet))
        known = re.compile(f"[{re.escape(alphabet)}]+")

        def letters(word: str) -> str:
            if len(word) > size + MAX_WASTED_CHARACTERS:
                # Stop at the last character that counts: for each that does not, `translate` takes 100 ns,
                # which for a long word would delay all other requests.
                word = "".join([run[0] for run in islice(known.finditer(word), size)])[:size]
            return word.translate(ids)[:size].ljust(size, PADDING)

        return letters
    if text.scheme == "bytes":
        return lambda word: _bytes(word, size).ljust(size, PADDING)

    # words with marks at their start and end
    def marked(ids: str) -> str:
        return f"{START_OF_WORD}{ids}{END_OF_WORD}".ljust(size, PADDING_IN_WORD)

    special = {
        word: marked(mark) for word, mark in (ELMO_WORDS if text.scheme == "elmo" else BERT_WORDS).items()
    }
    if text.scheme == "characterbert":
        special[BERT_PADDING] = PADDING * size
    return lambda word: special.get(word) or marked(_bytes(word, size - 2))


def _bytes(word: str, size: int) -> str:
    """The first bytes of a word in UTF-8, plus 1."""
    return word.encode()[:size].decode("latin-1").translate(BYTE_IDS)

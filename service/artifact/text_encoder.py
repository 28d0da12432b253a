"""Converts texts to the ids of a model that reads characters or words, as its training converted them.

`export` proves that this code gives the ids of the training, and the service calls the same code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import prod

import numpy as np

from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_records import TOKEN_SCHEMES, TextInput, TextScheme, Vocabulary
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
    """Converts texts to rows of ids, of the shape `row_shape`. Words are what white space separates.

    A text with fewer words or characters is padded, and further ones are cut off, so the ids of a text do not
    depend on the other texts. The schemes:

    - alphabet: an id is the place of a character in the alphabet. Characters that are not in it are left out,
      unless the vocabulary has an id for them. Words are padded.
    - bytes: the bytes of the word in UTF-8, plus 1. Words are padded with zeros.
    - elmo: as AllenNLP's `ELMoCharacterMapper`: the same ids between those of start and end of the word.
      Words are padded with 261.
    - characterbert: as CharacterBERT's `CharacterIndexer`: the same again, with the words [CLS] and [SEP]
      around the text.
    - characters: as alphabet, for the whole text, which is not split into words: white space counts.
    - words: an id is the place of a word in the vocabulary.
    """

    def __init__(self, text: TextInput, alphabet: str, dtype: str) -> None:
        tokens = tuple(alphabet) if text.vocabulary is None else text.vocabulary.tokens
        self.text = text
        self.row_shape = text.row_shape
        self.dtype = np.dtype(dtype)
        self.max_id = _max_id(text.scheme, tokens)
        self._row_ids = _row_converter(text, text.vocabulary or Vocabulary.model_construct(tokens=tokens))
        self._padding = PADDING if text.vocabulary is None else chr(text.vocabulary.padding)

    @property
    def input(self) -> str:
        """Name of the input that takes texts."""
        return self.text.input

    @property
    def row_bytes(self) -> int:
        """Bytes of the ids of one text."""
        return prod(self.row_shape) * self.dtype.itemsize

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
        if text.scheme == "alphabet" and text.vocabulary is None and not manifest.alphabet:
            raise ValueError("alphabet: expected the character of each id, got none")
        encoder = cls(text, manifest.alphabet, tensor.dtype)
        batch, *row = tensor.dims or ("",)
        shape = encoder.row_shape
        fits = len(row) == len(shape) and all(
            dim == size or isinstance(dim, str) for dim, size in zip(row, shape, strict=True)
        )
        if not fits or not isinstance(batch, str):
            sizes = " x ".join(map(str, shape))
            raise ValueError(f"text: expected an input of any number of {sizes} ids, got {tensor}")
        if encoder.dtype.kind not in "iu" or np.iinfo(encoder.dtype).max < encoder.max_id:
            raise ValueError(f"text: expected an input of ids up to {encoder.max_id}, got {tensor}")
        return encoder

    def encode(self, texts: Sequence[str]) -> Array:
        """The ids of texts, of shape (texts, *row_shape). The texts contain no lone surrogates."""
        row_length = prod(self.row_shape)
        rows = [self._row_ids(text).ljust(row_length, self._padding) for text in texts]
        # an id may be the number of a surrogate
        data = "".join(rows).encode("utf-32-le", "surrogatepass")
        return np.frombuffer(data, "<u4").reshape(len(texts), *self.row_shape).astype(self.dtype)


class _CharacterIds(dict[int, int | None]):
    """The id of each character, by its code point, for `str.translate`, which leaves out those with None."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        # a token of several characters, such as <pad>, is no character of a text
        super().__init__(
            (ord(token), number) for number, token in enumerate(vocabulary.tokens) if len(token) == 1
        )
        self._unknown = vocabulary.unknown

    def __missing__(self, code_point: int) -> int | None:
        return self._unknown


def _max_id(scheme: TextScheme, tokens: Sequence[str]) -> int:
    if scheme in TOKEN_SCHEMES:
        return max(0, len(tokens) - 1)
    return {"bytes": 256, "elmo": ord(PADDING_IN_WORD), "characterbert": ord(MASK)}[scheme]


def _row_converter(text: TextInput, vocabulary: Vocabulary) -> Callable[[str], str]:
    """Converts a text to its ids, without the padding at the end."""
    if text.scheme == "words":
        return _words_converter(vocabulary, text.words)
    if text.scheme == "characters":
        return _characters_converter(vocabulary, text.characters)
    words, is_bert = text.words, text.scheme == "characterbert"
    word_ids = _word_converter(text, vocabulary)

    def converted(row: str) -> str:
        found = row.split(None, words)[:words]
        if is_bert:
            found = [BERT_START, *found[: words - 2], BERT_END]
        return "".join(map(word_ids, found))

    return converted


def _words_converter(vocabulary: Vocabulary, size: int) -> Callable[[str], str]:
    """Converts a text to at most `size` ids, one for each word."""
    ids = {token: chr(number) for number, token in enumerate(vocabulary.tokens) if token}
    start, end, unknown = map(_mark, (vocabulary.start, vocabulary.end, vocabulary.unknown))
    room = size - vocabulary.marks

    def converted(text: str) -> str:
        if vocabulary.lower:
            text = text.lower()
        if unknown:
            known = [ids.get(word, unknown) for word in text.split(None, room)[:room]]
        else:
            known = [ids[word] for word in text.split() if word in ids][:room]
        return f"{start}{''.join(known)}{end}"

    return converted


def _characters_converter(vocabulary: Vocabulary, size: int) -> Callable[[str], str]:
    """Converts a text to at most `size` ids, one for each character."""
    ids = _CharacterIds(vocabulary)
    known = re.compile(f"[{re.escape(''.join(map(chr, ids)))}]+")
    start, end = _mark(vocabulary.start), _mark(vocabulary.end)
    room = size - vocabulary.marks

    def converted(text: str) -> str:
        if vocabulary.lower:
            text = text.lower()
        if vocabulary.unknown is not None:
            text = text[:room]
        elif len(text) > room + MAX_WASTED_CHARACTERS:
            # Stop at the last character that counts: for each that does not, `translate` takes 100 ns,
            # which for a long word would delay all other requests.
            text = "".join([run[0] for run in islice(known.finditer(text), room)])[:room]
        return f"{start}{text.translate(ids)[:room]}{end}"

    return converted


def _mark(number: int | None) -> str:
    return "" if number is None else chr(number)


def _word_converter(text: TextInput, vocabulary: Vocabulary) -> Callable[[str], str]:
    """Converts a word to the ids of exactly `text.characters` characters."""
    size = text.characters
    if text.scheme == "alphabet":
        letters, padding = _characters_converter(vocabulary, size), chr(vocabulary.padding)
        return lambda word: letters(word).ljust(size, padding)
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

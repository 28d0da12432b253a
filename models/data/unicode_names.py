"""The names of Unicode characters, classified by category: real text that is part of every Python.

For example, "GREEK SMALL LETTER ALPHA" is a lower-case letter (Ll) and "BOX DRAWINGS LIGHT VERTICAL" a
symbol (So). Python includes Unicode 3.2 unchanged in every version, so the rows are always the same.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import torch
from torch import Tensor

from models.data.dataset import RawDataset, Split

MAX_WORDS = 8  # per name; 98 % of the names have no more
MAX_WORD_CHARACTERS = 12  # per word; 99 % of the words have no more
MIN_CLASS_ROWS = 100  # categories with fewer names are left out
PADDING = " "  # has id 0; never occurs within a word

# names that are computed from the code point and contain no language to learn
COMPUTED_NAME_PREFIXES = (
    "CJK UNIFIED IDEOGRAPH-",
    "CJK COMPATIBILITY IDEOGRAPH-",
    "HANGUL SYLLABLE ",
    "BRAILLE PATTERN ",
)


def read_names() -> RawDataset:
    """Return rows (words, characters) of character ids; the classes are general categories."""
    # all names with their categories
    pairs = []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        name = unicodedata.ucd_3_2_0.name(character, "")
        if name and not name.startswith(COMPUTED_NAME_PREFIXES):
            pairs.append((name, unicodedata.ucd_3_2_0.category(character)))
    # only those of frequent categories
    counts = Counter(category for _, category in pairs)
    labels = tuple(sorted(category for category, count in counts.items() if count >= MIN_CLASS_ROWS))
    pairs = [(name, category) for name, category in pairs if category in labels]

    alphabet = PADDING + "".join(sorted({character for name, _ in pairs for character in name} - {PADDING}))
    x = encode_texts([name for name, _ in pairs], alphabet)
    y = torch.tensor([labels.index(category) for _, category in pairs])
    return RawDataset("names", Split(x, y), None, labels, "text", alphabet)


def encode_texts(
    texts: list[str], alphabet: str, words: int = MAX_WORDS, characters: int = MAX_WORD_CHARACTERS
) -> Tensor:
    """Return texts as character ids of shape (texts, words, characters), cut and padded to fit.

    Args:
        texts: Texts whose words are separated by white space.
        alphabet: The character of each id; characters that are not in it are left out.
        words: Number of words per text.
        characters: Number of characters per word.
    """
    ids = {character: index for index, character in enumerate(alphabet)}
    rows = []
    for text in texts:
        encoded_words = []
        for word in text.split()[:words]:
            encoded = [ids[character] for character in word if character in ids][:characters]
            encoded_words.append(encoded + [0] * (characters - len(encoded)))
        rows.append(encoded_words + [[0] * characters] * (words - len(encoded_words)))
    return torch.tensor(rows, dtype=torch.int64).view(len(texts), words, characters)

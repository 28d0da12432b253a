"""Real text that every Python carries: the names of Unicode's characters, told apart by category.

"GREEK SMALL LETTER ALPHA" is a lower-case letter, Ll; "BOX DRAWINGS LIGHT VERTICAL" a symbol, So.
Python keeps Unicode 3.2 as it was, whatever its own version, so the rows are the same everywhere.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import torch
from torch import Tensor

from models.data.dataset import RawDataset, Split

MAX_WORDS = 8  # of a name; 98 in 100 have no more
MAX_WORD_CHARACTERS = 12  # of a word; 99 in 100 have no more
MIN_CLASS_ROWS = 100  # rows of a category, for it to be a class
PADDING = " "  # stands between words only, so it is free to be id 0 within them

# families whose names are computed from the code point: they hold no language to learn
COMPUTED_NAME_PREFIXES = (
    "CJK UNIFIED IDEOGRAPH-",
    "CJK COMPATIBILITY IDEOGRAPH-",
    "HANGUL SYLLABLE ",
    "BRAILLE PATTERN ",
)


def read_names() -> RawDataset:
    """Rows (words, characters) of ids into the alphabet; the classes are general categories."""
    pairs = []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        name = unicodedata.ucd_3_2_0.name(character, "")
        if name and not name.startswith(COMPUTED_NAME_PREFIXES):
            pairs.append((name, unicodedata.ucd_3_2_0.category(character)))
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
    """Texts as ids of shape (texts, words, characters): one word a line, cut and padded to fit.

    Characters that the alphabet lacks are left out.
    """
    ids = {character: place for place, character in enumerate(alphabet)}
    rows = []
    for text in texts:
        lines = []
        for word in text.split()[:words]:
            line = [ids[character] for character in word if character in ids][:characters]
            lines.append(line + [0] * (characters - len(line)))
        rows.append(lines + [[0] * characters] * (words - len(lines)))
    return torch.tensor(rows, dtype=torch.int64).view(len(texts), words, characters)

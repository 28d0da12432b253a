"""Data sets that need no download: digits, names of Unicode characters, and the parity of random bits."""

from __future__ import annotations

import csv
import gzip
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from turnpike.models.data.dataset import Dataset, RawDataset, Split, seeded_generator
from turnpike.models.errors import DataError

# the drawings of the data set "drawn-digits"
DRAWN_DIGITS = Path(__file__).with_name("drawn_digits.npz")

# the data set "names"
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

# the data sets "parity-K"
MAX_BITS = 1024
VALID_ROWS = 5_000
TEST_ROWS = 10_000


def read_digits() -> RawDataset:
    """Return 1,797 handwritten digits of 8x8 pixels, 0 to 16, which scikit-learn includes."""
    # the file alone: scikit-learn takes a second to import
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    path = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = torch.tensor([list(map(int, row)) for row in csv.reader(file)])
    x = rows[:, :-1].to(torch.uint8).view(-1, 1, 8, 8)
    return RawDataset("digits", Split(x, rows[:, -1]), None, tuple("0123456789"), "image", white=16)


def read_drawn_digits() -> Split:
    """Return 1,200 digits drawn on the page, in the form of `read_digits`.

    `benchmarks/reading/training_drawings.py` draws them.
    """
    with np.load(DRAWN_DIGITS, allow_pickle=False) as arrays:
        return Split(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"].astype(np.int64)))


def read_names() -> RawDataset:
    """Return the names of Unicode characters as rows (words, characters) of character ids.

    The classes are general categories: "GREEK SMALL LETTER ALPHA" is a lower-case letter (Ll), and "BOX
    DRAWINGS LIGHT VERTICAL" a symbol (So). Python includes Unicode 3.2 unchanged in every version, so the
    rows are always the same.
    """
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
    texts = tuple(name for name, _ in pairs)
    x = encode_texts(texts, alphabet)
    y = torch.tensor([labels.index(category) for _, category in pairs])
    return RawDataset("names", Split(x, y, texts), None, labels, "text", alphabet)


def encode_texts(
    texts: Sequence[str], alphabet: str, words: int = MAX_WORDS, characters: int = MAX_WORD_CHARACTERS
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


@dataclass(frozen=True)
class ParityDataset(Dataset):
    """Parity of K bits: a task that needs depth or memory to solve.

    Every epoch has new training rows, so a network cannot memorize them.
    """

    rows_per_epoch: int = 20_000

    @property
    def is_table(self) -> bool:
        return False  # all columns are bits

    def training_rows(self, seed: int, epoch: int) -> Split:
        return draw_rows(self.inputs[0], self.rows_per_epoch, "train", seed, epoch)


def parse_parity_name(name: str) -> int | None:
    """Return K for the name parity-K, and None for any other name."""
    match = re.fullmatch(r"parity-(\d{1,9})", name, re.ASCII)
    if match is None:
        return None
    bits = int(match[1])
    if not 2 <= bits <= MAX_BITS:
        raise DataError(f"{name}: expected 2 to {MAX_BITS} bits, got {bits}")
    return bits


def read_parity(bits: int) -> ParityDataset:
    """Return the data set: fixed validation and test rows, and the rows of one epoch as `train`."""
    return ParityDataset(
        name=f"parity-{bits}",
        train=draw_rows(bits, ParityDataset.rows_per_epoch, "train"),
        valid=draw_rows(bits, VALID_ROWS, "valid"),
        test=draw_rows(bits, TEST_ROWS, "test"),
        labels=("even", "odd"),
        kind="numbers",
    )


def draw_rows(bits: int, rows: int, *key: object) -> Split:
    """Return random rows x (rows, bits) of 0 and 1, and y, their sum modulo 2; the key is the seed."""
    x = torch.randint(0, 2, (rows, bits), generator=seeded_generator("parity", *key))
    return Split(x.float(), x.sum(1) % 2)

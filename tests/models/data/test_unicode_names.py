"""The names of Unicode characters as rows of ids."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
import torch

from models.data.dataset import RawDataset
from models.data.unicode_names import encode_texts, read_names


@pytest.fixture(scope="module")
def source() -> RawDataset:
    return read_names()


def test_ids_of_a_text_worked_out_by_hand() -> None:
    """Words are padded with 0 and cut; characters without an id are left out."""
    rows = encode_texts(["AB, B", "BBBB A A", ""], " AB", words=2, characters=3)
    assert rows.dtype == torch.int64
    assert rows.tolist() == [
        [[1, 2, 0], [2, 0, 0]],
        [[2, 2, 2], [1, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
    ]


def test_the_rows_are_the_same_on_every_python(source: RawDataset) -> None:
    """Unicode 3.2 never changes, so the number of names, the classes and the ids are known."""
    assert source.rows.x.shape == (12199, 8, 12)
    assert source.labels == ("Cf", "Ll", "Lo", "Lu", "Mc", "Mn", "Nd", "No", "Po", "Sm", "So")
    assert source.kind == "text"
    assert source.test is None
    content = source.rows.x.numpy().tobytes() + source.rows.y.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "fbeba1d275d1be97"


def test_ids_spell_the_name_of_a_character(source: RawDataset) -> None:
    """The first rows are those of the first characters, and each class is the character's category."""
    named = [chr(code) for code in range(0x20, 0x7F)]
    characters = [c for c in named if unicodedata.ucd_3_2_0.category(c) in source.labels]
    for row, character in enumerate(characters):
        words = ["".join(source.alphabet[i] for i in word).strip() for word in source.rows.x[row]]
        assert words[: len(words)] == (unicodedata.name(character).split() + [""] * 8)[:8]
        assert source.labels[int(source.rows.y[row])] == unicodedata.category(character)


def test_padding_is_id_0_and_never_inside_a_word(source: RawDataset) -> None:
    """After the end of a word there is nothing but padding."""
    filled = source.rows.x > 0
    assert not (filled[..., 1:] & ~filled[..., :-1]).any()
    assert int(source.rows.x.max()) == len(source.alphabet) - 1


def test_every_class_has_enough_rows(source: RawDataset) -> None:
    assert int(torch.bincount(source.rows.y, minlength=len(source.labels)).min()) >= 100

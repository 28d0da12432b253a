"""Data sets that need no files: names of Unicode characters as rows of ids, and the parity of random bits."""

from __future__ import annotations

import hashlib
import unicodedata

import pytest
import torch

from turnpike.models.data.dataset import RawDataset
from turnpike.models.data.embedded import (
    draw_rows,
    encode_texts,
    parse_parity_name,
    read_digits,
    read_drawn_digits,
    read_names,
    read_parity,
)
from turnpike.models.errors import DataError


@pytest.fixture(scope="module")
def source() -> RawDataset:
    return read_names()


def test_digits_are_those_of_scikit_learn() -> None:
    """The digest is of `load_digits()`, whose import takes a second; its file is read without it."""
    digits = read_digits()
    values = digits.rows.x.numpy().tobytes() + digits.rows.y.numpy().tobytes()
    assert digits.rows.x.shape == (1797, 1, 8, 8)
    assert hashlib.sha256(values).hexdigest().startswith("65e5b4619795efb4")


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
    assert len(characters) > 50
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


def test_the_class_is_the_sum_modulo_2() -> None:
    """The expected class is counted here bit by bit."""
    split = draw_rows(5, 200, "any")
    assert split.x.shape == (200, 5)
    assert split.x.dtype == torch.float32
    assert split.y.dtype == torch.int64
    for bits, y in zip(split.x.tolist(), split.y.tolist(), strict=True):
        assert bits.count(1.0) % 2 == y
        assert bits.count(1.0) + bits.count(0.0) == 5


def test_bits_and_classes_are_balanced() -> None:
    """At every position, about half of the bits are ones, and about half of the rows are odd."""
    split = draw_rows(8, 20_000, "any")
    assert (split.x.mean(0) - 0.5).abs().max() < 0.02
    assert (split.y.double().mean() - 0.5).abs() < 0.02


def test_rows_depend_only_on_seed_and_epoch() -> None:
    """Equal seed and epoch give equal rows whatever was drawn before; others give others."""
    data = read_parity(16)
    first = data.training_rows(1, 2)
    torch.manual_seed(99)
    assert torch.equal(first.x, read_parity(16).training_rows(1, 2).x)
    assert len(first) == data.rows_per_epoch == 20_000
    others = [
        data.training_rows(1, 3),
        data.training_rows(2, 1),
        data.training_rows(2, 2),
        data.valid,
        data.test,
        data.train,
    ]
    for other in others:
        rows = min(len(first), len(other))
        assert not torch.equal(first.x[:rows], other.x[:rows])


def test_drawing_does_not_use_the_global_generator() -> None:
    """A network draws the same weights whether or not an epoch was drawn before."""
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    read_parity(4).training_rows(0, 0)
    assert torch.equal(torch.rand(3), expected)


def test_the_dataset_has_name_shape_and_classes() -> None:
    """K bits per row, two classes, and validation and test rows that never change."""
    data = read_parity(12)
    assert data.name == "parity-12"
    assert data.inputs == (12,)
    assert data.labels == ("even", "odd")
    assert torch.equal(data.valid.x, read_parity(12).valid.x)
    assert torch.equal(data.test.x, read_parity(12).test.x)


def test_parity_names_are_parsed() -> None:
    """parity-K gives K, any other name gives None."""
    assert parse_parity_name("parity-16") == 16
    assert [
        parse_parity_name(name)
        for name in ("parity", "parity-", "parity-x", "xparity-3", "parity--3", "mnist")
    ] == [None] * 6


@pytest.mark.parametrize("name", ["parity-0", "parity-1", "parity-1025", "parity-999999999"])
def test_an_invalid_number_of_bits_is_refused(name: str) -> None:
    """One bit has no sum, and there is a maximum."""
    with pytest.raises(DataError, match=rf"{name}: expected 2 to 1024 bits, got \d+"):
        parse_parity_name(name)


def test_drawings_are_like_the_digits() -> None:
    """120 of each digit, with pixels from 0 to 16; only some straight ones are equal."""
    drawn = read_drawn_digits()
    assert drawn.x.shape == (1200, 1, 8, 8)
    assert drawn.x.dtype == read_digits().rows.x.dtype
    assert drawn.y.bincount().tolist() == [120] * 10
    assert drawn.x.max() == 16
    assert len({row.numpy().tobytes() for row in drawn.x}) > 1150

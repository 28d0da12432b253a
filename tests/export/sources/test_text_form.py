"""Vocabularies that a user gives: their forms, the names of special tokens, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from turnpike.export.errors import SourceOptionError, UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, TextForm
from turnpike.export.sources.text_form import parse_text_alphabet, read_vocabulary
from turnpike.service.artifact.text_records import Vocabulary

WORDS = ("<pad>", "<unk>", "good", "film")
LETTERS = ("_", "a", "b", " ")


def network(*inputs: str) -> Network:
    return Network("net", "module", parse_inputs(inputs or ["ids:int64[batch,time]"]))


def written(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.txt", "<pad>\n<unk>\ngood\nfilm\n"),
        ("v.txt", "\ufeff<pad>\r\n<unk>\r\ngood\r\nfilm"),
        ("v.json", list(WORDS)),
        ("v.json", {"film": 3, "good": 2, "<unk>": 1, "<pad>": 0}),
        ("v.json", {"tokens": list(WORDS)}),
        ("v.json", {"tokens": list(WORDS), "padding": "<pad>", "unknown": 1, "lower": False}),
    ],
)
def test_the_forms_of_a_vocabulary(tmp_path: Path, name: str, content: Any) -> None:
    """Padding and unknown words are found by the usual names of their tokens."""
    form = parse_text_alphabet(written(tmp_path, name, content), network())
    assert form == TextForm("ids", "words", Vocabulary(tokens=WORDS, padding=0, unknown=1))


def test_objects_of_python_are_vocabularies() -> None:
    form = parse_text_alphabet({word: number for number, word in enumerate(WORDS)}, network())
    assert form == parse_text_alphabet(WORDS, network()) == parse_text_alphabet({"tokens": WORDS}, network())
    assert form.vocabulary == Vocabulary(tokens=WORDS, unknown=1)


def test_an_alphabet_may_be_one_line(tmp_path: Path) -> None:
    """Spaces in it are characters."""
    form = parse_text_alphabet(written(tmp_path, "a.txt", "_ab \n"), network("ids:int64[batch,40]"))
    assert form == TextForm("ids", "characters", Vocabulary(tokens=LETTERS))
    lines = written(tmp_path, "b.txt", "_\na\nb\n \n")
    assert parse_text_alphabet(lines, network()) == form


def test_an_empty_line_is_an_id_that_no_text_has(tmp_path: Path) -> None:
    form = parse_text_alphabet(written(tmp_path, "a.txt", "\na\nb\n"), network())
    assert form.vocabulary == Vocabulary(tokens=("", "a", "b"))
    # ids without a token in an object are such, too
    assert read_vocabulary({"a": 1, "b": 2}, "") == form.vocabulary


def test_a_vocabulary_may_have_the_word_tokens() -> None:
    assert read_vocabulary({"tokens": 1, "lower": 0}, "").tokens == ("lower", "tokens")


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        (["[PAD]", "[UNK]", "a"], (0, 1)),
        (["a", "<PAD>", "<oov>"], (1, 2)),
        (["a", "<__pad__>", "b"], (1, None)),
        ({"tokens": ["<pad>", "<unk>", "a"], "unknown": None}, (0, None)),
        ({"tokens": ["<pad>", "<unk>", "a"], "padding": "a"}, (2, 1)),
        # no brackets, so these are words
        (["pad", "unk", "a"], (0, None)),
    ],
)
def test_what_is_taken_from_the_names_of_tokens(vocabulary: Any, expected: tuple[int, int | None]) -> None:
    """What the user says comes first."""
    read = read_vocabulary(vocabulary, "")
    assert (read.padding, read.unknown) == expected


def test_special_tokens_do_not_make_words_of_an_alphabet() -> None:
    """The names of marks may have several characters."""
    tokens = ["<pad>", "[UNK]", "EOS", "a", "b", ""]
    form = parse_text_alphabet({"tokens": tokens, "end": "EOS"}, network())
    assert form.scheme == "characters"
    assert parse_text_alphabet(tokens, network()).scheme == "words"


@pytest.mark.parametrize(
    ("prefix", "inputs", "scheme", "name"),
    [
        ("", ["ids:int64[batch,words,8]"], "alphabet", "ids"),
        ("b=", ["a:int64[batch,time]", "b:int32[batch,time]"], "characters", "b"),
        ("", ["mask:float32[batch,time]", "ids:int64[batch,time]"], "characters", "ids"),
    ],
)
def test_the_input_that_fits_takes_the_texts(
    tmp_path: Path, prefix: str, inputs: list[str], scheme: str, name: str
) -> None:
    """A path may have an = in it."""
    folder = tmp_path / "a=b"
    folder.mkdir()
    form = parse_text_alphabet(prefix + written(folder, "a.txt", "_ab "), network(*inputs))
    assert (form.scheme, form.input) == (scheme, name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", "", "v.txt: expected tokens, got none"),
        ("v.txt", "a\nb\na\n", "v.txt: expected distinct tokens, got 'a' 2 times"),
        ("v.json", "{", "v.json: expected JSON, cannot read it"),
        ("v.json", 3, "v.json: expected a list of tokens or an object in JSON, got int"),
        ("v.json", [1], "v.json: tokens[0]: expected a string, got int"),
        ("v.json", ["\ud800"], "v.json: tokens[0]: expected Unicode, got a lone surrogate"),
        ("v.json", {"a": 0, "b": 0}, "v.json: expected distinct ids, got 0 for 'a' and 'b'"),
        ("v.json", {"a": True}, "v.json: 'a': expected an id from 0 to 1,114,111, got True"),
        ("v.json", {"a": 1.5}, "v.json: 'a': expected an id from 0 to 1,114,111, got 1.5"),
        ("v.json", {}, "v.json: expected tokens, got none"),
        (
            "v.json",
            {"tokens": ["a"], "paddin": 0},
            "expected the keys tokens, padding, unknown, start, end, lower, got 'paddin'",
        ),
        (
            "v.json",
            {"tokens": ["a"], "end": "~"},
            "v.json: end: expected a token of the vocabulary or its id, got '~'",
        ),
        (
            "v.json",
            {"tokens": ["a"], "end": 1},
            "v.json: end: expected an id below 1, the number of tokens, got 1",
        ),
        ("v.json", {"tokens": ["a"], "lower": "yes"}, "v.json: lower: Input should be a valid boolean"),
    ],
)
def test_vocabularies_that_cannot_be_read_are_refused(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    with pytest.raises(SourceOptionError, match=f"--text-alphabet: .*{re.escape(message)}"):
        parse_text_alphabet(written(tmp_path, name, content), network())


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"a\nb\xff")
    with pytest.raises(SourceOptionError, match=r"v.txt: expected UTF-8, got other bytes at 3"):
        parse_text_alphabet(path, network())


def test_words_for_rows_of_characters_are_refused() -> None:
    with pytest.raises(
        SourceOptionError, match="expected tokens of one character for ids:int64.*, got 'good'"
    ):
        parse_text_alphabet(WORDS, network("ids:int64[batch,words,8]"))


def test_a_vocabulary_without_an_input_for_it_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"integers \[batch, characters or words\] or \[batch, words, characters\], got"
    ):
        parse_text_alphabet(WORDS, network("x:float32[batch,8]"))

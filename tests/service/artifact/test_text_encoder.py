"""Texts to ids: worked out by hand, and compared with slow formulations written differently."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.manifests import MANIFEST
from tests.support.text_models import ALPHABET, encoder, text_input
from turnpike.models.data.embedded import encode_texts
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.artifact.text_records import TOKEN_SCHEMES, TextInput, TextScheme, Vocabulary

IDS = Tensor("ids", "int64", ("batch", "words", 3))
LETTERS = ALPHABET + "aZ0ü界\0\u0301\U0001f601"
WHITE_SPACE = "".join(character for character in map(chr, range(sys.maxunicode + 1)) if character.isspace())
# as each scheme takes them for something else than their letters
SPECIAL_WORDS = ["<S>", "</S>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[cls]", "<S>x"]


def byte_ids(text: str, words: int, characters: int) -> list[list[int]]:
    """One more than each byte, in loops."""
    ids = [[0] * characters for _ in range(words)]
    for word, letters in enumerate(text.split()):
        for place, byte in enumerate(letters.encode()):
            if word < words and place < characters:
                ids[word][place] = byte + 1
    return ids


def marked_word(letters: str, characters: int, special: dict[str, int]) -> list[int]:
    """A word between 258 and 259, filled up with 260; then one more for each."""
    codes = [special[letters]] if letters in special else list(letters.encode())[: characters - 2]
    row = [258, *codes, 259]
    return [code + 1 for code in row + [260] * (characters - len(row))]


def elmo_ids(text: str, words: int, characters: int) -> list[list[int]]:
    rows = [marked_word(word, characters, {"<S>": 256, "</S>": 257}) for word in text.split()][:words]
    return rows + [[0] * characters] * (words - len(rows))


def bert_ids(text: str, words: int, characters: int) -> list[list[int]]:
    tokens = ["[CLS]", *text.split()[: words - 2], "[SEP]"]
    rows = [
        [0] * characters
        if token == "[PAD]"
        else marked_word(token, characters, {"[CLS]": 256, "[SEP]": 257, "[MASK]": 261})
        for token in tokens
    ]
    return rows + [[0] * characters] * (words - len(rows))


def alphabet_ids(text: str, words: int, characters: int) -> list[list[int]]:
    """What the training computes."""
    ids: list[list[list[int]]] = encode_texts([text], ALPHABET, words, characters).tolist()
    return ids[0]


SLOW: dict[TextScheme, Callable[[str, int, int], list[list[int]]]] = {
    "alphabet": alphabet_ids,
    "bytes": byte_ids,
    "elmo": elmo_ids,
    "characterbert": bert_ids,
}


def random_texts(draw: random.Random, characters: int) -> list[str]:
    def word() -> str:
        if draw.random() < 0.1:
            return draw.choice(SPECIAL_WORDS)
        kind = draw.choice((LETTERS, ALPHABET.strip(), "ü界"))
        return "".join(draw.choices(kind, k=draw.choice((1, 2, characters, 3 * characters, 200))))

    return [
        "".join(
            word() + "".join(draw.choices(WHITE_SPACE, k=draw.randint(1, 3)))
            for _ in range(draw.randint(0, 9))
        )
        for _ in range(200)
    ]


def test_ids_of_an_alphabet_by_hand() -> None:
    """Other characters are left out, words are cut and padded, and so are texts."""
    ids = encoder().encode(["AB", "", "xAé\U0001f600BC\tx C A", "\u00a0A\u3000"])
    assert ids.dtype == np.int64
    assert ids.tolist() == [
        [[1, 2, 0], [0, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
        [[1, 4, 5], [0, 0, 0]],
        [[1, 0, 0], [0, 0, 0]],
    ]


def test_ids_of_bytes_by_hand() -> None:
    """A character of several bytes may be cut in two."""
    assert encoder("bytes").encode(["a\0é é", "abcd"]).tolist() == [
        [[98, 1, 196], [196, 170, 0]],
        [[98, 99, 100], [0, 0, 0]],
    ]


def test_ids_of_elmo_by_hand() -> None:
    """AllenNLP's numbers plus 1: 258 and 259 around a word, 260 after it. Missing words are 0."""
    ids = encoder("elmo", words=3, characters=5).encode(["ab <S>", "abcdef"])
    assert ids.tolist() == [
        [[259, 98, 99, 260, 261], [259, 257, 260, 261, 261], [0] * 5],
        [[259, 98, 99, 100, 260], [0] * 5, [0] * 5],
    ]


def test_ids_of_characterbert_by_hand() -> None:
    """[CLS] and [SEP] are around the words, as many of which stay as have room."""
    ids = encoder("characterbert", words=4, characters=4).encode(["a [MASK] c", "[PAD]", ""])
    cls, sep, mask = [259, 257, 260, 261], [259, 258, 260, 261], [259, 262, 260, 261]
    nothing = [0] * 4
    assert ids.tolist() == [
        [cls, [259, 98, 260, 261], mask, sep],
        [cls, nothing, sep, nothing],
        [cls, sep, nothing, nothing],
    ]


@pytest.mark.parametrize("scheme", SLOW)
@pytest.mark.parametrize(("words", "characters"), [(2, 3), (5, 50), (3, 12)])
def test_ids_equal_those_of_a_slow_formulation(scheme: TextScheme, words: int, characters: int) -> None:
    """Also for all white space, characters of several bytes, long words and marks."""
    texts = random_texts(random.Random(words), characters)
    got = encoder(scheme, words, characters).encode(texts)
    expected = np.array([SLOW[scheme](text, words, characters) for text in texts], np.int64)
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("scheme", SLOW)
def test_the_ids_of_a_text_do_not_depend_on_other_texts(scheme: TextScheme) -> None:
    encode = encoder(scheme, 4, 5).encode
    texts = random_texts(random.Random(0), 5)
    np.testing.assert_array_equal(encode(texts), np.concatenate([encode([text]) for text in texts]))
    assert encode([]).shape == (0, 4, 5)


def test_letters_that_regular_expressions_read_differently_are_letters() -> None:
    alphabet = " ^]-[\\a&&~~||--.Z"
    long = "x" * 100
    text = f"{long}^{long}-]b\\ Y[c{long} {long}"
    np.testing.assert_array_equal(
        encoder(words=3, characters=4, alphabet=alphabet).encode([text]),
        encode_texts([text], alphabet, 3, 4).numpy(),
    )


def test_an_id_may_have_the_number_of_a_surrogate() -> None:
    """Alphabets of that size hold characters from all planes."""
    alphabet = " " + "".join(chr(code) for code in range(0x10000, 0x10000 + 0xD900))
    text = alphabet[0xD800:0xD803]
    assert encoder(words=1, characters=4, alphabet=alphabet).encode([text]).tolist() == [
        [[0xD800, 0xD801, 0xD802, 0]]
    ]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16"])
def test_ids_have_the_dtype_of_the_input(dtype: str) -> None:
    made = TextEncoder.of(
        MANIFEST.model_copy(update={"text": text_input("bytes")}),
        {"ids": Tensor("ids", dtype, ("batch", 2, 3))},
    )
    assert made is not None
    assert made.encode(["é"]).dtype == dtype
    assert made.row_bytes == 6 * np.dtype(dtype).itemsize


@pytest.mark.parametrize(
    ("text", "tensor", "alphabet", "message"),
    [
        (text_input(name="x"), IDS, ALPHABET, "expected an input, ids, got 'x'"),
        (text_input(), IDS, "", "alphabet: expected the character of each id, got none"),
        (
            text_input(),
            Tensor("ids", "float32", ("batch", 2, 3)),
            ALPHABET,
            "of ids up to 5, got ids:float32",
        ),
        (text_input("bytes"), Tensor("ids", "uint8", ("batch", 2, 3)), "", "of ids up to 256, got ids:uint8"),
        (text_input(characters=4), IDS, ALPHABET, "any number of 2 x 4 ids, got ids:"),
        (
            text_input(),
            Tensor("ids", "int64", ("batch", 5, 3)),
            ALPHABET,
            "any number of 2 x 3 ids, got ids:",
        ),
        (text_input(), Tensor("ids", "int64", (2, 2, 3)), ALPHABET, "any number of 2 x 3 ids, got ids:"),
        (text_input(), Tensor("ids", "int64", ("batch", 3)), ALPHABET, "any number of 2 x 3 ids, got ids:"),
        (text_input(), Tensor("ids", "int64", ()), ALPHABET, "any number of 2 x 3 ids, got ids:"),
    ],
)
def test_a_graph_without_an_input_for_the_ids_is_refused(
    text: TextInput, tensor: Tensor, alphabet: str, message: str
) -> None:
    manifest = MANIFEST.model_copy(update={"text": text, "alphabet": alphabet})
    with pytest.raises(ValueError, match=re.escape(message)):
        TextEncoder.of(manifest, {tensor.name: tensor})


def test_files_without_texts_have_no_encoder() -> None:
    assert TextEncoder.of(None, {}) is TextEncoder.of(MANIFEST, {}) is None


@pytest.mark.parametrize(
    ("scheme", "words", "characters"),
    [("elmo", 1, 2), ("characterbert", 1, 5), ("characterbert", 2, 2), ("bytes", 0, 3), ("alphabet", 2, 0)],
)
def test_rows_without_room_for_the_marks_are_refused(scheme: TextScheme, words: int, characters: int) -> None:
    with pytest.raises(ValueError, match="expected 1 x 3 ids|expected 2 x 3 ids|greater than or equal to 1"):
        text_input(scheme, words, characters)


VOCABULARIES = [
    Vocabulary(tokens=("<pad>", "<unk>", "a", "b", "ü", "界", " ", "\U0001f600"), unknown=1, lower=True),
    Vocabulary(tokens=("", "a", "B", " ", "\t", "ü", "<s>"), padding=6, start=6, end=4),
    Vocabulary(tokens=("a", "b", "~", "_"), padding=3, end=2, lower=True),
    Vocabulary(tokens=("a", "b", "A"), padding=2, unknown=0),
]


def token_ids(tokens: list[str], size: int, vocabulary: Vocabulary) -> list[int]:
    """The ids of characters or words, in loops: marks around those that are known, then padding."""
    ids = []
    for token in tokens:
        if token in vocabulary.tokens and token != "":
            ids.append(vocabulary.tokens.index(token))
        elif vocabulary.unknown is not None:
            ids.append(vocabulary.unknown)
    start = [] if vocabulary.start is None else [vocabulary.start]
    end = [] if vocabulary.end is None else [vocabulary.end]
    row = start + ids[: size - len(start) - len(end)] + end
    return row + [vocabulary.padding] * (size - len(row))


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("size", [3, 8, 40])
def test_ids_of_a_vocabulary_equal_those_of_a_slow_formulation(vocabulary: Vocabulary, size: int) -> None:
    """Its tokens are the characters of a text, those of each word, or the words."""
    texts = [*random_texts(random.Random(size), size), "a b ü A", "AaBb " * 30, "aab", "<pad> <s> a"]
    lowered = [text.lower() if vocabulary.lower else text for text in texts]
    slow = {
        "characters": [token_ids(list(text), size, vocabulary) for text in lowered],
        "words": [token_ids(text.split(), size, vocabulary) for text in lowered],
        "alphabet": [
            [token_ids(list(word), size, vocabulary) for word in text.split()[:4]]
            + [[vocabulary.padding] * size] * (4 - len(text.split()[:4]))
            for text in lowered
        ],
    }
    sizes = {"characters": (1, size), "words": (size, 1), "alphabet": (4, size)}
    for scheme in TOKEN_SCHEMES:
        got = encoder(scheme, *sizes[scheme], alphabet="", vocabulary=vocabulary).encode(texts)
        np.testing.assert_array_equal(got, np.array(slow[scheme], np.int64), strict=True)


def test_ids_of_a_vocabulary_by_hand() -> None:
    """Marks count among the ids of a row. What is not known is left out, or has an id of its own."""
    words = Vocabulary(tokens=("<pad>", "<unk>", "good", "film"), unknown=1, lower=True)
    assert encoder("words", 4, 1, vocabulary=words).encode(["Good new FILM", "", "a b c d e"]).tolist() == [
        [2, 1, 3, 0],
        [0, 0, 0, 0],
        [1, 1, 1, 1],
    ]
    characters = Vocabulary(tokens=("_", "~", " ", "a", "b"), end=1)
    assert encoder("characters", 1, 5, vocabulary=characters).encode(
        ["a  b", "aXb", "abababab"]
    ).tolist() == [
        [3, 2, 2, 4, 1],
        [3, 4, 1, 0, 0],
        [3, 4, 3, 4, 1],
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": None}, "expected a vocabulary for words, got none"),
        ({"scheme": "bytes"}, "expected no vocabulary for bytes, got 3 tokens"),
        ({"scheme": "characters"}, "expected tokens of one character for characters, got none"),
        ({"vocabulary": {"tokens": ("aa", "aa")}}, "expected distinct tokens, got 'aa' 2 times"),
        (
            {"vocabulary": {"tokens": ("aa",), "end": 1}},
            "end: expected an id below 1, the number of tokens, got 1",
        ),
        (
            {"vocabulary": {"tokens": ("aa",), "start": 0, "end": 0}},
            "expected 3 x 1 ids or more for words, got 2 x 1",
        ),
        ({"vocabulary": {"tokens": ()}}, "at least 1 item"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    fields = {
        **text_input("words", 2, 1, vocabulary=Vocabulary(tokens=("aa", "bb", ""))).model_dump(),
        **change,
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        TextInput.model_validate(fields)


def test_rules_of_a_vocabulary_are_said_by_the_names_of_tokens() -> None:
    """A token of white space has no name that people could read."""
    vocabulary = Vocabulary(tokens=(" ", "<unk>", "a", "~"), unknown=1, end=3, lower=True)
    assert vocabulary.rules_text == "4 tokens, padding 0, unknown <unk>, end ~, lower case"
    assert Vocabulary(tokens=("_", "", "a")).rules_text == "2 tokens, padding _, unknown left out"


def test_a_long_word_of_unknown_characters_takes_no_call_for_each() -> None:
    """`translate` makes one for each character that is left out, which takes 100 ns."""
    calls: list[int] = []

    def trace(frame: Any, event: str, argument: object) -> None:
        calls.append(1)

    sys.setprofile(trace)
    try:
        encoder().encode(["ü" * 100_000])
    finally:
        sys.setprofile(None)
    assert len(calls) < 1000

"""Proves that the service converts texts to the ids that a network was trained on."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import get_args

import numpy as np
from pydantic import ValidationError

from turnpike.export.errors import ParityError, SourceOptionError, UsageError
from turnpike.export.network import Array, Network, Rows, TextForm
from turnpike.models.data.embedded import encode_texts
from turnpike.service.artifact.manifest import TextInput, TextScheme
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.text_encoder import MAX_WASTED_CHARACTERS, TextEncoder

OPTION = "--text-alphabet"
# schemes for networks whose training did not record how it made the ids
SCHEMES = tuple(scheme for scheme in get_args(TextScheme) if scheme != "alphabet")
# texts that are drawn at random, besides those of the data
DRAWN_TEXTS = 500
# characters that no alphabet has together, and all white space that separates words
OTHER_LETTERS = "aZ0é界\U0001f600\0\u0301"
WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())


def parse_text_alphabet(option: str, network: Network) -> TextForm:
    """Parse `[NAME=]SCHEME`, which names the input that takes texts and how their words become its ids."""
    name, separator, scheme_name = option.rpartition("=")
    scheme = next((scheme for scheme in SCHEMES if scheme == scheme_name), None)
    if network.alphabet:
        raise UsageError(f"{OPTION}: expected none, since the training recorded its alphabet, got {option!r}")
    if scheme is None:
        raise UsageError(f"{OPTION}: expected {', '.join(SCHEMES)}, got {scheme_name!r}")
    fitting = [
        spec.name
        for spec in network.inputs
        if len(spec.dims) == 3 and isinstance(spec.dims[0], str) and np.dtype(spec.dtype).kind in "iu"
    ]
    if not separator and len(fitting) == 1:
        (name,) = fitting
    if name not in fitting:
        raise UsageError(
            f"{OPTION}: expected [NAME=]{scheme} for an input of integers [batch, words, characters], "
            f"got {option!r} for {', '.join(map(str, network.inputs))}"
        )
    return TextForm(name, scheme)


def prove_text_input(network: Network, rows: Rows | None) -> TextInput | None:
    """Prove that texts become the ids of the training; None if the network takes no texts.

    The texts of the rows must give exactly their ids. For the alphabet of a training run, so must texts that
    are made to be difficult, whose ids the code of the training computes.

    Raises:
        SourceOptionError: There are no texts to prove it on, or they give other ids.
        ParityError: The same, for the alphabet of a training run.
    """
    form = network.text
    if form is None:
        return None
    texts_of_rows = () if rows is None else rows.texts
    if not texts_of_rows and form.scheme != "alphabet":
        raise SourceOptionError(
            f"{OPTION}: expected --data with an array `texts` beside the ids of {form.input}: it proves that "
            "the service makes the ids of the training"
        )
    encoder = _encoder(network, form, rows)
    compared: list[tuple[Sequence[str], Array]] = []
    if rows is not None and texts_of_rows:
        compared.append((texts_of_rows, rows.inputs[form.input]))
    if form.scheme == "alphabet":
        difficult = difficult_texts(network.alphabet, *encoder.row_shape)
        ids = encode_texts(difficult, network.alphabet, *encoder.row_shape).numpy().astype(encoder.dtype)
        compared.append((difficult, ids))
    digest = hashlib.sha256()
    for texts, ids in compared:
        if problem := _difference(texts, ids, encoder):
            raise (
                ParityError(f"text: {problem}")
                if form.scheme == "alphabet"
                else SourceOptionError(f"{OPTION}: {problem}")
            )
        digest.update(np.ascontiguousarray(ids, "<i8").data)
    count = sum(len(texts) for texts, _ in compared)
    return encoder.text.model_copy(update={"texts": count, "digest": digest.hexdigest()})


def expect_ids_in_table(text: TextInput | None, runtime: Runtime, rows: Rows | None) -> None:
    """Raise a SourceOptionError if the network cannot be run on all ids that texts may give."""
    if text is None or text.scheme == "alphabet" or rows is None:
        return
    dtype = rows.inputs[text.input].dtype
    highest = TextEncoder(text, "", dtype.name).max_id
    ids = np.zeros((1, text.words, text.characters), dtype)
    for start in range(0, highest + 1, ids.size):
        ids.flat[: highest + 1 - start] = np.arange(start, start + ids.size)[: highest + 1 - start]
        feeds = {name: array[:1] for name, array in rows.inputs.items()}
        try:
            runtime.run({**feeds, text.input: ids})
        except Exception as error:  # of the service's runtime, whose errors export does not know
            raise SourceOptionError(
                f"{OPTION}: expected a network for the ids 0 to {highest} of {text.scheme}, and it fails on "
                f"some of {start} to {min(highest, start + ids.size - 1)}"
            ) from error


def difficult_texts(alphabet: str, words: int, characters: int) -> list[str]:
    """Texts with what data seldom has: unknown characters, all white space, long words, many words, none."""
    draw = random.Random(0)  # noqa: S311, nothing secret
    letters = alphabet + OTHER_LETTERS

    def word() -> str:
        length = draw.choice((1, 2, characters, characters + 1, characters + 2 * MAX_WASTED_CHARACTERS))
        kinds = (letters, alphabet, OTHER_LETTERS)
        return "".join(draw.choices(draw.choice(kinds), k=draw.randint(1, length)))

    def text() -> str:
        return "".join(
            word() + "".join(draw.choices(WHITE_SPACE, k=draw.randint(1, 3)))
            for _ in range(draw.randint(1, words + 2))
        )

    return ["", *WHITE_SPACE, *(text() for _ in range(DRAWN_TEXTS))]


def _encoder(network: Network, form: TextForm, rows: Rows | None) -> TextEncoder:
    """The encoder for rows of the size that the training had."""
    spec = next(spec for spec in network.inputs if spec.name == form.input)
    if rows is not None and rows.texts:
        sizes = rows.inputs[form.input].shape[1:]
    elif network.training is not None:
        sizes = tuple(network.training.config["inputs"])
    else:
        raise SourceOptionError(f"{OPTION}: expected rows with texts, got none")
    words, characters = (
        dim if isinstance(dim, int) else size for dim, size in zip(spec.dims[1:], sizes, strict=True)
    )
    try:
        text = TextInput(
            input=form.input, scheme=form.scheme, words=words, characters=characters, texts=0, digest=""
        )
    except ValidationError as error:
        raise SourceOptionError(f"{OPTION}: {error.errors()[0]['msg']}") from error
    return TextEncoder(text, network.alphabet, spec.dtype)


def _difference(texts: Sequence[str], ids: Array, encoder: TextEncoder) -> str | None:
    """The first difference between the ids of texts and those that were expected, in words."""
    got = encoder.encode(texts)
    if got.shape != ids.shape:
        return f"expected ids of shape {list(ids.shape)}, got {list(got.shape)}"
    if np.array_equal(got, ids):
        return None
    row, word, character = np.argwhere(got != ids)[0].tolist()
    return (
        f"expected the id {ids[row, word, character]} of the training for word {word + 1}, character "
        f"{character + 1} of the text {texts[row]!r:.100}, and {encoder.text.scheme} gives "
        f"{got[row, word, character]}"
    )

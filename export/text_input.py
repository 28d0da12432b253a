"""Proves that the service converts texts to the ids that a network was trained on."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
from pydantic import ValidationError

from turnpike.export.errors import ParityError, SourceOptionError
from turnpike.export.network import Array, Network, Rows, TextForm
from turnpike.models.data.embedded import encode_texts
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.text_encoder import MAX_WASTED_CHARACTERS, TextEncoder
from turnpike.service.artifact.text_records import TextInput

OPTION = "--text-alphabet"
# texts that are drawn at random, besides those of the data
DRAWN_TEXTS = 500
# rows of ids with which a network is run at once to see whether it takes every id
MAX_TABLE_ROWS = 64
# characters that no alphabet has together, and all white space that separates words
OTHER_LETTERS = "aZ0é界\U0001f600\0\u0301"
WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())


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
    if not texts_of_rows and not form.is_recorded:
        raise SourceOptionError(
            f"{OPTION}: expected --data with an array `texts` beside the ids of {form.input}: it proves that "
            "the service makes the ids of the training"
        )
    encoder = _encoder(network, form, rows)
    compared: list[tuple[Sequence[str], Array]] = []
    if rows is not None and texts_of_rows:
        compared.append((texts_of_rows, rows.inputs[form.input]))
    if form.is_recorded:
        difficult = difficult_texts(network.alphabet, *encoder.row_shape)
        ids = encode_texts(difficult, network.alphabet, *encoder.row_shape).numpy().astype(encoder.dtype)
        compared.append((difficult, ids))
    digest = hashlib.sha256()
    for texts, ids in compared:
        if problem := _difference(texts, ids, encoder):
            raise (
                ParityError(f"text: {problem}")
                if form.is_recorded
                else SourceOptionError(f"{OPTION}: {problem}")
            )
        digest.update(np.ascontiguousarray(ids, "<i8").data)
    count = sum(len(texts) for texts, _ in compared)
    return encoder.text.model_copy(update={"texts": count, "digest": digest.hexdigest()})


def expect_ids_in_table(text: TextInput | None, runtime: Runtime, rows: Rows | None) -> None:
    """Raise a SourceOptionError if the network cannot be run on all ids that texts may give."""
    if text is None or rows is None or (text.scheme == "alphabet" and text.vocabulary is None):
        return
    dtype = rows.inputs[text.input].dtype
    highest = TextEncoder(text, "", dtype.name).max_id
    row_size = prod(text.row_shape)
    # a vocabulary may have a hundred thousand words
    row_count = min(MAX_TABLE_ROWS, -(-(highest + 1) // row_size))
    ids = np.zeros((row_count, *text.row_shape), dtype)
    feeds = {name: np.repeat(array[:1], row_count, 0) for name, array in rows.inputs.items()}
    for start in range(0, highest + 1, ids.size):
        ids.flat[: highest + 1 - start] = np.arange(start, start + ids.size)[: highest + 1 - start]
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
    row_shape = tuple(
        dim if isinstance(dim, int) else size for dim, size in zip(spec.dims[1:], sizes, strict=True)
    )
    words, characters = {"characters": (1, *row_shape), "words": (*row_shape, 1)}.get(form.scheme, row_shape)
    try:
        text = TextInput(
            input=form.input,
            scheme=form.scheme,
            words=words,
            characters=characters,
            vocabulary=form.vocabulary,
            texts=0,
            digest="",
        )
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise SourceOptionError(f"{OPTION}: {message}") from error
    return TextEncoder(text, network.alphabet, spec.dtype)


def _difference(texts: Sequence[str], ids: Array, encoder: TextEncoder) -> str | None:
    """The first difference between the ids of texts and those that were expected, in words."""
    got = encoder.encode(texts)
    if got.shape != ids.shape:
        return f"expected ids of shape {list(ids.shape)}, got {list(got.shape)}"
    if np.array_equal(got, ids):
        return None
    text = encoder.text
    row, *place = np.argwhere(got != ids)[0].tolist()
    axes = [text.scheme.removesuffix("s")] if len(place) == 1 else ["word", "character"]
    where = ", ".join(f"{axis} {index + 1}" for axis, index in zip(axes, place, strict=True))
    return (
        f"expected the id {ids[row, *place]} of the training for {where} of the text {texts[row]!r:.100}, "
        f"and {text.scheme if text.vocabulary is None else f'{text.scheme} ({text.vocabulary.rules_text})'} "
        f"gives {got[row, *place]}{_remedy(texts, ids, encoder)}"
    )


def _remedy(texts: Sequence[str], ids: Array, encoder: TextEncoder) -> str:
    """The rules of the vocabulary with which all texts give their ids; empty if none was found."""
    vocabulary = encoder.text.vocabulary
    if vocabulary is None:
        return ""
    numbers = [number for number in (0, 1, len(vocabulary.tokens) - 1) if number < len(vocabulary.tokens)]
    last = int(ids.reshape(len(ids), -1)[:, -1].min())
    for lower, unknown, padding in product(
        (False, True), (None, *numbers), {vocabulary.padding, *numbers, last}
    ):
        rules = {"lower": lower, "unknown": unknown, "padding": padding}
        if not 0 <= padding < len(vocabulary.tokens):
            continue
        other = encoder.text.model_copy(update={"vocabulary": vocabulary.model_copy(update=rules)})
        if np.array_equal(TextEncoder(other, "", encoder.dtype.name).encode(texts), ids):
            return f'; all texts give their ids with {json.dumps(rules)} beside "tokens" in a .json file'
    return ""

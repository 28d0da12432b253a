"""Reads `--text-alphabet`: how texts become the ids of an input, by a scheme or by a vocabulary."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic import ValidationError

from turnpike.export.errors import SourceError, UsageError, errors_of_option, one_line
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network, TextForm
from turnpike.export.options import TextAlphabet
from turnpike.export.text_input import OPTION
from turnpike.service.artifact.text_records import MAX_TOKENS, TOKEN_SCHEMES, TextScheme, Vocabulary

# schemes that need no vocabulary, for networks whose training did not record how it made the ids
SCHEMES = tuple(scheme for scheme in get_args(TextScheme) if scheme not in TOKEN_SCHEMES)
# a vocabulary of a million words has about 10 MiB
MAX_FILE_BYTES = 32 << 20
# names of the tokens for padding and for what is not known, without brackets, in lower case
PADDING_NAMES = frozenset(("pad", "padding", "blank"))
UNKNOWN_NAMES = frozenset(("unk", "unknown", "oov"))
# a token such as <pad> or [UNK], which stands for something else than its characters
SPECIAL_TOKEN = re.compile(r"<[^<>]+>|\[[^\[\]]+\]", re.DOTALL)
# keys of a vocabulary in JSON, beside "tokens"
ID_KEYS = ("padding", "unknown", "start", "end")
KEYS = ("tokens", *ID_KEYS, "lower")


def parse_text_alphabet(option: TextAlphabet, network: Network) -> TextForm:
    """Parse `[NAME=]SCHEME` or `[NAME=]FILE`, or a vocabulary that is an object of Python.

    NAME is the input that takes texts. A file has a token per line, whose number from 0 is its id, or JSON:
    a list of tokens, an object with the id of each token, or an object with the keys `KEYS`.

    Raises:
        UsageError: It is no scheme and no file, or no input fits.
        SourceOptionError: The vocabulary cannot be read.
    """
    if network.alphabet:
        raise UsageError(
            f"{OPTION}: expected none, since the training recorded its alphabet, got {_shown(option)}"
        )
    if not isinstance(option, str | Path):
        with errors_of_option(OPTION):
            return _form_of(read_vocabulary(option, ""), "", network)
    name, value = _split(str(option))
    scheme = next((scheme for scheme in SCHEMES if scheme == value), None)
    if scheme is not None:
        return TextForm(_input(name, network, scheme, axes=(3,)).name, scheme)
    path = Path(value)
    if not path.is_file():
        raise UsageError(f"{OPTION}: expected {', '.join(SCHEMES)}, or a file of tokens, got {value!r}")
    with errors_of_option(OPTION):
        return _form_of(read_vocabulary(_file_content(path), f"{path}: "), name, network)


def read_vocabulary(source: Sequence[Any] | Mapping[str, Any], where: str) -> Vocabulary:
    """The vocabulary in a list of tokens, or in an object, maybe with rules; `where` begins its errors."""
    rules: dict[str, Any] = {}
    tokens: Any = source
    # a vocabulary may have the word "tokens", whose id is a number
    if isinstance(source, Mapping) and isinstance(source.get("tokens"), Sequence | Mapping):
        rules = {key: value for key, value in source.items() if key != "tokens"}
        tokens = source["tokens"]
        if unknown := sorted(set(rules) - set(KEYS)):
            raise SourceError(f"{where}expected the keys {', '.join(KEYS)}, got {unknown[0]!r}")
    names = _token_list(tokens, where)
    ids = {token: number for number, token in enumerate(names) if token}
    for key in ID_KEYS:
        # null says that there is none, whatever the tokens are called
        if isinstance(value := rules.get(key), str):
            if value not in ids:
                raise SourceError(
                    f"{where}{key}: expected a token of the vocabulary or its id, got {value!r}"
                )
            rules[key] = ids[value]
    rules.setdefault("padding", _special_id(ids, PADDING_NAMES) or 0)
    rules.setdefault("unknown", _special_id(ids, UNKNOWN_NAMES))
    try:
        return Vocabulary.model_validate({"tokens": tuple(names), **rules}, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise SourceError(f"{where}{f'{place}: ' if place else ''}{message}") from error


def _split(option: str) -> tuple[str, str]:
    """The name of the input, which may be missing, and the rest. A path may have an = in it."""
    if Path(option).is_file():
        return "", option
    name, _, value = option.partition("=") if "=" in option else ("", "", option)
    return name, value


def _form_of(vocabulary: Vocabulary, name: str, network: Network) -> TextForm:
    """How an input takes texts by a vocabulary: its shape and the tokens tell the scheme."""
    spec = _input(name, network, "FILE", axes=(2, 3))
    of_characters = all(
        len(token) <= 1 or SPECIAL_TOKEN.fullmatch(token) or number in _rule_ids(vocabulary)
        for number, token in enumerate(vocabulary.tokens)
    )
    if len(spec.dims) == 2:
        return TextForm(spec.name, "characters" if of_characters else "words", vocabulary)
    if not of_characters:
        word = next(
            token for token in vocabulary.tokens if len(token) > 1 and not SPECIAL_TOKEN.fullmatch(token)
        )
        raise SourceError(
            f"expected tokens of one character for {spec}, whose rows are words of characters, got {word!r}"
        )
    return TextForm(spec.name, "alphabet", vocabulary)


def _input(name: str, network: Network, value: str, axes: tuple[int, ...]) -> InputSpec:
    """The input of texts: the one that fits if there is no name."""
    fitting = {
        spec.name: spec
        for spec in network.inputs
        if len(spec.dims) in axes and isinstance(spec.dims[0], str) and np.dtype(spec.dtype).kind in "iu"
    }
    if not name and len(fitting) == 1:
        (name,) = fitting
    if name not in fitting:
        shapes = " or ".join(
            {2: "[batch, characters or words]", 3: "[batch, words, characters]"}[axis] for axis in axes
        )
        got = f"{name}=" if name else "no name"
        raise UsageError(
            f"{OPTION}: expected [NAME=]{value} for an input of integers {shapes}, "
            f"got {got} for {', '.join(map(str, network.inputs))}"
        )
    return fitting[name]


def _token_list(tokens: Any, where: str) -> list[str]:
    """The tokens in the order of their ids; "" for an id without a token."""
    if isinstance(tokens, Mapping):
        return _tokens_by_id(tokens, where)
    if isinstance(tokens, str):
        tokens = list(tokens)
    if not isinstance(tokens, Sequence):
        raise SourceError(
            f"{where}expected tokens: a list, or an object with the id of each, got {_kind(tokens)}"
        )
    for number, token in enumerate(tokens):
        _expect_token(token, f"{where}tokens[{number}]: ")
    if len(tokens) > MAX_TOKENS:
        raise SourceError(f"{where}expected at most {MAX_TOKENS:,} tokens, got {len(tokens):,}")
    if not any(tokens):
        raise SourceError(f"{where}expected tokens, got none")
    return list(tokens)


def _tokens_by_id(ids: Mapping[Any, Any], where: str) -> list[str]:
    """The tokens of an object with the id of each, such as a vocab.json."""
    tokens: dict[int, str] = {}
    for token, number in ids.items():
        _expect_token(token, f"{where}tokens: ")
        if type(number) is not int or not 0 <= number < MAX_TOKENS:
            raise SourceError(
                f"{where}{token!r}: expected an id from 0 to {MAX_TOKENS - 1:,}, got {number!r}"
            )
        if number in tokens:
            raise SourceError(
                f"{where}expected distinct ids, got {number} for {tokens[number]!r} and {token!r}"
            )
        tokens[number] = token
    if not tokens:
        raise SourceError(f"{where}expected tokens, got none")
    return [tokens.get(number, "") for number in range(max(tokens) + 1)]


def _expect_token(token: Any, where: str) -> None:
    if not isinstance(token, str):
        raise SourceError(f"{where}expected a string, got {_kind(token)}")
    if any("\ud800" <= character <= "\udfff" for character in token):
        raise SourceError(f"{where}expected Unicode, got a lone surrogate, {token!r}")


def _special_id(ids: Mapping[str, int], names: frozenset[str]) -> int | None:
    """The id of the first token in brackets with one of these names."""
    return next(
        (
            number
            for token, number in ids.items()
            if SPECIAL_TOKEN.fullmatch(token) and token[1:-1].strip("_").lower() in names
        ),
        None,
    )


def _rule_ids(vocabulary: Vocabulary) -> set[int | None]:
    return {vocabulary.padding, vocabulary.unknown, vocabulary.start, vocabulary.end}


def _file_content(path: Path) -> Sequence[Any] | Mapping[str, Any]:
    """The list or object in a file of JSON, or the lines of another. A single line is an alphabet."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SourceError(
                f"{path}: expected a file of at most {MAX_FILE_BYTES >> 20} MiB, got a larger one"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: expected UTF-8, got other bytes at {error.start}") from error
    if path.suffix.lower() != ".json":
        # white space may be a token, so only the ends of lines are removed
        lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
        return list(lines[0]) if len(lines) == 1 else lines
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: expected JSON, cannot read it ({one_line(error)})") from error
    if not isinstance(content, list | dict):
        raise SourceError(f"{path}: expected a list of tokens or an object in JSON, got {_kind(content)}")
    return content


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _shown(option: TextAlphabet) -> str:
    return repr(str(option)) if isinstance(option, str | Path) else f"a vocabulary of {len(option)} entries"

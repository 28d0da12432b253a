"""What a manifest says about texts: how they become the ids of an input, and its vocabulary."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turnpike.service.artifact.proof_records import ManifestRecord

# how a text becomes ids; `text_encoder.py` has the equations
TextScheme = Literal["alphabet", "bytes", "elmo", "characterbert", "characters", "words"]
# schemes whose ids are places in an alphabet or vocabulary
TOKEN_SCHEMES: tuple[TextScheme, ...] = ("alphabet", "characters", "words")
# the encoder writes ids as code points of a string
MAX_TOKENS = sys.maxunicode + 1

TokenId = Annotated[int, Field(ge=0)]


class Vocabulary(ManifestRecord):
    """The characters or words that a network knows, in the order of their ids.

    Attributes:
        tokens: The token of each id, distinct. "" is an id that no text has.
        padding: The id after the last token of a text.
        unknown: The id of tokens that are not in the vocabulary; None if they are left out.
        start: The id before the first token; None if there is none.
        end: The id after the last token, before the padding; None if there is none.
        lower: Whether texts are converted to lower case first.
    """

    tokens: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_TOKENS)]
    padding: TokenId = 0
    unknown: TokenId | None = None
    start: TokenId | None = None
    end: TokenId | None = None
    lower: bool = False

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        named = [token for token in self.tokens if token]
        if len(set(named)) < len(named):
            repeated, count = Counter(named).most_common(1)[0]
            raise ValueError(f"expected distinct tokens, got {repeated!r} {count} times")
        for name in ("padding", "unknown", "start", "end"):
            number = getattr(self, name)
            if number is not None and number >= len(self.tokens):
                raise ValueError(
                    f"{name}: expected an id below {len(self.tokens)}, the number of tokens, got {number}"
                )
        return self

    @property
    def rules_text(self) -> str:
        """The number of tokens, and the rules by their tokens."""
        parts = [f"{sum(map(bool, self.tokens)):,} tokens", f"padding {self._name(self.padding)}"]
        parts.append("unknown left out" if self.unknown is None else f"unknown {self._name(self.unknown)}")
        marks = {"start": self.start, "end": self.end}
        parts += [f"{rule} {self._name(mark)}" for rule, mark in marks.items() if mark is not None]
        return ", ".join([*parts, *(["lower case"] if self.lower else [])])

    def _name(self, number: int) -> str:
        """A token as people write it, or its id if it has no name."""
        token = self.tokens[number]
        return token if token.isprintable() and token.strip() else str(number)

    @property
    def marks(self) -> int:
        """How many ids of a row are taken by those of start and end."""
        return (self.start is not None) + (self.end is not None)


class TextInput(ManifestRecord):
    """How texts become the ids of an input, whose rows have the shape `row_shape`.

    At export, `texts` texts gave exactly the ids that the network was trained on; `digest` is that of these
    ids. `words` is 1 for `characters`, which does not split a text, and `characters` is 1 for `words`,
    in which a word has one id. `vocabulary` is set for a network that did not record the alphabet of its
    training; see `TOKEN_SCHEMES`.
    """

    input: str
    scheme: TextScheme
    words: int = Field(ge=1)
    characters: int = Field(ge=1)
    vocabulary: Vocabulary | None = None
    texts: int
    digest: str

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of the ids of one text."""
        if self.scheme == "characters":
            return (self.characters,)
        return (self.words,) if self.scheme == "words" else (self.words, self.characters)

    @property
    def row_text(self) -> str:
        """How much of a text is read, in words."""
        if self.scheme == "characters":
            return f"{self.characters} characters"
        if self.scheme == "words":
            return f"{self.words} words"
        return f"{self.words} words of {self.characters} characters"

    @property
    def scheme_text(self) -> str:
        """The scheme, with the rules of its vocabulary."""
        if self.vocabulary is None:
            return self.scheme
        return f"{self.scheme}, {self.vocabulary.rules_text}"

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Self:
        if self.vocabulary is None and self.scheme in ("characters", "words"):
            raise ValueError(f"expected a vocabulary for {self.scheme}, got none")
        if self.vocabulary is not None and self.scheme not in TOKEN_SCHEMES:
            raise ValueError(
                f"expected no vocabulary for {self.scheme}, got {len(self.vocabulary.tokens)} tokens"
            )
        if (
            self.vocabulary is not None
            and self.scheme != "words"
            and not any(len(token) == 1 for token in self.vocabulary.tokens)
        ):
            raise ValueError(f"expected tokens of one character for {self.scheme}, got none")
        return self

    @model_validator(mode="after")
    def _check_room_for_marks(self) -> Self:
        marks = 0 if self.vocabulary is None else self.vocabulary.marks
        # start and end of a word, and CharacterBERT's start and end of the text
        words = 2 if self.scheme == "characterbert" else 1
        characters = 3 if self.scheme in ("elmo", "characterbert") else 1
        if self.scheme == "words":
            words += marks
        else:
            characters += marks
        if self.words < words or self.characters < characters:
            raise ValueError(
                f"expected {words} x {characters} ids or more for {self.scheme}, "
                f"got {self.words} x {self.characters}"
            )
        return self

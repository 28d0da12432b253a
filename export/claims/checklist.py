"""Keeps a record of every field of a manifest: checked, or claimed and not checked, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from turnpike.export.errors import ParityError
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.proof_records import ManifestRecord

# characters of a value in an error
MAX_SHOWN = 120
# why what was measured on rows is not checked
NO_ROWS = "no rows: give those of the export with --data"
OTHER_ROWS = "the file was made with other rows"
SPLIT_ROWS = "measured on rows that the compression split"
# why a field is listed that no check has reported
NO_CHECK = "no check of this version knows it"


@dataclass(frozen=True)
class Claims:
    """The fields of a manifest: those that a verification computed itself, and those that it could not.

    Attributes:
        checked: The fields that were computed again and agree.
        claimed: The fields that the file alone says, each with the reason why it was not checked.
    """

    checked: tuple[str, ...]
    claimed: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """The fields as lines of text: first those that were checked, then the others by their reason.

        A record of which no field is claimed has its own name alone.
        """
        records = {field.split(".")[0] for field in self.claimed}
        names = (field if (top := field.split(".")[0]) in records else top for field in self.checked)
        yield f"checked: {', '.join(dict.fromkeys(names))}"
        for reason in dict.fromkeys(self.claimed.values()):
            fields = (field for field, text in self.claimed.items() if text == reason)
            yield f"claimed, not checked: {', '.join(fields)} ({reason})"


class Checklist:
    """Collects the results of checks; `path` is the file that errors name.

    Fields are written with dots, as in `parity.batches`. A field stands for everything inside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked: dict[str, None] = {}
        self._claimed: dict[str, str] = {}
        self._empty: set[str] = set()

    def error(self, field: str, problem: str) -> ParityError:
        """The error that a field of the file is false."""
        return ParityError(f"{self._path}: manifest: {field}: {problem}")

    def expect(self, field: str, expected: object, got: object, source: str = "") -> None:
        """Note a field as checked, or raise a ParityError; `source` says where the expected value is from."""
        if expected != got:
            described = f"{shown(expected)}{f', {source},' if source else ','}"
            raise self.error(field, f"expected {described} got {shown(got)}")
        self.check(field)

    def check(self, *fields: str) -> None:
        """Note fields that were computed again and agree."""
        self._checked |= dict.fromkeys(fields)

    def claim(self, reason: str, *fields: str) -> None:
        """Note fields that cannot be computed here."""
        self._claimed |= dict.fromkeys(fields, reason)

    def leave_empty(self, *fields: str) -> None:
        """Note fields in which the file claims nothing."""
        self._empty |= set(fields)

    def result(self) -> Claims:
        """The fields in the order in which they were noted; those that no check has noted are claimed."""
        noted = {*self._checked, *self._claimed, *self._empty}
        forgotten = [path for path in field_paths(Manifest) if not _has_part_of(noted, path)]
        return Claims(tuple(self._checked), self._claimed | dict.fromkeys(forgotten, NO_CHECK))


def field_paths(record: type[ManifestRecord], prefix: str = "") -> Iterator[str]:
    """The fields of a record, and of the records inside it, down to plain values."""
    for name, field in record.model_fields.items():
        path = f"{prefix}{name}"
        nested = list(_records(field.annotation))
        if not nested:
            yield path
        for inner in nested:
            yield from field_paths(inner, f"{path}.")


def shown(value: object) -> str:
    """A value in an error: names with commas, and the beginning of what is long."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        text = ", ".join(map(str, value)) or "none"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _records(annotation: Any) -> Iterator[type[ManifestRecord]]:
    if isinstance(annotation, type) and issubclass(annotation, ManifestRecord):
        yield annotation
    for argument in get_args(annotation):
        yield from _records(argument)


def _has_part_of(noted: set[str], path: str) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:length]) in noted for length in range(1, len(parts) + 1))

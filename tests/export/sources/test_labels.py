"""Labels: what the classes are called, read from a file or a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from export.errors import SourceError
from export.sources.labels import MAX_FILE_BYTES, expect_labels, read_labels


@pytest.mark.parametrize(
    "text",
    ["cat\ndog\nné\n", "cat\r\ndog\r\nné", "\ufeffcat \n dog\nné\n\n", json.dumps(["cat", "dog", "né"])],
)
def test_labels_are_lines_or_a_json_list(tmp_path: Path, text: str) -> None:
    """Ends of lines of any system, a byte order mark and blanks around names do not count."""
    path = tmp_path / "labels.txt"
    path.write_bytes(text.encode())
    assert read_labels(path) == ("cat", "dog", "né")


def test_labels_may_be_given_as_they_are() -> None:
    """A list needs no file."""
    assert read_labels(["no", "yes"]) == ("no", "yes")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "expected 2 names or more, got 0"),
        (b"one\n", "expected 2 names or more, got 1"),
        (b"cat\ndog\ncat\n", "expected distinct names, got 'cat' more than once"),
        (b"cat\n\ndog\n", "expected names, got ''"),
        (b"cat\n\xff\n", "expected UTF-8, got other bytes at 4"),
        (b'["cat", 3]', "expected names, got 3"),
        (b'["cat", ', "expected a JSON list of names, cannot read it"),
        (b"[" * 100_000, "expected a JSON list of names, cannot read it"),
    ],
)
def test_labels_that_make_no_sense_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """The file and what is wrong with it are said."""
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"^labels: .*labels.txt: {says}"):
        read_labels(path)


def test_a_file_that_is_not_there_or_too_large_is_said(tmp_path: Path) -> None:
    """Neither is read."""
    with pytest.raises(SourceError, match="absent: cannot be read"):
        read_labels(tmp_path / "absent")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(SourceError, match="expected a file of at most 16 MiB"):
        read_labels(tmp_path / "large")


def test_labels_are_counted_against_an_output() -> None:
    """As many names as columns, where both are known."""
    expect_labels(("a", "b"), 2, "logits")
    expect_labels(("a", "b"), "classes", "logits")
    expect_labels((), 10, "logits")
    with pytest.raises(SourceError, match="labels: expected 3 names, one per column of logits, got 2"):
        expect_labels(("a", "b"), 3, "logits")

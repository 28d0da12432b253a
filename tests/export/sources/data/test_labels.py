"""Class labels from a file or a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnpike.export.errors import SourceError
from turnpike.export.sources.data.labels import MAX_FILE_BYTES, expect_labels, read_labels


@pytest.mark.parametrize(
    "text",
    ["cat\ndog\nné\n", "cat\r\ndog\r\nné", "\ufeffcat \n dog\nné\n\n", json.dumps(["cat", "dog", "né"])],
)
def test_labels_are_lines_or_a_json_list(tmp_path: Path, text: str) -> None:
    """Line ends of any system, a byte order mark and spaces around names are ignored."""
    path = tmp_path / "labels.txt"
    path.write_bytes(text.encode())
    assert read_labels(path) == ("cat", "dog", "né")


def test_labels_may_be_a_list() -> None:
    assert read_labels(["no", "yes"]) == ("no", "yes")


@pytest.mark.parametrize(
    ("content", "message"),
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
def test_invalid_labels_are_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"^/.*labels.txt: {message}"):
        read_labels(path)


def test_a_missing_or_too_large_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="absent: cannot be read"):
        read_labels(tmp_path / "absent")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(SourceError, match="expected a file of at most 16 MiB"):
        read_labels(tmp_path / "large")


def test_there_is_one_label_per_column_of_the_output() -> None:
    """Checked only if both numbers are known."""
    expect_labels(("a", "b"), 2, "logits")
    expect_labels(("a", "b"), "classes", "logits")
    expect_labels((), 10, "logits")
    with pytest.raises(
        SourceError, match="^--labels or --data: expected 3 labels, one per column of logits, got"
    ):
        expect_labels(("a", "b"), 3, "logits")

"""Files of lines are cut at ends of lines only."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from turnpike.score.readers.text_parts import split_text


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_whole_records(tmp_path: Path, seed: int) -> None:
    """Put together they are the file, and each begins at its line."""
    generator = random.Random(seed)
    cells = ["1", "", 'a"b', "line\nbreak", "x,y", "é"]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=generator.choice(["\n", "\r\n"]))
    rows = [[generator.choice(cells) for _ in range(3)] for _ in range(200)]
    writer.writerows(rows)
    content = text.getvalue().encode()
    if seed % 2:
        content = content.rstrip()
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    parts = list(split_text(str(path), 0, 1, quotes=True, part_bytes=generator.choice([1, 50, 500])))
    assert len(parts) > 1
    assert b"".join(content[part.start : part.stop] for part in parts) == content
    read: list[list[str]] = []
    for part in parts:
        assert part.first_line == content[: part.start].count(b"\n") + 1
        read += csv.reader(io.StringIO(content[part.start : part.stop].decode(), newline=""))
    assert read == rows


def test_without_quotes_each_line_break_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'"\n"\n3\n')
    assert [(part.start, part.stop) for part in split_text(str(path), 0, 1, quotes=False, part_bytes=1)] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]

"""Writes measured figures into pages of the documentation, between comments that mark their place."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.errors import BenchmarkError
from turnpike.common.durable_files import replacing


def replace_block(page: Path, name: str, text: str) -> None:
    """Replace what is between `<!-- NAME -->` and `<!-- end of NAME -->`; the rest of the page stays."""
    content = page.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if content.count(start) != 1 or content.count(end) != 1 or content.index(start) > content.index(end):
        raise BenchmarkError(f"{page}: expected one line {start} and after it one {end}, found no such pair")
    block = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    new_content = block.sub(lambda _: f"{start}\n\n{text}\n\n{end}", content)
    if new_content != content:
        with replacing(page) as draft:
            draft.write_text(new_content, encoding="utf-8")

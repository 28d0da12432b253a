"""Parts of a document that are made from results: what stands between two marks is written anew."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.errors import BenchmarkError
from models.atomic import replacing


def rewrite(document: Path, name: str, text: str) -> None:
    """Put the text between `<!-- NAME -->` and `<!-- end of NAME -->`; the rest of the document stays."""
    old = document.read_text(encoding="utf-8")
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if old.count(first) != 1 or old.count(last) != 1 or old.index(first) > old.index(last):
        raise BenchmarkError(
            f"{document}: expected one line {first} and after it one {last}, found no such pair"
        )
    between = re.compile(f"{re.escape(first)}.*?{re.escape(last)}", re.DOTALL)
    new = between.sub(lambda _: f"{first}\n\n{text}\n\n{last}", old)
    if new != old:
        with replacing(document) as draft:
            draft.write_text(new, encoding="utf-8")

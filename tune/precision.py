"""The same model in fewer bits, made for the comparison alone."""

from __future__ import annotations

from pathlib import Path

from tune.child import Child, turnpike
from tune.errors import ExportError
from tune.interrupt import Check
from tune.model_under_test import Subject


def lowered(subject: Subject, source: str | None, precision: str, scratch: Path, check: Check) -> Path:
    """A repository with the model in this precision; an ExportError where that cannot be made."""
    repository = scratch / precision
    words = [source or str(subject.file), "--to", str(repository), "--name", subject.name]
    with Child(turnpike("export", *words, "--precision", precision), check) as child:
        if child.finish():
            hint = "" if source else "; --source names what the model was exported from"
            raise ExportError(f"{precision} was left out, as turnpike export says: {child.complaint}{hint}")
    return repository

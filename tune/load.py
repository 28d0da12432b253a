"""One load: users of a server in a process of its own, and the figures that it tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tune.child import Child, module
from tune.errors import ServeError
from tune.interrupt import Check
from tune.measurements import Figures

REPORT = "report.json"


def loaded(asked: Mapping[str, str | bool], folder: Path, check: Check) -> Figures:
    """Figures of users each of whom waits for an answer and asks again; `asked` are options of loadtest."""
    report = folder / REPORT
    report.unlink(missing_ok=True)
    with Child(module("tune.load_process", json.dumps(asked), str(report)), check) as child:
        if child.finish():
            raise ServeError(f"the load: {child.complaint}")
    return Figures.of(json.loads(report.read_text(encoding="utf-8")))
